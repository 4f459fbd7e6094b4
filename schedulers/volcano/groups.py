"""Volcano's pod groups: their pods, what they want at least, and the workload that each of them is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuledger.attribution import Attribution, Owner
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.moment import Moment
from schedulers.kubernetes.pods import (
    ENDED,
    Object,
    holds_node,
    meta,
    name_of,
    node_of,
    owner_of,
    phase_of,
    requests_of,
)
from schedulers.volcano.kinds import JOBS, POD_GROUPS, group_of, queue_of
from schedulers.volcano.spec import amounts_of

WAITING = ("Pending", "Inqueue")
"""Phases of a group that does not run: its queue has not let it in, or it has and no nodes were found."""

_REQUESTS = "requests."


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """A pod group with its pods, and the Volcano job that made it where one did."""

    key: str
    queue: str
    phase: str
    given: Object
    pods: Sequence[Object] = ()
    job: Object | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it waits as a whole."""
        return self.phase in WAITING

    @property
    def min_member(self) -> int:
        """How many of its pods must start together; 0 where it does not say."""
        return int((self.given.get("spec") or {}).get("minMember") or 0)

    @property
    def unplaced(self) -> Sequence[Object]:
        """Its pods that have no node and are not over."""
        return [pod for pod in self.pods if node_of(pod) is None and phase_of(pod) not in ENDED]

    def wanted(self) -> dict[str, float] | None:
        """What it still wants at least, by resource: its minimum less what its placed pods hold.

        A group without a minimum wants what its pods ask for, or its job; None where nothing of it says.
        """
        least = _plain(amounts_of((self.given.get("spec") or {}).get("minResources"), "spec.minResources"))
        if not least:
            if self.unplaced:
                return _sum(requests_of(pod) for pod in self.unplaced)
            return _sum(_task_requests(self.job)) if self.job is not None and not self.pods else None
        held = _sum(requests_of(pod) for pod in self.pods if holds_node(pod))
        return {resource: max(0.0, amount - held.get(resource, 0.0)) for resource, amount in least.items()}


def groups_of(moment: Moment, core: CoreFacts) -> Iterator[PodGroup]:
    """Every pod group of the moment. Raises nothing: what is wrong in one shows when it is asked."""
    members: dict[str, list[Object]] = {}
    for pod in core.pods_by_uid.values():
        if (key := group_of(pod)) is not None:
            members.setdefault(key, []).append(pod)
    jobs = {name_of(job): job for job in moment.of(JOBS)}
    for group in moment.of(POD_GROUPS):
        key, owner = name_of(group), owner_of(group)
        job = jobs.get(f"{meta(group).get('namespace')}/{owner.name}") if owner and owner.kind == "Job" else None
        phase = (group.get("status") or {}).get("phase") or "Pending"
        pods = members.get(key, ())
        yield PodGroup(key=key, queue=queue_of(group), phase=phase, given=group, pods=pods, job=job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What the pods of a job will ask for, before there are any: `most` is the largest of them."""

    count: int
    most: Mapping[str, float] = field(default_factory=dict)


def shape_of(job: Object, core: CoreFacts) -> Shape | None:
    """The shape of a job that asks for GPUs; None for one that does not."""
    requests = list(_task_requests(job))
    most = max(requests, key=lambda one: sum(amount for name, amount in one.items() if core.counts(name)), default={})
    if not any(amount for name, amount in most.items() if core.counts(name)):
        return None
    return Shape(count=len(requests), most=most)


def whose_group(group: PodGroup, core: CoreFacts) -> Attribution | None:
    """Whose a group without pods is: by its job or owner, as its pods will say. None where it has neither."""
    named = meta(group.given)
    owner = owner_of(group.given)
    if owner is None:
        return None
    labels = dict(named.get("labels") or {})
    if group.job is not None:
        labels |= _labels_of_tasks(group.job)
        labels |= {"volcano.sh/job-name": owner.name, "volcano.sh/queue-name": group.queue}
    return core.whose(named["namespace"], owner.name, labels, Owner(owner.kind, owner.name))


def _plain(amounts: Mapping[str, float]) -> dict[str, float]:
    """Some versions write a minimum as a ResourceQuota would: "requests.nvidia.com/gpu" beside, or for, the name."""
    named = {name.removeprefix(_REQUESTS): amount for name, amount in amounts.items() if name.startswith(_REQUESTS)}
    others = ("limits.", "count/", _REQUESTS)
    return {**named, **{name: amount for name, amount in amounts.items() if not name.startswith(others)}}


def _sum(many: Iterator[dict[str, float]] | Any) -> dict[str, float]:
    total: dict[str, float] = {}
    for one in many:
        for resource, amount in one.items():
            total[resource] = total.get(resource, 0.0) + amount
    return total


def _task_requests(job: Object) -> Iterator[dict[str, float]]:
    """The requests of each pod that the job will make."""
    for task in (job.get("spec") or {}).get("tasks") or ():
        asked = requests_of(task.get("template") or {})
        for _ in range(int(task["replicas"] if task.get("replicas") is not None else 1)):
            yield asked


def _labels_of_tasks(job: Object) -> dict[str, str]:
    labels: dict[str, str] = {}
    for task in reversed((job.get("spec") or {}).get("tasks") or ()):
        labels |= meta(task.get("template") or {}).get("labels") or {}
    return labels
