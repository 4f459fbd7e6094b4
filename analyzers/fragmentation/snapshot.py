"""Fragmentation at one instant: free GPUs by what blocks them, the index, and how large a gang still fits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import polars as pl

from analyzers.fragmentation import blocking
from analyzers.fragmentation.causes import Fit, fit, wanted_shapes
from analyzers.fragmentation.cluster import Cluster, Floats, Texts, read_cluster
from analyzers.fragmentation.index import unusable_milli
from analyzers.fragmentation.shapes import (
    CUTS,
    WEIGHTINGS,
    Classes,
    Shapes,
    class_counts,
    classes_of,
    read_shapes,
    weight_matrix,
    weights_of_cut,
)
from analyzers.fragmentation.slots import placeable
from gpuledger.ports import QueryRunner

PHYSICAL_CAUSES = ("fractional", "insufficient_whole", "memory", "cpu", "node_too_small", "model")
"""Causes of the ledger's `free_stranded`, the easiest to help first."""

BASES = ("typical", "pending")
"""What the index is taken against: every shape asked for, or those that wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """The index against one set of classes: fragmented GPUs of each node (rows) under each weighting (columns).

    `by_cut`: the fleet's fragmented GPUs when only the most frequent classes count, by the pods they cover. None where
    no class counts: then there is nothing to measure.
    """

    classes: Classes
    fragment_gpus: Floats
    by_cut: Mapping[float, float] | None

    def total(self, weighting: str, *, is_in: Any = None) -> float | None:
        """Fragmented GPUs of the fleet, or of the nodes that `is_in` marks; None where no class counts."""
        if not class_counts(self.classes)[weighting]:
            return None
        column = self.fragment_gpus[:, WEIGHTINGS.index(weighting)]
        return math.fsum(column if is_in is None else column[is_in])


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was free at `at`, one entry a card in `blocked_by`: usable, a cause of PHYSICAL_CAUSES, or a block.

    `physical_cause` is the ledger's cause, worked out again: "" where a wanted shape fits the card physically.
    """

    at: datetime
    cluster: Cluster
    blocked_by: Texts
    physical_cause: Texts
    indexes: Mapping[str, Index]

    def free_gpus_by_block(self) -> pl.DataFrame:
        """Columns `pool`, `name`, `gpus`: they add up to the free GPUs of the pool. What is empty is left out."""
        return self._by_pool(self.blocked_by)

    def stranded_gpus(self) -> pl.DataFrame:
        """Columns `pool`, `name`, `gpus`: the shares that no wanted shape fits, by physical cause."""
        return self._by_pool(self.physical_cause).filter(pl.col("name") != "")

    def placeable(self) -> pl.DataFrame:
        """Gangs that still fit, by pool, level and size (`analyzers.fragmentation.slots`)."""
        return placeable(self.cluster)

    def _by_pool(self, names: Texts) -> pl.DataFrame:
        cluster = self.cluster
        rows = pl.DataFrame(
            {
                "pool": pl.Series(cluster.pool[cluster.card_node].tolist(), dtype=pl.String),
                "name": pl.Series(names.tolist(), dtype=pl.String),
                "gpus": cluster.free_gpus,
            }
        )
        return rows.filter(pl.col("gpus") > 0).group_by("pool", "name").agg(pl.col("gpus").sum()).sort("pool", "name")


def take_snapshot(
    runner: QueryRunner,
    at: datetime,
    *,
    history_days: float | None = None,
    gang_level: str | None = None,
    levels: Mapping[str, str] | None = None,
) -> Snapshot:
    """Fragmentation at `at`.

    `history_days` bounds how long a typical shape counts in the index; `gang_level` is the level in one domain of which
    every gang has to stand (None: only gangs of which their scheduler says so are blocked by topology); `levels` names
    further levels by what schedulers call them.
    """
    cluster = read_cluster(runner, at, levels)
    shapes = read_shapes(runner, at, history_days)
    wanted = wanted_shapes(shapes)
    found = fit(cluster, wanted)
    return Snapshot(
        at=at,
        cluster=cluster,
        blocked_by=_blocked_by(runner, at, cluster, wanted, found, gang_level),
        physical_cause=found.cause,
        indexes=indexes(cluster, shapes),
    )


def indexes(cluster: Cluster, shapes: Shapes) -> dict[str, Index]:
    """The index against what is typical and against what waits."""
    free = cluster.by_slot()
    by_basis = {"typical": shapes.pods, "pending": shapes.pending_pods}
    return {basis: _index(cluster, free, classes_of(shapes, pods)) for basis, pods in by_basis.items()}


def _index(cluster: Cluster, free: Floats, classes: Classes) -> Index:
    unusable = unusable_milli(free, cluster.cpu_free_milli, cluster.acceptance(classes.model_set), classes) / 1000
    fragments = unusable @ weight_matrix(classes).T
    by_cut = {cut: math.fsum(unusable @ weights_of_cut(classes, cut)) for cut in CUTS} if len(classes) else None
    return Index(classes=classes, fragment_gpus=fragments, by_cut=by_cut)


def _blocked_by(
    runner: QueryRunner, at: datetime, cluster: Cluster, wanted: Shapes, found: Fit, gang_level: str | None
) -> Texts:
    pending = blocking.read_pending(runner, at, wanted)
    of_shape = blocking.blocked(cluster, wanted, found, pending, gang_level)
    is_misplaced = blocking.misplaced(cluster, wanted, blocking.read_slices(runner, at))
    blocks = blocking.name_blocks(found, of_shape, is_misplaced)
    names = np.where(found.cause != "", found.cause, np.where(blocks != "", blocks, "usable"))
    return np.where(cluster.free_gpus > 0, names, "").astype(np.object_)
