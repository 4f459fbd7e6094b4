"""How large a gang still fits in one domain of each level of the network, and how many of each size.

A gang of up to a node's GPUs sits on one node, on wholly free cards; a larger one takes whole free nodes of one domain,
nodes of one size. algorithms.md, section B: slots = sum over domains of floor(free nodes / nodes of the gang).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from analyzers.fragmentation.cluster import Cluster, Texts, Truth

GANG_GPUS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)

SCHEMA = {
    "pool": pl.String(),
    "level": pl.String(),
    "gang_gpus": pl.Int64(),
    "slot_count": pl.Int64(),
    "free_gpus": pl.Int64(),
    "frag_ratio": pl.Float64(),
    "largest_gang_gpus": pl.Int64(),
    "domain_count": pl.Int64(),
}


def placeable(cluster: Cluster, sizes: Sequence[int] = GANG_GPUS) -> pl.DataFrame:
    """One row per pool, level and gang size, from the node outward. Columns: SCHEMA.

    `free_gpus` are wholly free cards of nodes whose domain at the level is known; `frag_ratio` is the part of them that
    no gang of the size can use, NULL where none is free; `largest_gang_gpus` is that of the pool and level. A level of
    which no node of the pool has a domain is left out. A node with a card set aside is never wholly free.
    """
    rows: list[dict[str, object]] = []
    domains = {"node": cluster.node, **cluster.domains}
    whole, in_service = cluster.whole_free, cluster.by_node(np.ones(len(cluster.card)))
    is_whole_node = (whole == cluster.gpu_count) & (whole == in_service) & (whole > 0)
    for pool in sorted(set(cluster.pool)):
        of_pool = cluster.pool == pool
        for level, names in domains.items():
            is_known = of_pool & np.array([name is not None for name in names])
            if not is_known.any():
                continue
            slots, largest = _slots(cluster, names, is_known, is_whole_node, sizes, is_node=level == "node")
            free = int(whole[is_known].sum())
            rows += [
                {
                    "pool": pool,
                    "level": level,
                    "gang_gpus": size,
                    "slot_count": count,
                    "free_gpus": free,
                    "frag_ratio": 1 - size * count / free if free else None,
                    "largest_gang_gpus": largest,
                    "domain_count": len(set(names[is_known])),
                }
                for size, count in zip(sizes, slots, strict=True)
            ]
    return pl.DataFrame(rows, schema=SCHEMA)


def _slots(
    cluster: Cluster, names: Texts, is_known: Truth, is_whole_node: Truth, sizes: Sequence[int], *, is_node: bool
) -> tuple[list[int], int]:
    """Slots for each size and the largest gang, over the nodes that `is_known` marks."""
    whole, size_of_node = cluster.whole_free[is_known], cluster.gpu_count[is_known]
    _, domain = np.unique(names[is_known].astype(np.str_), return_inverse=True)
    together: list[tuple[int, int]] = []
    if not is_node:
        pairs, counts = np.unique(
            np.stack([domain, size_of_node])[:, is_whole_node[is_known]], axis=1, return_counts=True
        )
        together = [(int(size), int(count)) for size, count in zip(pairs[1], counts, strict=True)]
    found = []
    for size in sizes:
        on_a_node = int((whole[size_of_node >= size] // size).sum())
        on_nodes = sum(count // -(-size // gpus) for gpus, count in together if gpus < size)
        found.append(on_a_node + on_nodes)
    largest = max(int(whole.max(initial=0)), *(gpus * count for gpus, count in together), 0)
    return found, largest
