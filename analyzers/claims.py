"""From claims to stretches: pieces of the ledger that one rule speaks of, joined to what one finding is about.

A rule's SQL gives claims, hour by hour: pieces of ledger spans with the GPU-hours claimed. Joining them is the same for
every rule, over any number of hours, so that an hour that is analysed for good is never read again.
"""

from __future__ import annotations

from datetime import timedelta

import polars as pl
import pyarrow as pa

KEY = ("subject_kind", "subject_id", "workload_id")
"""What a finding is about."""

MEANS = (
    "coverage_ratio",
    "gpu_util_ratio",
    "sm_active_ratio",
    "core_active_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
    "fb_used_ratio",
    "power_watts",
)
"""Columns that are averaged over a stretch, weighted by the length held."""

TEXTS = ("tenant", "user", "queue", "kind", "node", "model", "basis", "cause")
"""Columns of which the value that covers most of the stretch is given."""

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in KEY),
        ("hour_at", pa.timestamp("us", tz="UTC")),
        ("from_at", pa.timestamp("us", tz="UTC")),
        ("until_at", pa.timestamp("us", tz="UTC")),
        *((name, pa.string()) for name in ("tenant", "user", "queue", "kind")),
        *((name, pa.string()) for name in ("gpu_uuid", "slice_id", "allocation_id", "node", "model")),
        *((name, pa.string()) for name in ("state", "cause", "basis")),
        ("is_shared", pa.bool_()),
        *((name, pa.float64()) for name in ("gpu_hours", "held_gpu_hours", "observed_minutes", *MEANS)),
    ]
)
"""Columns of claims, as `sql/rules/<rule>.sql` gives them in any order, and as the table `claim` keeps them."""


def _mean(name: str) -> pl.Expr:
    is_known = pl.col(name).is_not_null()
    weight = pl.col("held_gpu_hours").filter(is_known)
    return ((pl.col(name).filter(is_known) * weight).sum() / weight.sum()).fill_nan(None).alias(name)


def stretches(claims: pa.Table, *, gap: timedelta = timedelta(), by_cause: bool = False) -> pl.DataFrame:
    """One row per subject and run of its claims without a hole longer than `gap`; with `by_cause`, per cause too.

    Columns: KEY, `window_start`, `window_end`, `gpu_count` (mean GPUs claimed), `gpu_hours`, `held_gpu_hours`,
    `observed_minutes` (of cards), MEANS, TEXTS (that of the most held hours), `is_shared`, `claim_count`.
    Sorted by GPU-hours, the largest first.
    """
    rows = pl.DataFrame(pl.from_arrow(claims))
    key = [*KEY, "cause"] if by_cause else [*KEY]
    texts = [name for name in TEXTS if name not in key]
    if rows.is_empty():
        return pl.DataFrame(schema=_empty(key, texts))
    runs = (
        rows.sort([*key, "from_at", "until_at"])
        .with_columns(reached=pl.col("until_at").cum_max().shift(1).over(key))
        .with_columns(run=(pl.col("from_at") > pl.col("reached") + gap).fill_null(value=False).cum_sum().over(key))
    )
    grouped = runs.group_by([*key, "run"]).agg(
        pl.col("from_at").min().alias("window_start"),
        pl.col("until_at").max().alias("window_end"),
        pl.col("gpu_hours", "held_gpu_hours", "observed_minutes").sum(),
        *map(_mean, MEANS),
        pl.col("is_shared").any(),
        pl.len().alias("claim_count"),
    )
    for name in texts:
        most = (
            runs.group_by([*key, "run", name])
            .agg(pl.col("held_gpu_hours").sum())
            .sort([*key, "run", "held_gpu_hours", name], descending=[False] * (len(key) + 1) + [True, False])
            .unique([*key, "run"], keep="first", maintain_order=True)
        )
        grouped = grouped.join(most.select([*key, "run", name]), on=[*key, "run"], how="left", nulls_equal=True)
    hours = (pl.col("window_end") - pl.col("window_start")).dt.total_microseconds() / 3.6e9
    return (
        grouped.with_columns(gpu_count=pl.col("held_gpu_hours") / hours)
        .drop("run")
        .sort(["gpu_hours", "subject_id", "window_start"], descending=[True, False, False])
    )


def _empty(key: list[str], texts: list[str]) -> dict[str, pl.DataType]:
    instant, number = pl.Datetime("us", "UTC"), pl.Float64()
    return {
        **{name: pl.String() for name in [*key, *texts]},
        "window_start": instant,
        "window_end": instant,
        **dict.fromkeys(("gpu_hours", "held_gpu_hours", "observed_minutes", *MEANS, "gpu_count"), number),
        "is_shared": pl.Boolean(),
        "claim_count": pl.UInt32(),
    }
