"""Objects of a cluster, written by us, as an API server gives them; `Plain` is a moment without a server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.kubernetes.family import Kubernetes
from schedulers.kubernetes.moment import Moment

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
EIGHT = "2026-03-02T08:00:00Z"
NINE = "2026-03-02T09:00:00Z"

Object = dict[str, Any]


def node(name: str, gpus: int | str = 8, **more: Any) -> Object:
    """A node that is ready; `allocatable`, `labels`, `annotations`, `ready`, `cordoned`, `taints`, `resource`."""
    resource = more.get("resource", "nvidia.com/gpu")
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", resource: str(gpus)}
    ready = {
        "type": "Ready",
        "status": more.get("ready", "True"),
        "reason": "KubeletReady",
        "lastTransitionTime": EIGHT,
    }
    if ready["status"] != "True":
        ready |= {"reason": "NodeStatusUnknown", "message": "Kubelet stopped posting node status."}
    spec = {**({"unschedulable": True} if more.get("cordoned") else {}), "taints": more.get("taints", [])}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", **more.get("labels", {})},
            "annotations": more.get("annotations", {}),
        },
        "spec": spec,
        "status": {
            "capacity": amounts,
            "allocatable": {**amounts, resource: str(more.get("allocatable", gpus))},
            "conditions": [ready],
        },
    }


def pod(name: str, gpus: int = 1, **more: Any) -> Object:
    """A pod of namespace `namespace`; on node `on` it runs since nine, else it waits with `message`."""
    on = more.get("on")
    requests = {"nvidia.com/gpu": str(gpus), **more.get("requests", {})} if gpus else dict(more.get("requests", {}))
    container = {"name": "main", "image": "train", "resources": {"requests": requests, "limits": requests}}
    metadata: Object = {
        "name": name,
        "namespace": more.get("namespace", "team-a"),
        "uid": more.get("uid", f"uid-{name}"),
        "creationTimestamp": EIGHT,
        "labels": more.get("labels", {}),
        "annotations": more.get("annotations", {}),
    }
    if owner := more.get("owner"):
        kind, owned_by = owner
        metadata["ownerReferences"] = [
            {"apiVersion": "batch/v1", "kind": kind, "name": owned_by, "uid": f"uid-{owned_by}", "controller": True}
        ]
    spec: Object = {"containers": [container], "priority": more.get("priority", 0), **more.get("spec", {})}
    status: Object = {"phase": more.get("phase", "Running" if on else "Pending"), **more.get("status", {})}
    if on:
        spec["nodeName"] = on
        status.setdefault("startTime", NINE)
    elif message := more.get("message"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": more.get("reason", "Unschedulable"),
                "message": message,
                "lastTransitionTime": EIGHT,
            }
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def event(about: str, message: str, reason: str = "FailedScheduling", **more: Any) -> Object:
    """A warning about a pod of team-a."""
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": more.pop("name", f"{about}.1"), "namespace": "team-a"},
        "involvedObject": {"kind": "Pod", "namespace": "team-a", "name": about},
        "type": "Warning",
        "reason": reason,
        "message": message,
        **more,
    }


def quota(name: str, hard: Mapping[str, str], used: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """A ResourceQuota of team-a."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": "team-a"},
        "spec": {"hard": dict(hard), **spec},
        "status": {"hard": dict(hard), **({"used": dict(used)} if used is not None else {})},
    }


def moment(**objects: Sequence[Object]) -> Moment:
    """Objects as of NOW; a kind of a group is named with underscores (`resourceslices_resource_k8s_io`)."""
    plain: dict[str, Sequence[Object]] = {"nodes": [], "pods": [], "resourcequotas": [], **objects}
    given = {key.replace("_", "."): list(found) for key, found in plain.items()}
    return Moment(taken_at=NOW, version="7", objects=given, served=dict.fromkeys(given, "v1"))


def mapped(cluster: str = "default", options: Mapping[str, Any] | None = None, **objects: Any) -> SchedulerSnapshot:
    """The core adapter's records of `objects`."""
    reader = Kubernetes.from_options(
        {"url": "http://127.0.0.1:1", **(options or {})}, cluster=cluster, rules=Rules(), clock=FakeClock(NOW)
    )
    return reader.mapped(moment(**objects))


def by(snapshot: SchedulerSnapshot, record: str, column: str) -> dict[Any, dict[str, Any]]:
    """The rows of a record by one of its columns, which must tell them apart."""
    listed = snapshot.records[record].to_pylist()
    found = {row[column]: row for row in listed}
    assert len(found) == len(listed), f"{record}.{column} does not tell rows apart"
    return found
