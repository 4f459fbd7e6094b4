"""Cards that their own hardware slows down: too hot, or short of power."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

from analyzers.options import option, read_options
from gpuledger.model import Finding, Window, vendor_of
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

HOUR = timedelta(hours=1)

ACTIONS: Mapping[str, str] = {
    "thermal_slowdown": "check_cooling",
    "power_brake": "check_power",
    "thermal_and_power": "check_cooling",
    "hardware_slowdown": "check_cooling",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThrottlingOptions:
    """Options of the rule; docs/rules/throttling.md says where each default comes from."""

    min_throttled_ratio: float = option(0.05, unit="ratio", low=0.0)


class Throttling:
    """Cards that their own hardware slows down.

    **Finds** stretches of hours in each of which a held card was slowed by its hardware (thermal slowdown or power
    brake) for more than 5 % of the hour.

    **Ignores** caps by software: a power limit, application clocks, a software thermal target. They are somebody's
    decision. Cards that nobody held. Faults told as events are rule hardware_fault.

    **Evidence** minutes slowed, the card's mean clock while active and the median of its peers: cards of the same model
    in the same job, else in the same pool.

    **GPU-hours counted** none as waste. `gpu_hours_lost` = (1 - clock / median peer clock) x GPU-hours held, not
    below 0; unknown, and told as such, where the card has no clock or no peer.

    **Acts on it** operations: cooling (`check_cooling`) or power supply (`check_power`).
    """

    name = "throttling"
    version = 1
    category = "health"

    def run(
        self, runner: QueryRunner, window: Window, options: Mapping[str, Any], policy: Policy | None = None
    ) -> RuleResult:
        """Judge the whole hours that `window` touches."""
        chosen = read_options(ThrottlingOptions, options)
        policy = policy or Policy()
        hours = window.whole_hours()
        least = min([chosen.min_throttled_ratio, *_ratios(policy, self.name, chosen)])
        rows = runner.query(self.name, from_at=hours.from_at, to_at=hours.to_at, min_throttled_ratio=least).to_pylist()
        counting = [row for row in rows if _counts(row, policy, self.name, options)]
        findings = [_finding(run, window) for run in _runs(counting)]
        findings.sort(key=lambda finding: (-finding.gpu_hours_lost, finding.subject_id, finding.window_start))
        return RuleResult(
            findings=findings,
            totals={
                "gpu_hours_lost": sum(finding.gpu_hours_lost for finding in findings),
                "throttled_card_hours": len(counting),
            },
        )


def _ratios(policy: Policy, rule: str, chosen: ThrottlingOptions) -> Iterator[float]:
    """The ratios that the policy sets for some work: rows are asked for by the least of all."""
    for threshold in policy.threshold:
        if threshold.rule == rule:
            yield float(threshold.options.get("min_throttled_ratio", chosen.min_throttled_ratio))


def _counts(row: Mapping[str, Any], policy: Policy, rule: str, options: Mapping[str, Any]) -> bool:
    subject = {**{name: row[name] for name in ("tenant", "queue", "workload_id")}, "kind": row["work_kind"]}
    own = read_options(ThrottlingOptions, policy.options(rule, options, subject))
    return bool(row["throttled_minutes"] > own.min_throttled_ratio * 60)


def _runs(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Rows of one card in hours that follow each other."""
    for _, own in groupby(rows, key=lambda row: row["gpu_uuid"]):
        run: list[Mapping[str, Any]] = []
        for row in own:
            if run and row["hour_at"] - run[-1]["hour_at"] > HOUR:
                yield run
                run = []
            run.append(row)
        yield run


def _lost(row: Mapping[str, Any]) -> float | None:
    clock, peers = row["sm_clock_hertz"], row["peer_clock_hertz"]
    if clock is None or not peers:
        return None
    return float(max(0.0, 1.0 - clock / peers) * row["gpu_hours"])


def _cause(run: Sequence[Mapping[str, Any]]) -> str:
    is_thermal, is_power = any(row["is_thermal"] for row in run), any(row["is_power_brake"] for row in run)
    if is_thermal and is_power:
        return "thermal_and_power"
    if is_thermal or is_power:
        return "thermal_slowdown" if is_thermal else "power_brake"
    return "hardware_slowdown"


def _mean(run: Sequence[Mapping[str, Any]], name: str) -> float | None:
    values = [row[name] for row in run if row[name] is not None]
    return sum(values) / len(values) if values else None


def _finding(run: Sequence[Mapping[str, Any]], window: Window) -> Finding:
    first, last = run[0], run[-1]
    losses = [_lost(row) for row in run]
    known = [loss for loss in losses if loss is not None]
    end = min(last["hour_at"] + HOUR, window.to_at)
    cause = _cause(run)
    coverage = _mean(run, "coverage_ratio") or 0.0
    work = {name: _sole(run, name) for name in ("tenant", "user", "queue", "work_kind")}
    samples = round(sum(row["observed_minutes"] for row in run))

    def fact(metric: str, value: float | None, threshold: float | None = None) -> dict[str, Any]:
        return {
            "metric": metric,
            "value": value,
            "threshold": threshold,
            "n_samples": samples,
            "coverage": coverage,
            "query": Throttling.name,
        }

    return Finding(
        analyzer=Throttling.name,
        rule_id=Throttling.name,
        rule_version=Throttling.version,
        category="health",
        severity="warning",
        subject_kind="gpu",
        subject_id=first["gpu_uuid"],
        tenant=work["tenant"],
        user=work["user"],
        queue=work["queue"],
        kind=work["work_kind"],
        vendor=vendor_of(first["model"]),
        window_start=first["hour_at"],
        window_end=end,
        gpu_hours_observed=sum(row["gpu_hours"] for row in run),
        gpu_hours_wasted=0.0,
        gpu_hours_recoverable=0.0,
        gpu_hours_lost=sum(known),
        confidence=min(1.0, coverage),
        basis="throttle reasons",
        cause_code=cause,
        action_code=ACTIONS[cause],
        is_open=end >= window.to_at - HOUR,
        evidence=(
            fact("throttled_minutes", sum(row["throttled_minutes"] for row in run)),
            fact("sm_clock_hertz", _mean(run, "sm_clock_hertz"), _mean(run, "peer_clock_hertz")),
        ),
        action_params={
            "node": first["node"],
            "gpu_uuid": first["gpu_uuid"],
            "jobs": sorted({row["workload_id"] for row in run}),
            "peers": _sole(run, "peers"),
            "peer_count": min(row["peer_count"] for row in run),
        },
        data_quality={"hours": len(run), "hours_of_unknown_loss": len(losses) - len(known)},
    )


def _sole(run: Sequence[Mapping[str, Any]], name: str) -> str:
    values = {row[name] or "" for row in run}
    return str(values.pop()) if len(values) == 1 else ""
