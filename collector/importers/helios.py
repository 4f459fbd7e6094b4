"""Imports the Helios trace (SenseTime, SC'21): what virtual clusters were entitled to, ran and waited for, by minute.

Times of the trace carry no zone and are taken as UTC. Equal minutes in a row become one `queue_state` that lasts as
long as they do, cut at whole hours; its sums over time are those of the minutes. The quota is the minutes' own total.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from collector.importers.tabular import Rejections, split_bad
from gpuledger.errors import BadInput
from gpuledger.model import complete

SCHEDULER = "helios"

BATCH_ROWS = 50_000
"""Rows of one yielded table of states."""

_COLUMNS = ("vc", "time", "total_gpu_num", "running_gpu_num", "pending_gpu_num")
_COUNTS = ("nominal_gpus", "running_gpus", "pending_gpus")


def _minutes(path: Path, rejections: Rejections) -> pl.DataFrame:
    try:
        held = pq.read_schema(path).names
        table = pq.read_table(path, columns=[column for column in _COLUMNS if column in held])
    except (OSError, pa.ArrowException) as error:
        raise BadInput(str(path), f"cannot be read: {error}") from error
    if missing := [column for column in _COLUMNS if column not in held]:
        raise BadInput(missing[0], f"column is missing in {path.name}")
    frame = cast("pl.DataFrame", pl.from_arrow(table)).with_row_index("_row", offset=1)
    checks = (
        ("vc", pl.col("vc").is_null() | (pl.col("vc") == ""), "is empty"),
        ("time", pl.col("time").is_null(), "is empty"),
        *(
            (column, pl.col(column).is_null() | (pl.col(column) < 0), "is not a number of GPUs of 0 or more")
            for column in _COLUMNS[2:]
        ),
        ("time", pl.struct("vc", "time").is_first_distinct().not_(), "is a minute that the file gave before"),
    )
    return split_bad(frame, checks, rejections).select(
        pl.col("vc").alias("queue"),
        pl.col("time").cast(pl.Datetime("us")).dt.replace_time_zone("UTC").alias("ts"),
        *(pl.col(given).cast(pl.Float64).alias(name) for given, name in zip(_COLUMNS[2:], _COUNTS, strict=True)),
    )


def _runs(minutes: pl.DataFrame, *values: str, within: str | None = None) -> pl.DataFrame:
    """Runs of consecutive minutes of a queue with equal `values`: one row each with `ts` and `minute_count`."""
    ordered = minutes.sort("queue", "ts")
    keys = [pl.col(value) for value in ("queue", *values)]
    breaks = [key.ne_missing(key.shift(1)) for key in keys] + [pl.col("ts").diff() != pl.duration(minutes=1)]
    if within:
        breaks.append(pl.col("ts").dt.truncate(within) == pl.col("ts"))
    numbered = ordered.with_columns(_run=pl.any_horizontal(breaks).fill_null(value=True).cum_sum())
    aggregates = [pl.col("ts").first(), pl.len().cast(pl.Float64).alias("minute_count")]
    return numbered.group_by("_run", "queue", *values, maintain_order=True).agg(aggregates).drop("_run")


def _batches(name: str, frame: pl.DataFrame) -> Iterator[tuple[str, pa.Table]]:
    for part in frame.iter_slices(BATCH_ROWS):
        yield name, complete(name, part.to_arrow())


def read(*, file: Path) -> Iterator[tuple[str, pa.Table]]:
    """Yield (record name, table): `tenant`, `queue`, `quota`, then `queue_state` in batches.

    A virtual cluster is a tenant with one queue. Raises BadInput for an unreadable file or a missing column, and
    BadRecord, after everything good was yielded, naming each bad row (counted from 1).
    """
    rejections = Rejections()
    minutes = _minutes(file, rejections)
    queues = minutes.group_by("queue", maintain_order=True).agg(pl.col("ts").min().alias("from_at"))
    own = pl.col("queue").alias("tenant")
    yield from _batches("tenant", queues.select(own, "from_at"))
    yield from _batches("queue", queues.select("queue", own, scheduler=pl.lit(SCHEDULER)))
    quotas = _runs(minutes, "nominal_gpus")
    ends = quotas.with_columns(until_at=pl.col("ts").shift(-1).over("queue"))
    yield from _batches("quota", ends.select("queue", own, "nominal_gpus", pl.col("ts").alias("from_at"), "until_at"))
    states = _runs(minutes, *_COUNTS, within="1h")
    seconds = (pl.col("minute_count") * 60).alias("duration_seconds")
    yield from _batches("queue_state", states.select("ts", "queue", own, seconds, *_COUNTS))
    rejections.raise_if_any()
