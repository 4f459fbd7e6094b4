"""What is read of Kueue, thinned to what the mapping needs, and the rights for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schedulers.kubernetes.moment import Kind
from schedulers.kubernetes.pods import Object
from schedulers.kueue.versions import GROUP, VERSIONS
from schedulers.rights import Right

VISIBILITY_GROUP = "visibility.kueue.x-k8s.io"

_POD_SPEC = ("containers", "initContainers", "overhead", "resources", "resourceClaims")


def _thin_template(template: Object) -> Mapping[str, Any]:
    spec = template.get("spec") or {}
    asked = {
        key: [
            {name: one[name] for name in ("resources", "restartPolicy") if name in one}
            if "containers" in key.lower()
            else one
            for one in spec[key]
        ]
        if isinstance(spec.get(key), list)
        else spec[key]
        for key in _POD_SPEC
        if key in spec
    }
    labels = (template.get("metadata") or {}).get("labels") or {}
    return {"metadata": {"labels": labels}, "spec": asked}


def keep_workload(thing: Object) -> Object:
    """A Workload without the parts of its pod templates that say nothing about resources or owners."""
    spec = dict(thing.get("spec") or {})
    spec["podSets"] = [
        {**pod_set, "template": _thin_template(pod_set.get("template") or {})} for pod_set in spec.get("podSets") or ()
    ]
    metadata = {key: value for key, value in (thing.get("metadata") or {}).items() if key != "managedFields"}
    return {**thing, "metadata": metadata, "spec": spec}


CLUSTER_QUEUES = Kind(GROUP, "clusterqueues", VERSIONS, is_namespaced=False)
COHORTS = Kind(GROUP, "cohorts", VERSIONS, is_namespaced=False)
LOCAL_QUEUES = Kind(GROUP, "localqueues", VERSIONS)
WORKLOADS = Kind(GROUP, "workloads", VERSIONS, keep=keep_workload)
PRIORITIES = Kind(GROUP, "workloadpriorityclasses", VERSIONS, is_namespaced=False)
FLAVORS = Kind(GROUP, "resourceflavors", VERSIONS, is_namespaced=False)
CHECKS = Kind(GROUP, "admissionchecks", VERSIONS, is_namespaced=False)

TOPOLOGIES = Kind(GROUP, "topologies", VERSIONS, is_namespaced=False)

KINDS = (CLUSTER_QUEUES, COHORTS, LOCAL_QUEUES, WORKLOADS, PRIORITIES, FLAVORS, CHECKS, TOPOLOGIES)

RIGHTS = (
    Right(GROUP, tuple(kind.plural for kind in KINDS)),
    Right(VISIBILITY_GROUP, ("clusterqueues/pendingworkloads",), ("get",)),
)

POSITIONS = f"pendingworkloads.{VISIBILITY_GROUP}"
"""Key of the moment under which the queues' lists of waiting workloads lie."""
