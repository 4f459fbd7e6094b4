"""Who has quota to give and who waits for it: one label a queue from its hourly demand, folded into one a tenant."""

from __future__ import annotations

import polars as pl

from analyzers.quota_history import valid_days

HAIR = 1e-9
"""GPUs by which a mean of equal values may miss them."""

INSUFFICIENT = "insufficient_history"


def queue_labels(
    judged: pl.DataFrame, *, donor_ratio: float, blocked_ratio: float, min_valid_days: int
) -> pl.DataFrame:
    """One row per queue: its `label`, the numbers that decided it, `valid_days` and `coverage_ratio`.

    `underused`: the P99 of hourly mean demand is at most `donor_ratio` of the latest nominal. `blocked`: demand above
    nominal in at least `blocked_ratio` of the hours. Both, after a nominal changed: `mixed`.
    """
    numbers = judged.group_by("queue", "tenant").agg(
        pl.len().cast(pl.Int64).alias("hour_count"),
        pl.col("demand_gpus").quantile(0.99, interpolation="linear").alias("p99_demand_gpus"),
        pl.col("max_demand_gpus").quantile(0.99, interpolation="linear").alias("p99_peak_gpus"),
        pl.col("nominal_gpus").last().alias("last_nominal_gpus"),
        (pl.col("demand_gpus") > pl.col("nominal_gpus") + HAIR).mean().alias("blocked_hours_ratio"),
        (pl.col("demand_known_hours").sum() / pl.len()).clip(0, 1).alias("coverage_ratio"),
    )
    joined = numbers.join(valid_days(judged, ("queue", "tenant")), on=["queue", "tenant"])
    is_under = (pl.col("last_nominal_gpus") > 0) & (
        pl.col("p99_demand_gpus") <= donor_ratio * pl.col("last_nominal_gpus") + HAIR
    )
    is_blocked = pl.col("blocked_hours_ratio") >= blocked_ratio
    label = (
        pl.when(pl.col("valid_days") < min_valid_days)
        .then(pl.lit(INSUFFICIENT))
        .when(is_under & is_blocked)
        .then(pl.lit("mixed"))
        .when(is_under)
        .then(pl.lit("underused"))
        .when(is_blocked)
        .then(pl.lit("blocked"))
        .otherwise(pl.lit("balanced"))
    )
    return joined.with_columns(label=label).sort("tenant", "queue")


def fold(labels: set[str]) -> str:
    """The label of a tenant from those of its queues: both to give and in need is `mixed`."""
    judged = labels - {INSUFFICIENT}
    if not judged:
        return INSUFFICIENT
    if "mixed" in judged or {"underused", "blocked"} <= judged:
        return "mixed"
    return next(label for label in ("blocked", "underused", "balanced") if label in judged)
