"""The capacity scheduler's queues, made flat, and the records that they give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuledger.attribution import Rules
from gpuledger.attribution.labels import Labels
from gpuledger.errors import BadInput
from gpuledger.model import Queue, QueueResource, QueueState, Quota
from schedulers.rows import INSTANT_SECONDS, SnapshotRows
from schedulers.yarn.answers import GPU, UNLIMITED, Amounts, Json, by_partition, listed, total, within

NAMESPACE = "yarn"
"""What attribution rules see as the namespace of queues and applications."""
_STATUSES = {"RUNNING": "open", "STOPPED": "closed", "DRAINING": "draining"}


@dataclass(frozen=True, slots=True)
class YarnQueue:
    """A queue: what it may hold by partition ("" is the default one) and what its applications hold and want.

    `least` is its capacity, `most` its maximum capacity, in the resources' own units. None was not told.
    """

    path: str
    parent: str | None
    status: str
    weight: float
    is_leaf: bool
    least: Mapping[str, Amounts | None]
    most: Mapping[str, Amounts | None]
    used: Mapping[str, Amounts | None]
    reserved: Mapping[str, Amounts | None]
    pending: Mapping[str, Amounts | None]


def scheduler_type(told: Json) -> str:
    """capacityScheduler, fairScheduler or fifoScheduler."""
    return str(told.get("type") or told.get("@xsi.type") or "")


def queues_of(told: Json, wrong: dict[str, str] | None = None) -> list[YarnQueue]:
    """Every queue, parents first; those that make no sense are put into `wrong`, those below them stay."""
    return list(_below(told, None, {} if wrong is None else wrong))


def _below(told: Json, parent: str | None, wrong: dict[str, str]) -> Iterator[YarnQueue]:
    name = str(told.get("queueName"))
    path = str(told.get("queuePath") or (f"{parent}.{name}" if parent else name))
    try:
        below = listed(within(told, "queues", "queue"))
        yield _queue(told, path, parent, is_leaf=not below)
    except BadInput as error:
        wrong[path] = str(error)
        below = []
    for one in below:
        yield from _below(one, path, wrong)


def _queue(told: Json, path: str, parent: str | None, *, is_leaf: bool) -> YarnQueue:
    capacities, resources = told.get("capacities"), told.get("resources")
    weight = told.get("weight")

    def capacity(part: str) -> dict[str, Amounts | None]:
        return by_partition(capacities, "queueCapacitiesByPartition", part)

    def held(part: str) -> dict[str, Amounts | None]:
        return by_partition(resources, "resourceUsagesByPartition", part)

    return YarnQueue(
        path=path,
        parent=parent,
        status=_STATUSES.get(str(told.get("state") or ("RUNNING" if parent is None else "")), "unknown"),
        weight=float(weight) if isinstance(weight, int | float) and weight >= 0 else 1.0,
        is_leaf=is_leaf,
        least=capacity("effectiveMinResource"),
        most=capacity("effectiveMaxResource"),
        used=held("used"),
        reserved=held("reserved"),
        pending=held("pending"),
    )


def leaf_gpus(queues: list[YarnQueue]) -> dict[str, tuple[float, float, float]]:
    """What each leaf holds, has reserved and wants, in GPUs."""
    return {
        queue.path: (total(queue.used, GPU), total(queue.reserved, GPU), total(queue.pending, GPU))
        for queue in queues
        if queue.is_leaf
    }


def tenant_of(path: str, rules: Rules, rows: SnapshotRows) -> str:
    """Who pays for a queue: as the rules say (they see its path as pod and as label `queue`), else the path."""
    labels = Labels({"queue": path})
    return rules.answer("tenant", NAMESPACE, path, labels, rows.taken_at) or path


def _limit(amounts: Amounts | None, resource: str) -> float | None:
    """How much of `resource` may be held: None where there is no limit, or it was not told."""
    value = None if amounts is None else amounts.get(resource)
    return None if value is None or value >= UNLIMITED else value


def add_queue(queue: YarnQueue, rules: Rules, rows: SnapshotRows) -> None:
    """A queue's records. What its leaves run and want is a state of the leaves alone: parents hold the same again."""
    name, tenant = rows.named(queue.path), tenant_of(queue.path, rules, rows)
    rows.add(
        Queue(
            queue=name,
            tenant=tenant,
            scheduler=rows.scheduler,
            parent=None if queue.parent is None else rows.named(queue.parent),
            status=queue.status,
        )
    )
    partitions = sorted({*queue.least, *queue.most, *queue.used})
    for partition in partitions:
        rows.add(_quota(queue, partition, name, tenant, rows))
        _add_resources(queue, partition, name, rows)
    if queue.is_leaf:
        rows.add(_state(queue, partitions, name, tenant, rows))


def _quota(queue: YarnQueue, partition: str, name: str, tenant: str, rows: SnapshotRows) -> Quota:
    least, most = queue.least.get(partition), queue.most.get(partition)
    nominal, limit = _limit(least, GPU), _limit(most, GPU)
    told = (("nominal_gpus", least), ("limit_gpus", most))
    return Quota(
        queue=name,
        tenant=tenant,
        flavor=partition,
        nominal_gpus=nominal,
        limit_gpus=limit,
        borrowing_limit_gpus=None if nominal is None or limit is None else max(limit - nominal, 0.0),
        weight=queue.weight,
        not_reported="|".join(column for column, amounts in told if amounts is None or GPU not in amounts),
        from_at=rows.taken_at,
    )


def _add_resources(queue: YarnQueue, partition: str, name: str, rows: SnapshotRows) -> None:
    def of(parts: Mapping[str, Amounts | None], resource: str) -> float | None:
        return (parts.get(partition) or {}).get(resource)

    parts = (queue.least, queue.most, queue.used, queue.pending)
    for resource in sorted({one for held in parts for one in held.get(partition) or {}}):
        nominal, used = _limit(queue.least.get(partition), resource), of(queue.used, resource)
        rows.add(
            QueueResource(
                queue=name,
                flavor=partition,
                resource=resource,
                nominal=nominal,
                limit=_limit(queue.most.get(partition), resource),
                used=used,
                reserved=of(queue.reserved, resource),
                borrowed=None if nominal is None or used is None else max(used - nominal, 0.0),
                pending=of(queue.pending, resource),
                from_at=rows.taken_at,
            )
        )


def _state(queue: YarnQueue, partitions: list[str], name: str, tenant: str, rows: SnapshotRows) -> QueueState:
    nominals = {one: _limit(queue.least.get(one), GPU) for one in partitions}
    known = None not in nominals.values()
    over = [max(((queue.used.get(one) or {}).get(GPU, 0.0)) - (nominals[one] or 0.0), 0.0) for one in partitions]
    return QueueState(
        ts=rows.taken_at,
        queue=name,
        tenant=tenant,
        duration_seconds=INSTANT_SECONDS,
        nominal_gpus=sum(value or 0.0 for value in nominals.values()) if known else None,
        running_gpus=total(queue.used, GPU),
        pending_gpus=total(queue.pending, GPU),
        borrowed_gpus=sum(over) if known else None,
        reserved_gpus=total(queue.reserved, GPU),
    )
