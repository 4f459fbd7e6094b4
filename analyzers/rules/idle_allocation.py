"""Work that holds GPUs and computes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzers.options import option, read_options
from gpuledger.model import Finding, Window
from gpuledger.ports import QueryRunner, RuleResult

ACTIONS: Mapping[str, str] = {
    "no_process": "notify",
    "never_used": "notify",
    "memory_held": "notify",
    "finished_not_released": "stop",
    "idle": "notify",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleAllocationOptions:
    """Options of the rule; docs/rules/idle_allocation.md says where each default comes from."""

    min_idle_minutes: float = option(30.0, unit="minutes", low=30.0)
    min_gpu_hours: float = option(0.0, unit="GPU-hours", low=0.0)
    memory_held_ratio: float = option(0.20, unit="ratio", low=0.0)
    no_process_memory_ratio: float = option(0.02, unit="ratio", low=0.0)
    shared_confidence_ratio: float = option(0.5, unit="ratio", low=0.0)


class IdleAllocation:
    """Work that holds GPUs and computes nothing.

    **Finds** stretches of at least 30 minutes in which every GPU of a job, or of one replica of a service, was idle:
    SM activity below 5 % (else graphics engine below 1 %, else utilization below 1 %), no encoding or decoding, and
    power, where it is known, below the idle draw plus 15 % of the span up to TDP.

    **Ignores** the time before a workload is ready and its grace (15 min for training, 10 min for the rest), replicas
    of a declared floor (`alloc_standby`), hours with less than half of the readings (`alloc_unknown`), short dips, and
    jobs of which one rank works (the idle rank stays `alloc_idle` in the ledger). A card that reads busy but does not
    compute is `alloc_stalled`, not idle.

    **Evidence** the mean of each signal over the stretch with its threshold, the minutes observed, and the coverage.

    **GPU-hours counted** the observed minutes of the stretch times the share held, once; they are `alloc_idle` in the
    ledger (for a job whose ranks fall idle one after another, partly `alloc_low`).

    **Acts on it** the owner is told (`notify`), asked to stop what has finished (`stop`), or declares the work as
    standby, which changes the verdict.
    """

    name = "idle_allocation"
    version = 1

    def run(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> RuleResult:
        """Judge the whole hours that `window` touches; totals give the GPU-hours by cause."""
        chosen = read_options(IdleAllocationOptions, options)
        hours = window.whole_hours()
        rows = runner.query("idle_allocation", from_at=hours.from_at, to_at=hours.to_at).to_pylist()
        findings = [
            _finding(row, chosen)
            for row in rows
            if row["gpu_hours"] > max(0.0, chosen.min_gpu_hours - 1e-9)
            and (row["window_end"] - row["window_start"]).total_seconds() >= chosen.min_idle_minutes * 60
        ]
        by_cause: dict[str, float] = {}
        for finding in findings:
            by_cause[finding.cause_code] = by_cause.get(finding.cause_code, 0.0) + finding.gpu_hours_wasted
        totals = {"idle_gpu_hours": sum(by_cause.values()), "idle_gpu_hours_by_cause": by_cause}
        return RuleResult(findings=findings, totals=totals)


def _cause(row: Mapping[str, Any], chosen: IdleAllocationOptions) -> str:
    """The most telling fact of the stretch; algorithms.md, section A."""
    memory = row["fb_used_ratio"]
    if "no_process" in row["basis"] or (memory is not None and memory < chosen.no_process_memory_ratio):
        return "no_process"
    if row["is_until_end"] and not row["is_never_used"]:
        return "finished_not_released"
    if row["is_never_used"]:
        return "never_used"
    if memory is not None and memory >= chosen.memory_held_ratio:
        return "memory_held"
    return "idle"


def _evidence(row: Mapping[str, Any], chosen: IdleAllocationOptions) -> tuple[dict[str, Any], ...]:
    measured = (
        ("sm_active_ratio", 0.05),
        ("gpu_util_ratio", None if row["sm_active_ratio"] is not None else 0.01),
        ("fb_used_ratio", chosen.memory_held_ratio),
        ("power_watts", None),
    )
    return tuple(
        {
            "metric": metric,
            "value": row[metric],
            "threshold": threshold,
            "n_samples": round(row["observed_minutes"]),
            "coverage": row["coverage_ratio"],
            "query": "idle_allocation",
        }
        for metric, threshold in measured
        if row[metric] is not None
    )


def _finding(row: Mapping[str, Any], chosen: IdleAllocationOptions) -> Finding:
    cause = _cause(row, chosen)
    confidence = (row["coverage_ratio"] or 0.0) * (chosen.shared_confidence_ratio if row["is_shared"] else 1.0)
    return Finding(
        analyzer=IdleAllocation.name,
        rule_id=IdleAllocation.name,
        rule_version=IdleAllocation.version,
        subject_kind=row["subject_kind"],
        subject_id=row["subject_id"],
        tenant=row["tenant"],
        user=row["user"],
        window_start=row["window_start"],
        window_end=row["window_end"],
        gpu_hours_observed=row["held_gpu_hours"],
        gpu_hours_wasted=row["gpu_hours"],
        gpu_hours_recoverable=row["gpu_hours"],
        confidence=min(1.0, confidence),
        basis=row["basis"],
        cause_code=cause,
        action_code=ACTIONS[cause],
        evidence=_evidence(row, chosen),
        action_params={"workload_id": row["workload_id"], "gpu_count": row["gpu_count"], "kind": row["kind"]},
        guardrails={"is_until_end": row["is_until_end"]},
        data_quality={"coverage_ratio": row["coverage_ratio"], "is_shared_card": row["is_shared"]},
    )
