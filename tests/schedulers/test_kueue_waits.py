"""Why Kueue's workloads wait, whose they are, and what happened to them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gpuledger.model import BOTTLENECKS
from schedulers.kueue.kinds import POSITIONS
from schedulers.kueue.reasons import told_by
from tests.schedulers.kueue_objects import (
    GPU,
    GROUP,
    QUEUES,
    Object,
    admission,
    at,
    beside_queues,
    cluster_queue,
    false,
    flavor,
    local_queue,
    moment,
    only,
    owner,
    pod_set,
    quota,
    read,
    rows,
    then,
    true,
    workload,
)

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"

NO_FLAVOR = "couldn't assign flavors to pod set main: "
MESSAGES = [
    ("Pending", NO_FLAVOR + "untolerated taint {gpu true NoSchedule <nil>} in flavor a100", "placement"),
    ("Pending", NO_FLAVOR + "flavor a100 doesn't match node affinity", "placement"),
    ("Pending", NO_FLAVOR + f"insufficient unused quota for {GPU} in flavor h100, 8 more needed", "quota"),
    ("Pending", NO_FLAVOR + f"borrowing limit for {GPU} in flavor h100 exceeded", "quota"),
    ("Pending", NO_FLAVOR + f"insufficient quota for {GPU} in flavor h100, request > maximum capacity (64 > 32)",
     "exceeds_max"),
    ("Pending", NO_FLAVOR + f"insufficient quota for {GPU} in flavor h100, previously considered podsets requests (0) "
     "+ current podset request (64) > maximum capacity (32)", "exceeds_max"),
    ("Pending", NO_FLAVOR + 'topology "block" doesn\'t allow to fit any of 16 pod(s). Total nodes: 2; excluded: '
     'resource "cpu": 2', "topology"),
    ("Pending", NO_FLAVOR + 'topology "block" allows to fit only 3 out of 16 pod(s)', "topology"),
    ("Pending", NO_FLAVOR + f"insufficient unused quota for {GPU} in flavor h100, 8 more needed. Pending the "
     "preemption of 2 workload(s)", "preempt_wait"),
    ("Pending", "Workload no longer fits after processing another workload", "priority"),
    ("Pending", "Preempted to accommodate a workload (UID: u, JobUID: j) due to prioritization", "priority"),
    ("Pending", "Exceeded the PodsReady timeout team-a/w", "startup"),
    ("Pending", "", "scheduler"),
    ("Pending", "words of a later release", "unknown"),
    ("Inadmissible", "LocalQueue gpus doesn't exist", "own_config"),
    ("Inadmissible", "Workload namespace doesn't match ClusterQueue selector", "own_config"),
    ("Inadmissible", "ClusterQueue gpus is inactive", "scheduler"),
    ("Inadmissible", "ClusterQueue gpus is stopped", "held"),
    ("Misconfigured", "LocalQueue gpus is terminating or missing", "own_config"),
    ("NoMatchingFlavor", "whatever it says", "placement"),
    ("ExceedsMaxQuota", "", "exceeds_max"),
    ("WaitingForQuota", "", "quota"),
    ("TopologyPlacementFailed", "", "topology"),
    ("WaitingForPreemptedWorkloads", "", "preempt_wait"),
    ("WaitingForPodsReady", "", "startup"),
    ("PendingEvaluation", "", "scheduler"),
    ("Suspended", "", "held"),
    ("OnHold", "", "held"),
    ("AdmissionGated", "", "held"),
    ("Deactivated", "", "held"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "message", "cause"), MESSAGES)
def test_kueues_words_have_a_cause(reason: str, message: str, cause: str) -> None:
    told = told_by(reason, message)
    assert (told.cause, told.reason, told.message) == (cause, reason, message)


def test_of_flavors_the_one_that_got_furthest_counts_of_pod_sets_the_one_that_is_stuck() -> None:
    taint = "untolerated taint {spot true NoSchedule <nil>} in flavor spot"
    short = f"insufficient unused quota for {GPU} in flavor h100, 8 more needed"
    assert told_by("Pending", f"{NO_FLAVOR}{taint}, {short}").cause == "quota"
    both = f"{NO_FLAVOR}{short}; couldn't assign flavors to pod set workers: {taint}"
    assert told_by("Pending", both).cause == "placement"


def _five(told: list[dict[str, Any]]) -> list[Object]:
    jobs = []
    for one in told:
        reason = one.get("reason", "Pending")
        words = {"w2": f"request {one.get('request')} > maximum capacity"}.get(one["wl"], one.get("msg", ""))
        spec = {"active": False} if reason == "Deactivated" else {}
        jobs.append(workload(one["wl"], false("QuotaReserved", reason, words), gpus=one.get("request", 8), spec=spec))
    return jobs


def _assert_five(snapshot: Any, names: list[str]) -> None:
    waits = {row["workload_id"]: row["cause"] for row in rows(snapshot, "wait")}
    assert waits == {
        f"team-a/{name}": cause
        for name, cause in zip(names, ["placement", "exceeds_max", "topology", "preempt_wait", "held"], strict=True)
    }
    assert [name for name, cause in waits.items() if cause in BOTTLENECKS] == [f"team-a/{name}" for name in names[2:4]]
    held = only(snapshot, "workload", workload_id=f"team-a/{names[4]}")
    assert (held["status"], held["pending_cause"]) == ("held", "held")
    assert held["pending_reason"].startswith("Deactivated")


def test_five_reasons_are_five_causes_and_two_of_them_lack_gpus() -> None:
    told: list[dict[str, Any]] = [
        {"wl": "v1", "msg": NO_FLAVOR + "untolerated taint {team b NoSchedule <nil>} in flavor l40s"},
        {"wl": "v2", "reason": "ExceedsMaxQuota", "request": 40},
        {"wl": "v3", "reason": "TopologyPlacementFailed", "request": 24},
        {"wl": "v4", "reason": "WaitingForPreemptedWorkloads", "request": 4},
        {"wl": "v5", "reason": "Deactivated", "request": 2},
    ]
    _assert_five(beside_queues(*_five(told)), ["v1", "v2", "v3", "v4", "v5"])


def test_093_the_public_five_reasons() -> None:
    path = PROBLEMS / "093-kueue-five-reasons.json"
    if not path.exists():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    told = json.loads(path.read_text(encoding="utf-8"))
    snapshot = beside_queues(*_five(told))
    _assert_five(snapshot, ["w1", "w2", "w3", "w4", "w5"])
    counts = Counter(row["cause"] for row in rows(snapshot, "wait"))
    assert counts == {"placement": 1, "exceeds_max": 1, "topology": 1, "preempt_wait": 1, "held": 1}


def test_a_wait_begins_when_kueue_says_and_says_what_it_is_for() -> None:
    job = workload(
        "w",
        false("QuotaReserved", "Pending", NO_FLAVOR + f"insufficient unused quota for {GPU} in flavor h100", 7),
        pod_sets=[pod_set(1, {"cpu": 2}, "launcher"), pod_set(4, {GPU: 8, "cpu": 96, "memory": "1Ti"}, "worker")],
        owned_by=owner("PyTorchJob", "llm"),
        spec={"priority": 100},
    )
    snapshot = beside_queues(job)
    wait = only(snapshot, "wait")
    assert (wait["workload_id"], wait["from_at"], wait["until_at"]) == ("team-a/llm", then(7), None)
    assert (wait["cause"], wait["reason"], wait["gpus"], wait["pods"]) == ("quota", "Pending", 32, 5)
    told = only(snapshot, "workload")
    assert (told["status"], told["queue"], told["priority"], told["is_gang"]) == ("pending", "gpus", 100, True)
    assert (told["num_gpu"], told["gpu_milli"], told["pod_count"]) == (8, 1000, 5)
    assert (told["cpu_milli"], told["memory_mib"]) == (96_000, 1 << 20)
    assert (told["kind"], told["submitted_at"], told["eligible_at"]) == ("training", then(60), then(60))
    assert told["started_at"] is None
    assert only(snapshot, "queue_state")["pending_gpus"] == 32


def test_slices_are_their_part_of_the_card_that_the_queue_offers() -> None:
    mig = "nvidia.com/mig-1g.10gb"
    snapshot = read(
        moment(
            flavor("h100", "NVIDIA-H100-80GB-HBM3"),
            cluster_queue("gpus", {"h100": [quota(14, name=mig)]}),
            local_queue("team-a", "gpus", "gpus"),
            workload("w", false("QuotaReserved", "WaitingForQuota"), pod_sets=[pod_set(1, {mig: 7})]),
        )
    )
    assert only(snapshot, "wait")["gpus"] == pytest.approx(1.0)
    told = only(snapshot, "workload")
    assert (told["num_gpu"], told["gpu_milli"]) == (7, 143)


def test_what_kueue_counted_with_overheads_comes_before_the_pod_template() -> None:
    asked = [{"name": "main", "resources": {GPU: "6"}}]
    snapshot = beside_queues(workload("w", false("QuotaReserved", "WaitingForQuota"), resourceRequests=asked))
    assert only(snapshot, "wait")["gpus"] == 6


def test_without_a_word_it_waits_for_its_turn() -> None:
    fresh, behind = workload("fresh", made=3), workload("behind", made=2)
    places = [
        {"metadata": {"namespace": "team-a", "name": name}, "positionInClusterQueue": place}
        for place, name in enumerate(("fresh", "behind", "deleted"))
    ]
    snapshot = beside_queues(fresh, behind, objects={POSITIONS: places})
    waits = {row["workload_id"]: (row["cause"], row["message"], row["from_at"]) for row in rows(snapshot, "wait")}
    assert waits == {
        "team-a/fresh": ("scheduler", None, then(3)),
        "team-a/behind": ("priority", "place 2 in gpus", then(2)),
    }


def test_without_the_visibility_api_nothing_is_known_of_places() -> None:
    assert only(beside_queues(workload("w")), "wait")["cause"] == "scheduler"


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        (
            [cluster_queue("gpus", {"h100": [quota(8)]}, stopPolicy="Hold"), QUEUES[1]],
            "Suspended: ClusterQueue gpus is held",
        ),
        ([QUEUES[0], local_queue("team-a", "gpus", "gpus", stop="HoldAndDrain")],
         "Suspended: LocalQueue team-a/gpus is draining"),
    ],
)  # fmt: skip
def test_a_stopped_queue_holds_its_work(queues: list[Object], words: str) -> None:
    job = workload("w", false("QuotaReserved", "Inadmissible", "ClusterQueue gpus is inactive"))
    told = only(read(moment(*queues, job)), "workload")
    assert (told["status"], told["pending_cause"], told["pending_reason"]) == ("held", "held", words)
    assert told["eligible_at"] is None


def test_work_of_a_queue_that_is_not_there_belongs_to_none() -> None:
    job = workload("w", false("QuotaReserved", "Inadmissible", "LocalQueue nope doesn't exist"), queue="nope")
    told = only(beside_queues(job), "workload")
    assert (told["queue"], told["pending_cause"]) == ("", "own_config")


def _check(name: str, controller: str) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }


@pytest.mark.parametrize(
    ("controller", "cause"),
    [("kueue.x-k8s.io/provisioning-request", "capacity"), ("example.com/approval", "scheduler")],
)
def test_quota_without_its_checks_waits_for_them(controller: str, cause: str) -> None:
    job = workload(
        "w",
        true("QuotaReserved", "QuotaReserved", minutes_ago=9),
        admission=admission("gpus", {GPU: "8"}),
        admissionChecks=[
            {"name": "nodes", "state": "Pending", "message": "no room", "lastTransitionTime": at(8)},
            {"name": "budget", "state": "Ready", "message": "", "lastTransitionTime": at(8)},
        ],
    )
    snapshot = beside_queues(job, _check("nodes", controller))
    told = only(snapshot, "workload")
    assert (told["status"], told["pending_cause"]) == ("admitted", cause)
    assert told["pending_reason"] == "UnsatisfiedAdmissionChecks: nodes is Pending: no room"
    assert only(snapshot, "wait")["from_at"] == then(8)
    assert only(snapshot, "queue_state")["reserved_gpus"] == 8
