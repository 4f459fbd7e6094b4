"""The fleet's health in figures: failure rate and MTTF, ETTR observed and expected, goodput."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from statistics import fmean
from typing import Any

from analyzers.efficiency import Transformer
from analyzers.health.ettr import Training, expected, young_interval_hours
from analyzers.health.failures import failures_of
from analyzers.health.goodput import Factor, Goodput, program_factor
from analyzers.health.incidents import incidents
from analyzers.health.rates import GPUS_PER_NODE, Rate, failure_rate, mean_time
from analyzers.health.runs import Run, runs, together
from gpuledger.model import GPU_MODELS, Window, canonical_model
from gpuledger.ports import QueryRunner

SIZES = (1024, 2048, 4096, 8192, 16384)
"""Sizes of jobs, in GPUs, for which MTTF and ETTR are modelled where none is asked for."""

ASSUMED_CHECKPOINT_HOURS = 1.0
ASSUMED_RESTART_HOURS = 5 / 60
HALF_PRECISIONS = ("bf16", "fp16")
"""Precisions of which the models' peak is known."""


def health_figures(runner: QueryRunner, window: Window, *, sizes: Sequence[int] = SIZES) -> dict[str, Any]:
    """Everything of `window` as plain values; docs/health.md explains each. None is unknown, which is not zero."""
    span = {"from_at": window.from_at, "to_at": window.to_at}
    failures, rate, node_count = _failures(runner, window)
    attempts = runner.query("ettr_attempts", **span).to_pylist()
    judged, unjudged = runs(attempts, assumed_checkpoint_hours=ASSUMED_CHECKPOINT_HOURS)
    inputs = _inputs(runner.query("ettr_checkpoints", **span).to_pylist()[0], judged)
    return {
        "from": window.from_at,
        "to": window.to_at,
        "mttf": _mttf(failures, rate, node_count, sizes),
        "ettr": {
            "observed": _observed(judged, unjudged),
            "expected": _expected(rate, inputs, sizes) if rate and rate.event_count else [],
            "inputs": inputs,
        },
        "goodput": _goodput(runner, span, judged),
    }


def _failures(runner: QueryRunner, window: Window) -> tuple[int, Rate | None, int]:
    span = {"from_at": window.from_at, "to_at": window.to_at}
    exposed = {row["node"]: row["node_days"] for row in runner.query("lemon_exposure", **span).to_pylist()}
    found = incidents(runner.query("hardware_fault", **span).to_pylist())
    by_node, _ = failures_of([one for one in found if one.fault["ts"] >= window.from_at])
    count = sum(len(own) for node, own in by_node.items() if node in exposed)
    node_days = sum(exposed.values())
    return count, failure_rate(count, node_days) if node_days > 0 else None, len(exposed)


def _mttf(count: int, rate: Rate | None, node_count: int, sizes: Sequence[int]) -> dict[str, Any]:
    known = {
        "failure_count": count,
        "node_days": rate.node_days if rate else 0.0,
        "node_count": node_count,
        "failures_per_1000_node_days": 1000 * rate.per_node_day if rate else None,
        "low_per_1000_node_days": 1000 * rate.low if rate else None,
        "high_per_1000_node_days": 1000 * rate.high if rate else None,
        "level": 0.95,
    }
    modelled = []
    for size in sizes if rate else ():
        assert rate is not None
        mean = mean_time(rate, size)
        modelled.append(
            {"gpu_count": size, "hours": mean.hours, "low_hours": mean.low_hours, "high_hours": mean.high_hours}
        )
    return {**known, "modelled": modelled}


def _inputs(saved: Mapping[str, Any], judged: Sequence[Run]) -> dict[str, Any]:
    restarts = [hours for run in judged for hours in run.restart_hours]
    waits = [hours for run in judged for hours in run.requeue_hours]
    return {
        "checkpoint_hours": saved["interval_hours"] or ASSUMED_CHECKPOINT_HOURS,
        "is_checkpoint_interval_assumed": not saved["interval_hours"],
        "restart_hours": fmean(restarts) if restarts else ASSUMED_RESTART_HOURS,
        "is_restart_assumed": not restarts,
        "requeue_hours": fmean(waits) if waits else 0.0,
        "blocking_hours": saved["blocking_hours"] or 0.0,
    }


