"""Kueue's objects as its API writes them, in both versions, and moments made of them.

Where the published schemas are at hand every object is judged by them, unless a test says that it is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.attribution.rules import parse
from gpuledger.ports import SchedulerSnapshot, SnapshotScope
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Schemas, Store
from schedulers.kubernetes.moment import Moment
from schedulers.kueue import Kueue
from schedulers.kueue.kinds import KINDS, keep_workload

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GROUP = "kueue.x-k8s.io"
CRDS = Path(__file__).resolve().parents[3] / "shared" / "crds" / "kueue"
GPU = "nvidia.com/gpu"
Object = dict[str, Any]
Rows = list[dict[str, Any]]


def at(minutes_ago: float) -> str:
    return (NOW - timedelta(minutes=minutes_ago)).isoformat().replace("+00:00", "Z")


def then(minutes_ago: float) -> datetime:
    return NOW - timedelta(minutes=minutes_ago)


@lru_cache(maxsize=1)
def schemas() -> Schemas | None:
    """The published ones; None where this checkout has none beside it."""
    return Schemas.read(CRDS) if CRDS.is_dir() else None


def _thing(kind: str, name: str, version: str, namespace: str = "", **metadata: Any) -> Object:
    named = {"name": name, "uid": f"uid-{kind}-{name}", "creationTimestamp": at(120), **metadata}
    if namespace:
        named["namespace"] = namespace
    return {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": named}


def quota(
    nominal: str | int, borrowing: str | int | None = None, lending: str | int | None = None, name: str = GPU
) -> Object:
    given = {"name": name, "nominalQuota": nominal, "borrowingLimit": borrowing, "lendingLimit": lending}
    return {key: value for key, value in given.items() if value is not None}


def group(flavors: Mapping[str, Sequence[Object]]) -> Object:
    covered = sorted({one["name"] for resources in flavors.values() for one in resources})
    return {
        "coveredResources": covered,
        "flavors": [{"name": name, "resources": list(resources)} for name, resources in flavors.items()],
    }


def usage(flavors: Mapping[str, Mapping[str, tuple[int | str, int | str]]]) -> list[Object]:
    """{flavor: {resource: (total, borrowed)}}."""
    return [
        {
            "name": flavor,
            "resources": [{"name": name, "total": total, "borrowed": more} for name, (total, more) in told.items()],
        }
        for flavor, told in flavors.items()
    ]


def cluster_queue(
    name: str,
    flavors: Mapping[str, Sequence[Object]],
    *,
    cohort: str | None = None,
    version: str = "v1beta2",
    reserved: list[Object] | None = None,
    used: list[Object] | None = None,
    is_active: bool = True,
    **spec: Any,
) -> Object:
    thing = _thing("ClusterQueue", name, version)
    thing["spec"] = {"resourceGroups": [group(flavors)], **spec}
    if cohort:
        thing["spec"]["cohortName" if version == "v1beta2" else "cohort"] = cohort
    status = {"conditions": [true("Active", "Ready") if is_active else false("Active", "FlavorNotFound")]}
    books = {"flavorsReservation": reserved, "flavorsUsage": used}
    thing["status"] = {**status, **{key: value for key, value in books.items() if value is not None}}
    return thing


def cohort(
    name: str,
    parent: str | None = None,
    flavors: Mapping[str, Sequence[Object]] | None = None,
    *,
    version: str = "v1beta2",
) -> Object:
    thing = _thing("Cohort", name, version)
    thing["spec"] = {"resourceGroups": [group(flavors)]} if flavors else {}
    if parent:
        thing["spec"]["parentName"] = parent
    return thing


def local_queue(namespace: str, name: str, queue: str, *, version: str = "v1beta2", **more: Any) -> Object:
    thing = _thing("LocalQueue", name, version, namespace)
    spec = {"stopPolicy": more["stop"]} if "stop" in more else {}
    thing["spec"] = {"clusterQueue": queue, **spec}
    thing["status"] = {"conditions": [true("Active", "Ready")]}
    if "used" in more:
        thing["status"]["flavorsUsage" if version == "v1beta2" else "flavorUsage"] = more["used"]
        thing["status"]["flavorsReservation"] = more["used"]
    return thing


def flavor(name: str, product: str | None = None, *, version: str = "v1beta2") -> Object:
    thing = _thing("ResourceFlavor", name, version)
    thing["spec"] = {"nodeLabels": {"nvidia.com/gpu.product": product}} if product else {}
    return thing


def true(kind: str, reason: str, message: str = "", minutes_ago: float = 5) -> Object:
    return _condition("True", kind, reason, message, minutes_ago)


def false(kind: str, reason: str, message: str = "", minutes_ago: float = 5) -> Object:
    return _condition("False", kind, reason, message, minutes_ago)


def _condition(status: str, kind: str, reason: str, message: str, minutes_ago: float) -> Object:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(minutes_ago),
    }


def container(requests: Mapping[str, Any]) -> Object:
    return {"name": "main", "image": "train:1", "resources": {"requests": dict(requests), "limits": dict(requests)}}


def pod_set(
    count: int, requests: Mapping[str, Any], name: str = "main", labels: Mapping[str, str] | None = None
) -> Object:
    template: Object = {"spec": {"containers": [container(requests)]}}
    if labels:
        template["metadata"] = {"labels": dict(labels)}
    return {"name": name, "count": count, "template": template}


def owner(kind: str, name: str, uid: str = "") -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": kind,
        "name": name,
        "uid": uid or f"uid-{kind}-{name}",
        "controller": True,
    }


def workload(
    name: str,
    *conditions: Object,
    queue: str = "gpus",
    namespace: str = "team-a",
    pod_sets: Sequence[Object] | None = None,
    gpus: int = 8,
    owned_by: Object | None = None,
    version: str = "v1beta2",
    made: float = 60,
    spec: Mapping[str, Any] | None = None,
    **status: Any,
) -> Object:
    """One pod set of one pod with `gpus` unless `pod_sets` says more; owned by the Job of its name."""
    thing = _thing("Workload", name, version, namespace, creationTimestamp=at(made))
    thing["metadata"]["ownerReferences"] = [owned_by or owner("Job", name)]
    sets = list(pod_sets or [pod_set(1, {GPU: gpus})])
    thing["spec"] = {"queueName": queue, "podSets": sets, **(spec or {})}
    thing["status"] = {"conditions": list(conditions), **status}
    return thing


def admission(queue: str, usage: Mapping[str, Any], count: int = 1, flavor: str = "h100", name: str = "main") -> Object:
    given = {"name": name, "count": count, "flavors": dict.fromkeys(usage, flavor), "resourceUsage": dict(usage)}
    return {"clusterQueue": queue, "podSetAssignments": [given]}


def pod(
    name: str, owned_by: Object | None, gpus: int = 8, *, node: str = "n1", namespace: str = "team-a", **more: Any
) -> Object:
    metadata = {
        "name": name, "namespace": namespace, "uid": f"uid-{namespace}-{name}", "creationTimestamp": at(50),
        "labels": more.get("labels", {}), "annotations": more.get("annotations", {}),
    }  # fmt: skip
    if owned_by:
        metadata["ownerReferences"] = [owned_by]
    phase = more.get("phase", "Running")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [container({GPU: gpus})]},
        "status": {"phase": phase, "startTime": at(45)},
    }


def node(name: str, gpus: int = 32) -> Object:
    amounts = {GPU: str(gpus), "cpu": "192", "memory": "2Ti"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": at(500)}],
        },
    }


PLURALS = {
    "Node": "nodes",
    "Pod": "pods",
    **{
        kind: f"{plural}.{GROUP}"
        for kind, plural in {
            "ClusterQueue": "clusterqueues",
            "Cohort": "cohorts",
            "LocalQueue": "localqueues",
            "Workload": "workloads",
            "WorkloadPriorityClass": "workloadpriorityclasses",
            "ResourceFlavor": "resourceflavors",
            "AdmissionCheck": "admissionchecks",
            "Topology": "topologies",
        }.items()
    },
}


def assert_valid(things: Iterable[Object]) -> None:
    known = schemas()
    for thing in things:
        if known and thing["apiVersion"].startswith(GROUP):
            assert known.check(thing) == [], thing["metadata"]["name"]


def moment(
    *things: Object, version: str = "v1beta2", scope: SnapshotScope | None = None, is_valid: bool = True, **extra: Any
) -> Moment:
    """Everything that a cluster has: kinds without an object are there and empty."""
    if is_valid:
        assert_valid(things)
    objects: dict[str, list[Object]] = {"nodes": [], "pods": [], **{kind.key: [] for kind in KINDS}}
    for thing in things:
        kept = keep_workload(thing) if thing["kind"] == "Workload" else thing
        objects[PLURALS[thing["kind"]]].append(dict(kept))
    objects.update(extra.get("objects", {}))
    for key in extra.get("without", ()):
        del objects[key]
    served = {kind.key: f"{GROUP}/{version}" for kind in KINDS}
    return Moment(taken_at=NOW, version="7", objects=objects, served=served, scope=scope or SnapshotScope())


def read(found: Moment, *, cluster: str = "default", rules: Mapping[str, Any] | None = None) -> SchedulerSnapshot:
    reader = Kueue.from_options(
        {"url": "http://localhost:1"}, cluster=cluster, rules=parse(rules) if rules else Rules(), clock=FakeClock(NOW)
    )
    return reader.mapped(found)


def rows(snapshot: SchedulerSnapshot, record: str, **where: Any) -> Rows:
    table = snapshot.records.get(record)
    found = table.to_pylist() if table is not None else []
    return [row for row in found if all(row[key] == value for key, value in where.items())]


def only(snapshot: SchedulerSnapshot, record: str, **where: Any) -> dict[str, Any]:
    found = rows(snapshot, record, **where)
    assert len(found) == 1, (record, where, found)
    return found[0]


def definitions() -> list[Object]:
    """Kueue's kinds in our own words: names and versions, any content."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scopes = {"LocalQueue": "Namespaced", "Workload": "Namespaced"}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": key},
            "spec": {
                "group": GROUP,
                "names": {"plural": key.partition(".")[0], "kind": kind},
                "scope": scopes.get(kind, "Cluster"),
                "versions": [
                    {
                        "name": name,
                        "served": True,
                        "storage": name == "v1beta2",
                        "schema": {"openAPIV3Schema": anything},
                        "subresources": {"status": {}},
                    }
                    for name in ("v1beta1", "v1beta2")
                ],
            },
        }
        for kind, key in PLURALS.items()
        if key.endswith(GROUP)
    ]


def store(*things: Object, version: str = "v1beta2", published: bool = False) -> Store:
    """A cluster that holds `things` and serves Kueue in one version, by the `published` schemas or our own words."""
    made = Store(clock=FakeClock(NOW))
    known = schemas() if published else None
    for definition in known.definitions if known else definitions():
        if version in {one["name"] for one in definition["spec"]["versions"]}:
            made.define(definition, only=(version,))
    for name in sorted({thing["metadata"]["namespace"] for thing in things if "namespace" in thing["metadata"]}):
        made.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for thing in things:
        made.put(thing)
    return made


QUEUES = (cluster_queue("gpus", {"h100": [quota(32)]}), local_queue("team-a", "gpus", "gpus"))


def beside_queues(*jobs: Object, **more: Any) -> Any:
    return read(moment(node("n1"), *QUEUES, *jobs, **more))
