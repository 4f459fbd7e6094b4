"""Objects of a cluster with KAI, as its API has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.kai import Kai
from schedulers.kubernetes.moment import Moment
from tests.schedulers.volcano_objects import MADE, NOW, Object, gpus
from tests.schedulers.volcano_objects import node as plain_node

GPU = "nvidia.com/gpu"
RESERVED = "kai-resource-reservation"


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None, **more: str) -> Object:
    return plain_node(name, gpus, labels, **more)


def pod(
    name: str,
    group: str | None = "pg",
    *,
    on: str | None = None,
    namespace: str = "ml",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **requests: str,
) -> Object:
    """A pod of its own: its workload has its name."""
    told = {**({"pod-group-name": group} if group else {}), **(annotations or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": MADE,
            "labels": {"kai.scheduler/queue": "team", **(labels or {})},
            "annotations": told,
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "image": "train:1", "resources": {"limits": dict(requests)}}],
            **({"nodeName": on} if on else {}),
        },
        "status": {"phase": "Running", "startTime": MADE} if on else {"phase": "Pending"},
    }


def reservation(name: str, on: str, gpu_group: str) -> Object:
    """The pod that holds a card for those that share it."""
    made = pod(name, None, on=on, namespace=RESERVED, **gpus(1))
    made["metadata"]["labels"] = {"app": "kai-resource-reservation", "runai-gpu-group": gpu_group}
    return made


def queue(
    name: str,
    gpu: Mapping[str, float] | None = None,
    *,
    parent: str | None = None,
    allocated: Mapping[str, Any] | None = None,
    requested: Mapping[str, Any] | None = None,
    **others: Mapping[str, float],
) -> Object:
    resources = {**({"gpu": dict(gpu)} if gpu is not None else {}), **{key: dict(one) for key, one in others.items()}}
    spec = {**({"parentQueue": parent} if parent else {}), **({"resources": resources} if resources else {})}
    told = {"allocated": allocated, "requested": requested}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
        "status": {key: dict(one) for key, one in told.items() if one is not None},
    }


def group(name: str = "pg", conditions: Sequence[Object] = (), *, asks: str = "team", **spec: Any) -> Object:
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ml", "creationTimestamp": MADE},
        "spec": {"queue": asks, "minMember": 1, **spec},
        "status": {"schedulingConditions": list(conditions)} if conditions else {},
    }


def unschedulable(*reasons: Object, since: str = "2026-03-02T09:00:00Z", **more: str) -> Object:
    return {
        "type": "UnschedulableOnNodePool",
        "nodePool": "default",
        "status": "True",
        "reason": "Unschedulable",
        "lastTransitionTime": since,
        "transitionID": "1",
        **({"reasons": list(reasons)} if reasons else {}),
        **more,
    }


_KEYS = {
    "Node": "nodes",
    "Pod": "pods",
    "Event": "events",
    "Queue": "queues.scheduling.run.ai",
    "PodGroup": "podgroups.scheduling.run.ai",
    "Topology": "topologies.kai.scheduler",
}


def moment(*objects: Object) -> Moment:
    found: dict[str, list[Object]] = {key: [] for key in _KEYS.values()}
    for one in objects:
        found[_KEYS[one["kind"]]].append(one)
    return Moment(taken_at=NOW, version="7", objects=found, served=dict.fromkeys(found, "v1"))


def reader(cluster: str = "default", **options: Any) -> Kai:
    given = {"url": "http://127.0.0.1:1", **options}
    return Kai.from_options(given, cluster=cluster, rules=Rules(), clock=FakeClock(NOW))


def mapped(*objects: Object) -> SchedulerSnapshot:
    return reader().mapped(moment(*objects))
