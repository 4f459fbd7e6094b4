"""KubeRay's objects as its operator writes them. Where the published schemas are at hand all are judged by them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Schemas
from schedulers.ray.kuberay import KubeRay
from tests.schedulers.kubernetes_objects import EIGHT, NINE, NOW, Object, moment

CRDS = Path(__file__).resolve().parents[3] / "shared" / "crds" / "kuberay"
KINDS = {"RayCluster": "rayclusters_ray_io", "RayJob": "rayjobs_ray_io", "RayService": "rayservices_ray_io"}


@lru_cache(maxsize=1)
def schemas() -> Schemas | None:
    """The published ones; None where this checkout has none beside it."""
    return Schemas.read(CRDS) if CRDS.is_dir() else None


def _template(gpus: int, cpu: str = "2") -> Object:
    amounts = {"cpu": cpu, "memory": "4Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    container = {"name": "ray", "image": "ray", "resources": {"limits": amounts, "requests": amounts}}
    return {"spec": {"containers": [container]}}


def workers(replicas: Any, gpus: int, **more: Any) -> Object:
    """The spec of a cluster: a head without GPUs, and a group of `replicas` workers of `gpus` each."""
    group = {
        "groupName": "gpu", "replicas": replicas, "minReplicas": 1, "maxReplicas": 10, "template": _template(gpus, "8"),
        **more,
    }  # fmt: skip
    return {"headGroupSpec": {"template": _template(0)}, "workerGroupSpecs": [group]}


def labels_of(kind: str, name: str) -> Mapping[str, str]:
    """What the operator puts on the pods of an object."""
    return {
        "ray.io/cluster": name, "ray.io/originated-from-cr-name": name, "ray.io/originated-from-crd": kind,
    }  # fmt: skip


def _thing(kind: str, name: str, spec: Object, status: Object, **metadata: Any) -> Object:
    named = {"name": name, "namespace": "team-a", "uid": f"uid-{name}", "creationTimestamp": EIGHT, **metadata}
    return {"apiVersion": "ray.io/v1", "kind": kind, "metadata": named, "spec": spec, "status": status}


def ray_job(name: str, state: str, cluster: Object, **more: Any) -> Object:
    """`suspend` of the spec, `labels`; everything else goes into the status."""
    suspend, labels = more.pop("suspend", False), more.pop("labels", {})
    status = {"jobDeploymentStatus": state, **more} if state else dict(more)
    spec = {"entrypoint": "python train.py", "suspend": suspend, "rayClusterSpec": cluster}
    return _thing("RayJob", name, spec, status, labels=labels)


def ray_service(name: str, cluster: Object, **status: Any) -> Object:
    return _thing("RayService", name, {"rayClusterConfig": cluster}, status)


def ray_cluster(name: str, state: str, cluster: Object, **more: Any) -> Object:
    """`suspend` of the spec, `owner` (kind, name), `conditions`; ready since nine where it is."""
    owners = [
        {"apiVersion": "ray.io/v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
        for kind, owner in [more["owner"]]
    ] if "owner" in more else []  # fmt: skip
    status = {
        **({"state": state} if state else {}),
        **({"stateTransitionTimes": {"ready": NINE}} if state == "ready" else {}),
        **({"conditions": more["conditions"]} if "conditions" in more else {}),
    }
    spec = {**cluster, **({"suspend": True} if more.get("suspend") else {})}
    return _thing("RayCluster", name, spec, status, ownerReferences=owners)


def condition(kind: str, reason: str, message: str = "") -> Object:
    return {"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": NINE}


def mapped(*objects: Object, is_valid: bool = True) -> SchedulerSnapshot:
    """The adapter's records of objects of all kinds; its own kinds are there, be it without objects."""
    published = schemas()
    kinds: dict[str, Sequence[Object]] = {key: [] for key in KINDS.values()}
    for one in objects:
        if one["kind"] in KINDS and published is not None and is_valid:
            assert published.check(one) == []
        key = KINDS.get(one["kind"]) or {"Node": "nodes", "Pod": "pods", "ResourceQuota": "resourcequotas"}[one["kind"]]
        kinds[key] = [*kinds.get(key, ()), one]
    reader = KubeRay.from_options({"url": "http://127.0.0.1:1"}, rules=Rules(), clock=FakeClock(NOW))
    return reader.mapped(moment(**kinds))
