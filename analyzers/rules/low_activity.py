"""Work that runs and reaches little of its cards: advice, never waste."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa

from analyzers import serving
from analyzers.claim_rule import evidence
from analyzers.efficiency_rule import EfficiencyRule, SubjectKey, by_subject, fact, in_stretch
from analyzers.options import option
from gpuledger.model import Window, vendor_of
from gpuledger.model.vendor_rules import counters_to_enable
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

ACTIONS: Mapping[str, str] = {
    "util_lies": "increase_batch",
    "input_bound": "prefetch_input",
    "memory_bound": "no_action",
    "non_tensor": "use_tensor_cores",
    "low_serving": "share_or_scale_down",
    "low_sm": "increase_batch",
}

GOOD_SM_RATIO = 0.8
"""SM activity that NVIDIA's DCGM guidance calls necessary, though not sufficient, for efficient use."""

PAUSE_RATIO = 0.2
"""The part of an hour's minutes from which on its SQL says that work waits for input."""

FORMULA = "gpu_hours x (1 - reached / target): point to max_sm_active_ratio, hi to 0.8, lo 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class LowActivityOptions:
    """Options of the rule; docs/rules/low_activity.md says where each default comes from."""

    min_active_hours: float = option(1.0, unit="hours", low=1.0)
    max_sm_active_ratio: float = option(0.50, unit="ratio", low=0.0)
    max_serving_util_ratio: float = option(0.10, unit="ratio", low=0.0)
    min_input_bytes_per_second: float = option(1e9, unit="bytes/second", low=0.0)


class LowActivity(EfficiencyRule):
    """Work that runs and reaches little of its cards. Advice: nothing of it is waste.

    **Finds** jobs and replicas that were active for at least an hour and whose mean SM activity stayed below 50 %, and
    says why: `util_lies` (utilization at or above 90 % all the same), `memory_bound` (DRAM at or above 60 %, tensor
    below 10 %), `input_bound` (pauses in at least 20 % of the minutes, and PCIe busy), `low_serving` (a service), else
    `low_sm`; training at or above 60 % that leaves its tensor cores below 2 % is `non_tensor`. A service whose
    utilization is below 10 % is `low_serving` without any grade: utilization bounds SM activity from above. So is a
    server of models for the minutes in which it answered requests on a card that reads idle.

    **Ignores** idle stretches (rules idle_allocation, gang_partial_idle), standstills (rule stalled_allocation),
    declared quiet phases, cards that several pods share, and work that nothing grades: its GPU-hours are in the totals
    with the counters to switch on.

    **Evidence** the mean of each signal over the stretch with its threshold; for `input_bound` the pauses and PCIe;
    for `low_serving` requests and cache, where the server is read.

    **GPU-hours counted** the active minutes times the share held, as observed, none as wasted; `expected_gain` says
    what reaching the threshold (point) and 80 % (hi) would save.

    **Acts on it** by cause: larger batches, prefetching or caching of input, mixed precision, sharing the card or
    fewer replicas at quiet hours. `memory_bound` asks for nothing: the memory is what limits the work.
    """

    name = "low_activity"
    version = 2
    category: ClassVar[str] = "advice"
    options_class: ClassVar[type[Any]] = LowActivityOptions
    gap: ClassVar[timedelta] = timedelta(hours=1)

    def parameters(self, chosen: LowActivityOptions) -> Mapping[str, Any]:
        """What the SQL needs to tell causes apart."""
        return {
            "max_serving_util_ratio": chosen.max_serving_util_ratio,
            "min_input_bytes_per_second": chosen.min_input_bytes_per_second,
        }

    def judge(
        self,
        runner: QueryRunner,
        claims: pa.Table,
        window: Window,
        options: Mapping[str, Any],
        policy: Policy | None = None,
    ) -> RuleResult:
        """As every claiming rule, with what could not be graded in the totals."""
        result = super().judge(runner, claims, window, options, policy)
        return dataclasses.replace(result, totals={**result.totals, **ungraded(runner, window)})

    def facts(
        self, runner: QueryRunner, window: Window, rows: Sequence[Mapping[str, Any]]
    ) -> Mapping[SubjectKey, Mapping[str, Any]]:
        """By the hour: pauses and PCIe of the subjects that wait for input, requests of those that serve."""
        waiting = [row for row in rows if row["cause"] == "input_bound"]
        paused = (
            by_subject(runner.query("low_input", from_at=window.from_at, to_at=window.to_at), waiting)
            if waiting
            else {}
        )
        loads = serving.loads(runner, window, [row for row in rows if row["cause"] == "low_serving"])
        return {
            subject: {"paused": paused.get(subject, {}), "served": loads.get(subject, {})}
            for subject in paused.keys() | loads.keys()
        }

    def finding(
        self, row: Mapping[str, Any], facts: Mapping[str, Any], chosen: LowActivityOptions
    ) -> Mapping[str, Any] | None:
        """A stretch that was active for long enough and stayed low, with its most telling cause."""
        cause = row["cause"]
        needed_minutes = 60 * chosen.min_active_hours * max(1.0, row["gpu_count"]) - 1e-6
        if row["observed_minutes"] < needed_minutes or not _is_low(row, cause, chosen):
            return None
        serves = cause == "low_serving"
        counters = counters_to_enable(vendor_of(row["model"])) if row["sm_active_ratio"] is None else ()
        return {
            "cause_code": cause,
            "action_code": ACTIONS[cause],
            "severity": "info",
            "evidence": (
                *evidence(self.name, row, _thresholds(cause, chosen)),
                *_input(row, facts.get("paused", {}), chosen),
                *(serving.served(facts.get("served", {}), row) if serves else ()),
            ),
            "expected_gain": _gain(row, cause, chosen),
            "guardrails": serving.NEVER_STOP if serves else {},
            "data_quality": {
                "coverage_ratio": row["coverage_ratio"],
                "is_shared_card": False,
                "confidence_parts": self.sureness(row).parts(),
                **({"counters_to_enable": list(counters)} if counters else {}),
            },
        }


