"""Proposes to move nominal quota from queues that do not need it to queues whose work waits."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import numpy as np
import polars as pl

from analyzers.options import option, read_options
from analyzers.quota_history import Outages, find_outages, hourly, judged_hours, valid_days
from analyzers.recommend.quota_program import Overcommitted, QueueDemand, QuotaPlan, move
from gpuledger.model import QuotaChange, Recommendation, Window
from gpuledger.ports import QueryRunner

CONFIDENCE = {("long", True): 0.9, ("short", True): 0.7, ("long", False): 0.6}
"""By length of the history and outcome of the hold-out; short and failed is no recommendation."""

HAIR = 1e-6
"""GPU-hours by which a sum over a history may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveQuotaOptions:
    """Options of the recommender; docs/rules/move_quota.md says where each default comes from."""

    headroom_ratio: float = option(0.2, unit="ratio", low=0.0)
    max_change_ratio: float = option(0.5, unit="ratio of the nominal quota", low=0.0)
    max_change_gpus: float | None = option(None, unit="GPUs", low=0.0)
    step_gpus: int = option(1, unit="GPUs", low=1)
    total_gpus: float | None = option(None, unit="GPUs", low=0.0)
    history_days: float = option(56.0, unit="days", low=1.0)
    half_life_days: float = option(14.0, unit="days", low=0.01)
    full_history_days: int = option(28, unit="days", low=1)
    min_gain_gpu_hours: float = option(1.0, unit="GPU-hours", low=0.0)
    outage_normal_ratio: float = option(0.9, unit="ratio", low=0.0)
    outage_min_minutes: float = option(10.0, unit="minutes", low=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A queue whose quota may move: one flavor of one scheduler."""

    scheduler: str
    flavor: str
    queue: str
    tenant: str
    nominal_gpus: float
    guarantee_gpus: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What one group of queues is judged by: `hours` of the whole history, gains over those of `window`."""

    window: Window
    chosen: MoveQuotaOptions
    outages: Outages
    entries: tuple[_Entry, ...]
    hours: pl.DataFrame


class MoveQuota:
    """Moves nominal quota to where work waits.

    **Finds** the quotas of least unmet demand over the recorded hours (recent ones weigh more), by a linear program
    over the queues of one scheduler and one flavor; GPUs are moved in whole steps and their sum stays what it is.

    **Ignores** hours of outage days, queues with quota in several flavors (their demand is not recorded by flavor), and
    what borrowing between queues already covers.

    **Evidence** unmet GPU-hours before and after, for each queue, and a hold-out: fitted on the first half of the
    history, the quotas must lower unmet demand on the second half and raise it for nobody.

    **GPU-hours counted** `expected_gpu_hours` is the unmet demand that the new quotas would have met in the window, had
    work been what it was. It is no waste and is never added to the ledger's.

    **Acts on it** a list of quota changes that sums to zero. No queue falls below the lesser of its quota and
    max(guarantee, 1.2 x P99 of its hourly peak demand).
    """

    name = "move_quota"
    version = 1

    def recommend(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> Sequence[Recommendation]:
        """One recommendation for each scheduler and flavor with something to gain, or whose guards exceed the total.

        The history is `window`, and at least the `history_days` before its end.
        """
        chosen = read_options(MoveQuotaOptions, options)
        begin = min(window.from_at, window.to_at - timedelta(days=chosen.history_days))
        history = Window(begin, window.to_at)
        outages = find_outages(
            runner, history, normal_ratio=chosen.outage_normal_ratio, min_minutes=chosen.outage_min_minutes
        )
        hours = judged_hours(hourly(runner, history, outages), outages)
        proposals = []
        for entries in _groups(runner, window, hours):
            own = hours.filter(pl.col("queue").is_in([entry.queue for entry in entries]))
            case = _Case(window=window, chosen=chosen, outages=outages, entries=entries, hours=own)
            if (proposal := _propose(case)) is not None:
                proposals.append(proposal)
        return proposals


def _groups(runner: QueryRunner, window: Window, hours: pl.DataFrame) -> Iterator[tuple[_Entry, ...]]:
    """Queues among which quota can move: at least two, of one scheduler and flavor, each with judged hours.

    A queue whose quota has no limit, or none that was reported, has nothing to give and needs nothing.
    """
    latest = hours.group_by("queue", "tenant").agg(pl.col("nominal_gpus").last())
    quotas: dict[str, list[dict[str, Any]]] = {}
    for row in runner.query("quota_in_force", at=window.to_at - timedelta(microseconds=1)).to_pylist():
        quotas.setdefault(row["queue"], []).append(row)
    groups: dict[tuple[str, str], list[_Entry]] = {}
    for row in latest.sort("tenant", "queue").to_dicts():
        own = quotas.get(row["queue"]) or [{**row, "scheduler": "default", "flavor": "", "guarantee_gpus": 0.0}]
        if len(own) == 1 and own[0]["nominal_gpus"] is not None:
            entry = _Entry(**{name: own[0][name] for name in _Entry.__dataclass_fields__})
            groups.setdefault((entry.scheduler, entry.flavor), []).append(entry)
    yield from (tuple(entries) for _, entries in sorted(groups.items()) if len(entries) >= 2)


def _demands(case: _Case, hours: pl.DataFrame) -> list[QueueDemand]:
    """The program's queues from `hours`; a queue without hours in them keeps its quota as its floor."""
    chosen, demands = case.chosen, []
    for entry in case.entries:
        own = hours.filter(pl.col("queue") == entry.queue)
        ages = (pl.lit(case.window.to_at) - pl.col("hour_at")).dt.total_seconds() / 86_400
        weights = own.select(0.5 ** (ages / chosen.half_life_days)).to_series().to_numpy()
        peak = own["max_demand_gpus"].quantile(0.99, interpolation="linear") if own.height else None
        needed = entry.nominal_gpus if peak is None else (1 + chosen.headroom_ratio) * peak
        share = max(chosen.step_gpus, chosen.max_change_ratio * entry.nominal_gpus)
        demands.append(
            QueueDemand(
                queue=entry.queue,
                nominal_gpus=entry.nominal_gpus,
                floor_gpus=max(entry.guarantee_gpus, needed),
                max_change_gpus=share if chosen.max_change_gpus is None else chosen.max_change_gpus,
                demand_gpus=own["demand_gpus"].to_numpy(),
                scenario_weights=weights,
            )
        )
    return demands


def _unmet(case: _Case, hours: pl.DataFrame, quotas: Sequence[float]) -> dict[str, float]:
    """Unmet GPU-hours of each queue in `hours` under `quotas`, unweighted."""
    found = {}
    for entry, quota in zip(case.entries, quotas, strict=True):
        own = hours.filter(pl.col("queue") == entry.queue)
        missing = np.maximum(0.0, own["demand_gpus"].to_numpy() - quota)
        found[entry.queue] = float(np.dot(missing, own["demand_known_hours"].to_numpy()))
    return found


def _hold_out(case: _Case) -> dict[str, Any]:
    """Fit on the first half of the judged days, prove on the second: unmet demand falls, and rises for nobody."""
    days = sorted(case.hours["day"].unique().to_list())
    if len(days) < 2:
        return {"passed": False, "reason": "fewer than two days"}
    cut = days[len(days) // 2]
    fit, test = case.hours.filter(pl.col("day") < cut), case.hours.filter(pl.col("day") >= cut)
    plan = move(_demands(case, fit), total_gpus=case.chosen.total_gpus, step_gpus=case.chosen.step_gpus)
    if isinstance(plan, Overcommitted):
        return {"passed": False, "reason": "the guards of the first half exceed the total", "cut_day": cut.isoformat()}
    before = _unmet(case, test, [entry.nominal_gpus for entry in case.entries])
    after = _unmet(case, test, plan.nominal_gpus)
    worse = sorted(queue for queue in before if after[queue] > before[queue] + HAIR)
    fell = sum(after.values()) < sum(before.values()) - HAIR
    return {
        "passed": fell and not worse,
        "cut_day": cut.isoformat(),
        "unmet_gpu_hours_before": sum(before.values()),
        "unmet_gpu_hours_after": sum(after.values()),
        "worse_queues": worse,
    }


def _propose(case: _Case) -> Recommendation | None:
    demands = _demands(case, case.hours)
    plan = move(demands, total_gpus=case.chosen.total_gpus, step_gpus=case.chosen.step_gpus)
    if isinstance(plan, Overcommitted):
        return _overcommitted(case, plan)
    now = [entry.nominal_gpus for entry in case.entries]
    recent = case.hours.filter(pl.col("hour_at") >= case.window.whole_hours().from_at)
    before, after = _unmet(case, recent, now), _unmet(case, recent, plan.nominal_gpus)
    gain = sum(before.values()) - sum(after.values())
    days = min(valid_days(case.hours, ("queue",))["valid_days"].to_list())
    length = "long" if days >= case.chosen.full_history_days else "short"
    hold_out = _hold_out(case)
    confidence = CONFIDENCE.get((length, bool(hold_out["passed"])))
    if confidence is None or gain < max(case.chosen.min_gain_gpu_hours, HAIR):
        return None
    details = {
        "status": "recommended",
        "scheduler": case.entries[0].scheduler,
        "flavor": case.entries[0].flavor,
        "valid_days": days,
        "hold_out": hold_out,
        "unmet_gpu_hours_before": before,
        "unmet_gpu_hours_after": after,
        "total_price_gpu_hours_per_gpu": plan.total_price,
        "outage_minutes": case.outages.minutes,
        "is_borrowing_modelled": False,
    }
    return _recommendation(case, demands, _changes(case, plan), gain, confidence, details)


def _changes(case: _Case, plan: QuotaPlan) -> tuple[QuotaChange, ...]:
    return tuple(
        QuotaChange(
            queue=entry.queue,
            tenant=entry.tenant,
            flavor=entry.flavor,
            nominal_gpus_before=entry.nominal_gpus,
            nominal_gpus_after=float(quota),
        )
        for entry, quota in zip(case.entries, plan.nominal_gpus, strict=True)
        if quota != entry.nominal_gpus
    )


def _overcommitted(case: _Case, found: Overcommitted) -> Recommendation:
    details = {
        "status": "overcommitted",
        "scheduler": case.entries[0].scheduler,
        "flavor": case.entries[0].flavor,
        "shortfall_gpus": found.shortfall_gpus,
        "total_price_gpu_hours_per_gpu": found.total_price,
        "floor_prices_gpu_hours_per_gpu": found.floor_prices,
    }
    return _recommendation(case, _demands(case, case.hours), (), 0.0, 1.0, details)


def _title(changes: Sequence[QuotaChange], details: Mapping[str, Any]) -> str:
    if details["status"] == "overcommitted":
        return f"Guarded quota exceeds the total by {details['shortfall_gpus']:g} GPUs: nothing can move"
    moves = {change.tenant: change.nominal_gpus_after - change.nominal_gpus_before for change in changes}
    moved = sum(gpus for gpus in moves.values() if gpus > 0)
    givers = _listed([tenant for tenant, gpus in moves.items() if gpus < 0])
    takers = _listed([tenant for tenant, gpus in moves.items() if gpus > 0])
    return f"Move {moved:g} GPUs of quota from {givers} to {takers}"


def _listed(tenants: Sequence[str]) -> str:
    return ", ".join(tenants) if 0 < len(tenants) <= 3 else f"{len(tenants)} tenants"


def _recommendation(
    case: _Case,
    demands: Sequence[QueueDemand],
    changes: tuple[QuotaChange, ...],
    expected_gpu_hours: float,
    confidence: float,
    details: Mapping[str, Any],
) -> Recommendation:
    text = "\x1f".join(
        [MoveQuota.name, details["scheduler"], details["flavor"], case.window.to_at.isoformat()]
        + [f"{change.queue} {change.nominal_gpus_before:g} {change.nominal_gpus_after:g}" for change in changes]
    )
    return Recommendation(
        recommendation_id=hashlib.sha256(text.encode()).hexdigest()[:16],
        kind=MoveQuota.name,
        title=_title(changes, details),
        changes=changes,
        expected_gpu_hours=expected_gpu_hours,
        window_start=case.window.from_at,
        window_end=case.window.to_at,
        confidence=confidence,
        guardrails={
            "floor_gpus": {demand.queue: min(demand.nominal_gpus, demand.floor_gpus) for demand in demands},
            "total_gpus": sum(entry.nominal_gpus for entry in case.entries),
            "headroom_ratio": case.chosen.headroom_ratio,
            "nominal_gpus_before": {entry.queue: entry.nominal_gpus for entry in case.entries},
        },
        details=dict(details),
    )
