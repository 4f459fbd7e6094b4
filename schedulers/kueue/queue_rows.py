"""Queues, quotas, and what is reserved, held, borrowed and lent, as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gpuledger.attribution import Rules, Subject, attribute
from gpuledger.model import Queue, QueueResource, QueueState, Quota
from schedulers.kueue.cards import Cards
from schedulers.kueue.cohorts import NOTHING, Member, Standing, Standings, loops, standings
from schedulers.kueue.holdings import Holdings
from schedulers.kueue.quotas import Amounts, Holder, Key, Limits, LocalQueue, Queues
from schedulers.rows import INSTANT_SECONDS, SnapshotRows

Part = tuple[Limits, Standing, Fraction]
"""Limits and standing of one GPU resource, and what part of a card a unit of it is."""


NO_POOL = Limits(nominal=NOTHING, borrowing=None, lending=None)
"""A cohort that says nothing of a flavor has none of it, and limits nobody."""

NOT_OFFERED = Limits(nominal=NOTHING, borrowing=NOTHING, lending=None)
"""A queue that says nothing of a flavor cannot use it."""


def cohort_queue(name: str) -> str:
    """The name under which a cohort stands among queues: ClusterQueues may have the same names as cohorts."""
    return f"cohort:{name}"


def local_queue(name: str) -> str:
    """The name of LocalQueue "namespace/name" among queues: a namespace's ResourceQuotas may be called the same."""
    return f"local:{name}"


