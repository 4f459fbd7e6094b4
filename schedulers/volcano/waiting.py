"""Why a Volcano gang waits: the facts of its pods before the words that wrap them.

The gang plugin writes "1/4 tasks in gang unschedulable" over what keeps one pod from its node, and a pod that would fit
says that it can be placed. Each pod is asked for what is in its own way (its condition and its events), the group for
what keeps it out of its queue; of all of it the most specific counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpuledger.model import Wait
from schedulers.kubernetes.pods import Object, condition_of, created_at, meta, name_of
from schedulers.kubernetes.times import instant
from schedulers.reasons import Told, root
from schedulers.volcano.groups import PodGroup
from schedulers.volcano.reasons import says_it_fits, tell
from schedulers.volcano.spec import QueueSpec, amounts_of

FRESH = timedelta(minutes=15)
"""A reason that still holds is told again at least every five minutes (the events' rate limit); what is this much older
than the newest word about a pod does not hold any more."""


@dataclass(frozen=True, slots=True)
class Event:
    """What the scheduler said about an object: `at` is when it was said last."""

    reason: str
    message: str
    at: datetime | None


NO_REASONS = frozenset({"Evict", "Scheduled"})
"""What the scheduler did to a pod: no reason why it waits."""

Events = Mapping[tuple[str, str], Sequence[Event]]
"""By (kind, "namespace/name") of the object that they are about."""


def events_of(given: Iterable[Object]) -> Events:
    """The events of pods and pod groups that say why something is not placed."""
    found: dict[tuple[str, str], list[Event]] = {}
    for one in given:
        about = one.get("involvedObject") or {}
        said = Event(one.get("reason") or "", one.get("message") or "", _last_at(one))
        found.setdefault((about.get("kind") or "", f"{about.get('namespace')}/{about.get('name')}"), []).append(said)
    return found


def _last_at(event: Object) -> datetime | None:
    series = event.get("series") or {}
    named = ("lastTimestamp", "eventTime", "firstTimestamp")
    found = [instant(series.get("lastObservedTime")), *(instant(event.get(key)) for key in named)]
    return next((at for at in found if at), None)


def wait_of(group: PodGroup, events: Events, queue: QueueSpec | None, workload_id: str, at: datetime) -> Wait:
    """Why `group` waits, as of `at`. The wait names no GPUs: its caller knows them."""
    of_pods = [one for pod in group.unplaced if (one := _of_pod(pod, events))]
    told = [*of_pods, *_of_group(group, events, queue)]
    chosen = root(told) or Told("scheduler", group.phase, "nothing is said to be in its way")
    blocked = [one for one in of_pods if one.cause == chosen.cause]
    message = f"{chosen.subject}: {chosen.message}" if chosen.subject and chosen.message else chosen.message
    return Wait(
        workload_id=workload_id,
        from_at=min(at, _since(group, blocked) or at),
        cause=chosen.cause,
        reason=chosen.reason,
        message=message or None,
        pods=len(blocked) or None,
    )


def _of_pod(pod: Object, events: Events) -> Told | None:
    """What is in the way of one pod; None where nothing is, or nothing is said."""
    return root(_pod_told(pod, events))


def _pod_told(pod: Object, events: Events) -> Iterator[Told]:
    name = str(meta(pod).get("name"))
    condition = condition_of(pod, "PodScheduled")
    if condition is not None and condition.get("status") == "False":
        reason, message = condition.get("reason") or "", condition.get("message") or ""
        if not says_it_fits(reason, message):
            yield tell(reason, message, name)
    for one in _fresh(events.get(("Pod", name_of(pod)), ())):
        if one.reason not in NO_REASONS and not says_it_fits(one.reason, one.message):
            yield tell(one.reason, one.message, name)


def _fresh(said: Sequence[Event]) -> Iterator[Event]:
    newest = max((one.at for one in said if one.at), default=None)
    for one in said:
        if newest is None or one.at is None or newest - one.at <= FRESH:
            yield one


def _of_group(group: PodGroup, events: Events, queue: QueueSpec | None) -> Iterator[Told]:
    yield from _of_queue(group, queue)
    condition = condition_of(group.given, "Unschedulable")
    if condition is not None and condition.get("status") == "True":
        yield tell(condition.get("reason") or "Unschedulable", condition.get("message") or "")
    for one in _fresh(events.get(("PodGroup", group.key), ())):
        told = tell(one.reason, one.message)
        if told.cause != "quota" or group.phase == "Pending":
            yield told


def _of_queue(group: PodGroup, queue: QueueSpec | None) -> Iterator[Told]:
    if queue is None:
        yield Told("own_config", "QueueNotFound", f"queue {group.queue} is not there")
        return
    if queue.status in ("closed", "draining"):
        yield Told("held", "QueueClosed", f"queue {queue.name} is {queue.status}")
    least = amounts_of((group.given.get("spec") or {}).get("minResources"), "spec.minResources")
    for resource, amount in sorted(least.items()):
        limit = queue.capability.get(resource)
        if limit is not None and amount > limit:
            words = f"it wants at least {amount:g} {resource}, the capability of queue {queue.name} is {limit:g}"
            yield Told("exceeds_max", "OverCapability", words)


def _since(group: PodGroup, blocked: Sequence[Told]) -> datetime | None:
    """When this began, as far as that is told.

    A pod's condition keeps its time while its status stays; the group's is written anew every minute or so and tells
    nothing. A group without pods was never let in: it waits since it was made.
    """
    if not group.pods:
        was_let_in = condition_of(group.given, "Scheduled") is not None
        return None if was_let_in else created_at(group.given)
    names = {one.subject for one in blocked}
    changes = [
        instant((condition_of(pod, "PodScheduled") or {}).get("lastTransitionTime"), "lastTransitionTime")
        for pod in group.unplaced
        if not names or meta(pod).get("name") in names
    ]
    return min((change for change in changes if change), default=None)
