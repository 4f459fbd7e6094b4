"""Koordinator's objects as its controllers write them; judged by the published schemas where those are at hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Schemas
from schedulers.koordinator import Koordinator
from tests.schedulers.kubernetes_objects import EIGHT, NOW, Object, moment, pod

CRDS = Path(__file__).resolve().parents[3] / "shared" / "crds" / "koordinator"
GPU = "nvidia.com/gpu"
KINDS = {
    "ElasticQuota": "elasticquotas_scheduling_sigs_k8s_io",
    "PodGroup": "podgroups_scheduling_sigs_k8s_io",
    "Device": "devices_scheduling_koordinator_sh",
    "Reservation": "reservations_scheduling_koordinator_sh",
    "PodMigrationJob": "podmigrationjobs_scheduling_koordinator_sh",
    "ClusterNetworkTopology": "clusternetworktopologies_scheduling_koordinator_sh",
}


@lru_cache(maxsize=1)
def schemas() -> Schemas | None:
    """The published ones; None where this checkout has none beside it."""
    return Schemas.read(CRDS) if CRDS.is_dir() else None


def _thing(kind: str, name: str, group: str = "scheduling.koordinator.sh", **more: Any) -> Object:
    named = {"name": name, "uid": f"uid-{name}", "creationTimestamp": EIGHT, **more.pop("metadata", {})}
    return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": named, **more}


def quota(name: str, least: Any = None, most: Any = None, used: Any = None, **more: Any) -> Object:
    """GPUs as numbers or lists of resources. `parent`, `tree`, `lends`; books as `request`, `runtime`, ...; `raw`."""

    def listed(given: Any) -> Any:
        return given if isinstance(given, Mapping) else {GPU: str(given)}

    labels = {"parent": more.get("parent"), "tree-id": more.get("tree"), "is-parent": more.get("is_parent")}
    if "lends" in more:
        labels["allow-lent-resource"] = str(more["lends"]).lower()
    books = ("request", "runtime", "guaranteed", "allocated", "shared-weight", "non-preemptible-used", "namespaces")
    told = {book: json.dumps(listed(more[book.replace("-", "_")])) for book in books if book.replace("-", "_") in more}
    told.update(more.get("raw", {}))
    spec = {key: listed(given) for key, given in (("min", least), ("max", most)) if given is not None}
    prefix = "quota.scheduling.koordinator.sh/"
    metadata = {
        "namespace": more.get("namespace", "koordinator-system"),
        "labels": {prefix + key: value for key, value in labels.items() if value is not None},
        "annotations": {prefix + key: value for key, value in told.items()},
    }
    status = {} if used is None else {"used": listed(used)}
    return _thing("ElasticQuota", name, "scheduling.sigs.k8s.io", metadata=metadata, spec=spec, status=status)


def device(node: str, count: int = 4, unhealthy: Sequence[int] = (), **more: Any) -> Object:
    """The cards of a node: the first half on NUMA node 0, the rest on 1."""
    condition = {
        "type": "Healthy", "status": "False", "reason": "XidError", "message": "Xid 79", "lastTransitionTime": EIGHT,
    }  # fmt: skip
    cards = [
        {
            "type": "gpu", "id": f"GPU-{node}-{minor}", "minor": minor, "health": minor not in unhealthy,
            "resources": {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100",
                          "koordinator.sh/gpu-memory": "80Gi"},
            "topology": {"socketID": minor * 2 // count, "nodeID": minor * 2 // count, "pcieID": str(minor)},
            **({"conditions": [condition]} if minor in unhealthy else {}),
        }
        for minor in range(count)
    ]  # fmt: skip
    rdma = {"type": "rdma", "id": "0000:09:00.0", "minor": 0, "health": True}
    return _thing("Device", node, spec={"devices": [*cards, rdma]}, status={}, **more)


def given(*parts: tuple[int, int, int]) -> Mapping[str, str]:
    """The annotation of a pod that got (card, percent of compute, percent of memory) each."""
    gpus = [
        {
            "minor": minor,
            "resources": {"koordinator.sh/gpu-core": str(core), "koordinator.sh/gpu-memory-ratio": str(memory)},
        }
        for minor, core, memory in parts
    ]
    return {"scheduling.koordinator.sh/device-allocated": json.dumps({"gpu": gpus, "rdma": [{"minor": 0}]})}


def of_quota(name: str) -> Mapping[str, str]:
    return {"quota.scheduling.koordinator.sh/name": name}


def part_pod(name: str, percent: int, quota: str = "team-a", **more: Any) -> Object:
    """A pod that asks for `percent` of a card, as Koordinator's webhook writes it."""
    asked = {"koordinator.sh/gpu-core": str(percent), "koordinator.sh/gpu-memory-ratio": str(percent)}
    requests = {**asked, **more.pop("requests", {})}
    return pod(name, 0, requests=requests, labels={**of_quota(quota), **more.pop("labels", {})}, **more)