def _observed(judged: Sequence[Run], unjudged: int) -> dict[str, Any]:
    best = together((run.gpus, run.best) for run in judged)
    worst = together((run.gpus, run.worst) for run in judged)
    exact = together((run.gpus, run.best) for run in judged if not run.is_bounded)
    return {
        "run_count": len(judged),
        "ratio": exact.ratio,
        "ratio_without_queue": exact.ratio_without_queue,
        "wall_gpu_hours": exact.wall,
        "productive_gpu_hours": exact.productive,
        "queue_gpu_hours": exact.queue,
        "init_gpu_hours": exact.init,
        "lost_gpu_hours": exact.lost,
        "low": worst.ratio,
        "high": best.ratio,
        "bounded_run_count": sum(run.is_bounded for run in judged),
        "unjudged_run_count": unjudged,
        "assumed_checkpoint_hours": ASSUMED_CHECKPOINT_HOURS,
    }


def _expected(rate: Rate, inputs: Mapping[str, Any], sizes: Sequence[int]) -> list[dict[str, Any]]:
    rows = []
    for size in sizes:
        per_hour = size / GPUS_PER_NODE * rate.per_node_day / 24
        job = Training(
            failures_per_hour=per_hour,
            checkpoint_hours=inputs["checkpoint_hours"],
            restart_hours=inputs["restart_hours"],
            requeue_hours=inputs["requeue_hours"],
            blocking_hours=inputs["blocking_hours"],
        )
        modelled = expected(job)
        young = young_interval_hours(inputs["blocking_hours"], per_hour) * 60 if inputs["blocking_hours"] else None
        rows.append(
            {
                "gpu_count": size,
                "ratio": modelled.ratio,
                "formula": modelled.formula,
                "is_valid": modelled.is_valid,
                "no_progress": modelled.no_progress,
                "young_interval_minutes": young,
            }
        )
    return rows


def _goodput(runner: QueryRunner, span: Mapping[str, Any], judged: Sequence[Run]) -> dict[str, Any]:
    scheduled = runner.query("goodput_scheduling", **span).to_pylist()[0]
    exact = together((run.gpus, run.best) for run in judged if not run.is_bounded)
    goodput = Goodput(
        scheduling=Factor(numerator=scheduled["started_gpu_hours"], denominator=scheduled["capacity_gpu_hours"]),
        runtime=Factor(numerator=exact.productive, denominator=max(0.0, exact.wall - exact.queue)),
        program=_program(runner.query("goodput_program", **span).to_pylist()),
    )
    factors = {"scheduling": goodput.scheduling, "runtime": goodput.runtime, "program": goodput.program}
    shown = {
        name: {
            "numerator_gpu_hours": factor.numerator,
            "denominator_gpu_hours": factor.denominator,
            "ratio": factor.ratio,
        }
        for name, factor in factors.items()
    }
    return {**shown, "ratio": goodput.ratio}


def _program(rows: Iterable[Mapping[str, Any]]) -> Factor:
    """PG over all work of which model, steps and the cards' peak are known."""
    peaks = {model.model: model.peak_bf16_flops for model in GPU_MODELS}
    factors = []
    for row in rows:
        peak = peaks.get(canonical_model(row["model"]) or "")
        if peak is None or row["precision"] not in HALF_PRECISIONS or not row["gpus"]:
            continue
        model = Transformer(
            active_parameters=row["active_parameters"],
            layers=row["layers"] or 0,
            hidden_size=row["hidden_size"] or 0,
            sequence_tokens=row["sequence_tokens"] or 0,
        )
        seconds = timedelta(hours=row["hours"]).total_seconds()
        factors.append(
            program_factor(
                model.flops_per_token * row["tokens"],
                row["gpus"] * peak * seconds,
                gpu_hours=row["gpus"] * row["hours"],
            )
        )
    return Factor(
        numerator=sum(factor.numerator for factor in factors),
        denominator=sum(factor.denominator for factor in factors),
    )
