"""One moment of the fleet as the planner needs it: nodes, what may move and what may not and why, what is wanted.

Everything is as of one instant, from the ledger: what holds a card there holds it here, whoever told of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from analyzers.recommend.consolidate_fleet import Host, Need, Resident
from gpuledger.model import BOTTLENECKS, canonical_model
from gpuledger.ports import QueryRunner

HELPED_CAUSES = BOTTLENECKS | {"", "unknown", "scheduler"}
"""Causes of waiting that room on a node may end. What waits for quota, itself or a broken node would not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What keeps a pod where it is, and what a move costs."""

    max_checkpoint_age_hours: float
    min_hours_left: float
    restart_hours: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """Pods of one shape that ask for room: of one gang, of all single pods that wait, or of a shape that is usual.

    `runtime_hours` is the median of their like, None where none ran; `hours_between` how long it usually is from one
    such pod to the next, 0 for what waits already.
    """

    basis: str
    need: Need
    cards: int
    pod_count: int
    is_gang: bool
    workload_ids: tuple[str, ...]
    tenants: tuple[str, ...]
    runtime_hours: float | None
    hours_between: float

    @property
    def name(self) -> str:
        """What a reader calls it."""
        if self.basis == "usual":
            return f"pods of {self.cards} GPUs, which are usual"
        first, more = self.workload_ids[0], len(self.workload_ids) - 1
        return first if not more else f"{first} and {more} more of its shape"

    def used_hours(self, horizon_hours: float) -> float:
        """How long the room of one pod is expected to be used within `horizon_hours`: from its coming to its end."""
        left = max(0.0, horizon_hours - self.hours_between)
        return left if self.runtime_hours is None else min(left, self.runtime_hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The fleet at one instant. `blocks`: (pool, leaf) of each host; `stays`: pods that may not move, by reason."""

    hosts: tuple[Host, ...]
    blocks: Mapping[str, tuple[str, str]]
    residents: tuple[Resident, ...]
    stays: Mapping[str, int]
    tenant_gpus: Mapping[str, float]
    running_pods: int
    wants: tuple[Want, ...]
    quota_waits: int


def _models(text: str | None) -> frozenset[str]:
    return frozenset(canonical_model(name) or name for name in (text or "").split("|") if name)


def _hosts(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Host], dict[str, tuple[str, str]]]:
    """Whole nodes only: one with a card that is out of use or a spare neither takes nor gives."""
    good = [row for row in rows if not row["away_card_count"]]
    hosts = [
        Host(
            node=row["node"],
            card_count=row["card_count"],
            free_cards=row["free_card_count"],
            cpu_free_milli=row["cpu_free_milli"],
            memory_free_mib=row["memory_free_mib"],
            model=canonical_model(row["model"]) or row["model"],
        )
        for row in good
    ]
    return hosts, {row["node"]: (row["pool"], row["leaf"]) for row in good}


def _obstacle(row: Mapping[str, Any], at: datetime, limits: Limits) -> str:
    """Why a pod may not move; empty if it may. The first of several."""
    hours_left = None if row["ends_at"] is None else (row["ends_at"] - at).total_seconds() / 3600
    is_service = row["kind"] == "inference"
    tests = {
        "shares_a_card": not row["is_whole_cards"],
        "interactive": row["kind"] == "notebook",
        "gang_of_several_nodes": row["is_gang"] and row["node_count"] > 1,
        "service_floor": is_service and row["running_pods"] <= max(1, row["min_replicas"]),
        "ends_soon": hours_left is not None and hours_left < limits.min_hours_left,
        "start_unknown": row["started_at"] is None,
    }
    for reason, holds in tests.items():
        if holds:
            return reason
    if is_service or _age_hours(row, at) <= limits.max_checkpoint_age_hours:
        return ""
    return "no_checkpoint" if row["checkpoint_at"] is None else "old_checkpoint"