def reservation(name: str, node: str, gpus: int, taken: int = 0, quota: str = "team-a", **status: Any) -> Object:
    """Cards that are set aside on a node, of which `taken` are held by owners."""
    spec = {
        "owners": [{"labelSelector": {"matchLabels": {"app": "train"}}}],
        "template": {"metadata": {"labels": of_quota(quota)}, "spec": {"containers": []}},
        "ttl": "1h",
    }
    told = {
        "phase": "Available", "nodeName": node, "allocatable": {GPU: str(gpus)}, "allocated": {GPU: str(taken)},
        **status,
    }  # fmt: skip
    return _thing("Reservation", name, spec=spec, status=told)


def migration(name: str, moved: str, victims: Sequence[str] = ()) -> Object:
    """A pod that was moved at nine; `victims` had to make room."""

    def reference(pod_name: str) -> Object:
        return {"namespace": "team-a", "name": pod_name, "uid": f"uid-{pod_name}"}

    def condition(kind: str, reason: str) -> Object:
        return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": "2026-03-02T09:00:00Z"}

    conditions = [condition("Eviction", "EvictComplete")]
    if victims:
        conditions.append(condition("Preemption", "PreemptComplete"))
    status = {"phase": "Succeeded", "conditions": conditions, "preemptedPodsRef": [reference(one) for one in victims]}
    return _thing("PodMigrationJob", name, spec={"podRef": reference(moved)}, status=status)


def pod_group(name: str, least: int, **more: Any) -> Object:
    return _thing(
        "PodGroup", name, "scheduling.sigs.k8s.io", metadata={"namespace": "team-a"}, spec={"minMember": least},
        status={"phase": "Pending"}, **more,
    )  # fmt: skip


def network() -> Object:
    """Spines of blocks of nodes."""
    layers = [
        {"topologyLayer": "SpineLayer", "labelKey": ["example.com/spine"]},
        {"topologyLayer": "BlockLayer", "labelKey": ["example.com/block"], "parentTopologyLayer": "SpineLayer"},
        {"topologyLayer": "NodeTopologyLayer", "parentTopologyLayer": "BlockLayer"},
    ]
    return _thing("ClusterNetworkTopology", "default", spec={"networkTopologySpec": layers}, status={})


def mapped(*objects: Object, cluster: str = "default", is_valid: bool = True) -> SchedulerSnapshot:
    """The adapter's records of objects of all kinds; its own kinds are there, be it without objects."""
    published = schemas()
    kinds: dict[str, list[Object]] = {key: [] for key in KINDS.values()}
    for one in objects:
        if one["kind"] in KINDS and published is not None and is_valid:
            assert published.check(one) == []
        key = KINDS.get(one["kind"]) or {"Node": "nodes", "Pod": "pods"}[one["kind"]]
        kinds.setdefault(key, []).append(one)
    reader = Koordinator.from_options(
        {"url": "http://127.0.0.1:1"}, cluster=cluster, rules=Rules(), clock=FakeClock(NOW)
    )
    return reader.mapped(moment(**kinds))
