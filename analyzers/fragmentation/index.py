"""The FGD index of a whole fleet at once (algorithms.md, section B): what the requested shapes could not use.

`analyzers/fgd.py` is the same for one node, and `sql/report/fragmentation_index.sql` in SQL; tests hold them together.
"""

from __future__ import annotations

import numpy as np

from analyzers.fragmentation.cluster import Floats, Truth, Whole
from analyzers.fragmentation.shapes import Classes


def unusable_milli(free: Floats, cpu_free_milli: Floats, is_accepted: Truth, classes: Classes) -> Floats:
    """F_n(m): the free thousandths of each node (rows) that a pod of each class (columns) could not use.

    `free` has one row a node and one column a card, 0 where there is none; CPU that is not known (NaN) is ample;
    `is_accepted` says whether a class accepts a node's model.
    """
    room = free.sum(axis=1)
    sizes, size_of = np.unique(classes.gpu_milli, return_inverse=True)
    fitting, left_over = _beside(free, sizes)
    cpu = np.where(np.isnan(cpu_free_milli), np.inf, cpu_free_milli)
    is_usable = (
        is_accepted
        & (fitting[:, size_of] >= classes.num_gpu)
        & (cpu[:, None] >= classes.cpu_milli)
        & ((classes.gpu_milli > 0) & (classes.num_gpu > 0))
    )
    return np.where(is_usable, left_over[:, size_of], room[:, None])


def _beside(free: Floats, sizes: Floats) -> tuple[Whole, Floats]:
    """For each node and size: how many cards have that much free, and what is free on those that have not."""
    fitting = np.empty((len(free), len(sizes)), dtype=np.int64)
    left_over = np.empty((len(free), len(sizes)))
    for place, size in enumerate(sizes):
        has_room = free >= size
        fitting[:, place] = has_room.sum(axis=1)
        left_over[:, place] = np.where(has_room, 0.0, free).sum(axis=1)
    return fitting, left_over


def fragment_milli(
    free: Floats, cpu_free_milli: Floats, is_accepted: Truth, classes: Classes, weights: Floats
) -> Floats:
    """F_n(M) in thousandths of a GPU: one row a node, one column a row of `weights` (each used as given)."""
    return unusable_milli(free, cpu_free_milli, is_accepted, classes) @ weights.T