@dataclass(slots=True)
class Books:
    """Turns what queues say, and what their work holds, into records."""

    rows: SnapshotRows
    rules: Rules
    queues: Queues
    cards: Cards
    holdings: Holdings
    cohorts_are_known: bool = True
    _held: dict[str, Amounts] = field(default_factory=dict)
    _stands: dict[Key, Standings] = field(default_factory=dict)

    def add(self) -> None:
        """Rows of all ClusterQueues, Cohorts and LocalQueues, and what is wrong with them."""
        broken = loops({name: cohort.parent for name, cohort in self.queues.cohorts.items()})
        self._held = {name: self.holdings.held(name) for name in self.queues.queues}
        self._stands = {key: self._standings(key) for key in self._keys()}
        for holder in self.queues.queues.values():
            self._add_queue(holder, is_broken=holder.parent in broken)
        for holder in self.queues.cohorts.values():
            self._add_cohort(holder, is_broken=holder.name in broken)
        for local in self.queues.local.values():
            self._add_local(local)
        for name in sorted(broken):
            detail = "is part of a cycle of cohorts, or below one: Kueue admits nothing there"
            self.rows.problem("bad_quota", cohort_queue(name), detail, subject_kind="queue")

    def _keys(self) -> list[Key]:
        offered = {
            key for holder in (*self.queues.queues.values(), *self.queues.cohorts.values()) for key in holder.limits
        }
        return sorted(offered | {key for held in self._held.values() for key in held})

    def _standings(self, key: Key) -> Standings:
        members = [
            _member(holder, key, self._held[name].get(key, NOTHING), absent=NOT_OFFERED)
            for name, holder in self.queues.queues.items()
            if key in holder.limits or self._held[name].get(key)
        ]
        cohorts = [_member(cohort, key, NOTHING, absent=NO_POOL) for cohort in self.queues.cohorts.values()]
        return standings(members, cohorts)

    def _add_queue(self, holder: Holder, *, is_broken: bool) -> None:
        tenant, name = self._tenant(holder), self.rows.named(holder.name)
        self.rows.add(
            Queue(
                queue=name,
                tenant=tenant,
                cohort=self.rows.named(holder.parent) if holder.parent else None,
                scheduler=self.rows.scheduler,
                parent=self.rows.named(cohort_queue(holder.parent)) if holder.parent else None,
                status="closed" if is_broken else holder.status,
            )
        )
        mine = {key: stands.queues[holder.name] for key, stands in self._stands.items() if holder.name in stands.queues}
        self.rows.add(*self._quotas(holder, name, tenant, mine))
        self.rows.add(*self._resources(holder, name, mine))
        self.rows.add(*self._state(holder, name, tenant, mine))
        self._complain(holder, name, mine)

    def _add_cohort(self, holder: Holder, *, is_broken: bool) -> None:
        name, tenant = self.rows.named(cohort_queue(holder.name)), self._ruled(holder) or holder.name
        self.rows.add(
            Queue(
                queue=name,
                tenant=tenant,
                cohort=self.rows.named(holder.name),
                scheduler=self.rows.scheduler,
                parent=self.rows.named(cohort_queue(holder.parent)) if holder.parent else None,
                status="closed" if is_broken else "open",
            )
        )
        mine = {key: self._stands[key].cohorts[holder.name] for key in holder.limits}
        self.rows.add(*self._quotas(holder, name, tenant, mine))
        self.rows.add(*self._resources(holder, name, mine))

    def _add_local(self, local: LocalQueue) -> None:
        name = self.rows.named(local_queue(f"{local.namespace}/{local.name}"))
        at = self.rows.taken_at
        is_known = local.queue in self.queues.queues
        tenant = attribute(Subject(local.namespace, local.name), local.labels, at, self.rules).tenant
        self.rows.add(
            Queue(
                queue=name,
                tenant=tenant,
                scheduler=self.rows.scheduler,
                parent=self.rows.named(local.queue) if is_known else None,
                status=local.status,
            )
        )
        reserved, used = local.reserved or {}, local.used or {}
        for flavor, resource in sorted({*reserved, *used}):
            self.rows.add(
                QueueResource(
                    queue=name,
                    flavor=flavor,
                    resource=resource,
                    used=_float(used.get((flavor, resource))),
                    reserved=_float(reserved.get((flavor, resource))),
                    from_at=at,
                )
            )

    def _ruled(self, holder: Holder) -> str:
        """The tenant that the operator's rules name for a queue or cohort by its name and labels; empty: none."""
        return attribute(Subject("", holder.name), holder.labels, self.rows.taken_at, self.rules).tenant

    def _tenant(self, holder: Holder) -> str:
        """Whose a ClusterQueue is: as ruled, else the one tenant of all its LocalQueues, else its own name."""
        if ruled := self._ruled(holder):
            return ruled
        at = self.rows.taken_at
        doors = [local for local in self.queues.local.values() if local.queue == holder.name]
        tenants = {attribute(Subject(one.namespace, one.name), one.labels, at, self.rules).tenant for one in doors}
        return tenants.pop() if len(tenants) == 1 else holder.name

    def _quotas(self, holder: Holder, name: str, tenant: str, stands: Mapping[Key, Standing]) -> Iterator[Quota]:
        flavors: dict[str, list[Part]] = {}
        for key, limits in holder.limits.items():
            if share := self.cards.share(key):
                flavors.setdefault(key[0], []).append((limits, stands[key], share))
        for flavor, parts in flavors.items():
            nominal = _sum(parts, lambda limits, _: limits.nominal)
            lending = _sum(parts, lambda limits, _: limits.lending)
            yield Quota(
                queue=name,
                tenant=tenant,
                flavor=flavor,
                nominal_gpus=nominal,
                borrowing_limit_gpus=_sum(parts, lambda limits, _: limits.borrowing),
                lending_limit_gpus=lending,
                limit_gpus=_sum(parts, lambda _, stand: stand.reach) if self.cohorts_are_known else None,
                guarantee_gpus=max(0.0, nominal - lending) if nominal is not None and lending is not None else 0.0,
                weight=holder.weight,
                not_reported="" if self.cohorts_are_known else "limit_gpus",
                from_at=self.rows.taken_at,
            )

    def _resources(self, holder: Holder, name: str, stands: Mapping[Key, Standing]) -> Iterator[QueueResource]:
        pending = self.holdings.pending(holder.name)
        offers = [resource for _, resource in holder.limits]
        for key, stand in stands.items():
            limits, is_only = holder.limits.get(key), offers.count(key[1]) == 1
            yield QueueResource(
                queue=name,
                flavor=key[0],
                resource=key[1],
                nominal=_float(limits.nominal) if limits else 0.0,
                limit=_float(stand.reach) if self.cohorts_are_known else None,
                used=_float((holder.used or {}).get(key)),
                reserved=_float((holder.reserved or {}).get(key)),
                borrowed=_float(stand.borrowed) if self.holdings.are_known else None,
                lent=_float(stand.lent) if self.holdings.are_known else None,
                pending=_float(pending.get(key[1], NOTHING)) if pending is not None and is_only else None,
                from_at=self.rows.taken_at,
            )

    def _state(self, holder: Holder, name: str, tenant: str, stands: Mapping[Key, Standing]) -> Iterator[QueueState]:
        """Nothing where it cannot be told what its work holds."""
        running, not_held = self.holdings.running_gpus(holder.name), self.holdings.not_held(holder.name)
        is_known = self.holdings.are_known
        borrowed = self.cards.gpus({key: stand.borrowed for key, stand in stands.items()})
        lent = self.cards.gpus({key: stand.lent for key, stand in stands.items()})
        if running is not None:
            yield QueueState(
                ts=self.rows.taken_at,
                queue=name,
                tenant=tenant,
                duration_seconds=INSTANT_SECONDS,
                nominal_gpus=float(self.cards.gpus({key: limits.nominal for key, limits in holder.limits.items()})),
                running_gpus=running,
                pending_gpus=self.holdings.pending_gpus(holder.name),
                borrowed_gpus=float(borrowed) if is_known else None,
                lent_gpus=float(lent) if is_known else None,
                reserved_gpus=None if not_held is None else float(self.cards.gpus(not_held)),
            )

    def _complain(self, holder: Holder, name: str, stands: Mapping[Key, Standing]) -> None:
        for (flavor, resource), stand in stands.items():
            if stand.over_quota and self.cards.share((flavor, resource)):
                held = self._held[holder.name][flavor, resource]
                detail = f"{resource} of {flavor}: holds {_text(held)}, {_text(stand.over_quota)} beyond all quotas"
                self.rows.problem("limit_not_enforced", name, detail, subject_kind="queue", count=round(held))
        for (flavor, resource), limits in holder.limits.items():
            if limits.lending is not None and limits.lending > limits.nominal:
                detail = f"{resource} of {flavor}: lends {_text(limits.lending)} of {_text(limits.nominal)}"
                self.rows.problem("bad_quota", name, detail, subject_kind="queue")


def _member(holder: Holder, key: Key, held: Fraction, *, absent: Limits) -> Member:
    limits = holder.limits.get(key, absent)
    return Member(
        name=holder.name,
        parent=holder.parent,
        nominal=limits.nominal,
        borrowing_limit=limits.borrowing,
        lending_limit=limits.lending,
        held=held,
    )


def _sum(parts: list[Part], value: Callable[[Limits, Standing], Fraction | None]) -> float | None:
    """Over GPU resources, in cards; one that has no such limit leaves the sum without."""
    found = [(value(limits, stand), share) for limits, stand, share in parts]
    known = [amount * share for amount, share in found if amount is not None]
    return float(sum(known, NOTHING)) if len(known) == len(found) else None


def _float(amount: Fraction | None) -> float | None:
    return None if amount is None else float(amount)


def _text(amount: Fraction) -> str:
    return f"{float(amount):g}"
