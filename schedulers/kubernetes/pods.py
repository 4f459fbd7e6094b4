"""What one pod says of itself: whose it is, what it asks for, when it ran. Pure functions of the API's JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from gpuledger.attribution import Owner
from schedulers.kubernetes.quantities import quantity
from schedulers.kubernetes.times import instant

Object = Mapping[str, Any]
"""One object of the API as JSON gave it."""

ENDED = ("Succeeded", "Failed")


def meta(thing: Object) -> Object:
    """The metadata of an object."""
    return thing.get("metadata") or {}


def name_of(thing: Object) -> str:
    """Namespace and name ("team-a/train-0"), or the name alone of an object of the cluster."""
    named = meta(thing)
    return f"{named['namespace']}/{named.get('name')}" if named.get("namespace") else str(named.get("name"))


def uid_of(pod: Object, cluster: str) -> str:
    """The pod's uid; where an object has none, what kube-state-metrics' reader takes for it."""
    named = meta(pod)
    return named.get("uid") or f"{cluster}/{named.get('namespace')}/{named.get('name')}"


def owner_of(pod: Object) -> Owner | None:
    """Who controls it; of several owners that do not control it the first by kind and name."""
    owners: Sequence[Object] = meta(pod).get("ownerReferences") or ()
    best = min(owners, key=lambda one: (not one.get("controller"), one["kind"], one["name"]), default=None)
    return Owner(best["kind"], best["name"]) if best else None


def _asked(container: Object) -> dict[str, float]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: quantity(amount, name) for name, amount in asked.items()}


def _add(total: dict[str, float], more: Mapping[str, float]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0.0) + amount


def requests_of(pod: Object) -> dict[str, float]:
    """What it holds of each resource, in the cluster's spelling and the resource's unit (cores, bytes, devices).

    Kubernetes' rule: containers run side by side; init containers before them, one after the other, each beside the
    restartable ones (sidecars) that came before it; the larger counts, and the overhead on top. A limit without a
    request is a request. Raises BadInput for what is no quantity.
    """
    spec = pod.get("spec") or {}
    sidecars: dict[str, float] = {}
    peak: dict[str, float] = {}
    for container in spec.get("initContainers") or ():
        asked = _asked(container)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, asked)
            asked = dict(sidecars)
        else:
            _add(asked, sidecars)
        peak = {name: max(peak.get(name, 0.0), asked.get(name, 0.0)) for name in {*peak, *asked}}
    total = dict(sidecars)
    for container in spec.get("containers") or ():
        _add(total, _asked(container))
    total = {name: max(total.get(name, 0.0), peak.get(name, 0.0)) for name in {*total, *peak}}
    total.update(_asked(spec))
    _add(total, {name: quantity(amount, name) for name, amount in (spec.get("overhead") or {}).items()})
    return total


def phase_of(pod: Object) -> str | None:
    """Pending, Running, Succeeded, Failed or Unknown; None where it does not say."""
    return (pod.get("status") or {}).get("phase")


def node_of(pod: Object) -> str | None:
    """The node that it is bound to; None while it waits for one."""
    return (pod.get("spec") or {}).get("nodeName") or None


def created_at(pod: Object) -> datetime | None:
    """When the object was made."""
    return instant(meta(pod).get("creationTimestamp"), "metadata.creationTimestamp")


def started_at(pod: Object) -> datetime | None:
    """When the kubelet took it."""
    return instant((pod.get("status") or {}).get("startTime"), "status.startTime")


def ended_at(pod: Object, gone_at: datetime | None = None) -> datetime | None:
    """When its last container ended; None while it runs.

    Of a pod that is over without a word from its containers: when it last changed its condition, or was to be gone
    where that is earlier; it may be deleted, and `gone_at`, days later. One that was not over has ended by `gone_at`.
    """
    if phase_of(pod) not in ENDED and gone_at is None:
        return None
    status = pod.get("status") or {}
    begin = started_at(pod)
    finished = [
        instant(state["terminated"].get("finishedAt"), "finishedAt")
        for key in ("containerStatuses", "initContainerStatuses")
        for one in status.get(key) or ()
        if (state := one.get("state") or {}).get("terminated")
    ]
    known = [at for at in finished if at]
    running = any("running" in (one.get("state") or {}) for one in status.get("containerStatuses") or ())
    if known and not running:
        end: datetime | None = max(known)
    elif phase_of(pod) in ENDED:
        end = _let_go(pod) or gone_at or begin or created_at(pod)
    else:
        end = gone_at
    return max(end, begin) if end and begin else end


def _let_go(pod: Object) -> datetime | None:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    changes = [instant(one.get("lastTransitionTime"), "lastTransitionTime") for one in conditions]
    leaving = instant(meta(pod).get("deletionTimestamp"), "metadata.deletionTimestamp")
    changed = max((at for at in changes if at), default=None)
    return min((at for at in (leaving, changed) if at), default=None)


def holds_node(pod: Object) -> bool:
    """Whether the scheduler counts its requests against a node: bound, and not over."""
    return node_of(pod) is not None and phase_of(pod) not in ENDED


def condition_of(thing: Object, kind: str) -> Object | None:
    """The condition of type `kind` in its status."""
    conditions: Sequence[Object] = (thing.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), None)
