"""What Kueue counts against each queue, and what pods really hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from schedulers.kubernetes.equivalents import of_pod
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.pods import Object, holds_node, meta, name_of, node_of, uid_of
from schedulers.kueue.cards import Cards
from schedulers.kueue.cohorts import NOTHING
from schedulers.kueue.jobs import WORKLOAD_ANNOTATION, Job, total
from schedulers.kueue.quotas import Amounts, Key, Queues, exactly
from schedulers.rows import SnapshotRows

UNKNOWN_FLAVOR = ""
"""Flavor of what pods hold for a workload that has no quota (any more)."""

POD_SET_LABEL = "kueue.x-k8s.io/podset"
"""On a pod: the pod set of its workload that it is of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One workload's part of a queue: what Kueue counts for it, and what its pods hold. Of GPU resources only.

    `running_gpus` are whole cards: pods may hold parts of them that no resource's name tells.
    """

    id: str
    queue: str
    ledger: Amounts
    real: Amounts
    running_gpus: float


class Holdings:
    """By queue. `jobs_were_read`, `pods_were_read`: all of them, so that what is not there does not exist."""

    def __init__(
        self, queues: Queues, cards: Cards, works: Sequence[Work], *, jobs_were_read: bool, pods_were_read: bool
    ) -> None:
        self._queues = queues
        self._cards = cards
        self._works: dict[str, list[Work]] = defaultdict(list)
        for work in works:
            self._works[work.queue].append(work)
        self._pending: dict[str, dict[str, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        self._pending_gpus: dict[str, float] = defaultdict(float)
        self._ledger: dict[str, dict[Key, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
        self.jobs_were_read = jobs_were_read
        self.pods_were_read = pods_were_read

    def count(self, jobs: Iterable[Job], waiting: Mapping[str, str]) -> None:
        """Add up what jobs reserved, and what those ask for whose status (`waiting`, by subject) is pending."""
        for job in jobs:
            if job.queue is None:
                continue
            for key, amount in job.ledger.items():
                self._ledger[job.queue][key] += amount
            if waiting.get(job.subject) == "pending":
                self._pending_gpus[job.queue] += self._cards.wanted(job) or 0.0
                for name, amount in job.requested.items():
                    self._pending[job.queue][name] += amount

    @property
    def are_known(self) -> bool:
        """Whether it can be said of every queue what is reserved."""
        return self.jobs_were_read or all(one.reserved is not None for one in self._queues.queues.values())

    def ledger(self, queue: str) -> Amounts:
        """What Kueue counts: its own sums, or those of the workloads where it does not tell."""
        return {**self._ledger[queue], **(self._queues.queues[queue].reserved or {})}

    def real(self, queue: str) -> Amounts:
        """What pods of its work hold."""
        return total(work.real for work in self._works[queue])

    def running_gpus(self, queue: str) -> float | None:
        """The same in whole cards. Where not all pods could be seen, what Kueue says that admitted work uses."""
        if self.pods_were_read:
            return sum((work.running_gpus for work in self._works[queue]), 0.0)
        used = self._queues.queues[queue].used
        return None if used is None else float(self._cards.gpus(used))

    def held(self, queue: str) -> Amounts:
        """What is taken of its quota: as much as either says, since more than either is there to be given."""
        real = {key: amount for key, amount in self.real(queue).items() if key[0] != UNKNOWN_FLAVOR}
        ledger = self.ledger(queue)
        return {key: max(real.get(key, NOTHING), ledger.get(key, NOTHING)) for key in {*real, *ledger}}

    def not_held(self, queue: str) -> Amounts | None:
        """What is reserved for work whose pods do not hold it (yet); None where not all pods could be seen."""
        if not self.pods_were_read:
            return None
        return total(
            {key: max(NOTHING, amount - work.real.get(key, NOTHING)) for key, amount in work.ledger.items()}
            for work in self._works[queue]
        )

    def pending(self, queue: str) -> Mapping[str, Fraction] | None:
        """What waiting work asks for, by resource; None where not all of it could be read."""
        return self._pending[queue] if self.jobs_were_read else None

    def pending_gpus(self, queue: str) -> float | None:
        """The same in whole GPUs; slices of unknown size are left out."""
        return self._pending_gpus[queue] if self.jobs_were_read else None

    def complain(self, rows: SnapshotRows) -> None:
        """Say of each queue where pods hold more than Kueue counts for them (stale reclaimablePods, pods that stay)."""
        for queue, works in sorted(self._works.items()):
            found = [(work, over) for work in works if (over := self._beyond(work))]
            if found:
                ledger, real = (
                    self._cards.gpus(total(getattr(work, side) for work, _ in found)) for side in ("ledger", "real")
                )
                names = ", ".join(work.id for work, _ in found[:5]) + (", ..." if len(found) > 5 else "")
                detail = f"Kueue counts {float(ledger):g}, pods hold {float(real):g}: {names}"
                beyond = round(sum((over for _, over in found), NOTHING))
                rows.problem("quota_mismatch", rows.named(queue), detail, subject_kind="queue", count=beyond)

    def _beyond(self, work: Work) -> Fraction:
        return max(NOTHING, self._cards.gpus(work.real) - self._cards.gpus(work.ledger))


def works_of(core: CoreFacts, queues: Queues, jobs: Iterable[Job]) -> list[Work]:
    """What each workload reserves and holds, in the queue of its object that has quota (of several, the first)."""
    by_id: dict[str, list[Job]] = {}
    for job in sorted(jobs, key=lambda one: (bool(one.now("Finished")), not one.now("QuotaReserved"), one.subject)):
        if job.queue in queues.queues:
            by_id.setdefault(job.id, []).append(job)
    works = []
    for workload_id, group in by_id.items():
        pods = [pod for pod in core.pods_by_workload.get(workload_id, ()) if _holds(core, pod)]
        ledger = total({key: amount for key, amount in job.ledger.items() if core.counts(key[1])} for job in group)
        real = total(_pod_holds(core, queues, group, pod) for pod in pods)
        works.append(
            Work(
                id=workload_id,
                queue=group[0].queue or "",
                ledger=ledger,
                real=real,
                running_gpus=sum(of_pod(core, pod) or 0.0 for pod in pods),
            )
        )
    return works


def _holds(core: CoreFacts, pod: Object) -> bool:
    """Whether the pod is there (the core knows those that went, too) and on a node."""
    return holds_node(pod) and uid_of(pod, core.rows.cluster) in core.pods_by_uid


def _pod_holds(core: CoreFacts, queues: Queues, group: Sequence[Job], pod: Object) -> Amounts:
    held: dict[Key, Fraction] = {}
    with core.rows.sparing(name_of(pod)):
        for resource, count in core.gpus_of(pod).items():
            held[_flavor(core, queues, group, pod, resource), resource] = exactly(count)
    return held


def _flavor(core: CoreFacts, queues: Queues, group: Sequence[Job], pod: Object, resource: str) -> str:
    """The flavor that `pod` was given for `resource`, or the only one that its queue has.

    Pod sets of one workload may have different ones: the pod names its set, and its node has the labels of its flavor.
    """
    named, labels = meta(pod)["name"], meta(pod).get("labels") or {}
    object_name = (meta(pod).get("annotations") or {}).get(WORKLOAD_ANNOTATION)
    mine = [job for job in group if named == job.pod or object_name == job.name] or group
    sets = [one for job in mine for one in job.pod_sets if resource in one.flavors]
    sets = [one for one in sets if one.name == labels.get(POD_SET_LABEL)] or sets
    offered = [flavor for flavor, name in queues.queues[group[0].queue or ""].limits if name == resource]
    flavors = [one.flavors[resource] for one in sets] or offered
    there = meta(core.nodes.get(node_of(pod) or "", {})).get("labels") or {}
    if len(set(flavors)) > 1:
        wanted = {flavor: queues.labels.get(flavor, {}).items() for flavor in flavors}
        flavors = [flavor for flavor in flavors if wanted[flavor] and wanted[flavor] <= there.items()] or flavors
    return flavors[0] if sets or len(set(flavors)) == 1 else UNKNOWN_FLAVOR
