"""Why pods wait: gates, what the scheduler said (conditions and events), and what keeps containers from starting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuledger.model import Wait
from schedulers.kubernetes.equivalents import of_pod
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.placing import Room, why_unplaced
from schedulers.kubernetes.pods import (
    ENDED,
    Object,
    condition_of,
    created_at,
    meta,
    name_of,
    node_of,
    phase_of,
)
from schedulers.kubernetes.times import instant
from schedulers.kubernetes.words import WORDS, Verdict, verdicts
from schedulers.reasons import Told, root

GATES: Mapping[str, str] = {
    "kueue.x-k8s.io/admission": "quota",
    "kueue.x-k8s.io/topology": "topology",
}
"""What a gate waits for; any other holds a pod by its owner's will."""

FRESH = timedelta(minutes=10)
"""A scheduler tries again every few minutes: an event that much older than the newest is over."""


@dataclass(frozen=True, slots=True)
class _Because:
    pod: Object
    told: Told
    since: datetime


def events_by_pod(events: Iterable[Object]) -> dict[tuple[str, str], list[Object]]:
    """Events about pods by (namespace, name), those that are over left out."""
    found: dict[tuple[str, str], list[Object]] = defaultdict(list)
    for event in events:
        about = event.get("involvedObject") or {}
        if about.get("kind") == "Pod":
            found[about.get("namespace") or "", about.get("name") or ""].append(event)
    return {key: _fresh(told) for key, told in found.items()}


def _seen_at(event: Object) -> datetime | None:
    series = event.get("series") or {}
    text = series.get("lastObservedTime") or event.get("lastTimestamp") or event.get("eventTime")
    return instant(text, "time of an event")


def _fresh(events: Sequence[Object]) -> list[Object]:
    seen = [_seen_at(event) for event in events]
    newest = max((at for at in seen if at), default=None)
    return [
        event for event, at in zip(events, seen, strict=True) if at is None or newest is None or newest - at <= FRESH
    ]


def wait_rows(core: CoreFacts, room: Room, events: Iterable[Object]) -> None:
    """Say for every workload whose pods all wait why they do; where some run it does not wait as a whole."""
    told = events_by_pod(events)
    for workload_id, pods in core.pods_by_workload.items():
        waiting = []
        for pod in pods:
            with core.rows.sparing(name_of(pod)):
                about = told.get((meta(pod)["namespace"], meta(pod)["name"]), [])
                waiting += [found for found in [_because(core, pod, room, about)] if found]
        if waiting:
            _say(core, workload_id, waiting)


def _say(core: CoreFacts, workload_id: str, waiting: Sequence[_Because]) -> None:
    main = root(one.told for one in waiting)
    if main is None or workload_id not in core.workloads:
        return
    gpus = [of_pod(core, one.pod) for one in waiting]
    known = [count for count in gpus if count is not None]
    wait = Wait(
        workload_id=workload_id,
        from_at=min(one.since for one in waiting if one.told.cause == main.cause),
        cause=main.cause,
        reason=main.reason,
        message=main.message or None,
        gpus=sum(known) if len(known) == len(gpus) else None,
        pods=len(waiting),
    )
    status = core.workloads[workload_id].status
    if status != "running":
        core.say(wait, "held" if main.cause in ("held", "dependency") else status)


def _because(core: CoreFacts, pod: Object, room: Room, events: Sequence[Object]) -> _Because | None:
    """Why `pod` waits; None for one that does not."""
    if phase_of(pod) in ("Running", "Unknown", *ENDED):
        return None
    scheduled = condition_of(pod, "PodScheduled")
    since = instant((scheduled or {}).get("lastTransitionTime"), "lastTransitionTime") or core.rows.taken_at
    if node_of(pod):
        told: Told | None = root([*_starting(pod), *_said(events)]) or Told("startup", "ContainerCreating")
    elif gates := (pod.get("spec") or {}).get("schedulingGates"):
        told = root(_gated(gates))
        since = since if scheduled else created_at(pod) or since
    else:
        told = _unplaced(core, pod, room, events, scheduled)
    return _Because(pod, told or Told("scheduler", "NotScheduled"), since)


def _gated(gates: Iterable[Object]) -> Iterator[Told]:
    for gate in gates:
        name = str(gate.get("name") or "")
        yield Told(GATES.get(name, "held"), "SchedulingGated", name)


def _unplaced(
    core: CoreFacts, pod: Object, room: Room, events: Sequence[Object], scheduled: Object | None
) -> Told | None:
    if (pod.get("status") or {}).get("nominatedNodeName"):
        return Told("preempt_wait", "NominatedNode", str(pod["status"]["nominatedNodeName"]))
    found: list[Verdict] = []
    for event in events:
        found += verdicts(str(event.get("reason") or ""), str(event.get("message") or ""))
    if scheduled and scheduled.get("status") == "False":
        found += verdicts(str(scheduled.get("reason") or ""), str(scheduled.get("message") or ""))
    return why_unplaced(core, pod, found, room)


def _said(events: Iterable[Object]) -> Iterator[Told]:
    """What events say of a pod that has its node: only what keeps its containers from starting."""
    for event in events:
        told = WORDS.tell(str(event.get("reason") or ""), str(event.get("message") or ""))
        if told.cause in ("storage", "own_config"):
            yield told


def _starting(pod: Object) -> Iterator[Told]:
    status = pod.get("status") or {}
    for key in ("initContainerStatuses", "containerStatuses"):
        for one in status.get(key) or ():
            waiting = (one.get("state") or {}).get("waiting")
            if waiting:
                told = WORDS.tell(str(waiting.get("reason") or ""), str(waiting.get("message") or ""))
                yield Told("startup", told.reason, told.message) if told.cause == "unknown" else told
