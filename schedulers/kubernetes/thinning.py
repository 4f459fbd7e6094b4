"""Leaves of a fresh object what mappings need: of 20,000 pods the rest is most of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schedulers.kubernetes.pods import Object

MAX_ANNOTATION = 16_384
"""Characters; a longer annotation is none of a scheduler's."""

_CONTAINER = ("name", "resources", "restartPolicy")
_SPEC = (
    "nodeName",
    "priority",
    "priorityClassName",
    "preemptionPolicy",
    "schedulerName",
    "schedulingGates",
    "schedulingGroup",
    "workloadRef",
    "resourceClaims",
    "resources",
    "overhead",
    "nodeSelector",
)
_STATUS = (
    "phase",
    "reason",
    "message",
    "startTime",
    "conditions",
    "nominatedNodeName",
    "resourceClaimStatuses",
)
_NODE_SPEC = ("unschedulable", "taints")
_NODE_STATUS = ("capacity", "allocatable", "conditions")
_EVENT = (
    "involvedObject",
    "reason",
    "message",
    "type",
    "count",
    "firstTimestamp",
    "lastTimestamp",
    "eventTime",
    "series",
    "source",
)


def _part(given: Mapping[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: given[name] for name in names if name in given} if given else {}


def _metadata(item: Object) -> Mapping[str, Any]:
    named: Mapping[str, Any] = item.get("metadata") or {}
    annotations = named.get("annotations")
    if annotations and any(len(text) > MAX_ANNOTATION for text in annotations.values()):
        kept = {name: text for name, text in annotations.items() if len(text) <= MAX_ANNOTATION}
        return {**named, "annotations": kept}
    return named


def thin_pod(pod: Object) -> Object:
    """Names, labels, annotations, requests, place, and how its containers fare."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    containers = {
        key: [_part(one, _CONTAINER) for one in spec[key]] for key in ("containers", "initContainers") if spec.get(key)
    }
    states = {
        key: [{"name": one.get("name"), "ready": one.get("ready"), "state": one.get("state")} for one in status[key]]
        for key in ("containerStatuses", "initContainerStatuses")
        if status.get(key)
    }
    return {
        "metadata": _metadata(pod),
        "spec": {**_part(spec, _SPEC), **containers},
        "status": {**_part(status, _STATUS), **states},
    }


def thin_node(node: Object) -> Object:
    """Names, labels, annotations, amounts, taints and conditions."""
    return {
        "metadata": _metadata(node),
        "spec": _part(node.get("spec"), _NODE_SPEC),
        "status": _status(node.get("status") or {}),
    }


def _status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Without heartbeats: they are no news."""
    conditions = [
        {name: value for name, value in one.items() if name != "lastHeartbeatTime"}
        for one in status.get("conditions") or ()
    ]
    return {**_part(status, _NODE_STATUS), "conditions": conditions}


def thin_event(event: Object) -> Object | None:
    """A warning about something that does not start; None for any other event."""
    if event.get("type") == "Normal":
        return None
    return {"metadata": event.get("metadata") or {}, **_part(event, _EVENT)}
