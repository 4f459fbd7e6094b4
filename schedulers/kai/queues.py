"""From KAI's queues, and what their pods hold and wait for, to rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpuledger.model import Queue, QueueResource, QueueState, Quota
from schedulers.cards import Cards
from schedulers.kai.spec import GPU, QueueSpec, Share, children_of, over_parents, parent_of
from schedulers.kubernetes.pods import Object, name_of
from schedulers.queue_work import QueueWork, with_those_below
from schedulers.rows import INSTANT_SECONDS, SnapshotRows

EXACT = 1e-4
"""KAI's own figures are rounded to this: closer ones are the same."""

_SLICE = re.compile(r"[^/]+/mig-(\d+)g\..+")
_NO_SHARE = Share(None, None, 0.0)


def units_of(amounts: Mapping[str, float]) -> float | None:
    """What KAI counts against a queue's GPU quota: whole GPUs and their parts, and X for each slice "mig-Xg".

    That is no number of cards: a "mig-7g" is a whole card and counts 7. None where no GPU is named.
    """
    units = None
    for resource, amount in amounts.items():
        slices = _SLICE.fullmatch(resource)
        if slices or resource.endswith("/gpu"):
            units = (units or 0.0) + amount * (int(slices[1]) if slices else 1)
    return units


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueBook:
    """All queues of a moment. `work` is by queue, without what is below; None: not all pods and groups were shown."""

    specs: Mapping[str, QueueSpec]
    work: Mapping[str, QueueWork] | None
    cards: Cards

    def write(self, rows: SnapshotRows) -> None:
        """Add the rows of every queue, and what is wrong with it."""
        above = children_of(self.specs)
        totals = None if self.work is None else with_those_below(self.specs, self.work, self._above)
        for name, words in over_parents(self.specs):
            rows.problem("bad_quota", rows.named(name), words, subject_kind="queue")
        for name, spec in sorted(self.specs.items()):
            work = None if totals is None else totals[name]
            rows.add(self._queue(spec, rows), _quota(spec, rows), *self._resources(spec, work, rows))
            self._complain(spec, rows)
            if name not in above:
                self._state(spec, work, rows)

    def _above(self, name: str) -> str | None:
        return parent_of(name, self.specs)

    def _queue(self, spec: QueueSpec, rows: SnapshotRows) -> Queue:
        above = self._above(spec.name)
        return Queue(
            queue=rows.named(spec.name),
            tenant=spec.name,
            cohort=rows.named("kai"),
            scheduler=rows.scheduler,
            parent=rows.named(above) if above else None,
        )

    def _resources(self, spec: QueueSpec, work: QueueWork | None, rows: SnapshotRows) -> Iterator[QueueResource]:
        for resource in sorted({*spec.shares, *spec.allocated, *spec.requested}):
            share = spec.shares.get(resource, _NO_SHARE)
            used, wanted = _figure(spec.allocated, resource), _figure(spec.requested, resource)
            if used is None and resource == GPU and work is not None and not work.uncounted:
                used = work.held_gpus
            self._check_limit(spec, resource, used, share.limit, rows)
            yield QueueResource(
                queue=rows.named(spec.name),
                resource=resource,
                nominal=share.quota,
                limit=share.limit,
                used=used,
                borrowed=None if used is None or share.quota is None else max(0.0, used - share.quota),
                pending=None if used is None or wanted is None else max(0.0, wanted - used),
                from_at=rows.taken_at,
            )

    def _check_limit(
        self, spec: QueueSpec, resource: str, used: float | None, limit: float | None, rows: SnapshotRows
    ) -> None:
        if used is not None and limit is not None and used > limit + EXACT:
            words = f"{resource}: {used:g} of {limit:g}"
            rows.problem("limit_not_enforced", rows.named(spec.name), words, subject_kind="queue", count=round(used))

    def _complain(self, spec: QueueSpec, rows: SnapshotRows) -> None:
        for words in spec.contradictions():
            rows.problem("bad_quota", rows.named(spec.name), words, subject_kind="queue")
        if spec.parent and spec.parent not in self.specs:
            words = f"its parent {spec.parent} is not there"
            rows.problem("bad_quota", rows.named(spec.name), words, subject_kind="queue")

    def _state(self, spec: QueueSpec, work: QueueWork | None, rows: SnapshotRows) -> None:
        told, name = self.cards.count(spec.allocated), rows.named(spec.name)
        running = None if told.is_partial else told.gpus
        if work is not None:
            if work.uncounted:
                words = f"{work.uncounted} pods hold parts that cannot be told in cards"
                rows.problem("unparsed_allocation", name, words, subject_kind="queue", count=work.uncounted)
            else:
                _compare(running, work.held_gpus, name, rows)
                running = work.held_gpus
        if running is None:
            return
        nominal = spec.shares[GPU].quota
        rows.add(
            QueueState(
                ts=rows.taken_at,
                queue=name,
                tenant=spec.name,
                duration_seconds=INSTANT_SECONDS,
                nominal_gpus=nominal,
                running_gpus=running,
                pending_gpus=_pending(spec) if work is None else work.pending_gpus,
                borrowed_gpus=None if nominal is None else max(0.0, running - nominal),
            )
        )


def _quota(spec: QueueSpec, rows: SnapshotRows) -> Quota:
    share = spec.shares[GPU]
    return Quota(
        queue=rows.named(spec.name),
        tenant=spec.name,
        nominal_gpus=share.quota,
        limit_gpus=share.limit,
        weight=share.weight,
        from_at=rows.taken_at,
    )


def _figure(amounts: Mapping[str, float], resource: str) -> float | None:
    """The queue's own figure; of GPUs in the units of its quota. None where it reports none."""
    return units_of(amounts) if resource == GPU else amounts.get(resource)


def _pending(spec: QueueSpec) -> float | None:
    used, wanted = units_of(spec.allocated), units_of(spec.requested)
    return None if used is None or wanted is None else max(0.0, wanted - used)


def _compare(told: float | None, held_gpus: float, name: str, rows: SnapshotRows) -> None:
    if told is None or abs(told - held_gpus) <= EXACT:
        return
    words = f"it reports {told:g} GPUs allocated, its pods hold {held_gpus:g}"
    rows.problem("quota_mismatch", name, words, subject_kind="queue", count=max(1, round(abs(told - held_gpus))))


def specs_of(queues: Iterable[Object], rows: SnapshotRows) -> dict[str, QueueSpec]:
    """The queues that can be understood; the others become problems."""
    found: dict[str, QueueSpec] = {}
    for queue in queues:
        with rows.sparing(rows.named(name_of(queue)), "queue"):
            spec = QueueSpec.of(queue)
            found[spec.name] = spec
    return found
