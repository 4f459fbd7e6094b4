"""Objects of a cluster with Volcano, as its API has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.kubernetes.moment import Moment
from schedulers.volcano import Volcano
from schedulers.volcano.reader import CONFIGURATION, GROUP_EVENTS

SHARED = Path(__file__).resolve().parents[3] / "shared"
NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
MADE = "2026-03-02T08:00:00Z"
CAPACITY = "actions: enqueue, allocate\ntiers:\n- plugins:\n  - name: gang\n  - name: capacity\n"
PROPORTION = "tiers:\n- plugins:\n  - name: proportion # not capacity\n"

Object = dict[str, Any]
GPU = "nvidia.com/gpu"


def gpus(count: object) -> dict[str, Any]:
    """A request for so many cards."""
    return {"nvidia.com/gpu": str(count)}


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None, **more: str) -> Object:
    amounts = {"cpu": "64", "memory": "512Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {}), **more}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": dict(labels or {})},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": MADE}],
        },
    }


def pod(name: str, group: str | None, *, on: str | None = None, job: str = "train", **requests: str) -> Object:
    """A pod of namespace "ml"; `requests` by their names in the cluster."""
    annotations = {"scheduling.k8s.io/group-name": group} if group else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-{name}",
            "creationTimestamp": MADE,
            "labels": {"volcano.sh/job-name": job},
            "annotations": annotations,
        },
        "spec": {
            "schedulerName": "volcano",
            "containers": [{"name": "main", "image": "train:1", "resources": {"limits": dict(requests)}}],
            **({"nodeName": on} if on else {}),
        },
        "status": {"phase": "Running", "startTime": MADE} if on else {"phase": "Pending"},
    }


def says(one: Object, message: str, reason: str = "Unschedulable", since: str = MADE) -> Object:
    """The pod with the scheduler's condition."""
    told = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {**one, "status": {**one["status"], "conditions": [{**told, "lastTransitionTime": since}]}}


def event(about: Object, message: str, reason: str = "FailedScheduling", at: str | None = None, n: int = 0) -> Object:
    named = about["metadata"]
    told: Object = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{named['name']}.{n}", "namespace": "ml"},
        "involvedObject": {"kind": about["kind"], "namespace": "ml", "name": named["name"]},
        "type": "Warning",
        "reason": reason,
        "message": message,
    }
    return {**told, "lastTimestamp": at} if at else told


def queue(name: str, *, allocated: Mapping[str, Any] | None = None, state: str = "Open", **spec: Any) -> Object:
    status: Object = {"state": state, **({"allocated": dict(allocated)} if allocated is not None else {})}
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
        "status": status,
    }


def group(
    name: str, *, phase: str, job: str | None = "train", conditions: Sequence[Object] = (), **spec: Any
) -> Object:
    owners = [{"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "name": job, "uid": "j", "controller": True}]
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "creationTimestamp": MADE,
            **({"ownerReferences": owners} if job else {}),
        },
        "spec": {"queue": "team-a", **spec},
        "status": {"phase": phase, **({"conditions": list(conditions)} if conditions else {})},
    }


def job(name: str, replicas: int, **requests: str) -> Object:
    template = {
        "metadata": {"labels": {"team": "nlp"}},
        "spec": {"containers": [{"name": "main", "image": "train:1", "resources": {"limits": dict(requests)}}]},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": MADE},
        "spec": {
            "queue": "team-a",
            "minAvailable": replicas,
            "schedulerName": "volcano",
            "tasks": [{"name": "worker", "replicas": replicas, "template": template}],
        },
        "status": {"state": {"phase": "Pending", "lastTransitionTime": MADE}},
    }


_KEYS = {
    "Node": "nodes",
    "Pod": "pods",
    "Event": "events",
    "Queue": "queues.scheduling.volcano.sh",
    "PodGroup": "podgroups.scheduling.volcano.sh",
    "Job": "jobs.batch.volcano.sh",
    "HyperNode": "hypernodes.topology.volcano.sh",
}


def moment(*objects: Object, configuration: str | None = CAPACITY, refused: str = "") -> Moment:
    found: dict[str, list[Object]] = {key: [] for key in _KEYS.values()}
    for one in objects:
        found[_KEYS[one["kind"]]].append(one)
    beside = {"refused": refused} if refused else {"data": {"volcano-scheduler.conf": configuration}}
    return Moment(
        taken_at=NOW,
        version="7",
        objects={**found, CONFIGURATION: [beside], GROUP_EVENTS: []},
        served=dict.fromkeys(found, "v1"),
    )


def reader(cluster: str = "default", **options: Any) -> Volcano:
    given = {"url": "http://127.0.0.1:1", **options}
    return Volcano.from_options(given, cluster=cluster, rules=Rules(), clock=FakeClock(NOW))


def mapped(*objects: Object, **how: Any) -> SchedulerSnapshot:
    return reader().mapped(moment(*objects, **how))


def rows(snapshot: SchedulerSnapshot, record: str) -> dict[str, dict[str, Any]]:
    """The rows of a record by their first key."""
    key = {"queue_resource": "resource", "quality_event": "kind", "wait": "workload_id", "workload": "workload_id"}
    table = snapshot.records.get(record)
    return {} if table is None else {row[key.get(record, "queue")]: row for row in table.to_pylist()}


def complaints(snapshot: SchedulerSnapshot, kind: str) -> list[tuple[str, str, int]]:
    """(subject, words, count) of every problem of `kind`."""
    table = snapshot.records.get("quality_event")
    found = [] if table is None else table.to_pylist()
    return [(row["subject"], row["detail"], row["count"]) for row in found if row["kind"] == kind]
