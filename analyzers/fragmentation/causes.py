"""Why a free share cannot be used: the ledger's stranded rule over a whole fleet, and Alibaba ASI's own definition.

Both are worked out from arrays; the ledger works its states out in SQL, and a test holds the two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from analyzers.fragmentation.cluster import Cluster, Floats, Texts, Truth, Whole
from analyzers.fragmentation.shapes import Shapes

CAUSES = ("", "model", "node_too_small", "cpu", "memory", "insufficient_whole", "fractional")
"""By how far a shape gets on a node before it fails (docs/decisions/0007-wanted-shapes.md); 0 is not in use."""

FITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How far each shape (columns) gets on each node (`reach`, rows; FITS: it fits), and which shapes each card serves.

    `serves` has one row a card: the shapes that fit on its node and need no more of the card than is free.
    """

    reach: Whole
    serves: Truth
    cause: Texts
    is_usable: Truth


def wanted_shapes(shapes: Shapes) -> Shapes:
    """The shapes that wait; where none waits, those that are usual."""
    return shapes.only(shapes.is_pending if shapes.is_pending.any() else shapes.is_usual)


def fit(cluster: Cluster, wanted: Shapes) -> Fit:
    """Try one pod of each wanted shape on each node; `cause` names why a free share is stranded, "" where it is not.

    Nothing is stranded where nothing is wanted. What is not known (CPU, memory) never strands.
    """
    reach = _reach(cluster, wanted)
    has_room = np.round(cluster.free_milli)[:, None] >= wanted.gpu_milli
    on_node = reach[cluster.card_node]
    serves = (on_node == FITS) & has_room & (cluster.free_gpus > 1e-9)[:, None]
    # A shape that fits on the node without this card is stopped by the card's own remainder.
    furthest = np.where(~has_room & (on_node > 2), CAUSES.index("fractional"), on_node)
    furthest = furthest.max(axis=1, initial=0) if len(wanted) else np.full(len(cluster.card), FITS)
    is_free = cluster.free_gpus > 1e-9
    is_usable = is_free & (furthest == FITS)
    names = np.array([*CAUSES, "", "", ""], dtype=np.object_)[furthest]
    return Fit(reach=reach, serves=serves, cause=np.where(is_free, names, ""), is_usable=is_usable)


def _reach(cluster: Cluster, wanted: Shapes) -> Whole:
    fitting = np.zeros((len(cluster.node), len(wanted)), dtype=np.int64)
    milli = np.round(cluster.free_milli)
    is_free = cluster.free_gpus > 1e-9
    for size in np.unique(wanted.gpu_milli):
        counts = cluster.by_node(is_free & (milli >= size))
        fitting[:, wanted.gpu_milli == size] = counts[:, None]
    tests: list[tuple[Truth, str]] = [
        (~cluster.acceptance(wanted.model_set, node_models(cluster)), "model"),
        (
            (wanted.num_gpu > cluster.gpu_count[:, None])
            | (wanted.cpu_milli > cluster.cpu_milli[:, None])
            | (wanted.memory_mib > cluster.memory_mib[:, None]),
            "node_too_small",
        ),
        (fitting < wanted.num_gpu, "insufficient_whole"),
        (wanted.cpu_milli > cluster.cpu_free_milli[:, None], "cpu"),
        (wanted.memory_mib > cluster.memory_free_mib[:, None], "memory"),
    ]
    reach: Whole = np.select([failed for failed, _ in tests], [CAUSES.index(name) for _, name in tests], default=FITS)
    return reach


def node_models(cluster: Cluster) -> Texts:
    """The model of each node's cards, as the ledger sees it; the node's own where its cards do not say."""
    models = cluster.model.copy()
    for place, model in zip(cluster.card_node[::-1], cluster.card_model[::-1], strict=True):
        if model:
            models[place] = model
    return models


def pods_that_fit(cluster: Cluster, wanted: Shapes, reach: Whole) -> Whole:
    """How many pods of each shape fit on each node at once, as far as GPUs, CPU and memory go."""
    free = cluster.free_milli
    slots = np.zeros((len(cluster.node), len(wanted)))
    for place in range(len(wanted)):
        size, count = wanted.gpu_milli[place], max(1, wanted.num_gpu[place])
        if count == 1:
            slots[:, place] = cluster.by_node(np.floor((free + 1e-6) / size))
        else:
            slots[:, place] = cluster.by_node(free + 1e-6 >= size) // count
    for have, need in ((cluster.cpu_free_milli, wanted.cpu_milli), (cluster.memory_free_mib, wanted.memory_mib)):
        room = np.where(np.isnan(have), np.inf, have)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            slots = np.where(need > 0, np.minimum(slots, np.floor(room / need)), slots)
    return np.where(reach == FITS, np.maximum(slots, 0), 0).astype(np.int64)


def asi_stranded(idle_gpus: Floats, *, gpus: float, is_cpu_enough: Truth, is_memory_enough: Truth) -> dict[str, Floats]:
    """Stranded GPUs of each node by cause for one reference shape of `gpus`, as Alibaba's ASI trace counts them.

    On a node where the shape fits only `fractional`, what no whole GPU holds, is stranded. On one where it does not,
    all idle GPUs are: for want of CPU one shape's worth (all of them where they are fewer) is `insufficient_cpu`; else
    the whole GPUs, too few for the shape, are `insufficient_whole`; the remainder is `fractional`. Source: the trace's
    build_aggregates.py, which leaves the remainder out (algorithms.md, section B). Memory is ours, treated like CPU.
    """
    whole = np.floor(idle_gpus + 1e-9)
    is_short = ~is_cpu_enough | ~is_memory_enough
    short_gpus = np.where(is_short, np.minimum(idle_gpus, gpus), 0.0)
    insufficient_whole = np.where(~is_short & (whole < gpus), whole, 0.0)
    is_host = ~is_short & (whole >= gpus)
    fraction = np.where(is_host, idle_gpus - whole, idle_gpus - short_gpus - insufficient_whole)
    return {
        "insufficient_cpu": np.where(~is_cpu_enough, short_gpus, 0.0),
        "insufficient_memory": np.where(is_cpu_enough, short_gpus, 0.0),
        "insufficient_whole": insufficient_whole,
        "fractional": fraction,
    }
