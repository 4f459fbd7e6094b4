"""Koordinator: Kubernetes with elastic quotas, parts of cards, reservations and gangs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from schedulers.cards import Cards
from schedulers.koordinator.devices import DeviceBook, allocation_rows, held_cards
from schedulers.koordinator.kinds import DEVICES, ELASTIC_QUOTAS, MIGRATIONS, POD_GROUPS, RESERVATIONS, TOPOLOGIES
from schedulers.koordinator.nodes import inventory_rows, layers_of, state_rows
from schedulers.koordinator.quotas import Elastic, QuotaRows, elastic_quotas
from schedulers.koordinator.reservations import migration_rows, reserved
from schedulers.koordinator.work import mark_gangs, quota_finder, say_why, wishes
from schedulers.koordinator.worth import worth
from schedulers.kubernetes.core import is_whole
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.family import KubernetesFamily
from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.pods import Object
from schedulers.rights import Right
from schedulers.rows import SnapshotRows

QUOTA_RECORDS = ("queue", "quota", "queue_resource", "queue_state")


class Koordinator(KubernetesFamily):
    """Kubernetes with Koordinator (scheduling.koordinator.sh, and scheduling.sigs.k8s.io as it reads them)."""

    name: ClassVar[str] = "koordinator"
    kinds: ClassVar[tuple[Kind, ...]] = (ELASTIC_QUOTAS, POD_GROUPS, DEVICES, RESERVATIONS, MIGRATIONS, TOPOLOGIES)
    rights: ClassVar[tuple[Right, ...]] = (
        Right("scheduling.sigs.k8s.io", ("elasticquotas", "podgroups")),
        Right("scheduling.koordinator.sh", ("devices", "reservations", "podmigrationjobs", "clusternetworktopologies")),
    )
    listed: ClassVar[tuple[str, ...]] = QUOTA_RECORDS
    from_kind: ClassVar[Mapping[str, tuple[str, ...]]] = {
        ELASTIC_QUOTAS.key: QUOTA_RECORDS,
        DEVICES.key: ("allocation", "node", "scheduler_node", "node_state"),
        RESERVATIONS.key: ("node_state", "queue_state"),
        MIGRATIONS.key: ("workload_event",),
    }

    def further_requests(self, pod: Object) -> Mapping[str, float]:
        """Parts of cards count as cards."""
        return held_cards(pod)

    def enrich(self, moment: Moment, core: CoreFacts, rows: SnapshotRows) -> None:
        """Cards and who holds which part of them, quotas, reservations, gangs, and what was said of those that wait."""
        cards, book = Cards(core), DeviceBook.of(moment.of(DEVICES), rows)
        layers = layers_of(moment.of(TOPOLOGIES), rows)
        set_aside = reserved(core, cards, moment.of(RESERVATIONS))
        rows.add(*book.conditions(rows.taken_at))
        allocation_rows(core, book)
        inventory_rows(core, book, layers)
        if is_whole(moment):
            state_rows(core, book, set_aside.by_node, layers)
        quotas = elastic_quotas(moment.of(ELASTIC_QUOTAS), rows)
        namespaces = quota_finder(quotas, moment.of(ELASTIC_QUOTAS))
        told = wishes(core, namespaces, frozenset(one.name for one in quotas))
        mark_gangs(core, moment.of(POD_GROUPS))
        say_why(core, _limits(quotas, cards), namespaces)
        migration_rows(core, moment.of(MIGRATIONS))
        is_all = is_whole(moment)
        QuotaRows(
            quotas=quotas,
            rows=rows,
            rules=core.rules,
            cards=cards,
            held=told.held if is_all else None,
            waiting=told.waiting if is_all else None,
            reserved=set_aside.by_quota if moment.has(RESERVATIONS) else None,
        ).add()


def _limits(quotas: list[Elastic], cards: Cards) -> dict[str, float | None]:
    """The most GPUs that each quota may ever hold: the least of its own max and of those above it."""
    known = {one.name: one for one in quotas}
    found: dict[str, float | None] = {}
    for quota in quotas:
        most: list[float] = []
        above: Elastic | None = quota
        seen: set[str] = set()
        while above is not None and above.name not in seen:
            seen.add(above.name)
            limit = worth(above.most, cards, is_limit=True)
            most += [] if limit is None else [limit]
            above = known.get(above.parent)
        found[quota.name] = min(most, default=None)
    return found
