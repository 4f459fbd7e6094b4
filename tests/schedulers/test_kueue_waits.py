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
    NOW,
    Object,
    admission,
    at,
    cluster_queue,
    false,
    flavor,
    local_queue,
    moment,
    node,
    only,
    owner,
    pod,
    pod_set,
    quota,
    read,
    rows,
    schemas,
    then,
    true,
    workload,
)

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"
QUEUES = (cluster_queue("gpus", {"h100": [quota(32)]}), local_queue("team-a", "gpus", "gpus"))

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


def _waiting(*jobs: Object, **more: Any) -> Any:
    return read(moment(node("n1"), *QUEUES, *jobs, **more))


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
    _assert_five(_waiting(*_five(told)), ["v1", "v2", "v3", "v4", "v5"])


def test_093_the_public_five_reasons() -> None:
    path = PROBLEMS / "093-kueue-five-reasons.json"
    if not path.exists():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    told = json.loads(path.read_text(encoding="utf-8"))
    snapshot = _waiting(*_five(told))
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
    snapshot = _waiting(job)
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
    snapshot = _waiting(workload("w", false("QuotaReserved", "WaitingForQuota"), resourceRequests=asked))
    assert only(snapshot, "wait")["gpus"] == 6


def test_without_a_word_it_waits_for_its_turn() -> None:
    fresh, behind = workload("fresh", made=3), workload("behind", made=2)
    places = [
        {"metadata": {"namespace": "team-a", "name": name}, "positionInClusterQueue": place}
        for place, name in enumerate(("fresh", "behind", "deleted"))
    ]
    snapshot = _waiting(fresh, behind, objects={POSITIONS: places})
    waits = {row["workload_id"]: (row["cause"], row["message"], row["from_at"]) for row in rows(snapshot, "wait")}
    assert waits == {
        "team-a/fresh": ("scheduler", None, then(3)),
        "team-a/behind": ("priority", "place 2 in gpus", then(2)),
    }


def test_without_the_visibility_api_nothing_is_known_of_places() -> None:
    assert only(_waiting(workload("w")), "wait")["cause"] == "scheduler"


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
    told = only(_waiting(job), "workload")
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
    snapshot = _waiting(job, _check("nodes", controller))
    told = only(snapshot, "workload")
    assert (told["status"], told["pending_cause"]) == ("admitted", cause)
    assert told["pending_reason"] == "UnsatisfiedAdmissionChecks: nodes is Pending: no room"
    assert only(snapshot, "wait")["from_at"] == then(8)
    assert only(snapshot, "queue_state")["reserved_gpus"] == 8


PLACED = {
    "v1beta1": {
        "levels": ["block", "host"],
        "domains": [{"values": ["b1", "n1"], "count": 1}, {"values": ["b1", "n2"], "count": 2}],
    },
    "v1beta2": {
        "levels": ["block", "host"],
        "slices": [
            {
                "domainCount": 2,
                "podCounts": {"individual": [1, 2]},
                "valuesPerLevel": [
                    {"universal": "b1"},
                    {"individual": {"prefix": "n", "roots": ["1", "2"]}},
                ],
            }
        ],
    },
}  # fmt: skip


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_admitted_work_without_pods_is_to_be_started_where_kueue_placed_it(version: str) -> None:
    given = admission("gpus", {GPU: "24"}, count=3)
    given["podSetAssignments"][0]["topologyAssignment"] = PLACED[version]
    job = workload(
        "w",
        true("QuotaReserved", "QuotaReserved"),
        true("Admitted", "Admitted", "The workload is admitted", 4),
        pod_sets=[pod_set(3, {GPU: 8})],
        admission=given,
        version=version,
    )
    queue = cluster_queue("gpus", {"h100": [quota(32)]}, version=version)
    snapshot = read(moment(queue, local_queue("team-a", "gpus", "gpus", version=version), job, version=version))
    told = only(snapshot, "workload")
    assert (told["status"], told["pending_cause"]) == ("admitted", "startup")
    assert told["pending_reason"] == "Admitted: The workload is admitted to run in b1/n1 (1), b1/n2 (2)"
    assert only(snapshot, "wait")["from_at"] == then(4)
    assert only(snapshot, "workload_event", kind="admitted")["ts"] == then(4)


def _admitted(name: str, *more: Object, gpus: int = 8, **rest: Any) -> Object:
    return workload(
        name,
        true("QuotaReserved", "QuotaReserved", minutes_ago=55),
        true("Admitted", "Admitted", minutes_ago=54),
        *more,
        gpus=gpus,
        admission=admission("gpus", {GPU: str(gpus)}),
        **rest,
    )


