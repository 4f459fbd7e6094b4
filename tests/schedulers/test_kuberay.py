from __future__ import annotations

from datetime import UTC, datetime

from tests.schedulers.kuberay_objects import condition, labels_of, mapped, ray_cluster, ray_job, ray_service, workers
from tests.schedulers.kubernetes_objects import NINE, by, node, pod
from tests.schedulers.reading import rows

AT_EIGHT = datetime(2026, 3, 2, 8, tzinfo=UTC)
AT_NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)
HALF_PAST = "2026-03-02T09:30:00Z"
NO_GPUS = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def _events(snapshot: object, workload: str) -> dict[str, datetime]:
    listed = rows(snapshot, "workload_event")  # type: ignore[arg-type]
    found = {row["kind"]: row["ts"] for row in listed if row["workload_id"] == workload}
    assert len(found) == sum(row["workload_id"] == workload for row in listed)
    return found


def test_a_running_job_and_its_pods_are_one_workload() -> None:
    info = {"startTime": "2026-03-02T09:05:00Z"}
    snapshot = mapped(
        node("n1"),
        ray_job("train", "Running", workers(2, 4), jobStatus="RUNNING", startTime=NINE, rayJobInfo=info),
        ray_cluster("train-xyz", "ready", workers(2, 4), owner=("RayJob", "train")),
        *(pod(f"w-{index}", 4, on="n1", labels=labels_of("RayJob", "train")) for index in range(2)),
    )
    work = by(snapshot, "workload", "workload_id")
    assert work.keys() == {"team-a/train"}
    row = work["team-a/train"]
    assert (row["status"], row["kind"], row["num_gpu"], row["pod_count"]) == ("running", "training", 4, 2)
    assert (row["submitted_at"], row["started_at"], row["min_replicas"]) == (AT_EIGHT, AT_NINE, 1)
    assert _events(snapshot, "team-a/train") == {"submitted": AT_EIGHT, "admitted": AT_NINE, "started": AT_NINE}


def test_a_suspended_job_is_held_and_kueues_waits_for_quota() -> None:
    snapshot = mapped(
        ray_job("mine", "Suspended", workers(3, 8, numOfHosts=2), suspend=True),
        ray_job("queued", "Suspended", workers(1, 8), suspend=True, labels={"kueue.x-k8s.io/queue-name": "lq"}),
    )
    work = by(snapshot, "workload", "name")
    assert (work["mine"]["status"], work["mine"]["pending_cause"]) == ("held", "held")
    assert (work["mine"]["num_gpu"], work["mine"]["pod_count"], work["mine"]["min_replicas"]) == (8, 6, 2)
    assert (work["queued"]["status"], work["queued"]["pending_cause"]) == ("pending", "quota")
    waits = by(snapshot, "wait", "workload_id")
    assert (waits["team-a/mine"]["gpus"], waits["team-a/mine"]["pods"]) == (48.0, 6)
    assert waits["team-a/mine"]["from_at"] == AT_EIGHT
    assert work["mine"]["eligible_at"] is None


def test_jobs_that_are_over() -> None:
    snapshot = mapped(
        ray_job("good", "Complete", workers(1, 4), jobStatus="SUCCEEDED", startTime=EIGHT_TEN, endTime=HALF_PAST),
        ray_job("bad", "Failed", workers(1, 4), jobStatus="FAILED", reason="AppFailed", endTime=HALF_PAST),
        ray_job("stopped", "Complete", workers(1, 4), jobStatus="STOPPED", endTime=HALF_PAST),
    )
    work = by(snapshot, "workload", "name")
    assert {name: row["status"] for name, row in work.items()} == {
        "good": "finished", "bad": "failed", "stopped": "cancelled",
    }  # fmt: skip
    assert {row["ended_at"] for row in work.values()} == {datetime(2026, 3, 2, 9, 30, tzinfo=UTC)}
    assert rows(snapshot, "wait") == []
    (failed,) = [row for row in rows(snapshot, "workload_event") if row["kind"] == "failed"]
    assert failed["reason"] == "AppFailed"


def test_a_job_that_is_over_runs_on_while_its_cluster_holds_gpus() -> None:
    over = ray_job("kept", "Complete", workers(1, 4), jobStatus="SUCCEEDED", startTime=EIGHT_TEN, endTime=HALF_PAST)
    snapshot = mapped(node("n1"), over, pod("kept-0", 4, on="n1", labels=labels_of("RayJob", "kept")))
    row = by(snapshot, "workload", "name")["kept"]
    assert (row["status"], row["ended_at"]) == ("running", None)
    assert "finished" in {event["kind"] for event in rows(snapshot, "workload_event")}


EIGHT_TEN = "2026-03-02T08:10:00Z"


def test_what_a_pod_says_is_more_than_that_a_cluster_is_new() -> None:
    snapshot = mapped(
        node("n1", 1),
        ray_cluster("c", "", workers(2, 2)),
        pod("c-0", 2, labels=labels_of("RayCluster", "c"), message=NO_GPUS),
        ray_job("fresh", "Initializing", workers(1, 8)),
    )
    work = by(snapshot, "workload", "name")
    assert work["c"]["pending_cause"] == "exceeds_max"
    assert NO_GPUS in work["c"]["pending_reason"]
    assert work["c"]["pod_count"] == 2
    assert (work["fresh"]["pending_cause"], work["fresh"]["pending_reason"]) == ("scheduler", "Initializing")


def test_pods_that_could_not_be_made_are_told_by_the_cluster() -> None:
    message = 'pods "c-gpu-worker" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/gpu=8'
    told = [condition("ReplicaFailure", "FailedCreateWorkerPod", message)]
    row = by(mapped(ray_cluster("c", "failed", workers(1, 8), conditions=told)), "workload", "name")["c"]
    assert (row["status"], row["pending_cause"]) == ("pending", "quota")
    told = [condition("ReplicaFailure", "FailedCreateWorkerPod", "spec.containers[0].image: Required value")]
    snapshot = mapped(ray_cluster("c", "failed", workers(1, 8), conditions=told))
    assert by(snapshot, "workload", "name")["c"]["pending_cause"] == "own_config"
    assert rows(snapshot, "wait")[0]["from_at"] == AT_NINE


def test_a_service_is_inference() -> None:
    snapshot = mapped(
        node("n1"),
        ray_service("chat", workers(1, 2), serviceStatus="Running"),
        pod("chat-0", 2, on="n1", labels=labels_of("RayService", "chat")),
    )
    row = by(snapshot, "workload", "name")["chat"]
    assert (row["kind"], row["stage"], row["status"]) == ("inference", "inference", "running")


def test_groups_are_bounded_and_may_be_suspended() -> None:
    snapshot = mapped(
        ray_job("capped", "", workers(20, 1, maxReplicas=4)),
        ray_job("least", "", workers(0, 1, minReplicas=3)),
        ray_job("off", "", workers(2, 1, suspend=True)),
    )
    counts = {name: row["pod_count"] for name, row in by(snapshot, "workload", "name").items()}
    assert counts == {"capped": 4, "least": 3, "off": 1}


def test_work_without_gpus_is_no_row() -> None:
    assert rows(mapped(ray_job("cpu", "Running", workers(2, 0))), "workload") == []


def test_a_spec_that_makes_no_sense_costs_itself() -> None:
    snapshot = mapped(ray_job("odd", "", workers(-1, 4)), ray_job("fine", "", workers(1, 4)), is_valid=False)
    assert [row["name"] for row in rows(snapshot, "workload")] == ["fine"]
    assert [row["subject"] for row in rows(snapshot, "quality_event")] == ["RayJob team-a/odd"]
