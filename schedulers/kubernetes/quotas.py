"""ResourceQuotas: ceilings of a namespace, each as a queue of its own.

HAMi's parts of cards are counted from pods: it enforces such limits itself, and Kubernetes forgets how many cards a
pod asks them of. Of GPUs and other extended resources only `requests.<name>` counts; a limit under the plain name is
accepted and does nothing. `<class>.deviceclass.resource.k8s.io/devices` limits devices that are claimed (DRA).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuledger.attribution.resources import is_whole
from gpuledger.model import Queue, QueueResource, QueueState, Quota
from schedulers.cards import Cards
from schedulers.kubernetes.equivalents import of_pod, of_resource
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.hami_quotas import used_parts
from schedulers.kubernetes.names import counts_gpus, parts_gpus, underscored
from schedulers.kubernetes.pods import Object, holds_node, meta, name_of, node_of
from schedulers.kubernetes.quantities import quantity
from schedulers.rows import INSTANT_SECONDS, SnapshotRows

REQUESTS = "requests."
LIMITS = "limits."


@dataclass(slots=True)
class Holding:
    """What pods hold of a resource, in its own unit and in whole GPUs."""

    count: float = 0.0
    gpus: float = 0.0

    def add(self, count: float, gpus: float | None) -> None:
        """Another pod's; what cannot be told in GPUs counts as that many."""
        self.count += count
        self.gpus += count if gpus is None else gpus


Held = Mapping[tuple[str, str], Holding]
"""By (namespace, resource), of the namespace's bound pods."""

DEVICES = ".deviceclass.resource.k8s.io/devices"


def quota_rows(core: CoreFacts, quotas: Mapping[str, Object]) -> None:
    """Adds `queue`, `quota`, `queue_resource` and `queue_state` rows; a quota without GPUs gives none."""
    held, cards = _held(core) if quotas else {}, Cards(core)
    for name, given in quotas.items():
        with core.rows.sparing(name, "queue"):
            _quota(core, name, given, held, cards)


def as_ceilings(rows: SnapshotRows) -> None:
    """Leave of each quota its limit: beside a scheduler's own queues, in which the same pods hold the same GPUs."""
    quotas = rows.of("quota")
    quotas[:] = [replace(quota, nominal_gpus=None) for quota in quotas]
    rows.of("queue_state").clear()


def _amounts(given: Mapping[str, Any] | None, field: str) -> dict[str, float]:
    return {name: quantity(amount, f"{field}[{name}]") for name, amount in (given or {}).items()}


def _is_gpu(core: CoreFacts, key: str) -> bool:
    plain = key.removeprefix(REQUESTS).removeprefix(LIMITS)
    return core.counts(plain) or parts_gpus(plain) or plain.endswith(DEVICES)


def _quota(core: CoreFacts, name: str, given: Object, held: Held, cards: Cards) -> None:
    status = given.get("status") or {}
    hard = _amounts(status.get("hard") or (given.get("spec") or {}).get("hard"), "hard")
    used = _amounts(status.get("used"), "used")
    if not any(_is_gpu(core, key) for key in hard):
        return
    namespace, queue = meta(given)["namespace"], core.rows.named(name)
    tenant = core.whose(namespace, "", {}).tenant
    core.rows.add(Queue(queue=queue, tenant=tenant, scheduler=core.rows.scheduler))
    kept = _effective(core, queue, hard)
    parts = used_parts(core, queue, namespace, {resource: hard[key] for resource, key in kept.items()})
    for resource, key in kept.items():
        core.rows.add(
            QueueResource(
                queue=queue,
                resource=resource,
                nominal=hard[key],
                limit=hard[key],
                used=parts[resource] if resource in parts else used.get(key),
                from_at=core.rows.taken_at,
            )
        )
    limits = {resource: (hard[key], used.get(key)) for resource, key in kept.items()}
    whole = [name for name in limits if counts_gpus(name) and is_whole(underscored(name))]
    share = cards.share(whole[0]) if len(whole) == 1 else None
    if share is not None:
        running = held.get((namespace, whole[0]), Holding())
        _whole_cards(core, given, Queue(queue=queue, tenant=tenant), _Ceiling(*limits[whole[0]], share), running)


def _effective(core: CoreFacts, queue: str, hard: Mapping[str, float]) -> dict[str, str]:
    """The resource that each key of `hard` limits; a key that limits nothing becomes a problem."""
    kept: dict[str, str] = {}
    for key in sorted(hard):
        plain = key.removeprefix(REQUESTS).removeprefix(LIMITS)
        if core.counts(plain) and not key.startswith(REQUESTS):
            detail = f"{key} limits nothing: of {plain} only {REQUESTS}{plain} counts"
            core.rows.problem("bad_quota", queue, detail, subject_kind="queue")
            continue
        resource = plain if parts_gpus(plain) else key.removeprefix(REQUESTS)
        if resource not in kept or hard[key] < hard[kept[resource]]:
            kept[resource] = key
    return kept


@dataclass(frozen=True, slots=True)
class _Ceiling:
    """What a quota allows and counts of one resource, and what part of a card one of it is."""

    most: float
    used: float | None
    share: float


def _whole_cards(core: CoreFacts, given: Object, queue: Queue, ceiling: _Ceiling, running: Holding) -> None:
    """The quota in whole GPUs, where one resource of it counts cards or copies of them; `running` are pods of it."""
    nominal, used, spec = ceiling.most * ceiling.share, ceiling.used, given.get("spec") or {}
    core.rows.add(
        Quota(
            queue=queue.queue,
            tenant=queue.tenant,
            nominal_gpus=nominal,
            borrowing_limit_gpus=0.0,
            lending_limit_gpus=0.0,
            limit_gpus=nominal,
            from_at=core.rows.taken_at,
        )
    )
    is_part = bool(spec.get("scopeSelector") or spec.get("scopes"))
    if not is_part and used is not None and used < running.count:
        detail = f"says {used:g} are used, its pods hold {running.count:g}"
        beyond = round(running.count - used)
        core.rows.problem("quota_mismatch", queue.queue, detail, subject_kind="queue", count=beyond)
    core.rows.add(
        QueueState(
            ts=core.rows.taken_at,
            queue=queue.queue,
            tenant=queue.tenant,
            duration_seconds=INSTANT_SECONDS,
            nominal_gpus=nominal,
            running_gpus=used * ceiling.share if is_part and used is not None else running.gpus,
        )
    )


def _held(core: CoreFacts) -> Held:
    held: dict[tuple[str, str], Holding] = defaultdict(Holding)
    for pod in core.pods_by_uid.values():
        if holds_node(pod):
            with core.rows.sparing(name_of(pod)):
                gpus = core.gpus_of(pod)
                for resource, count in gpus.items():
                    cards = of_pod(core, pod) if len(gpus) == 1 else of_resource(core, resource, count, node_of(pod))
                    held[meta(pod)["namespace"], resource].add(count, cards)
    return held
