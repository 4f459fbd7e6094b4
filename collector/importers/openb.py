"""Imports the openb trace (Alibaba, cluster-trace-gpu-v2023): nodes, cards and the shapes that pods asked for.

The trace counts seconds from an unnamed start; here that start is `TRACE_START`. It tells when a pod was created,
scheduled and deleted but not where it ran, so pods become `workload` records without any `allocation`: the cluster
stays empty. A pod is pending at an instant when it has been created and neither scheduled nor deleted by then; every
other pod is a request shape of the past.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import polars as pl
import pyarrow as pa

from collector.importers.tabular import Rejections, named, read_texts, split_bad, whole_number
from gpuledger.model import complete

TRACE_START = datetime(2023, 1, 1, tzinfo=UTC)
"""Second 0 of the trace: a convention of this importer, since the trace names none."""

CLUSTER = "openb"

_NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS = (
    "name",
    "cpu_milli",
    "memory_mib",
    "num_gpu",
    "gpu_milli",
    "gpu_spec",
    "creation_time",
    "deletion_time",
    "scheduled_time",
)


def _instant(column: str) -> pl.Expr:
    seconds = pl.col(column).cast(pl.Int64)
    return pl.lit(TRACE_START).cast(pl.Datetime("us", "UTC")) + pl.duration(seconds=seconds)


def _record(name: str, frame: pl.DataFrame) -> tuple[str, pa.Table]:
    return name, complete(name, frame.to_arrow())


def _nodes(path: Path, rejections: Rejections) -> pl.DataFrame:
    texts = read_texts(path, _NODE_COLUMNS, rejections)
    checks = (named("sn"), *(whole_number(column) for column in ("cpu_milli", "memory_mib", "gpu")))
    good = split_bad(texts, checks, rejections)
    return good.select(
        pl.col("sn").alias("node"),
        pl.lit(CLUSTER).alias("cluster"),
        pl.lit(CLUSTER).alias("pool"),
        pl.col("model"),
        pl.col("gpu").cast(pl.Int64).alias("gpu_count"),
        pl.col("cpu_milli").cast(pl.Int64),
        pl.col("memory_mib").cast(pl.Int64),
        pl.lit(TRACE_START).cast(pl.Datetime("us", "UTC")).alias("from_at"),
    )


def _assets(nodes: pl.DataFrame) -> pl.DataFrame:
    slots = (
        nodes.filter(pl.col("gpu_count") > 0).with_columns(slot=pl.int_ranges(0, pl.col("gpu_count"))).explode("slot")
    )
    return slots.select(
        pl.format("{}/gpu{}", "node", "slot").alias("gpu_uuid"),
        "node",
        "slot",
        "model",
        "pool",
        pl.lit("in_service").alias("status"),
        pl.lit("imported").alias("origin"),
        "from_at",
    )


def _workloads(path: Path, rejections: Rejections) -> pl.DataFrame:
    texts = read_texts(path, _POD_COLUMNS, rejections)
    milli = pl.col("gpu_milli").cast(pl.Int64, strict=False)
    checks = (
        named("name"),
        *(whole_number(column) for column in ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "creation_time")),
        ("gpu_milli", milli > 1000, "is above 1000 milli-GPU"),
        *(whole_number(column, optional=True) for column in ("deletion_time", "scheduled_time")),
    )
    good = split_bad(texts, checks, rejections)
    return good.select(
        pl.col("name").alias("workload_id"),
        "name",
        _instant("creation_time").alias("submitted_at"),
        _instant("scheduled_time").alias("started_at"),
        _instant("deletion_time").alias("ended_at"),
        pl.lit(1, pl.Int64).alias("pod_count"),
        *(pl.col(column).cast(pl.Int64) for column in ("num_gpu", "gpu_milli", "cpu_milli", "memory_mib")),
        pl.col("gpu_spec").alias("model_set"),
    )


def read(*, nodes: Path, pods: Path) -> Iterator[tuple[str, pa.Table]]:
    """Yield (record name, table): `node`, `asset`, `workload`.

    GPU UUIDs are made up and stable ("openb-node-0000/gpu0"); models stay as given. Raises BadInput for an unreadable
    file or a missing column, and BadRecord, after everything good was yielded, naming each bad row.
    """
    rejections = Rejections()
    known = _nodes(nodes, rejections)
    yield _record("node", known)
    yield _record("asset", _assets(known))
    yield _record("workload", _workloads(pods, rejections))
    rejections.raise_if_any()