def ungraded(runner: QueryRunner, window: Window) -> Mapping[str, Any]:
    """GPU-hours of `window` that worked and that nothing graded, and the counters that would grade them."""
    rows = runner.query("low_ungraded", from_at=window.from_at, to_at=window.to_at).to_pylist()
    missing = [
        {
            "model": row["model"],
            "vendor": vendor_of(row["model"]),
            "gpu_hours": row["gpu_hours"],
            "node_count": row["node_count"],
            "nodes": row["nodes"],
            "counters_to_enable": list(counters_to_enable(vendor_of(row["model"]))),
        }
        for row in rows
        if not row["is_shared"]
    ]
    return {
        "ungraded_gpu_hours": sum(row["gpu_hours"] for row in missing),
        "ungraded_shared_gpu_hours": sum(row["gpu_hours"] for row in rows if row["is_shared"]),
        "ungraded": missing,
    }


def _reached(row: Mapping[str, Any]) -> float | None:
    """SM activity; where it is not measured, utilization, which bounds it from above."""
    sm: float | None = row["sm_active_ratio"]
    return sm if sm is not None else row["gpu_util_ratio"]


def _is_low(row: Mapping[str, Any], cause: str, chosen: LowActivityOptions) -> bool:
    reached = _reached(row)
    if reached is None:
        return False
    if row["sm_active_ratio"] is None:
        return reached < chosen.max_serving_util_ratio
    return cause == "non_tensor" or reached < chosen.max_sm_active_ratio


def _thresholds(cause: str, chosen: LowActivityOptions) -> Mapping[str, float | None]:
    return {
        "sm_active_ratio": 0.6 if cause == "non_tensor" else chosen.max_sm_active_ratio,
        "gpu_util_ratio": {"util_lies": 0.9, "low_serving": chosen.max_serving_util_ratio}.get(cause),
        "tensor_active_ratio": {"non_tensor": 0.02, "memory_bound": 0.1}.get(cause),
        "dram_active_ratio": 0.6 if cause == "memory_bound" else None,
        "fb_used_ratio": None,
        "power_watts": None,
    }


def _input(
    row: Mapping[str, Any], facts: Mapping[str, Any], chosen: LowActivityOptions
) -> tuple[Mapping[str, Any], ...]:
    """The pauses and the PCIe traffic of the hours in which work waited for its input."""
    touched = (one for one in facts.get("rows", ()) if in_stretch(one["hour_at"], row))
    hours = [one for one in touched if one["pause_minutes"] >= PAUSE_RATIO * one["judged_minutes"]]
    judged = sum(one["judged_minutes"] for one in hours)
    if row["cause"] != "input_bound" or judged <= 0:
        return ()
    carried = [one["pcie_bytes_per_second"] for one in hours if one["pcie_bytes_per_second"] is not None]
    mean = sum(carried) / len(carried) if carried else None
    paused = sum(one["pause_minutes"] for one in hours) / judged
    return (
        fact("pause_ratio", paused, PAUSE_RATIO, row, "low_input"),
        fact("pcie_bytes_per_second", mean, chosen.min_input_bytes_per_second, row, "low_input"),
    )


def _gain(row: Mapping[str, Any], cause: str, chosen: LowActivityOptions) -> Mapping[str, Any]:
    """GPU-hours that the same work would not have needed, had it reached more of its cards."""
    reached = _reached(row)
    if reached is None or cause in ("memory_bound", "non_tensor"):
        return {
            "point": 0.0,
            "lo": 0.0,
            "hi": 0.0,
            "method": "static",
            "formula": "none: SM activity does not bound it",
        }
    hours = row["gpu_hours"]
    return {
        "point": hours * max(0.0, 1 - reached / chosen.max_sm_active_ratio) if chosen.max_sm_active_ratio > 0 else 0.0,
        "lo": 0.0,
        "hi": hours * max(0.0, 1 - reached / GOOD_SM_RATIO),
        "method": "static",
        "formula": FORMULA,
    }