def test_running_pods_are_the_same_workload_as_its_wait_was() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpus"}
    waiting = _waiting(workload("w", false("QuotaReserved", "WaitingForQuota")))
    running = _waiting(
        _admitted("w", true("PodsReady", "Started", minutes_ago=44)), pod("w-x", owner("Job", "w"), labels=labels)
    )
    assert only(waiting, "workload")["workload_id"] == only(running, "workload")["workload_id"] == "team-a/w"
    told = only(running, "workload")
    assert (told["status"], told["queue"], told["started_at"]) == ("running", "gpus", then(45))
    assert rows(running, "wait") == []
    assert only(running, "pod")["workload_id"] == "team-a/w"
    kinds = sorted((row["kind"], row["ts"]) for row in rows(running, "workload_event"))
    assert kinds == [("admitted", then(54)), ("ready", then(44)), ("started", then(45)), ("submitted", then(60))]


@pytest.mark.parametrize(
    ("kind", "labels", "pod_labels", "workload_id"),
    [
        ("Job", {}, {"job-name": "x"}, "team-a/x"),
        ("JobSet", {}, {"jobset.sigs.k8s.io/jobset-name": "x", "job-name": "x-0"}, "team-a/x"),
        ("PyTorchJob", {}, {"training.kubeflow.org/job-name": "x"}, "team-a/x"),
        ("RayJob", {}, {"ray.io/originated-from-cr-name": "x", "ray.io/cluster": "x-raycluster-1"}, "team-a/x"),
        ("Job", {"argo": "y", "workflows.argoproj.io/workflow": "flow"},
         {"workflows.argoproj.io/workflow": "flow", "job-name": "x"}, "team-a/flow"),
    ],
)  # fmt: skip
def test_owners_and_labels_name_the_workload_before_and_after_its_pods(
    kind: str, labels: dict[str, str], pod_labels: dict[str, str], workload_id: str
) -> None:
    sets = [pod_set(1, {GPU: 8}, labels=labels)]
    waiting = _waiting(workload("w", owned_by=owner(kind, "x"), pod_sets=sets))
    assert only(waiting, "workload")["workload_id"] == workload_id
    running = _waiting(
        _admitted("w", owned_by=owner(kind, "x"), pod_sets=sets), pod("p", owner("Job", "x"), labels=pod_labels)
    )
    assert only(running, "workload")["workload_id"] == workload_id
    assert only(running, "workload")["status"] == "running"


def test_pods_of_a_deployment_are_one_workload() -> None:
    template = {"pod-template-hash": "5d4f8c7b9"}
    owned = [owner("Pod", f"web-{number}", uid=f"uid-team-a-web-{number}") for number in range(3)]
    replicas = owner("ReplicaSet", "web-5d4f8c7b9")
    jobs = [
        _admitted("pod-0", owned_by=owned[0], gpus=1),
        _admitted("pod-1", owned_by=owned[1], gpus=1),
        workload("pod-2", false("QuotaReserved", "WaitingForQuota"), owned_by=owned[2], gpus=1),
    ]
    gated = pod("web-2", replicas, 1, labels=template, phase="Pending")
    del gated["spec"]["nodeName"]
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    snapshot = _waiting(
        *jobs, pod("web-0", replicas, 1, labels=template), pod("web-1", replicas, 1, labels=template), gated
    )
    told = only(snapshot, "workload")
    assert (told["workload_id"], told["status"], told["pod_count"]) == ("team-a/web", "running", 3)
    state = only(snapshot, "queue_state")
    assert (state["running_gpus"], state["pending_gpus"], state["reserved_gpus"]) == (2, 1, 0)


def test_gated_pods_wait_for_what_kueue_says() -> None:
    gated = pod("w-0", owner("Job", "w"), phase="Pending")
    del gated["spec"]["nodeName"]
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    snapshot = _waiting(workload("w", false("QuotaReserved", "TopologyPlacementFailed", "no block", 6)), gated)
    assert only(snapshot, "wait")["cause"] == "topology"
    assert only(snapshot, "workload")["pending_reason"] == "TopologyPlacementFailed: no block"


