"""Who holds quota that nobody asks for, and who waits for quota, from what queues ran and what waited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import polars as pl

from analyzers.options import option, read_options
from analyzers.quota_history import Outages, find_outages, hourly, judged_hours
from analyzers.rules.quota_labels import INSUFFICIENT, fold, queue_labels
from gpuledger.model import Finding, Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

_SUMS = ("idle_gpu_hours", "idle_quota_gpu_hours", "outage_gpu_hours", "pending_gpu_hours", "unmet_gpu_hours")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaBalanceOptions:
    """Options of the rule; docs/rules/quota_balance.md says where each default comes from."""

    donor_ratio: float = option(0.7, unit="ratio", low=0.0)
    blocked_ratio: float = option(0.1, unit="ratio", low=0.0)
    history_days: float = option(28.0, unit="days", low=1.0)
    min_valid_days: int = option(14, unit="days", low=1)
    headroom_ratio: float = option(0.2, unit="ratio", low=0.0)
    outage_normal_ratio: float = option(0.9, unit="ratio", low=0.0)
    outage_min_minutes: float = option(10.0, unit="minutes", low=0.0)


class QuotaBalance:
    """Quota that lies idle at one tenant while others wait.

    **Finds** tenants whose demand stayed at or below 70 % of their nominal quota (`underused`: P99 of the hourly mean
    demand over 28 days) and tenants whose demand was above it in at least 10 % of the hours (`blocked`). Demand is what
    ran plus what waited, never what ran alone.

    **Ignores** days that an outage touched, hours of which less than half was recorded, tenants with fewer than 14
    valid days, tenants that are both (`mixed`), GPUs that are held but idle (rule idle_allocation) and GPUs that no
    shape can use (rule fragmentation).

    **Evidence** the P99 of hourly demand against nominal quota, the share of hours above it, the hours judged.

    **GPU-hours counted** for an underused tenant the nominal GPU-hours for which nothing ran or waited, outside
    outages. They are a claim on GPU-hours that the ledger holds as free or lent, never added to its waste. Waiting work
    is demand, not waste: a blocked tenant's finding counts 0 and states its unmet GPU-hours as evidence.

    **Acts on it** move nominal quota (recommender move_quota), dry run first.
    """

    name = "quota_balance"
    version = 1
    category = "quota"

    def run(
        self,
        runner: QueryRunner,
        window: Window,
        options: Mapping[str, Any],
        policy: Policy | None = None,  # noqa: ARG002 the port's signature
    ) -> RuleResult:
        """Integrate over `window`; label by the `history_days` before its end."""
        chosen = read_options(QuotaBalanceOptions, options)
        history = Window(window.to_at - timedelta(days=chosen.history_days), window.to_at)
        both = Window(min(window.from_at, history.from_at), window.to_at)
        outages = find_outages(
            runner, both, normal_ratio=chosen.outage_normal_ratio, min_minutes=chosen.outage_min_minutes
        )
        labels = queue_labels(
            judged_hours(hourly(runner, history, outages), outages),
            donor_ratio=chosen.donor_ratio,
            blocked_ratio=chosen.blocked_ratio,
            min_valid_days=chosen.min_valid_days,
        )
        queues = _integrals(hourly(runner, window, outages)).join(labels, on=["queue", "tenant"], how="left")
        rows = queues.with_columns(pl.col("label").fill_null(INSUFFICIENT)).sort("tenant", "queue").to_dicts()
        guarantees = _guarantees(runner, window)
        tenants = [_tenant(tenant, own) for tenant, own in _by_tenant(rows).items()]
        findings = [
            _finding(_Case(window, chosen, outages, guarantees), row, _with_label(rows, row))
            for row in tenants
            if row["label"] in ("underused", "blocked")
        ]
        findings.sort(key=lambda finding: (-finding.gpu_hours_wasted, finding.subject_id))
        return RuleResult(
            findings=[finding for finding in findings if finding is not None],
            totals={
                "tenants": tenants,
                "fleet": _fleet(rows),
                "outage_minutes": outages.minutes,
                "outages": [{"from_at": outage.from_at, "until_at": outage.to_at} for outage in outages.windows],
            },
        )


@dataclass(frozen=True, slots=True)
class _Case:
    """What every finding of one run shares."""

    window: Window
    chosen: QuotaBalanceOptions
    outages: Outages
    guarantees: Mapping[str, float]


def _integrals(hours: pl.DataFrame) -> pl.DataFrame:
    summed = ("nominal_known_hours", "nominal_gpu_hours", "running_gpu_hours", "running_with_nominal_gpu_hours", *_SUMS)
    return hours.group_by("queue", "tenant").agg(pl.col(column).sum() for column in summed)


def _guarantees(runner: QueryRunner, window: Window) -> dict[str, float]:
    """The guaranteed GPUs of each queue just before the window ends, all flavors together."""
    sums: dict[str, float] = {}
    for row in runner.query("quota_in_force", at=window.to_at - timedelta(microseconds=1)).to_pylist():
        sums[row["queue"]] = sums.get(row["queue"], 0.0) + row["guarantee_gpus"]
    return sums


def _by_tenant(rows: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["tenant"], []).append(row)
    return groups


def _with_label(rows: Sequence[dict[str, Any]], tenant: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [row for row in rows if row["tenant"] == tenant["tenant"] and row["label"] == tenant["label"]]


def _numbers(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sums over queues; the ratio and the nominal are None where no quota was known."""
    nominal_hours = sum(row["nominal_gpu_hours"] for row in rows)
    known = [row for row in rows if row["nominal_known_hours"] > 0]
    ran = sum(row["running_with_nominal_gpu_hours"] for row in rows)
    return {
        "nominal_gpus": sum(row["nominal_gpu_hours"] / row["nominal_known_hours"] for row in known) if known else None,
        "nominal_gpu_hours": nominal_hours,
        "running_gpu_hours": sum(row["running_gpu_hours"] for row in rows),
        "allocation_ratio": ran / nominal_hours if nominal_hours > 0 else None,
        **{name: sum(row[name] for row in rows) for name in _SUMS},
    }


