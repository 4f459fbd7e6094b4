"""Training that turns little of its cards' arithmetic into tokens, by its own step logs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import pyarrow as pa

from analyzers.efficiency import Transformer, peak_flops
from analyzers.efficiency_rule import EfficiencyRule, SubjectKey, by_subject, fact, in_stretch
from analyzers.options import option
from gpuledger.model import Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

GOOD_MFU_RATIO = 0.40
"""What well-tuned large runs are reported to reach: 38 to 43 % of BF16 peak (Llama 3, arXiv 2407.21783)."""

FORMULA = "gpu_hours x (1 - mfu / target): point to min_mfu_ratio, hi to 0.40, lo 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class LowMfuOptions:
    """Options of the rule; docs/rules/low_mfu.md says where each default comes from."""

    min_mfu_ratio: float = option(0.30, unit="ratio", low=0.0)
    min_hours: float = option(1.0, unit="hours", low=0.0)


class LowMfu(EfficiencyRule):
    """Training that turns little of its cards' arithmetic into tokens. Advice: nothing of it is waste.

    **Finds** jobs that declare their model (record job_model) and tell tokens by the step (record job_step), and whose
    model FLOPs utilization over at least an hour of steps was below 30 %: 6 P + 12 L h s FLOPs a token, times the whole
    job's tokens, over the GPU-seconds held and the dense peak of each card in the declared precision. Where a job
    declares its precision and no parameters, the FLOPs a second and GPU that its trainer tells stand for them.

    **Ignores** jobs without a declared model, or without tokens and FLOPs: tensor activity is never called MFU. Cards
    whose peak in the precision no data sheet tells; the totals name them. The time before the first step and after the
    last.

    **Evidence** the MFU, the job's tokens a second, the GPUs held.

    **GPU-hours counted** what the job held between its steps, as observed, none as wasted; `expected_gain` says what
    reaching 30 % (point) and 40 % (hi) would save.

    **Acts on it** profile the step: parallelism, batch, communication (`profile_training`).
    """

    name = "low_mfu"
    version = 1
    category: ClassVar[str] = "advice"
    options_class: ClassVar[type[Any]] = LowMfuOptions
    gap: ClassVar[timedelta] = timedelta(hours=1)

    def judge(
        self,
        runner: QueryRunner,
        claims: pa.Table,
        window: Window,
        options: Mapping[str, Any],
        policy: Policy | None = None,
    ) -> RuleResult:
        """As every claiming rule, with the jobs whose cards have no known peak in the totals."""
        result = super().judge(runner, claims, window, options, policy)
        steps = runner.query("low_mfu_steps", from_at=window.from_at, to_at=window.to_at).to_pylist()
        unknown = {
            (one["workload_id"], one["card_model"], one["precision"])
            for one in steps
            if peak_flops(one["card_model"], one["precision"]) is None
        }
        named = [dict(zip(("workload_id", "model", "precision"), one, strict=True)) for one in sorted(unknown)]
        return dataclasses.replace(result, totals={**result.totals, "unknown_peak": named})

    def facts(
        self, runner: QueryRunner, window: Window, rows: Sequence[Mapping[str, Any]]
    ) -> Mapping[SubjectKey, Mapping[str, Any]]:
        """Tokens and GPU-hours of each job, hour by hour."""
        return by_subject(runner.query("low_mfu_steps", from_at=window.from_at, to_at=window.to_at), rows)

    def finding(
        self, row: Mapping[str, Any], facts: Mapping[str, Any], chosen: LowMfuOptions
    ) -> Mapping[str, Any] | None:
        """A run of steps that is long enough and whose MFU can be worked out."""
        hours = [one for one in facts.get("rows", ()) if in_stretch(one["hour_at"], row)]
        walls = {one["hour_at"]: one for one in hours}.values()
        wall_hours = sum(one["wall_hours"] for one in walls)
        tokens = _sum(walls, "tokens") if hours and hours[0]["active_parameters"] is not None else None
        mfu = _mfu(hours, tokens, wall_hours)
        if mfu is None or wall_hours < chosen.min_hours - 1e-9 or mfu >= chosen.min_mfu_ratio - 1e-12:
            return None
        held = row["gpu_hours"]
        told = (
            ("model_flops_per_gpu_second", _sum(walls, "model_flops_per_gpu"))
            if tokens is None
            else ("tokens_per_second", tokens)
        )
        gpus = sum(one["gpu_hours"] for one in hours) / wall_hours
        samples = {"n_samples": sum(one["step_count"] for one in walls)}
        return {
            "cause_code": "low_mfu",
            "action_code": "profile_training",
            "severity": "info",
            "evidence": (
                {**fact("mfu_ratio", mfu, chosen.min_mfu_ratio, row, "low_mfu_steps"), **samples},
                {**fact(told[0], (told[1] or 0.0) / (3600 * wall_hours), None, row, "low_mfu_steps"), **samples},
                {**fact("gpus_held", gpus, None, row, "low_mfu_steps"), **samples},
            ),
            "expected_gain": {
                "point": held * (1 - mfu / chosen.min_mfu_ratio),
                "lo": 0.0,
                "hi": held * max(0.0, 1 - mfu / max(GOOD_MFU_RATIO, chosen.min_mfu_ratio)),
                "method": "static",
                "formula": FORMULA,
            },
        }


def _sum(rows: Iterable[Mapping[str, Any]], name: str) -> float | None:
    """The sum of what every row tells; None where one does not."""
    values = [one[name] for one in rows]
    return None if None in values else float(sum(values))


def _mfu(hours: Sequence[Mapping[str, Any]], tokens: float | None, wall_hours: float) -> float | None:
    """Model FLOPs over those that the cards held could have done; None where a card's peak is not known.

    Without declared parameters the model FLOPs are those that the trainer worked out, for each GPU that was held.
    """
    possible, gpu_hours = 0.0, 0.0
    for one in hours:
        peak = peak_flops(one["card_model"], one["precision"])
        if peak is None:
            return None
        possible += 3600 * one["gpu_hours"] * peak
        gpu_hours += one["gpu_hours"]
    if possible <= 0 or wall_hours <= 0:
        return None
    if tokens is None:
        done = _sum({one["hour_at"]: one for one in hours}.values(), "model_flops_per_gpu")
        return None if done is None else done * gpu_hours / wall_hours / possible
    declared = Transformer(
        active_parameters=hours[0]["active_parameters"],
        layers=hours[0]["layers"] or 0,
        hidden_size=hours[0]["hidden_size"] or 0,
        sequence_tokens=hours[0]["sequence_tokens"] or 0,
    )
    return declared.flops_per_token * tokens / possible