def test_a_preemption_says_for_whom() -> None:
    words = (
        "Preempted to accommodate a workload (UID: uid-Workload-{}, JobUID: j) due to reclamation within the cohort; "
        "preemptor path: /org/team-b; preemptee path: /org/gpus"
    )
    known, gone = words.format("winner"), words.format("gone")
    victim = workload(
        "victim",
        false("QuotaReserved", "Pending", known, 10),
        true("Evicted", "Preempted", known, 10),
        true("Preempted", "InCohortReclamation", known, 10),
        true("Requeued", "Preempted", known, 9),
        schedulingStats={"evictions": [
            {"reason": "Preempted", "underlyingCause": "", "count": 2},
            {"reason": "PodsReadyTimeout", "underlyingCause": "", "count": 1},
        ]},
    )  # fmt: skip
    other = workload(
        "other",
        true("QuotaReserved", "QuotaReserved", minutes_ago=50),
        true("Admitted", "Admitted", minutes_ago=50),
        true("Evicted", "Preempted", gone, 1),
        admission=admission("gpus", {GPU: "8"}),
    )
    snapshot = _waiting(victim, other, _admitted("winner"), pod("other-0", owner("Job", "other")))
    event = only(snapshot, "workload_event", workload_id="team-a/victim", kind="preempted")
    assert (event["ts"], event["reason"], event["beneficiary"]) == (then(10), "InCohortReclamation", "team-a/winner")
    event = only(snapshot, "workload_event", workload_id="team-a/other", kind="preempted")
    assert (event["reason"], event["beneficiary"]) == ("Preempted", "team-b")
    assert only(snapshot, "workload_event", kind="requeued")["ts"] == then(9)
    assert rows(snapshot, "workload_event", kind="evicted") == []
    told = only(snapshot, "workload", workload_id="team-a/victim")
    assert (told["status"], told["pending_cause"], told["attempt"]) == ("pending", "priority", 3)
    assert only(snapshot, "wait", workload_id="team-a/victim")["from_at"] == then(10)
    # Still on its node: it is being put off and does not wait.
    assert only(snapshot, "workload", workload_id="team-a/other")["status"] == "preempted"


def test_what_it_ran_before_is_no_wait() -> None:
    again = workload(
        "w",
        false("Evicted", "QuotaReserved", "Previously: Exceeded the PodsReady timeout", 5),
        true("Requeued", "PodsReadyTimeout", "", 20),
        true("QuotaReserved", "QuotaReserved", minutes_ago=5),
        true("Admitted", "Admitted", minutes_ago=5),
        made=600,
        admission=admission("gpus", {GPU: "8"}),
    )
    told = only(_waiting(again, pod("w-0", owner("Job", "w"))), "workload")
    assert (told["submitted_at"], told["eligible_at"]) == (then(600), then(20))  # 15 minutes, not 595


def test_an_eviction_with_a_pause_waits_for_kueue() -> None:
    job = workload(
        "w",
        true("Evicted", "PodsReadyTimeout", "too slow", 6),
        made=90,
        requeueState={"count": 2, "requeueAt": at(-4)},
    )
    snapshot = _waiting(job)
    wait = only(snapshot, "wait")
    assert (wait["cause"], wait["message"], wait["from_at"]) == ("scheduler", f"to be tried again at {at(-4)}", then(6))
    assert only(snapshot, "workload_event", kind="evicted")["reason"] == "PodsReadyTimeout"


@pytest.mark.parametrize(
    ("reason", "status"), [("Succeeded", "finished"), ("Failed", "failed"), ("OutOfSync", "cancelled")]
)
def test_what_is_over_holds_nothing(reason: str, status: str) -> None:
    over = _admitted("w", true("Finished", reason, "done", 3))
    snapshot = _waiting(over)
    told = only(snapshot, "workload")
    assert (told["status"], told["started_at"], told["ended_at"]) == (status, then(54), then(3))
    assert only(snapshot, "workload_event", kind=status)["ts"] == then(3)
    state = only(snapshot, "queue_state")
    assert (state["running_gpus"], state["reserved_gpus"], state["pending_gpus"]) == (0, 0, 0)
    assert rows(snapshot, "wait") == []


