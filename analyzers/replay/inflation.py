"""A trace made heavier, and curves over how much of a fleet's GPUs had been asked for when.

The way of the published experiments on openb (algorithms.md, section B): pods are cloned at random until what they ask
for reaches a multiple of the fleet, then shuffled; one seed is one order of arrival.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from analyzers.fgd import TaskClass
from analyzers.replay.fleet import Integers, PodShape
from analyzers.replay.gradient import Floats
from analyzers.replay.placer import Run

PUBLISHED_RATIO = 1.3
"""Requested GPUs as a multiple of the fleet's, in the published experiments."""

PUBLISHED_CUT_RATIO = 0.95
"""The part of all pods that the classes of the published index must reach, the most frequent first."""


def typical_classes(shapes: Iterable[PodShape], cut_ratio: float = PUBLISHED_CUT_RATIO) -> list[TaskClass]:
    """The most frequent classes of `shapes` that together reach `cut_ratio` of them, with weights that sum to 1.

    As `fragmentation_index` has them under "published": memory is no part of a class, ties go to the smaller one.
    """
    counts = Counter(replace(shape, memory_mib=0) for shape in shapes)
    ordered = sorted(
        counts, key=lambda one: (-counts[one], one.cpu_milli, one.gpu_milli, one.num_gpu, "|".join(sorted(one.models)))
    )
    kept, before, all_pods = [], 0, counts.total()
    for shape in ordered:
        if before >= cut_ratio * all_pods:
            break
        kept.append(shape)
        before += counts[shape]
    return [shape.as_class(counts[shape] / before) for shape in kept]


def inflate(shapes: Sequence[PodShape], pods: Sequence[int], target_milli: float, rng: np.random.Generator) -> Integers:
    """`pods` (positions in `shapes`) and clones of random ones until they ask for `target_milli`, in random order.

    Raises ValueError where no pod asks for a GPU, so that no number of clones would do.
    """
    own = np.asarray(pods, dtype=np.int64)
    asked = np.array([shape.requested_milli for shape in shapes], dtype=np.int64)[own]
    missing = target_milli - int(asked.sum())
    if missing > 0 and not asked.any():
        raise ValueError("no pod asks for a GPU")
    clones: list[int] = []
    while missing > 0:
        i = int(rng.integers(own.size))
        clones.append(int(own[i]))
        missing -= int(asked[i])
    return rng.permutation(np.concatenate((own, np.array(clones, dtype=np.int64))))


def by_arrival(run: Run, values: Sequence[float] | Floats | Integers, gpu_milli: int) -> dict[int, float]:
    """`values` (one an arrival) by the per cent of `gpu_milli` that had been asked for by then, as means."""
    percent = np.floor(100 * run.arrived_milli / gpu_milli + 0.5).astype(np.int64)
    known = np.asarray(values, dtype=np.float64)
    sums, counts = np.bincount(percent, weights=known), np.bincount(percent)
    return {int(step): float(sums[step] / counts[step]) for step in np.flatnonzero(counts)}
