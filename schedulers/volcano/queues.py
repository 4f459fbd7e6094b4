"""From Volcano's queues, and what their work holds and waits for, to rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpuledger.model import Queue, QueueResource, QueueState, Quota
from schedulers.cards import Amount, Cards
from schedulers.kubernetes.names import counts_gpus, parts_gpus
from schedulers.kubernetes.pods import Object, name_of
from schedulers.queue_work import QueueWork, with_those_below
from schedulers.rows import INSTANT_SECONDS, SnapshotRows
from schedulers.volcano.kinds import ROOT
from schedulers.volcano.plugin import Sharing
from schedulers.volcano.spec import QueueSpec, children_of, over_parents, parent_of

_EXACT = 1e-6
"""Sums of shares of cards differ by less than this and are the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBook:
    """All queues of a moment. `work` is by queue, without what is below; None: not all pods and groups were shown."""

    specs: Mapping[str, QueueSpec]
    work: Mapping[str, QueueWork] | None
    sharing: Sharing
    cards: Cards

    def write(self, rows: SnapshotRows) -> None:
        """Add the rows of every queue, and what is wrong with it."""
        totals = None if self.work is None else with_those_below(self.specs, self.work, self._above)
        above = children_of(self.specs)
        for name, words in over_parents(self.specs):
            rows.problem("bad_quota", rows.named(name), words, subject_kind="queue")
        for name, spec in sorted(self.specs.items()):
            work = None if totals is None else totals[name]
            rows.add(self._queue(spec, rows), self._quota(spec, rows))
            rows.add(*self._resources(spec, work, rows))
            self._complain(spec, rows)
            if name not in above:
                self._state(spec, work, rows)

    def _above(self, name: str) -> str | None:
        return parent_of(self.specs[name], self.specs)

    def _queue(self, spec: QueueSpec, rows: SnapshotRows) -> Queue:
        above = self._above(spec.name)
        return Queue(
            queue=rows.named(spec.name),
            tenant=spec.name,
            cohort=rows.named(ROOT),
            scheduler=rows.scheduler,
            parent=rows.named(above) if above else None,
            status=spec.status,
        )

    def _nominal(self, spec: QueueSpec) -> Amount:
        named = {name: spec.nominal(name, self.sharing) for name in spec.resources if counts_gpus(name)}
        own = self.cards.count({name: amount for name, amount in named.items() if amount is not None})
        owns_none = self.sharing is Sharing.CAPACITY and spec.name != ROOT and not own.is_partial
        return Amount(own.gpus or 0.0) if owns_none else own

    def _quota(self, spec: QueueSpec, rows: SnapshotRows) -> Quota:
        nominal, limit = self._nominal(spec), self.cards.count(spec.capability)
        untold = [
            column
            for column, is_untold in (
                ("nominal_gpus", nominal.is_partial or not spec.is_nominal_told(self.sharing)),
                ("limit_gpus", limit.is_partial),
            )
            if is_untold
        ]
        return Quota(
            queue=rows.named(spec.name),
            tenant=spec.name,
            nominal_gpus=None if "nominal_gpus" in untold else nominal.gpus,
            limit_gpus=None if "limit_gpus" in untold else limit.gpus,
            guarantee_gpus=self.cards.count(spec.guarantee).gpus or 0.0,
            weight=spec.weight,
            not_reported="|".join(untold),
            from_at=rows.taken_at,
        )

    def _resources(self, spec: QueueSpec, work: QueueWork | None, rows: SnapshotRows) -> Iterator[QueueResource]:
        pending = (work.pending or {}) if work else {}
        for resource in sorted(spec.resources | self.cards.offered()):
            used = _used(spec, work, resource)
            limit, own = spec.capability.get(resource), spec.nominal(resource, self.sharing)
            if used is not None and limit is not None and used > limit + _EXACT:
                source = "as it reports" if resource in spec.allocated else "by its pods, it reports none"
                words = f"{resource}: {used:g} of {limit:g} ({source})"
                rows.problem(
                    "limit_not_enforced", rows.named(spec.name), words, subject_kind="queue", count=round(used)
                )
            yield QueueResource(
                queue=rows.named(spec.name),
                resource=resource,
                nominal=own,
                limit=limit,
                used=used,
                reserved=spec.reserved.get(resource),
                borrowed=None if used is None or own is None else max(0.0, used - own),
                pending=None if work is None or work.pending is None else pending.get(resource, 0.0),
                from_at=rows.taken_at,
            )

    def _complain(self, spec: QueueSpec, rows: SnapshotRows) -> None:
        for words in spec.contradictions(self.sharing):
            rows.problem("bad_quota", rows.named(spec.name), words, subject_kind="queue")
        if spec.parent and spec.parent not in self.specs:
            words = f"its parent {spec.parent} is not there"
            rows.problem("bad_quota", rows.named(spec.name), words, subject_kind="queue")

    def _state(self, spec: QueueSpec, work: QueueWork | None, rows: SnapshotRows) -> None:
        told = self.cards.count(spec.allocated)
        name, running = rows.named(spec.name), told.gpus
        if work is not None:
            running = work.held_gpus
            if work.uncounted:
                words = f"{work.uncounted} pods hold shares that cannot be told in cards"
                rows.problem("unparsed_allocation", name, words, subject_kind="queue", count=work.uncounted)
                return
            _compare(told, running, name, rows)
        if running is None:
            return
        quota = self._nominal(spec)
        nominal = quota.gpus if spec.is_nominal_told(self.sharing) and not quota.is_partial else None
        rows.add(
            QueueState(
                ts=rows.taken_at,
                queue=name,
                tenant=spec.name,
                duration_seconds=INSTANT_SECONDS,
                nominal_gpus=nominal,
                running_gpus=running,
                pending_gpus=work.pending_gpus if work else None,
                borrowed_gpus=None if nominal is None else max(0.0, running - nominal),
                reserved_gpus=self.cards.count(spec.reserved).gpus,
            )
        )


def specs_of(queues: Iterable[Object], rows: SnapshotRows) -> dict[str, QueueSpec]:
    """The queues that can be understood; the others become problems."""
    found: dict[str, QueueSpec] = {}
    for queue in queues:
        with rows.sparing(rows.named(name_of(queue)), "queue"):
            spec = QueueSpec.of(queue)
            found[spec.name] = spec
    return found


def _is_of_gpus(resource: str) -> bool:
    return counts_gpus(resource) or parts_gpus(resource)


def _used(spec: QueueSpec, work: QueueWork | None, resource: str) -> float | None:
    """The queue's own figure; where it has none, what its pods hold; None where that is not known either.

    Pods without GPUs are not looked at, so that only of GPUs and their parts their sum is the whole.
    """
    if resource in spec.allocated:
        return spec.allocated[resource]
    return work.held.get(resource, 0.0) if work is not None and _is_of_gpus(resource) else None


def _compare(told: Amount, held_gpus: float, name: str, rows: SnapshotRows) -> None:
    if told.gpus is None or told.is_partial or abs(told.gpus - held_gpus) <= _EXACT:
        return
    words = f"it reports {told.gpus:g} GPUs allocated, its pods hold {held_gpus:g}"
    rows.problem("quota_mismatch", name, words, subject_kind="queue", count=max(1, round(abs(told.gpus - held_gpus))))
