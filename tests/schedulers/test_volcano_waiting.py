"""Why Volcano's gangs wait: the facts of their pods before the gang's words."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from gpuledger.model.vocabulary import BOTTLENECKS, PENDING_CAUSES, Blame
from schedulers.volcano.reasons import tell
from tests.schedulers.volcano_objects import (
    MADE,
    NOW,
    SHARED,
    Object,
    complaints,
    event,
    gpus,
    group,
    job,
    mapped,
    node,
    pod,
    queue,
    rows,
    says,
)

GPU = "nvidia.com/gpu"
GANG = "1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending, 1 minAvailable; Pending: 1 Undetermined"
NO_GPUS = "0/2 nodes are unavailable: 2 Insufficient nvidia.com/gpu."


def _problem(name: str) -> Any:
    file = SHARED / "problems" / name
    if not file.exists():
        pytest.skip("../shared/problems is not there")
    return json.loads(file.read_text(encoding="utf-8"))


def _gang_says(message: str, reason: str = "NotEnoughResources") -> list[Object]:
    return [
        {
            "type": "Unschedulable",
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": "2026-03-02T09:59:30Z",
        }
    ]


def _masked_claim() -> dict[str, Any]:
    missing = 'persistentvolumeclaim "data-x" not found'
    told = [{"type": "Warning", "reason": "FailedScheduling", "message": text} for text in (missing, GANG)]
    return {
        "job": "t1",
        "gpus_requested": 4,
        "free_gpus": 8,
        "pending_since": MADE,
        "now": "2026-03-02T10:00:00Z",
        "events": told,
    }


@pytest.mark.parametrize("source", ["ours", "090-pvc-masked-by-gang.json"])
def test_a_missing_claim_is_the_reason_whatever_the_gang_says_after_it(source: str) -> None:
    given = _masked_claim() if source == "ours" else _problem(source)
    waiting = says(
        pod("t1-0", "pg", job=given["job"], **gpus(given["gpus_requested"])), GANG, since=given["pending_since"]
    )
    told = [event(waiting, one["message"], one["reason"], n=n) for n, one in enumerate(given["events"])]
    gang = group("pg", phase="Inqueue", job="t1", minMember=1, conditions=_gang_says(GANG), minResources={GPU: "4"})
    snapshot = mapped(node("n1", given["free_gpus"]), queue("team-a"), gang, waiting, *told)
    wait, workload = rows(snapshot, "wait")["ml/t1"], rows(snapshot, "workload")["ml/t1"]
    assert (wait["cause"], PENDING_CAUSES[wait["cause"]]) == ("storage", Blame.USER)
    assert wait["message"] == 't1-0: persistentvolumeclaim "data-x" not found'
    assert (wait["reason"], wait["gpus"], wait["pods"]) == ("FailedScheduling", 4, 1)
    now = datetime.fromisoformat(given["now"])
    assert (now - wait["from_at"]).total_seconds() / 3600 == 2
    assert wait["cause"] not in BOTTLENECKS, "no GPU-shortage hours"
    assert (workload["status"], workload["pending_cause"]) == ("admitted", "storage")
    assert "data-x" in workload["pending_reason"]
    free = sum(row["free"] for row in snapshot.records["node_state"].to_pylist())
    assert free == 8


def _short_of_cpu() -> dict[str, Any]:
    return {
        "podgroup": {"minAvailable": 2, "phase": "Pending"},
        "free_gpus": 6,
        "tasks": [
            {"name": "task0", "gpus": 1, "message": "Pod default/t-0 can possibly be assigned to node1"},
            {"name": "task1", "gpus": 1, "message": "0/1 nodes are unavailable: 1 Insufficient cpu."},
        ],
    }


@pytest.mark.parametrize("source", ["ours", "091-gang-cpu-short.json"])
def test_a_gang_waits_for_what_its_one_unplaceable_task_lacks(source: str) -> None:
    given = _short_of_cpu() if source == "ours" else _problem(source)
    tasks = [says(pod(one["name"], "pg", **gpus(one["gpus"])), one["message"]) for one in given["tasks"]]
    minimum = given["podgroup"]["minAvailable"]
    gang = group("pg", phase=given["podgroup"]["phase"], minMember=minimum, minResources={GPU: "2"})
    snapshot = mapped(node("n1", given["free_gpus"]), queue("team-a"), gang, *tasks)
    wait, workload = rows(snapshot, "wait")["ml/train"], rows(snapshot, "workload")["ml/train"]
    assert wait["cause"] == "cpu_mem"
    assert (wait["pods"], workload["min_replicas"], workload["pod_count"]) == (1, 2, 2)
    assert wait["message"] == "task1: 0/1 nodes are unavailable: 1 Insufficient cpu."
    assert wait["cause"] not in BOTTLENECKS
    assert wait["gpus"] == 2
    assert workload["pending_reason"] == "Unschedulable: task1: 0/1 nodes are unavailable: 1 Insufficient cpu."
    assert workload["is_gang"]


def test_gpus_that_are_short_are_capacity_and_those_apart_are_fragments() -> None:
    waiting = says(pod("train-0", "pg", **gpus(8)), NO_GPUS)
    gang = group("pg", phase="Inqueue", minMember=1, minResources={GPU: "8"}, conditions=_gang_says(GANG))
    held = [pod("other-0", None, on="n1", job="other", **gpus(4))]
    apart = mapped(node("n1"), node("n2", 4), queue("team-a"), gang, waiting, *held)
    assert rows(apart, "wait")["ml/train"]["cause"] == "fragmentation"
    short = mapped(node("n1"), node("n2", 3), queue("team-a"), gang, waiting, *held)
    assert rows(short, "wait")["ml/train"]["cause"] == "capacity"


def test_more_than_any_node_has_and_nodes_that_are_broken_are_told_apart() -> None:
    gang = group("pg", phase="Inqueue", minMember=1, minResources={GPU: "8"})
    waiting = says(pod("train-0", "pg", **gpus(8)), NO_GPUS)
    small = mapped(node("n1", 4), node("n2", 4), queue("team-a"), gang, waiting)
    assert rows(small, "wait")["ml/train"]["cause"] == "exceeds_max"
    broken = node("n2")
    broken["status"]["conditions"][0]["status"] = "False"
    held = pod("other-0", None, on="n1", job="other", **gpus(4))
    mended = mapped(node("n1"), broken, queue("team-a"), gang, waiting, held)
    assert rows(mended, "wait")["ml/train"]["cause"] == "health"


def test_a_job_without_pods_is_known_before_it_is_let_in() -> None:
    full = "queue resource quota insufficient: insufficient nvidia.com/gpu"
    gang = group("pg", phase="Pending", minMember=2, minResources={GPU: "8"})
    told = {**event(gang, full, "Unschedulable"), "type": "Normal"}
    team = queue("team-a", capability={GPU: 8}, deserved={GPU: 8})
    snapshot = mapped(node("n1"), team, gang, job("train", 2, cpu="8", memory="64Gi", **gpus(4)), told)
    workload, wait = rows(snapshot, "workload")["ml/train"], rows(snapshot, "wait")["ml/train"]
    shape = {key: workload[key] for key in ("pod_count", "num_gpu", "cpu_milli", "memory_mib", "min_replicas")}
    assert shape == {"pod_count": 2, "num_gpu": 4, "cpu_milli": 8000, "memory_mib": 65_536, "min_replicas": 2}
    assert (workload["queue"], workload["status"], workload["kind"]) == ("team-a", "pending", "batch")
    assert (wait["cause"], wait["message"], wait["gpus"]) == ("quota", full, 8)
    assert wait["from_at"] == datetime.fromisoformat(MADE)
    kinds = {(row["kind"], row["ts"]) for row in snapshot.records["workload_event"].to_pylist()}
    assert kinds == {("submitted", datetime.fromisoformat(MADE))}


def test_the_id_of_a_job_is_the_same_before_and_after_it_has_pods() -> None:
    gang = group("pg", phase="Pending", minMember=1, minResources={GPU: "4"})
    before = mapped(node("n1"), queue("team-a"), gang, job("train", 1, **gpus(4)))
    inside = group("pg", phase="Inqueue", minMember=1, minResources={GPU: "4"})
    after = mapped(node("n1"), queue("team-a"), inside, job("train", 1, **gpus(4)), pod("p", "pg", **gpus(4)))
    assert set(rows(before, "workload")) == set(rows(after, "workload")) == {"ml/train"}


def test_what_is_over_the_capability_will_never_start() -> None:
    gang = group("pg", phase="Pending", minMember=2, minResources={GPU: "16"})
    snapshot = mapped(node("n1"), queue("team-a", capability={GPU: 8}), gang, job("train", 2, **gpus(8)))
    wait = rows(snapshot, "wait")["ml/train"]
    assert wait["cause"] == "exceeds_max"
    assert wait["message"] == "it wants at least 16 nvidia.com/gpu, the capability of queue team-a is 8"


def test_a_closed_queue_holds_and_a_missing_one_is_the_submitters() -> None:
    gang = group("pg", phase="Pending", minMember=1, minResources={GPU: "4"})
    work = job("train", 1, **gpus(4))
    closed = mapped(node("n1"), queue("team-a", state="Closed"), gang, work)
    assert rows(closed, "workload")["ml/train"]["status"] == "held"
    assert rows(closed, "wait")["ml/train"]["cause"] == "held"
    lost = mapped(node("n1"), queue("other"), gang, work)
    assert rows(lost, "wait")["ml/train"]["cause"] == "own_config"
    assert rows(lost, "workload")["ml/train"]["queue"] == ""


def test_a_reason_of_long_ago_does_not_count() -> None:
    waiting = says(pod("train-0", "pg", **gpus(8)), GANG)
    old = event(waiting, 'persistentvolumeclaim "data-x" not found', at="2026-03-02T09:00:00Z", n=0)
    new = event(waiting, NO_GPUS, at="2026-03-02T09:58:00Z", n=1)
    gang = group("pg", phase="Inqueue", minMember=1, minResources={GPU: "8"})
    held = pod("other-0", None, on="n1", job="other", **gpus(4))
    snapshot = mapped(node("n1"), queue("team-a"), gang, waiting, held, old, new)
    assert rows(snapshot, "wait")["ml/train"]["cause"] == "capacity"


def test_a_group_of_which_nothing_is_said_waits_for_the_scheduler() -> None:
    gang = group("pg", phase="Pending", minMember=1, minResources={GPU: "4"})
    snapshot = mapped(node("n1"), queue("team-a"), gang, pod("train-0", "pg", **gpus(4)))
    wait = rows(snapshot, "wait")["ml/train"]
    assert (wait["cause"], wait["from_at"]) == ("scheduler", NOW)
    assert rows(snapshot, "workload")["ml/train"]["pending_reason"]


def test_evictions_are_events_of_the_workload() -> None:
    gone = pod("train-0", "pg", **gpus(4))
    told = event(gone, "Pod is evicted, because of preempt", "Evict", at="2026-03-02T09:30:00Z")
    gang = group("pg", phase="Inqueue", minMember=1, minResources={GPU: "4"})
    snapshot = mapped(node("n1"), queue("team-a"), gang, gone, told)
    found = [row for row in snapshot.records["workload_event"].to_pylist() if row["kind"] == "preempted"]
    assert [(row["workload_id"], row["pod"], row["reason"]) for row in found] == [
        ("ml/train", "train-0", "Pod is evicted, because of preempt")
    ]
    assert rows(snapshot, "wait")["ml/train"]["cause"] == "scheduler", "an eviction is no reason to wait"


@pytest.mark.parametrize(
    ("phase", "kind"),
    [("Completed", "finished"), ("Failed", "failed"), ("Aborted", "cancelled"), ("Restarting", "requeued")],
)
def test_what_became_of_a_job_is_dated(phase: str, kind: str) -> None:
    work = job("train", 1, **gpus(4))
    work["status"]["state"] = {"phase": phase, "lastTransitionTime": "2026-03-02T09:45:00Z"}
    gang = group("pg", phase="Running", minMember=1)
    snapshot = mapped(node("n1"), queue("team-a"), gang, work, pod("p", "pg", on="n1", **gpus(4)))
    found = {row["kind"]: row["ts"] for row in snapshot.records["workload_event"].to_pylist()}
    assert found[kind] == datetime.fromisoformat("2026-03-02T09:45:00Z")


def test_a_group_that_makes_no_sense_costs_itself() -> None:
    bad = group("bad", phase="Pending", job="bad", minMember=1, minResources={GPU: "lots"})
    good = group("pg", phase="Pending", minMember=1, minResources={GPU: "4"})
    snapshot = mapped(node("n1"), queue("team-a"), bad, good, job("train", 1, **gpus(4)))
    assert set(rows(snapshot, "workload")) == {"ml/train"}
    assert complaints(snapshot, "unreadable_object")[0][0] == "ml/bad"


NODES = "0/5 nodes are unavailable: "
NEW = "something new"


@pytest.mark.parametrize(
    ("reason", "message", "cause"),
    [
        ("NotEnoughResources", GANG, "gang"),
        ("NotEnoughTasks", "Not enough valid tasks for gang-scheduling, valid: 1, min: 2", "gang"),
        ("Unschedulable", "queue resource quota insufficient: insufficient nvidia.com/gpu", "quota"),
        (
            "Unschedulable",
            "all nodes are unavailable: 1 node(s) pod number exceeded, 2 node(s) resource fit failed.",
            "capacity",
        ),
        ("Unschedulable", f"{GANG}. Origin reason is train-6: {NO_GPUS}", "capacity"),
        ("Unschedulable", f"{NODES}1 Insufficient cpu, 4 Insufficient nvidia.com/gpu.", "cpu_mem"),
        ("Unschedulable", f"{NODES}5 Insufficient cpu, 5 Insufficient nvidia.com/gpu.", "capacity"),
        (
            "Unschedulable",
            f"{NODES}1 node(s) had untolerated taint {{a: }}, 4 Insufficient nvidia.com/gpu.",
            "capacity",
        ),
        ("Unschedulable", f"{NODES}5 node(s) didn't match Pod's node affinity/selector.", "placement"),
        (
            "Unschedulable",
            f"{NODES}1 node(s) were unschedulable, 4 node(s) had untolerated taint {{gpu: no}}.",
            "health",
        ),
        ("Unschedulable", f"{NODES}5 Insufficient volcano.sh/vgpu-memory.", "gpu_memory"),
        (
            "Unschedulable",
            f"{NODES}1 node(s) had volume node affinity conflict, 4 Insufficient nvidia.com/gpu.",
            "storage",
        ),
        ("SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates", "held"),
        ("Unschedulable", NEW, "unknown"),
    ],
)
def test_words_mean_causes(reason: str, message: str, cause: str) -> None:
    told = tell(reason, message, "p")
    assert (told.cause, told.reason, told.message, told.subject) == (cause, reason, message, "p")
