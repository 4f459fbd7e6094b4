"""Gangs that wait for one slow rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from analyzers.efficiency_rule import EfficiencyRule, SubjectKey, by_subject
from analyzers.options import option
from gpuledger.model import Window
from gpuledger.ports import QueryRunner

Pace = Mapping[str, Any]
"""A row of the query `gang_straggler`: one slow card in a quarter of an hour."""

MOST_NAMED = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class GangStragglerOptions:
    """Options of the rule; docs/rules/gang_straggler.md says where each default comes from."""

    min_slow_minutes: float = option(15.0, unit="minutes", low=0.0)


class GangStraggler(EfficiencyRule):
    """Gangs that wait for one slow rank. Advice: nothing of it is waste.

    **Finds** jobs of which one rank, for at least 15 minutes, needed more than 1.10 times the gang's median for its own
    computing before the collective (`slow_compute`), ran at less than 90 % of the gang's median clock (`low_clock`), or
    was throttled by heat or power while most of the gang was not (`throttled`).

    **Ignores** utilization: ranks that wait spin in the collective and read busy. Ranks that stopped altogether (rules
    gang_partial_idle, stalled_allocation), services, and cards that were not active.

    **Evidence** the rank, card and node, its compute time a step against the median, its clock against the median.

    **GPU-hours counted** what the slow cards held meanwhile, as observed, none as wasted; `expected_gain` is what the
    others lost waiting for the slowest: (n - 1) x T x (1 - median / slowest).

    **Acts on it** move the rank to another card and have the slow one checked (`replace_straggler`).
    """

    name = "gang_straggler"
    version = 1
    category: ClassVar[str] = "advice"
    options_class: ClassVar[type[Any]] = GangStragglerOptions
    gap: ClassVar[timedelta] = timedelta(minutes=30)

    def facts(
        self, runner: QueryRunner, window: Window, rows: Sequence[Mapping[str, Any]]
    ) -> Mapping[SubjectKey, Mapping[str, Any]]:
        """The pace of each slow card, quarter by quarter."""
        return by_subject(runner.query("gang_straggler", from_at=window.from_at, to_at=window.to_at), rows)

    def finding(
        self, row: Mapping[str, Any], facts: Mapping[str, Any], chosen: GangStragglerOptions
    ) -> Mapping[str, Any] | None:
        """A stretch in which the same gang had a slow rank for long enough, with what its peers lost."""
        paces = [
            one
            for one in facts.get("rows", ())
            if one["from_at"] >= row["window_start"] and one["until_at"] <= row["window_end"]
        ]
        slowest = _slowest_by_quarter(paces)
        minutes = 60 * sum(_hours(one) for one in slowest)
        if not slowest or minutes < chosen.min_slow_minutes - 1e-6:
            return None
        lost = sum((one["member_count"] - 1) * _hours(one) * (1 - 1 / _slowness(one)) for one in slowest)
        ranks = _ranks(paces)
        return {
            "cause_code": row["cause"],
            "action_code": "replace_straggler",
            "severity": "info",
            "evidence": tuple(_evidence(one, row["coverage_ratio"]) for one in ranks),
            "action_params": {
                "workload_id": row["workload_id"],
                "gpu_count": row["gpu_count"],
                "kind": row["kind"],
                "stragglers": [{key: one[key] for key in ("rank", "gpu_uuid", "node")} for one in ranks],
            },
            "expected_gain": {
                "point": lost,
                "lo": 0.0,
                "hi": lost,
                "method": "static",
                "formula": "(n - 1) x T x (1 - median / slowest), by quarters of an hour",
            },
        }


def _hours(one: Pace) -> float:
    return float((one["until_at"] - one["from_at"]).total_seconds() / 3600)


def _slowness(one: Pace) -> float:
    """How many times longer the rank needs than the median one: by its compute time, else by its clock."""
    if one["compute_seconds"] is not None and one["median_compute_seconds"]:
        return max(1.0, float(one["compute_seconds"] / one["median_compute_seconds"]))
    if one["sm_clock_hertz"] and one["median_clock_hertz"]:
        return max(1.0, float(one["median_clock_hertz"] / one["sm_clock_hertz"]))
    return 1.0


def _slowest_by_quarter(paces: Sequence[Pace]) -> list[Pace]:
    """Of each quarter of an hour the row that the gang waited for."""
    found: dict[datetime, Pace] = {}
    for one in sorted(paces, key=_slowness):
        at = one["until_at"] - timedelta(microseconds=1)
        found[at.replace(minute=at.minute // 15 * 15, second=0, microsecond=0)] = one
    return list(found.values())


def _ranks(paces: Sequence[Pace]) -> list[dict[str, Any]]:
    """One row a slow card (or rank) with the means of its quarters, the slowest first."""
    cards: dict[tuple[str, Any], list[Pace]] = {}
    for one in paces:
        cards.setdefault((one["gpu_uuid"], None if one["gpu_uuid"] else one["rank"]), []).append(one)
    named = [
        {
            "rank": next((one["rank"] for one in own if one["rank"] is not None), None),
            "gpu_uuid": own[0]["gpu_uuid"],
            "node": own[0]["node"],
            "slowness": sum(map(_slowness, own)) / len(own),
            "minutes": 60 * sum(map(_hours, own)),
            **{name: _mean(own, name) for name in MEASURED},
        }
        for own in cards.values()
    ]
    named.sort(key=lambda one: (-one["slowness"], one["node"], one["gpu_uuid"]))
    return named[:MOST_NAMED]


MEASURED = ("compute_seconds", "median_compute_seconds", "sm_clock_hertz", "median_clock_hertz")


def _mean(own: Sequence[Pace], name: str) -> float | None:
    known = [one[name] for one in own if one[name] is not None]
    return sum(known) / len(known) if known else None


def _evidence(one: Mapping[str, Any], coverage: float | None) -> dict[str, Any]:
    """The rank's own number beside the one that it may not pass."""
    is_by_steps = one["compute_seconds"] is not None
    median = one["median_compute_seconds"] if is_by_steps else one["median_clock_hertz"]
    return {
        "metric": "compute_seconds" if is_by_steps else "sm_clock_hertz",
        "value": one["compute_seconds"] if is_by_steps else one["sm_clock_hertz"],
        "threshold": None if median is None else median * (1.10 if is_by_steps else 0.90),
        "n_samples": round(one["minutes"]),
        "coverage": coverage,
        "query": "gang_straggler",
        "rank": one["rank"],
        "gpu_uuid": one["gpu_uuid"],
        "node": one["node"],
    }
