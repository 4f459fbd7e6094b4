"""KAI's work: parts of cards, the pods that reserve them, and why groups wait."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from schedulers.kai.reasons import tell
from tests.schedulers.kai_objects import GPU, group, mapped, node, pod, queue, reservation, unschedulable
from tests.schedulers.volcano_objects import NOW, Object, complaints, event, gpus, rows, says

OPEN = queue("team", {"quota": 8, "limit": -1})
NO_GPUS = "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs."
GANG = "Resources were found for 2 pods while 3 are required for gang scheduling. Additional pods cannot be scheduled "


def _part(name: str, fraction: str = "0.5", *, on: str | None = "n1", card: str = "card-1", **more: str) -> Object:
    return pod(
        name,
        name,
        on=on,
        labels={"runai-gpu-group": card} if on else {},
        annotations={"gpu-fraction": fraction, **more},
    )


def test_parts_of_a_card_are_counted_once() -> None:
    groups = [group("a"), group("b")]
    snapshot = mapped(
        node("n1"), OPEN, *groups, _part("a"), _part("b", "0.25"), reservation("gpu-reservation-1", "n1", "card-1")
    )
    states = snapshot.records["node_state"].to_pylist()
    assert [(row["resource"], row["allocated"], row["free"]) for row in states] == [("nvidia_com_gpu", 1, 7)]
    assert rows(snapshot, "queue_state")["team"]["running_gpus"] == 0.75
    workloads = rows(snapshot, "workload")
    assert {name: (row["num_gpu"], row["gpu_milli"]) for name, row in workloads.items()} == {
        "ml/a": (1, 500),
        "ml/b": (1, 250),
    }
    pods = {row["pod"]: (row["resource"], row["gpu_count"], row["workload_id"]) for row in _pods(snapshot)}
    assert pods == {
        "a": ("nvidia_com_gpu_shared", 1, "ml/a"),
        "b": ("nvidia_com_gpu_shared", 1, "ml/b"),
        "gpu-reservation-1": ("nvidia_com_gpu", 1, None),
    }, "two share the card: the pod that reserves it is nobody's"
    assert {row["workload_id"] for row in snapshot.records["workload_event"].to_pylist()} == {"ml/a", "ml/b"}


def _pods(snapshot: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = snapshot.records["pod"].to_pylist()
    return found


def test_a_reservation_is_its_one_sharers() -> None:
    snapshot = mapped(node("n1"), OPEN, group("a"), _part("a"), reservation("gpu-reservation-1", "n1", "card-1"))
    pods = {row["pod"]: row["workload_id"] for row in _pods(snapshot)}
    assert pods == {"a": "ml/a", "gpu-reservation-1": "ml/a"}
    assert set(rows(snapshot, "workload")) == {"ml/a"}


def test_parts_of_several_cards_and_of_their_memory() -> None:
    cards = node("n1", 8, {"nvidia.com/gpu.memory": "40960"})
    several = pod("m", "m", on="n1", annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "3"})
    several["metadata"]["labels"] |= {f"runai-gpu-group/card-{n}": f"card-{n}" for n in range(3)}
    memory = pod("q", "q", on="n1", annotations={"gpu-memory": "10240"})
    held = [reservation(f"r{n}", "n1", f"card-{n}") for n in range(3)]
    snapshot = mapped(cards, OPEN, group("m"), group("q"), several, memory, *held)
    assert rows(snapshot, "queue_state")["team"]["running_gpus"] == 1.5 + 0.25
    workloads = rows(snapshot, "workload")
    assert (workloads["ml/m"]["num_gpu"], workloads["ml/m"]["gpu_milli"]) == (3, 500)
    assert workloads["ml/q"]["gpu_milli"] == 250
    assert {row["workload_id"] for row in _pods(snapshot) if row["pod"].startswith("r")} == {"ml/m"}


def test_memory_of_a_card_of_unknown_size_is_not_told_in_cards() -> None:
    memory = pod("q", "q", on="n1", annotations={"gpu-memory": "10240"})
    snapshot = mapped(node("n1"), OPEN, group("q"), memory)
    assert rows(snapshot, "queue_state") == {}
    words = "1 pods hold parts that cannot be told in cards"
    assert complaints(snapshot, "unparsed_allocation") == [("team", words, 1)]


@pytest.mark.parametrize("wrong", ["half", "0", "-0.5", "1.5", "nan"])
def test_a_part_that_makes_no_sense_costs_its_pod(wrong: str) -> None:
    snapshot = mapped(node("n1"), OPEN, group("a"), group("b"), _part("a", wrong, on=None), _part("b", on=None))
    assert set(rows(snapshot, "workload")) == {"ml/b"}
    assert complaints(snapshot, "unreadable_object")[0][0] == "ml/a"
    assert rows(snapshot, "queue_state")["team"]["pending_gpus"] == 0.5


def test_an_annotation_of_a_pod_that_is_not_of_kai_means_nothing() -> None:
    other = pod("a", None, on="n1", annotations={"gpu-memory": "none of yours"})
    del other["metadata"]["labels"]["kai.scheduler/queue"]
    snapshot = mapped(node("n1"), OPEN, other)
    assert rows(snapshot, "workload") == {}
    assert complaints(snapshot, "unreadable_object") == []


def _reason(reason: str, message: str, **details: Any) -> Object:
    told = {"details": {"queueDetails": {"name": "team", **details}}} if details else {}
    return {"reason": reason, "message": message, **told}


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        (
            _reason(
                "OverLimit",
                "Limit is 8 GPUs, currently 6 GPUs allocated and workload requested 4 GPUs",
                podGroupRequestedResources={GPU: 4},
                queueResourceLimits={GPU: 8},
            ),
            "quota",
        ),
        (
            _reason(
                "OverLimit",
                "Limit is 8 GPUs, currently 0 GPUs allocated and workload requested 16 GPUs",
                podGroupRequestedResources={GPU: "16"},
                queueResourceLimits={GPU: "8"},
            ),
            "exceeds_max",
        ),
        (
            _reason(
                "NonPreemptibleOverQuota",
                "Workload requested 4 GPUs, but team quota is 0 GPUs",
                podGroupRequestedNonPreemptibleResources={GPU: 4},
                queueDeservedResources={GPU: 0},
            ),
            "exceeds_max",
        ),
        (
            _reason(
                "OverLimit",
                "unlimited here",
                podGroupRequestedResources={GPU: 4},
                queueResourceLimits={GPU: -1},
            ),
            "quota",
        ),
        (_reason("QueueDoesNotExist", "Queue team does not exist"), "own_config"),
        (_reason("PreemptionDelayNotElapsed", "Workload is within its preemption delay window"), "preempt_wait"),
        (_reason("PodSchedulingErrors", f"{GANG}due to: {NO_GPUS}"), "capacity"),
    ],
)
def test_a_group_waits_for_what_its_condition_says(reason: Object, cause: str) -> None:
    since = "2026-03-02T09:00:00Z"
    waiting = group(conditions=[unschedulable(reason, since=since)])
    snapshot = mapped(node("n1", 2), OPEN, waiting, pod("p", **gpus(4)))
    wait, workload = rows(snapshot, "wait")["ml/p"], rows(snapshot, "workload")["ml/p"]
    assert (wait["cause"], wait["reason"], wait["message"]) == (cause, reason["reason"], reason["message"])
    assert (wait["gpus"], wait["pods"], wait["from_at"]) == (4, 1, datetime.fromisoformat(since))
    assert (workload["status"], workload["pending_cause"], workload["queue"]) == ("pending", cause, "team")


def test_the_older_form_of_a_condition_is_read_too() -> None:
    old = unschedulable(message=f"PodSchedulingErrors: {GANG}due to: {NO_GPUS}")
    pods = [pod(f"p{n}", **gpus(1)) for n in (0, 1)]
    snapshot = mapped(node("n1", 2), OPEN, group(conditions=[old], minMember=3), *pods)
    assert {row["cause"] for row in rows(snapshot, "wait").values()} == {"capacity"}
    assert {row["reason"] for row in rows(snapshot, "wait").values()} == {"Unschedulable"}


def test_the_most_specific_of_group_and_pods_counts() -> None:
    waiting = says(pod("p", **gpus(1)), NO_GPUS)
    missing = event(waiting, 'persistentvolumeclaim "data" not found')
    told = group(conditions=[unschedulable(_reason("PodSchedulingErrors", NO_GPUS))])
    snapshot = mapped(node("n1"), OPEN, told, waiting, missing)
    assert rows(snapshot, "wait")["ml/p"]["cause"] == "storage"


def test_a_queue_that_is_not_there_is_said_even_where_kai_says_nothing() -> None:
    snapshot = mapped(node("n1"), OPEN, group(asks="gone"), pod("p", **gpus(1)))
    wait = rows(snapshot, "wait")["ml/p"]
    assert (wait["cause"], wait["message"], wait["from_at"]) == ("own_config", "queue gone is not there", NOW)
    assert rows(snapshot, "workload")["ml/p"]["queue"] == ""


def test_a_group_that_runs_does_not_wait_for_more() -> None:
    placed = [pod(f"p{n}", on="n1", labels={"training.kubeflow.org/job-name": "t"}, **gpus(1)) for n in (0, 1)]
    more = pod("p2", labels={"training.kubeflow.org/job-name": "t"}, **gpus(1))
    snapshot = mapped(node("n1"), OPEN, group(minMember=2), *placed, more)
    workload = rows(snapshot, "workload")["ml/t"]
    assert (workload["status"], workload["min_replicas"], workload["is_gang"]) == ("running", 2, True)
    state = rows(snapshot, "queue_state")["team"]
    assert (state["running_gpus"], state["pending_gpus"]) == (2, 1)


def test_a_group_that_makes_no_sense_costs_itself() -> None:
    bad = group("bad", conditions=[unschedulable(_reason("OverLimit", "x"), since="yesterday")])
    pods = [pod("p", "bad", **gpus(1)), pod("q", "good", **gpus(1))]
    snapshot = mapped(node("n1"), OPEN, bad, group("good"), *pods)
    assert complaints(snapshot, "unreadable_object")[0][0] == "ml/bad"
    assert rows(snapshot, "workload")["ml/q"]["queue"] == "team"


def test_nodes_stand_where_the_topology_says() -> None:
    labels = {"cloud.provider.com/topology-block": "b1", "cloud.provider.com/topology-rack": "r7"}
    levels = [{"nodeLabel": name} for name in labels]
    topology = {
        "apiVersion": "kai.scheduler/v1alpha1",
        "kind": "Topology",
        "metadata": {"name": "net"},
        "spec": {"levels": levels},
    }
    snapshot = mapped(node("n1", 8, labels), OPEN, topology)
    stands = snapshot.records["node_state"].to_pylist()[0]["topology"]
    assert '"net/cloud.provider.com/topology-block": "b1"' in stands
    assert '"net/cloud.provider.com/topology-rack": "r7"' in stands


NONE = "no nodes with enough resources were found: "
LACK = "node(s) didn't have enough resources"


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("Unschedulable", NO_GPUS, "capacity"),
        ("Unschedulable", f"{NONE}2 node(s) had untolerated taint(s). \n5 {LACK}: GPUs.", "capacity"),
        ("Unschedulable", f"{NONE}3 {LACK}: GPU memory.", "gpu_memory"),
        ("Unschedulable", f"{NONE}3 {LACK}: CPU cores.", "cpu_mem"),
        ("Unschedulable", f"{NONE}1 node(s) didn't match Pod's node affinity/selector.", "placement"),
        ("Not enough resources for the workload", "node-group(s) didn't have enough resources: GPUs", "capacity"),
        ("Not enough resources for the workload", "node-group(s) didn't have enough resources: CPU cores", "cpu_mem"),
        ("PodSchedulingErrors", "No relevant domains found for workload in topology tree: net", "topology"),
        ("Unschedulable", "something new", "unknown"),
    ],
)
def test_words_mean_causes(reason: str, message: str, cause: str) -> None:
    assert tell(reason, message).cause == cause


def test_a_gang_waits_for_what_keeps_its_launcher_without_gpus() -> None:
    launcher = says(pod("launcher", cpu="100"), "0/1 nodes are available: 1 Insufficient cpu.")
    (row,) = (
        mapped(node("n1"), queue("team", {"quota": 4, "limit": -1}), group(minMember=2), launcher, pod("w", **gpus(1)))
        .records["wait"]
        .to_pylist()
    )
    assert (row["workload_id"], row["cause"], row["gpus"]) == ("ml/w", "cpu_mem", 1.0)
    assert row["message"].startswith("launcher: ")


def test_each_workload_of_a_group_has_the_part_that_its_own_pods_ask_for() -> None:
    pods = [pod(name, on="n1", annotations={"gpu-fraction": part}) for name, part in (("a", "0.5"), ("b", "0.25"))]
    found = mapped(node("n1"), queue("team", {"quota": 4, "limit": -1}), group(minMember=2), *pods)
    assert {row["name"]: row["gpu_milli"] for row in found.records["workload"].to_pylist()} == {"a": 500, "b": 250}
