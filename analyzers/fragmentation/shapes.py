"""The shapes that work asks for, as arrays, and the weights under which the index counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl

from analyzers.fragmentation.cluster import Floats, Truth, Whole
from gpuledger.ports import QueryRunner

WEIGHTINGS = ("demand", "pods", "all", "published")

PUBLISHED_CUT_RATIO = 0.95
"""The pods that the published experiments' classes cover (algorithms.md, section B)."""

LARGE_DEMAND_RATIO = 0.01
"""A class that asks for this much of all requested GPUs is in every cut but the published one."""

CUTS = (0.60, 0.80, 0.90, 0.95, 0.99)
"""Cuts for which the sensitivity of the index is told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """One entry a shape: per pod, thousandths of CPUs and of each of `num_gpu` GPUs, MiB, accepted models.

    `pods` asked for it, `pending_pods` wait; `is_usual`: it asked for 1 % or more of the GPUs of the last 28 days.
    """

    cpu_milli: Floats
    memory_mib: Floats
    gpu_milli: Floats
    num_gpu: Whole
    model_set: list[str | None]
    pods: Floats
    pending_pods: Floats
    is_pending: Truth
    is_usual: Truth

    def __len__(self) -> int:
        return len(self.num_gpu)

    def only(self, chosen: Truth) -> Shapes:
        """The shapes that `chosen` marks."""
        return Shapes(
            model_set=[text for text, is_chosen in zip(self.model_set, chosen, strict=True) if is_chosen],
            **{name: getattr(self, name)[chosen] for name in _ARRAYS},
        )


_ARRAYS = ("cpu_milli", "memory_mib", "gpu_milli", "num_gpu", "pods", "pending_pods", "is_pending", "is_usual")


@dataclass(frozen=True, slots=True, kw_only=True)
class Classes:
    """The classes of the index, one entry each: what counts of a shape (memory does not), and its pods."""

    cpu_milli: Floats
    gpu_milli: Floats
    num_gpu: Whole
    model_set: list[str | None]
    pods: Floats

    def __len__(self) -> int:
        return len(self.num_gpu)

    @property
    def demand_milli(self) -> Floats:
        """Thousandths of GPUs that a class's pods ask for."""
        return self.pods * self.num_gpu * self.gpu_milli


def read_shapes(runner: QueryRunner, at: datetime, history_days: float | None = None) -> Shapes:
    """The shapes that were asked for until `at`; `pods` counts those of the last `history_days`."""
    rows = pl.DataFrame(pl.from_arrow(runner.query("fragmentation_shapes", at=at, history_days=history_days)))
    recent = rows["recent_demand_milli"].to_numpy()
    has_gpu = rows["num_gpu"].to_numpy() > 0
    return Shapes(
        **{name: rows[name].cast(pl.Float64).to_numpy() for name in ("cpu_milli", "memory_mib", "gpu_milli")},
        num_gpu=rows["num_gpu"].to_numpy().astype(np.int64),
        model_set=rows["model_set"].to_list(),
        pods=rows["pods"].to_numpy(),
        pending_pods=rows["pending_pods"].to_numpy(),
        is_pending=rows["is_pending"].to_numpy() & has_gpu,
        is_usual=has_gpu & (recent > 0) & (recent >= LARGE_DEMAND_RATIO * recent.sum()),
    )


def classes_of(shapes: Shapes, pods: Floats) -> Classes:
    """The classes that `pods` of each shape make; those that differ only in memory are one. Empty ones are left out."""
    rows = pl.DataFrame(
        {
            "cpu_milli": shapes.cpu_milli,
            "gpu_milli": shapes.gpu_milli,
            "num_gpu": shapes.num_gpu,
            "model_set": pl.Series(shapes.model_set, dtype=pl.String),
            "pods": pods,
        }
    )
    key = ["cpu_milli", "gpu_milli", "num_gpu", "model_set"]
    found = rows.filter(pl.col("pods") > 0).group_by(key).agg(pl.col("pods").sum()).sort(key)
    return Classes(
        cpu_milli=found["cpu_milli"].to_numpy(),
        gpu_milli=found["gpu_milli"].to_numpy(),
        num_gpu=found["num_gpu"].to_numpy(),
        model_set=found["model_set"].to_list(),
        pods=found["pods"].to_numpy(),
    )


def weights(classes: Classes, weighting: str) -> Floats:
    """Each class's weight; they sum to 1, or are all 0 where no class counts.

    `demand`: GPU classes by GPUs asked for; `pods`: GPU classes by pods; `all`: every class by pods; `published`: every
    class by pods, the most frequent until 95 % of the pods are covered (algorithms.md, section B).
    """
    counted = {
        "demand": classes.demand_milli,
        "pods": np.where(classes.num_gpu > 0, classes.pods, 0.0),
        "all": classes.pods,
        "published": np.where(_is_kept(classes, PUBLISHED_CUT_RATIO), classes.pods, 0.0),
    }
    return _normal(counted[weighting])


def weights_of_cut(classes: Classes, ratio: float) -> Floats:
    """Weights by demand of the most frequent GPU classes until `ratio` of the pods are covered.

    Every class that asks for 1 % or more of the requested GPUs is kept, however rare it is: on openb's pods the plain
    cut at 95 % drops every class of two or more GPUs.
    """
    is_large = classes.demand_milli >= LARGE_DEMAND_RATIO * classes.demand_milli.sum()
    return _normal(np.where(_is_kept(classes, ratio) | is_large, classes.demand_milli, 0.0))


def weight_matrix(classes: Classes, weightings: Sequence[str] = WEIGHTINGS) -> Floats:
    """One row a weighting."""
    return np.array([weights(classes, name) for name in weightings]).reshape(len(weightings), len(classes))


def class_counts(classes: Classes) -> Mapping[str, int]:
    """How many classes count under each weighting."""
    return {name: int((weights(classes, name) > 0).sum()) for name in WEIGHTINGS}


def _is_kept(classes: Classes, ratio: float) -> Truth:
    """The most frequent classes until `ratio` of all pods are covered; ties by CPU, share, GPUs and models."""
    models = np.array([text or "" for text in classes.model_set], dtype=np.str_)
    order = np.lexsort((models, classes.num_gpu, classes.gpu_milli, classes.cpu_milli, -classes.pods))
    before = np.empty(len(classes))
    before[order] = np.cumsum(classes.pods[order]) - classes.pods[order]
    return np.asarray(before < ratio * classes.pods.sum())


def _normal(counted: Floats) -> Floats:
    total = counted.sum()
    return counted / total if total > 0 else np.zeros(len(counted))
