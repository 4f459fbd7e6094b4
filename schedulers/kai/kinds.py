"""What KAI keeps in the API beyond the core's kinds, and how its objects point at each other."""

from __future__ import annotations

from schedulers.kubernetes.moment import Kind
from schedulers.kubernetes.pods import Object, meta

QUEUES = Kind("scheduling.run.ai", "queues", ("v2",), is_namespaced=False, is_optional=False)
POD_GROUPS = Kind("scheduling.run.ai", "podgroups", ("v2alpha2",))
TOPOLOGIES = Kind("kai.scheduler", "topologies", ("v1alpha1",), is_namespaced=False)

GROUP_ANNOTATION = "pod-group-name"
QUEUE_LABELS = ("kai.scheduler/queue", "runai/queue")
"""How a pod names its queue; the second until release 0.6."""

RESERVATIONS = ("kai-resource-reservation", "runai-reservation")
"""Namespaces of the pods that hold a card for those that share it; the second until release 0.6."""


def group_of(pod: Object) -> str | None:
    """The pod group that `pod` is a member of ("namespace/name"); None for a pod of no group."""
    named = meta(pod)
    name = (named.get("annotations") or {}).get(GROUP_ANNOTATION)
    return f"{named.get('namespace')}/{name}" if name else None


def queue_of(thing: Object) -> str | None:
    """The queue that a pod or a pod group asks for: its spec's word, else its label's."""
    labels = meta(thing).get("labels") or {}
    named = next((labels[key] for key in QUEUE_LABELS if labels.get(key)), None)
    return (thing.get("spec") or {}).get("queue") or named