def test_work_without_gpus_is_not_listed() -> None:
    snapshot = _waiting(workload("w", pod_sets=[pod_set(2, {"cpu": 4})]))
    assert rows(snapshot, "workload") == []
    assert rows(snapshot, "workload_event") == []


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_class_gives_the_priority_that_the_workload_does_not_say(version: str) -> None:
    rank = {
        "apiVersion": f"{GROUP}/{version}", "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 900,
    }  # fmt: skip
    named: dict[str, Any] = {"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}
    if version == "v1beta2":
        named = {"priorityClassRef": {"group": GROUP, "kind": "WorkloadPriorityClass", "name": "high"}}
    queue = cluster_queue("gpus", {"h100": [quota(8)]}, version=version)
    job = workload("w", spec=named, version=version)
    snapshot = read(moment(queue, local_queue("team-a", "gpus", "gpus", version=version), rank, job, version=version))
    assert only(snapshot, "workload")["priority"] == 900


def test_a_workload_that_cannot_be_understood_costs_itself() -> None:
    broken, good = workload("broken", gpus=8), workload("good", gpus=8)
    broken["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"][GPU] = "lots"
    timeless = workload("timeless")
    timeless["status"]["conditions"] = [{**true("Admitted", "Admitted"), "lastTransitionTime": "yesterday"}]
    snapshot = _waiting(broken, timeless, good, is_valid=False)
    assert [row["workload_id"] for row in rows(snapshot, "workload")] == ["team-a/good"]
    problems = {row["subject"]: row["detail"] for row in rows(snapshot, "quality_event", kind="unreadable_object")}
    assert problems == {
        "team-a/broken": f"BadInput: {GPU}: 'lots' is no quantity",
        "team-a/timeless": "BadInput: lastTransitionTime: 'yesterday' is no time",
    }


def test_pods_of_no_workload_object_stand_in_the_queue_that_they_name() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpus"}
    snapshot = _waiting(pod("free", None, labels=labels), pod("lost", None, labels={**labels}, namespace="team-z"))
    queues = {row["workload_id"]: row["queue"] for row in rows(snapshot, "workload")}
    assert queues == {"team-a/free": "gpus", "team-z/lost": ""}


def test_ids_and_queues_of_a_named_cluster_carry_its_name() -> None:
    snapshot = read(moment(*QUEUES, workload("w"), _admitted("v")), cluster="east")
    assert {row["workload_id"] for row in rows(snapshot, "workload")} == {"east/team-a/w", "east/team-a/v"}
    assert {row["queue"] for row in rows(snapshot, "workload")} == {"east/gpus"}
    assert snapshot.taken_at == NOW


def test_objects_of_these_tests_are_judged_by_the_published_schemas() -> None:
    known = schemas()
    if known is None:
        pytest.skip("../shared is absent: this checkout has no published schemas beside it")
    spoilt = cluster_queue("q", {"h100": [quota(1)]}, cohortNamed="x")
    assert known.check(spoilt) == ['unknown field "spec.cohortNamed"']
    with pytest.raises(AssertionError):
        moment(spoilt)


def _ended_pod(phase: str) -> Object:
    over = pod("w-0", owner("Job", "w"), phase=phase)
    over["status"]["containerStatuses"] = [{"name": "main", "state": {"terminated": {"finishedAt": at(4)}}}]
    return over


@pytest.mark.parametrize(
    ("more", "phase", "told"),
    [
        ([true("Finished", "Succeeded", "done", 3)], "Succeeded", ("finished", "Succeeded")),
        ([true("Finished", "Failed", "done", 3)], "Succeeded", ("failed", "Failed")),
        ([], "Succeeded", ("finished", None)),
    ],
)
def test_work_ends_once_and_when_its_pods_did(more: list[Object], phase: str, told: tuple[str, str | None]) -> None:
    snapshot = _waiting(_admitted("w", *more), _ended_pod(phase))
    row = only(snapshot, "workload")
    assert (row["status"], row["started_at"], row["ended_at"]) == (told[0], then(45), then(4))
    ends = [row for row in rows(snapshot, "workload_event") if row["kind"] in ("finished", "failed", "cancelled")]
    assert [(row["kind"], row["reason"], row["ts"]) for row in ends] == [(*told, then(4))]
    assert rows(snapshot, "wait") == []


def test_a_pod_that_failed_is_not_the_end_of_work_that_kueue_goes_on_with() -> None:
    snapshot = _waiting(_admitted("w"), _ended_pod("Failed"))
    row = only(snapshot, "workload")
    assert (row["status"], row["pending_cause"], row["ended_at"], row["started_at"]) == (
        "admitted", "startup", None, None,
    )  # fmt: skip
    assert rows(snapshot, "workload_event", kind="failed") == []


def test_events_of_one_pod_of_a_service_name_it() -> None:
    job = _admitted("pod-0", owned_by=owner("Pod", "web-0", uid="uid-team-a-web-0"), gpus=1)
    replicas = owner("ReplicaSet", "web-5d4f8c7b9")
    template = {"pod-template-hash": "5d4f8c7b9"}
    snapshot = _waiting(job, pod("web-0", replicas, 1, labels=template))
    assert only(snapshot, "workload_event", kind="admitted")["pod"] == "web-0"
    assert only(snapshot, "workload_event", kind="submitted")["pod"] == ""
