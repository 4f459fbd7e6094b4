"""What keeps waiting work off a free share that would hold it: quota, topology, or the places of MIG slices.

None of it makes a share stranded in the ledger, whose states know only what fits on a node. It is told beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import polars as pl

from analyzers.fragmentation import mig
from analyzers.fragmentation.causes import Fit, pods_that_fit
from analyzers.fragmentation.cluster import Cluster, Truth, Whole
from analyzers.fragmentation.shapes import Shapes
from gpuledger.ports import QueryRunner

BLOCKS = ("mig_placement", "quota", "topology")
"""In the order in which waiting work fails; of several shapes the one that fails latest names the block."""

_OPEN = len(BLOCKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """Waiting work: its row of the wanted shapes (`shape`), pods, GPUs asked for, and what is known against it.

    `is_over_quota`: what its queue holds and it asks for exceed the quota and what may be borrowed; False where a limit
    is unlimited or not known. `is_told_topology`: its scheduler says that it waits for a topology.
    """

    shape: Whole
    pod_count: Whole
    is_gang: Truth
    is_over_quota: Truth
    is_told_topology: Truth


def read_pending(runner: QueryRunner, at: datetime, wanted: Shapes) -> Pending:
    """The work that waits at `at`. A gang asks for all its pods at once, other work for one."""
    rows = pl.DataFrame(pl.from_arrow(runner.query("fragmentation_pending", at=at)))
    key = ["cpu_milli", "memory_mib", "gpu_milli", "num_gpu", "model_set"]
    shapes = pl.DataFrame(
        {
            **{name: getattr(wanted, name).astype(np.int64) for name in key[:-1]},
            "model_set": pl.Series(wanted.model_set, dtype=pl.String),
        }
    ).with_row_index("shape")
    rows = rows.join(shapes, on=key, how="inner", nulls_equal=True, maintain_order="left")
    pods = pl.when(pl.col("is_gang")).then(pl.col("pod_count")).otherwise(1)
    asked = pods * pl.col("num_gpu") * pl.col("gpu_milli") / 1000
    over = (pl.col("used_gpus") + asked > pl.col("limit_gpus") + 1e-9).fill_null(value=False)
    found = rows.select(
        "shape", "pod_count", "is_gang", over=over, told=(pl.col("wait_cause") == "topology").fill_null(value=False)
    )
    return Pending(
        shape=found["shape"].to_numpy().astype(np.int64),
        pod_count=found["pod_count"].to_numpy().astype(np.int64),
        is_gang=found["is_gang"].to_numpy().astype(np.bool_),
        is_over_quota=found["over"].to_numpy().astype(np.bool_),
        is_told_topology=found["told"].to_numpy().astype(np.bool_),
    )


def blocked(cluster: Cluster, wanted: Shapes, found: Fit, pending: Pending, gang_level: str | None) -> Whole:
    """For each shape the index of its block in BLOCKS; len(BLOCKS) where at least one waiting work of it is free to go.

    A gang is blocked by topology where its scheduler says so, or where all its pods fit, but not in one domain of
    `gang_level` (None: only what schedulers say). A shape that nothing waits for is never blocked.
    """
    needs_domain = pending.is_gang & (pending.pod_count > 1) & ~pending.is_told_topology
    is_split = np.zeros(len(pending.shape), dtype=np.bool_)
    if gang_level is not None and gang_level in cluster.domains and needs_domain.any():
        slots = pods_that_fit(cluster, wanted, found.reach)
        names = cluster.domains[gang_level]
        is_known = np.array([name is not None for name in names])
        _, domain = np.unique(names[is_known].astype(np.str_), return_inverse=True)
        together = np.zeros((int(domain.max(initial=-1)) + 1, len(wanted)), dtype=np.int64)
        np.add.at(together, domain, slots[is_known])
        most, everywhere = together.max(axis=0, initial=0), slots.sum(axis=0)
        fits_apart = (everywhere[pending.shape] >= pending.pod_count) & is_known.any()
        is_split = needs_domain & fits_apart & (most[pending.shape] < pending.pod_count)
    stops = np.select(
        [pending.is_over_quota, pending.is_told_topology | is_split],
        [BLOCKS.index("quota"), BLOCKS.index("topology")],
        default=_OPEN,
    )
    of_shape = np.full(len(wanted), -1)
    np.maximum.at(of_shape, pending.shape, stops)
    return np.where(of_shape < 0, _OPEN, of_shape)


def name_blocks(found: Fit, of_shape: Whole, is_misplaced: Truth) -> np.ndarray[tuple[int], np.dtype[np.object_]]:
    """For each card what blocks the shapes that it would serve; "" where one is free to go, or the card is not usable.

    `is_misplaced` (cards by shapes): no place for a slice of the shape is left on the card.
    """
    stops = np.where(is_misplaced, BLOCKS.index("mig_placement"), of_shape[None, :])
    stops = np.where(found.serves, stops, -1)
    furthest = stops.max(axis=1, initial=-1)
    names = np.array([*BLOCKS, "", ""], dtype=np.object_)[furthest]
    return np.where(found.is_usable & (furthest >= 0), names, "")


def misplaced(cluster: Cluster, wanted: Shapes, slices: Mapping[str, list[str | None]]) -> Truth:
    """Cards by shapes: True where a slice of the shape has no legal place beside the slices held on the card.

    `slices` are the profiles held, by card. Where a profile, or the model's placements, is not known nothing is said.
    Only the profiles are known, not where they stand: a card is full for a shape when no arrangement has room for it.
    """
    answer = np.zeros((len(cluster.card), len(wanted)), dtype=np.bool_)
    if not slices:
        return answer
    places = {card: place for place, card in enumerate(cluster.card)}
    for card, held in slices.items():
        place = places.get(card)
        placements = mig.placements_of(cluster.card_model[place]) if place is not None else None
        profiles = [mig.profile_of(text) for text in held]
        if place is None or placements is None or None in profiles:
            continue
        known = [name for name in profiles if name is not None]
        for column, (size, count) in enumerate(zip(wanted.gpu_milli, wanted.num_gpu, strict=True)):
            wished = slice_of(size) if count == 1 else None
            answer[place, column] = wished is not None and not mig.could_fit(wished, known, placements)
    return answer


def slice_of(gpu_milli: float) -> str | None:
    """The profile of seven compute slices whose share is `gpu_milli` thousandths, to the rounding of a thousandth."""
    compute = round(gpu_milli * 7 / 1000)
    is_slice = compute in (1, 2, 3, 4, 7) and abs(gpu_milli - 1000 * compute / 7) <= 1
    return f"{compute}g" if is_slice else None


def read_slices(runner: QueryRunner, at: datetime) -> dict[str, list[str | None]]:
    """The profiles of the slices that are held at `at`, by card."""
    held: dict[str, list[str | None]] = {}
    for row in runner.query("fragmentation_slices", at=at).to_pylist():
        held.setdefault(row["gpu_uuid"], []).append(row["profile"])
    return held