def _tenant(tenant: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    days = min((row["valid_days"] or 0 for row in rows), default=0)
    return {"tenant": tenant, **_numbers(rows), "valid_days": days, "label": fold({row["label"] for row in rows})}


def _fleet(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {**_numbers(rows), "queue_count": len(rows)}


def _spare_gpu_hours(case: _Case, row: Mapping[str, Any]) -> float:
    """GPU-hours of a queue's quota above its floor: what a move could give away and the guard would still hold."""
    floor = max(case.guarantees.get(row["queue"], 0.0), (1 + case.chosen.headroom_ratio) * row["p99_peak_gpus"])
    outside = case.outages.outside_hours(case.window) * row["nominal_known_hours"] / case.window.hours
    spare: float = max(0.0, row["last_nominal_gpus"] - floor) * outside
    return min(float(row["idle_quota_gpu_hours"]), spare)


def _evidence(case: _Case, rows: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    facts: list[dict[str, Any]] = []
    for row in rows:
        shared = {
            "queue": row["queue"],
            "n_samples": row["hour_count"],
            "coverage": row["coverage_ratio"],
            "query": "quota_hourly",
        }
        donor = case.chosen.donor_ratio * row["last_nominal_gpus"]
        facts += [
            {"metric": "p99_demand_gpus", "value": row["p99_demand_gpus"], "threshold": donor, **shared},
            {
                "metric": "blocked_hours_ratio",
                "value": row["blocked_hours_ratio"],
                "threshold": case.chosen.blocked_ratio,
                **shared,
            },
            {"metric": "unmet_gpu_hours", "value": row["unmet_gpu_hours"], "threshold": None, **shared},
        ]
    return tuple(facts)


def _finding(case: _Case, tenant: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Finding:
    is_donor = tenant["label"] == "underused"
    numbers = _numbers(rows)
    wasted = numbers["idle_quota_gpu_hours"] if is_donor else 0.0
    recoverable = sum(_spare_gpu_hours(case, row) for row in rows) if is_donor else 0.0
    days = min(row["valid_days"] for row in rows)
    coverage = min(row["coverage_ratio"] for row in rows)
    return Finding(
        analyzer=QuotaBalance.name,
        rule_id=QuotaBalance.name,
        rule_version=QuotaBalance.version,
        subject_kind="tenant",
        subject_id=tenant["tenant"],
        tenant=tenant["tenant"],
        window_start=case.window.from_at,
        window_end=case.window.to_at,
        category="quota",
        is_open=True,
        gpu_hours_observed=max(numbers["nominal_gpu_hours"], wasted),
        gpu_hours_wasted=wasted,
        gpu_hours_recoverable=recoverable,
        confidence=coverage * min(1.0, days / case.chosen.history_days),
        basis="queue states and quotas",
        cause_code="quota_idle" if is_donor else "quota_blocked",
        action_code="move_quota",
        evidence=_evidence(case, rows),
        action_params={"queues": [row["queue"] for row in rows], "role": "donor" if is_donor else "recipient"},
        guardrails={"headroom_ratio": case.chosen.headroom_ratio},
        data_quality={"valid_days": days, "outage_minutes": case.outages.minutes},
    )
