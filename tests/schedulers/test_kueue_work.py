"""Work of Kueue that was admitted: whose its pods are, preemptions and evictions, how it ends; each by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.schedulers.kueue_objects import (
    GPU,
    GROUP,
    NOW,
    QUEUES,
    Object,
    admission,
    at,
    beside_queues,
    cluster_queue,
    false,
    local_queue,
    moment,
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
    waiting = beside_queues(workload("w", false("QuotaReserved", "WaitingForQuota")))
    running = beside_queues(
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
    waiting = beside_queues(workload("w", owned_by=owner(kind, "x"), pod_sets=sets))
    assert only(waiting, "workload")["workload_id"] == workload_id
    running = beside_queues(
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
    snapshot = beside_queues(
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
    snapshot = beside_queues(workload("w", false("QuotaReserved", "TopologyPlacementFailed", "no block", 6)), gated)
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
    snapshot = beside_queues(victim, other, _admitted("winner"), pod("other-0", owner("Job", "other")))
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
    told = only(beside_queues(again, pod("w-0", owner("Job", "w"))), "workload")
    assert (told["submitted_at"], told["eligible_at"]) == (then(600), then(20))  # 15 minutes, not 595


def test_an_eviction_with_a_pause_waits_for_kueue() -> None:
    job = workload(
        "w",
        true("Evicted", "PodsReadyTimeout", "too slow", 6),
        made=90,
        requeueState={"count": 2, "requeueAt": at(-4)},
    )
    snapshot = beside_queues(job)
    wait = only(snapshot, "wait")
    assert (wait["cause"], wait["message"], wait["from_at"]) == ("scheduler", f"to be tried again at {at(-4)}", then(6))
    assert only(snapshot, "workload_event", kind="evicted")["reason"] == "PodsReadyTimeout"


@pytest.mark.parametrize(
    ("reason", "status"), [("Succeeded", "finished"), ("Failed", "failed"), ("OutOfSync", "cancelled")]
)
def test_what_is_over_holds_nothing(reason: str, status: str) -> None:
    over = _admitted("w", true("Finished", reason, "done", 3))
    snapshot = beside_queues(over)
    told = only(snapshot, "workload")
    assert (told["status"], told["started_at"], told["ended_at"]) == (status, then(54), then(3))
    assert only(snapshot, "workload_event", kind=status)["ts"] == then(3)
    state = only(snapshot, "queue_state")
    assert (state["running_gpus"], state["reserved_gpus"], state["pending_gpus"]) == (0, 0, 0)
    assert rows(snapshot, "wait") == []


def test_work_without_gpus_is_not_listed() -> None:
    snapshot = beside_queues(workload("w", pod_sets=[pod_set(2, {"cpu": 4})]))
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
    snapshot = beside_queues(broken, timeless, good, is_valid=False)
    assert [row["workload_id"] for row in rows(snapshot, "workload")] == ["team-a/good"]
    problems = {row["subject"]: row["detail"] for row in rows(snapshot, "quality_event", kind="unreadable_object")}
    assert problems == {
        "team-a/broken": f"BadInput: {GPU}: 'lots' is no quantity",
        "team-a/timeless": "BadInput: lastTransitionTime: 'yesterday' is no time",
    }


def test_pods_of_no_workload_object_stand_in_the_queue_that_they_name() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "gpus"}
    snapshot = beside_queues(pod("free", None, labels=labels), pod("lost", None, labels={**labels}, namespace="team-z"))
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
    snapshot = beside_queues(_admitted("w", *more), _ended_pod(phase))
    row = only(snapshot, "workload")
    assert (row["status"], row["started_at"], row["ended_at"]) == (told[0], then(45), then(4))
    ends = [row for row in rows(snapshot, "workload_event") if row["kind"] in ("finished", "failed", "cancelled")]
    assert [(row["kind"], row["reason"], row["ts"]) for row in ends] == [(*told, then(4))]
    assert rows(snapshot, "wait") == []


def test_a_pod_that_failed_is_not_the_end_of_work_that_kueue_goes_on_with() -> None:
    snapshot = beside_queues(_admitted("w"), _ended_pod("Failed"))
    row = only(snapshot, "workload")
    assert (row["status"], row["pending_cause"], row["ended_at"], row["started_at"]) == (
        "admitted", "startup", None, None,
    )  # fmt: skip
    assert rows(snapshot, "workload_event", kind="failed") == []


def test_events_of_one_pod_of_a_service_name_it() -> None:
    job = _admitted("pod-0", owned_by=owner("Pod", "web-0", uid="uid-team-a-web-0"), gpus=1)
    replicas = owner("ReplicaSet", "web-5d4f8c7b9")
    template = {"pod-template-hash": "5d4f8c7b9"}
    snapshot = beside_queues(job, pod("web-0", replicas, 1, labels=template))
    assert only(snapshot, "workload_event", kind="admitted")["pod"] == "web-0"
    assert only(snapshot, "workload_event", kind="submitted")["pod"] == ""
