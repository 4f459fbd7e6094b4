"""KAI's pod groups: their pods, and why those that have no node wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuledger.model import Wait
from schedulers.kai.kinds import POD_GROUPS, group_of, queue_of
from schedulers.kai.reasons import Standing, standings, tell
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.moment import Moment
from schedulers.kubernetes.pods import ENDED, Object, condition_of, holds_node, meta, name_of, node_of, phase_of
from schedulers.kubernetes.times import instant
from schedulers.reasons import Told, root

_SAYS_LITTLE = frozenset({"unknown", "gang", "scheduler"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A pod group with its pods. `given` is None for pods whose group is not there (yet)."""

    key: str
    queue: str
    given: Object | None
    pods: Sequence[Object]

    @property
    def min_member(self) -> int:
        """How many of its pods must start together; 0 where it does not say."""
        return int(((self.given or {}).get("spec") or {}).get("minMember") or 0)

    @property
    def unplaced(self) -> Sequence[Object]:
        """Its pods that have no node and are not over."""
        return [pod for pod in self.pods if is_unplaced(pod)]

    @property
    def is_waiting(self) -> bool:
        """Whether it waits as a whole: fewer of its pods have a node than must start together."""
        placed = sum(holds_node(pod) for pod in self.pods)
        return bool(self.unplaced) and placed < max(1, self.min_member)


def is_unplaced(pod: Object) -> bool:
    """Whether it has no node and is not over."""
    return node_of(pod) is None and phase_of(pod) not in ENDED


def groups_of(moment: Moment, core: CoreFacts) -> Iterator[PodGroup]:
    """Every pod group of the moment, and the groups that pods name and that are not there."""
    members: dict[str, list[Object]] = {}
    for pod in core.pods_by_uid.values():
        if (key := group_of(pod)) is not None:
            members.setdefault(key, []).append(pod)
    given = {name_of(group): group for group in moment.of(POD_GROUPS)}
    for key in sorted({*given, *members}):
        group, pods = given.get(key), members.get(key, [])
        named = [queue for thing in (group, *pods) if thing is not None and (queue := queue_of(thing))]
        yield PodGroup(key=key, queue=named[0] if named else "", given=group, pods=pods)


def wait_of(group: PodGroup, core_wait: Wait | None, workload_id: str, at: datetime, *, is_queue_known: bool) -> Wait:
    """Why `group` waits, as of `at`. `core_wait` is what Kubernetes' part made of its pods' conditions and events."""
    found = [*standings(group.given or {}), *_of_pods(group)]
    if not is_queue_known:
        words = f"queue {group.queue} is not there" if group.queue else "no queue is named"
        found.append(Standing(Told("own_config", "QueueDoesNotExist", words), None))
    if core_wait is not None and core_wait.cause not in _SAYS_LITTLE:
        found.append(Standing(Told(core_wait.cause, core_wait.reason, core_wait.message or ""), core_wait.from_at))
    told = [one.told for one in found]
    chosen = root(told) or Told("scheduler", "Pending", "nothing is said to be in its way")
    since = found[told.index(chosen)].since if told else None
    blocked = {one.told.subject for one in found if one.told.subject and one.told.cause == chosen.cause}
    message = f"{chosen.subject}: {chosen.message}" if chosen.subject and chosen.message else chosen.message
    return Wait(
        workload_id=workload_id,
        from_at=min(at, since or at),
        cause=chosen.cause,
        reason=chosen.reason,
        message=message or None,
        pods=len(blocked) or len(group.unplaced),
    )


def _of_pods(group: PodGroup) -> Iterator[Standing]:
    for pod in group.unplaced:
        condition = condition_of(pod, "PodScheduled")
        if condition is not None and condition.get("status") == "False":
            told = tell(condition.get("reason") or "", condition.get("message") or "", str(meta(pod).get("name")))
            yield Standing(told, instant(condition.get("lastTransitionTime"), "lastTransitionTime"))