def _age_hours(row: Mapping[str, Any], at: datetime) -> float:
    """Hours of work that a restart loses: since the last checkpoint, or, where none is told, since the start."""
    if row["kind"] == "inference":
        return 0.0
    saved = max(filter(None, (row["checkpoint_at"], row["started_at"])))
    return float((at - saved).total_seconds() / 3600)


def _residents(
    rows: Sequence[Mapping[str, Any]], at: datetime, limits: Limits
) -> tuple[list[Resident], dict[str, int]]:
    units: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        unit = "" if row["is_gang"] else row["pod"]
        units.setdefault((row["workload_id"], unit, row["node"]), []).append(row)
    found, stays = [], dict[str, int]()
    for (workload, unit, node), own in sorted(units.items()):
        reasons = [reason for row in own if (reason := _obstacle(row, at, limits))]
        if reasons:
            stays[reasons[0]] = stays.get(reasons[0], 0) + len(own)
            continue
        found.append(
            Resident(
                name=f"{workload}/{unit}" if unit else workload,
                node=node,
                cards=sum(row["card_count"] for row in own),
                cost=sum(row["card_count"] * (limits.restart_hours + _age_hours(row, at)) for row in own),
                workload_id=workload,
                tenant=own[0]["tenant"],
                pods=tuple(row["pod"] for row in own),
                pod_cards=tuple(row["card_count"] for row in own),
                cpu_milli=sum(row["cpu_milli"] for row in own),
                memory_mib=sum(row["memory_mib"] for row in own),
                models=_models(own[0]["model_set"]),
            )
        )
    return found, stays


def _wants(rows: Sequence[Mapping[str, Any]], history_hours: float) -> list[Want]:
    """What waits, single pods of a shape together; what is usual only where nothing waits for whole cards."""
    basis = "pending" if any(row["basis"] == "pending" for row in rows) else "usual"
    grouped: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["basis"] == basis and row["cause"] in HELPED_CAUSES:
            gang = row["workload_id"] if row["is_gang"] else ""
            shape = (row["num_gpu"], row["cpu_milli"], row["memory_mib"], row["model_set"] or "")
            grouped.setdefault((gang, *shape), []).append(row)
    found = []
    for own in grouped.values():
        first = own[0]
        between = history_hours / first["asked_pods"] if basis == "usual" else 0.0
        found.append(
            Want(
                basis=basis,
                need=Need(
                    cards=first["num_gpu"],
                    cpu_milli=first["cpu_milli"],
                    memory_mib=first["memory_mib"],
                    models=_models(first["model_set"]),
                ),
                cards=first["num_gpu"],
                pod_count=sum(row["pod_count"] for row in own),
                is_gang=first["is_gang"],
                workload_ids=tuple(row["workload_id"] for row in own if row["workload_id"]),
                tenants=tuple(sorted({row["tenant"] for row in own if row["tenant"]})),
                runtime_hours=first["runtime_hours"],
                hours_between=between,
            )
        )
    return found


def snapshot(runner: QueryRunner, at: datetime, limits: Limits, history_days: float) -> Snapshot:
    """The fleet at `at`. No hosts: the ledger does not reach there."""
    hosts, blocks = _hosts(runner.query("consolidate_nodes", at=at).to_pylist())
    pods = runner.query("consolidate_pods", at=at).to_pylist()
    shapes = runner.query("consolidate_shapes", at=at, history_days=history_days).to_pylist()
    known = {host.node for host in hosts}
    residents, stays = _residents([row for row in pods if row["node"] in known], at, limits)
    tenants: dict[str, float] = {}
    for row in pods:
        tenants[row["tenant"]] = tenants.get(row["tenant"], 0.0) + row["gpus"]
    return Snapshot(
        hosts=tuple(hosts),
        blocks=blocks,
        residents=tuple(residents),
        stays=stays,
        tenant_gpus=tenants,
        running_pods=len(pods),
        wants=tuple(_wants(shapes, 24 * history_days)),
        quota_waits=sum(row["basis"] == "pending" and row["cause"] not in HELPED_CAUSES for row in shapes),
    )
