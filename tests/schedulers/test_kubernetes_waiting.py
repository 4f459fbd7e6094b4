"""Why pods wait: one cause from what gates, conditions and events say, and from what is free."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuledger.model import PENDING_CAUSES, Blame
from schedulers.kubernetes.words import verdicts
from tests.schedulers.kubernetes_objects import EIGHT, NOW, by, event, mapped, node, pod

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"
AT_EIGHT = datetime(2026, 3, 2, 8, tzinfo=UTC)


def _problem(name: str) -> Any:
    path = PROBLEMS / name
    if not path.exists():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    return json.loads(path.read_text(encoding="utf-8"))


def _wait(*pods: dict[str, Any], nodes: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Any]:
    """The one wait of these pods."""
    snapshot = mapped(nodes=nodes or [], pods=list(pods), **more)
    (row,) = snapshot.records["wait"].to_pylist()
    return dict(row)


GONE = "node(s) had untolerated taint {node.kubernetes.io/unreachable: }"
PREEMPTION = (
    "preemption: 0/3 nodes are available: 1 No preemption victims found for incoming pod, "
    "2 Preemption is not helpful for scheduling."
)
TAINT = "node(s) had untolerated taint {example.com/pool: batch}"


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", "capacity"),
        ("0/3 nodes are available: 3 Insufficient cpu.", "cpu_mem"),
        ("0/3 nodes are available: 3 Insufficient memory, 3 Insufficient cpu.", "cpu_mem"),
        ("0/3 nodes are available: 3 Too many pods.", "cpu_mem"),
        ("0/3 nodes are available: 3 Insufficient rdma/hca_shared_devices_a.", "cpu_mem"),
        ("0/3 nodes are available: 3 Insufficient vpc.amazonaws.com/efa.", "cpu_mem"),
        ("0/3 nodes are available: 3 Insufficient huawei.com/Ascend910.", "capacity"),
        (f"0/3 nodes are available: 3 {TAINT}.", "placement"),
        (f"0/3 nodes are available: 3 {GONE}.", "health"),
        ("0/3 nodes are available: 3 node(s) were unschedulable.", "health"),
        ("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.", "placement"),
        ("0/3 nodes are available: 3 node(s) didn't match pod anti-affinity rules.", "placement"),
        ("0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.", "topology"),
        ("0/3 nodes are available: 3 node(s) had volume node affinity conflict.", "storage"),
        ("0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.", "storage"),
        ('0/3 nodes are available: persistentvolumeclaim "data-x" not found.', "storage"),
        ('persistentvolumeclaim "data-x" not found', "storage"),
        ("0/3 nodes are available: 3 cannot allocate all claims.", "capacity"),
        ('resourceclaim "train-gpu" not found', "own_config"),
        (f"0/3 nodes are available: 2 {TAINT}, 1 Insufficient nvidia.com/gpu. {PREEMPTION}", "capacity"),
        ("0/1 nodes are available: 1 CardInsufficientMemory.", "gpu_memory"),
        ("0/1 nodes are available: 1 CardTypeMismatch.", "placement"),
        ("something that nobody has said before", "unknown"),
    ],
)
def test_the_schedulers_words_mean_a_cause(message: str, cause: str) -> None:
    # No node is known here, so that the words alone decide.
    row = _wait(pod("p", message=message))
    assert (row["cause"], row["reason"], row["message"]) == (cause, "Unschedulable", message)
    assert (row["from_at"], row["gpus"], row["pods"]) == (AT_EIGHT, 1.0, 1)


def test_a_message_is_taken_apart_and_braces_hold_together() -> None:
    told = verdicts("Unschedulable", f"0/6 nodes are available: 1 {TAINT}, 2 {GONE}, 3 Insufficient nvidia.com/gpu.")
    assert [(one.nodes, one.told.cause) for one in told] == [(1, "placement"), (2, "health"), (3, "capacity")]


SHORT = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu."


@pytest.mark.parametrize(
    ("nodes", "held", "cause", "words"),
    [
        # Asked for: 8 GPUs on one node.
        ([node("n1", 8), node("n2", 8)], {"n1": 8, "n2": 8}, "capacity", SHORT),
        ([node("n1", 8), node("n2", 8)], {"n1": 4, "n2": 4}, "fragmentation", "8 are free, at most 4 on a node"),
        ([node("n1", 8), node("n2", 8)], {"n1": 4, "n2": 5}, "capacity", SHORT),
        ([node("n1", 4), node("n2", 4)], {}, "exceeds_max", "more than any node has (8 > 4)"),
        ([node("n1", 8), node("n2", 8, ready="Unknown")], {"n1": 8}, "health", "would fit if broken"),
        ([node("n1", 8), node("n2", 8, cordoned=True)], {"n1": 1}, "health", "would fit if broken"),
        ([node("n1", 8), node("n2", 8, allocatable=7)], {"n1": 8}, "health", "would fit if broken"),
    ],
)
def test_too_few_gpus_are_gone_scattered_broken_or_never_there(
    nodes: list[dict[str, Any]], held: dict[str, int], cause: str, words: str
) -> None:
    others = [pod(f"on-{name}", count, on=name) for name, count in held.items()]
    row = _wait(pod("p", 8, message=SHORT), *others, nodes=nodes)
    assert row["cause"] == cause
    assert words in row["message"]
    assert row["message"].startswith(SHORT)
    assert row["gpus"] == 8.0


def test_gpus_that_are_free_are_not_short_when_cpu_or_a_taint_is_in_the_way() -> None:
    nodes = [node("n1", 8), node("n2", 8)]
    full = pod("full", 8, on="n1")
    cpu = pod("p", 4, message="0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 Insufficient cpu.")
    assert _wait(cpu, full, nodes=nodes)["cause"] == "cpu_mem"
    taint = pod("p", 4, message=f"0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 {TAINT}.")
    assert _wait(taint, full, nodes=nodes)["cause"] == "placement"


GANG = "1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending, 1 minAvailable; Pending: 1 Undetermined"


def test_a_missing_volume_is_the_reason_whatever_the_gang_says_last() -> None:
    """A twin of problem 090."""
    events = [event("t1", 'persistentvolumeclaim "data-x" not found'), event("t1", GANG, name="t1.2")]
    row = _wait(pod("t1", 4, message=GANG), nodes=[node("n1")], events=events)
    assert (row["cause"], row["from_at"], row["gpus"]) == ("storage", AT_EIGHT, 4.0)
    assert row["message"] == 'persistentvolumeclaim "data-x" not found'
    assert PENDING_CAUSES[row["cause"]] is Blame.USER
    only_gang = _wait(pod("t1", 4, message=GANG), nodes=[node("n1")])
    assert only_gang["cause"] == "gang"


def test_090_the_volume_is_the_reason() -> None:
    given = _problem("090-pvc-masked-by-gang.json")
    events = [
        event(given["job"], one["message"], one["reason"], name=f"e{number}")
        for number, one in enumerate(given["events"])
    ]
    waiting = pod(given["job"], given["gpus_requested"], message=given["events"][-1]["message"])
    row = _wait(waiting, nodes=[node("n1", given["free_gpus"])], events=events)
    assert row["cause"] == "storage"
    assert PENDING_CAUSES[row["cause"]] is Blame.USER
    assert (NOW - row["from_at"]).total_seconds() == 2 * 3600


def test_what_was_said_long_before_the_newest_event_is_over() -> None:
    events = [
        event("p", 'persistentvolumeclaim "data-x" not found', lastTimestamp="2026-03-02T08:00:00Z"),
        event("p", SHORT, name="p.2", lastTimestamp="2026-03-02T09:00:00Z"),
    ]
    assert _wait(pod("p", 8, message=SHORT), events=events)["cause"] == "capacity"
    events[0]["lastTimestamp"] = "2026-03-02T08:55:00Z"
    assert _wait(pod("p", 8, message=SHORT), events=events)["cause"] == "storage"


@pytest.mark.parametrize(
    ("gate", "cause", "status"),
    [
        ("kueue.x-k8s.io/admission", "quota", "pending"),
        ("kueue.x-k8s.io/topology", "topology", "pending"),
        ("example.com/wait", "held", "held"),
    ],
)
def test_a_gate_holds_a_pod_until_its_owner_lifts_it(gate: str, cause: str, status: str) -> None:
    gated = pod(
        "p", spec={"schedulingGates": [{"name": gate}]}, reason="SchedulingGated", message="Scheduling is blocked"
    )
    snapshot = mapped(pods=[gated])
    row = by(snapshot, "workload", "workload_id")["team-a/p"]
    assert (row["status"], row["pending_cause"], row["eligible_at"]) == (status, cause, None)
    assert row["pending_reason"] == f"SchedulingGated: {gate}"


def test_a_pod_that_was_promised_a_node_waits_for_those_that_it_preempts() -> None:
    promised = pod("p", 8, message=SHORT, status={"nominatedNodeName": "n1"})
    assert _wait(promised, nodes=[node("n1")])["cause"] == "preempt_wait"


def test_a_pod_that_no_scheduler_looked_at_says_so() -> None:
    assert _wait(pod("p"))["cause"] == "scheduler"


def _starting(reason: str, message: str = "") -> dict[str, Any]:
    state = {"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}
    return pod("p", on="n1", phase="Pending", status={"containerStatuses": [state]})


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("ContainerCreating", "startup"),
        ("PodInitializing", "startup"),
        ("SomethingNew", "startup"),
        ("ImagePullBackOff", "own_config"),
        ("CreateContainerConfigError", "own_config"),
    ],
)
def test_a_pod_with_a_node_waits_for_its_containers(reason: str, cause: str) -> None:
    snapshot = mapped(nodes=[node("n1")], pods=[_starting(reason)])
    row = by(snapshot, "workload", "workload_id")["team-a/p"]
    assert (row["status"], row["pending_cause"]) == ("admitted", cause)


def test_a_volume_that_cannot_be_mounted_keeps_a_pod_from_starting() -> None:
    mount = event("p", 'MountVolume.SetUp failed for volume "data"', reason="FailedMount")
    row = _wait(_starting("ContainerCreating"), nodes=[node("n1")], events=[mount])
    assert (row["cause"], row["reason"]) == ("storage", "FailedMount")


def test_a_workload_with_a_pod_that_runs_does_not_wait() -> None:
    labels = {"batch.kubernetes.io/job-name": "train"}
    pods = [pod("a", 1, on="n1", labels=labels), pod("b", 1, labels=labels, message=SHORT)]
    snapshot = mapped(nodes=[node("n1")], pods=pods)
    assert snapshot.records["wait"].num_rows == 0
    assert by(snapshot, "workload", "workload_id")["team-a/train"]["status"] == "running"


def test_of_a_workload_all_waiting_pods_are_counted_and_the_most_specific_reason_shows() -> None:
    labels = {"batch.kubernetes.io/job-name": "train"}
    pods = [
        pod("a", 2, labels=labels, message=SHORT),
        pod("b", 2, labels=labels, message='persistentvolumeclaim "data" not found'),
    ]
    row = _wait(*pods, nodes=[node("n1", 1)])
    assert (row["cause"], row["gpus"], row["pods"]) == ("storage", 4.0, 2)


REGISTER = [{"id": "GPU-1", "count": 10, "devmem": 24576, "devcore": 100, "type": "NVIDIA A10", "health": True}]
UNFIT = "0/1 nodes are available: 1 node(s) did not fit the device request."


def _hami(running: int, *, gpus: int = 1, memory_mib: int = 3000) -> dict[str, Any] | None:
    """The wait of one more pod beside `running` others on a node with one card; None where there is room for it."""
    shared = node("n1", 10, annotations={"hami.io/node-nvidia-register": json.dumps(REGISTER)})
    requests = {"nvidia.com/gpumem": str(memory_mib)}
    note = {"hami.io/vgpu-devices-allocated": f"GPU-1,NVIDIA,{memory_mib},0:;"}
    others = [pod(f"p{n}", requests=requests, on="n1", annotations=note) for n in range(running)]
    one_more = pod("late", gpus, requests=requests, message=UNFIT)
    (row,) = mapped(nodes=[shared], pods=[*others, one_more]).records["wait"].to_pylist()
    return None if row["cause"] == "unknown" else dict(row)


def test_shares_of_a_card_that_are_free_do_not_help_without_memory() -> None:
    """A twin of problem 097: eight of nine fit, 27000 of 24576 MiB do not."""
    row = _hami(8)
    assert row is not None
    assert row["cause"] == "gpu_memory"
    assert row["message"] == f"{UNFIT} [GPU memory (27000 > 24576 MiB)]"
    assert row["gpus"] == pytest.approx(3000 / 24576)
    assert _hami(6) is None
    full = _hami(10, memory_mib=1000)
    assert full is not None
    assert full["cause"] == "capacity"


@pytest.mark.parametrize("gpus", [7, 9])
def test_a_pod_that_wants_more_cards_than_the_node_has_never_starts(gpus: int) -> None:
    row = _hami(0, gpus=gpus)
    assert row is not None
    assert row["cause"] == "exceeds_max"
    assert f"more cards than the node has ({gpus} > 1)" in row["message"]


def test_097_memory_is_the_reason_and_not_slots() -> None:
    given = _problem("097-hami-memory-bound.json")
    assert (given["card_mib"], given["slots"]) == (REGISTER[0]["devmem"], REGISTER[0]["count"])
    nine, seven = given["requests"]
    row = _hami(nine["pods"] - 1, gpus=nine["gpu"], memory_mib=nine["gpumem"])
    assert row is not None
    assert row["cause"] == "gpu_memory"
    assert _hami(seven["pods"] - 1, gpus=seven["gpu"], memory_mib=seven["gpumem"]) is None


def _disrupted(reason: str) -> dict[str, Any]:
    told = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "lastTransitionTime": "2026-03-02T09:30:00Z",
    }
    over = {"conditions": [told]}
    return pod("p", on="n1", phase="Failed", status=over)


@pytest.mark.parametrize(
    ("reason", "kind", "status"),
    [("PreemptionByScheduler", "preempted", "preempted"), ("EvictionByEvictionAPI", "evicted", "failed")],
)
def test_who_had_to_make_room_says_when(reason: str, kind: str, status: str) -> None:
    snapshot = mapped(nodes=[node("n1")], pods=[_disrupted(reason)])
    events = by(snapshot, "workload_event", "kind")
    assert events[kind]["ts"] == datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
    assert (events[kind]["pod"], events[kind]["reason"]) == ("p", reason)
    assert by(snapshot, "workload", "workload_id")["team-a/p"]["status"] == status
    assert events["submitted"]["ts"] == AT_EIGHT


def _group(**condition: str) -> dict[str, Any]:
    found = {"type": "PodGroupInitiallyScheduled", "status": "False", "lastTransitionTime": EIGHT, **condition}
    return {
        "metadata": {"name": "g", "namespace": "team-a"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
        "status": {"conditions": [found]},
    }


def test_a_group_of_pods_is_a_gang_and_says_less_than_its_pods() -> None:
    labels = {"batch.kubernetes.io/job-name": "train"}
    pods = [
        pod(f"p{n}", 8, labels=labels, spec={"schedulingGroup": {"podGroupName": "g"}}, message=SHORT) for n in range(2)
    ]
    group = _group(reason="Unschedulable", message="2 of 4 pods can be placed")
    snapshot = mapped(nodes=[node("n1", 4)], pods=pods, podgroups_scheduling_k8s_io=[group])
    row = by(snapshot, "workload", "workload_id")["team-a/train"]
    assert (row["is_gang"], row["min_replicas"], row["pod_count"]) == (True, 4, 4)
    assert row["pending_cause"] == "exceeds_max"


def test_a_group_that_waits_for_its_members_says_so() -> None:
    member = pod("p0", 1, spec={"schedulingGroup": {"podGroupName": "g"}})
    group = _group(reason="Unschedulable", message="waiting for 3 more pods")
    snapshot = mapped(nodes=[node("n1")], pods=[member], podgroups_scheduling_k8s_io=[group])
    row = by(snapshot, "workload", "workload_id")["team-a/p0"]
    assert (row["pending_cause"], row["pending_reason"]) == ("gang", "Unschedulable: waiting for 3 more pods")


def test_a_resource_that_counts_gpus_here_alone_is_short_as_gpus_are() -> None:
    card = "example.com/fast"
    words = f"0/1 nodes are available: 1 Insufficient {card}."
    waits = pod("p", 0, requests={card: "4"}, message=words)
    held = pod("q", 0, requests={card: "8"}, on="n1")
    options = {"gpu_resources": [card]}
    snapshot = mapped(nodes=[node("n1", 8, resource=card)], pods=[waits, held], options=options)
    assert by(snapshot, "wait", "workload_id")["team-a/p"]["cause"] == "capacity"
