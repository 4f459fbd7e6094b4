"""What Volcano keeps in the API beyond the core's kinds, and how its objects point at each other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schedulers.kubernetes.moment import Kind
from schedulers.kubernetes.pods import Object, meta

QUEUES = Kind("scheduling.volcano.sh", "queues", ("v1beta1",), is_namespaced=False, is_optional=False)
POD_GROUPS = Kind("scheduling.volcano.sh", "podgroups", ("v1beta1",))
HYPER_NODES = Kind("topology.volcano.sh", "hypernodes", ("v1alpha1",), is_namespaced=False)

ROOT = "root"
"""The built-in queue that stands above all others where queues have parents."""

DEFAULT_QUEUE = "default"

GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")
"""How a pod names its pod group; the first counts where both are set, as in the scheduler."""


def _thin_job(job: Object) -> Mapping[str, Any]:
    """A job without its containers' commands, volumes and environments."""
    spec = job.get("spec") or {}
    tasks = [
        {
            "name": task.get("name"),
            "replicas": task.get("replicas"),
            "minAvailable": task.get("minAvailable"),
            "template": _thin_template(task.get("template") or {}),
        }
        for task in spec.get("tasks") or ()
    ]
    kept = {key: spec[key] for key in ("queue", "minAvailable", "priorityClassName") if key in spec}
    return {"metadata": meta(job), "spec": {**kept, "tasks": tasks}, "status": job.get("status") or {}}


def _thin_template(template: Object) -> Mapping[str, Any]:
    spec = template.get("spec") or {}
    kept: dict[str, Any] = {
        key: [{"resources": one.get("resources") or {}, "restartPolicy": one.get("restartPolicy")} for one in spec[key]]
        for key in ("containers", "initContainers")
        if spec.get(key)
    }
    if spec.get("overhead"):
        kept["overhead"] = spec["overhead"]
    return {"metadata": {"labels": meta(template).get("labels") or {}}, "spec": kept}


JOBS = Kind("batch.volcano.sh", "jobs", ("v1alpha1",), keep=_thin_job)


def group_of(pod: Object) -> str | None:
    """The pod group that `pod` is a member of ("namespace/name"); None for a pod of no group."""
    named = meta(pod)
    annotations = named.get("annotations") or {}
    name = next((annotations[key] for key in GROUP_ANNOTATIONS if annotations.get(key)), None)
    return f"{named.get('namespace')}/{name}" if name else None


def queue_of(group: Object) -> str:
    """The queue that a pod group asks for."""
    return (group.get("spec") or {}).get("queue") or DEFAULT_QUEUE
