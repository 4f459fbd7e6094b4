"""The nodes and free shares of a fleet at one instant, as arrays: all that fragmentation is worked out of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from gpuledger.model import canonical_model
from gpuledger.ports import QueryRunner

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]
Truth = npt.NDArray[np.bool_]
Texts = npt.NDArray[np.object_]

WHOLE_GPU = 0.999999
"""A card of which at least this much is free is wholly free: shares are sums of fractions."""

LEVELS = ("nvl_domain", "leaf", "spine", "cluster")
"""Levels of the network that nodes have a column for, the nearest first; level "node" comes before them."""

_INSIDE = {"spine": ("cluster",), "leaf": ("spine", "cluster"), "nvl_domain": ("cluster",)}
"""Levels above that tell two domains of one name apart. An NVLink domain may span leaves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """One entry a node (`node` to `domains`) and one a card (`card` to `ledger_cause`) in service.

    Thousandths of CPUs, MiB; NaN where not known. `gpu_count` is the node's size, `cards_in_service` and `cards_aside`
    count its cards. `card_node` is the place of the card's node in `node`. `free_gpus` is 0 on a card set aside.
    `domains` holds for each level the domain of each node, None where nobody named one.
    """

    node: Texts
    pool: Texts
    model: Texts
    gpu_count: Whole
    cpu_milli: Floats
    memory_mib: Floats
    cpu_free_milli: Floats
    memory_free_mib: Floats
    domains: Mapping[str, Texts]
    card: Texts
    card_node: Whole
    card_model: Texts
    is_set_aside: Truth
    free_gpus: Floats
    ledger_cause: Texts

    @property
    def free_milli(self) -> Floats:
        """Free thousandths of each card, to a thousandth of one: sums of shares are not exact."""
        return np.round(1000 * self.free_gpus, 3)

    def by_slot(self) -> Floats:
        """Free thousandths as one row a node and one column a card, in the order of slots; 0 where there is no card."""
        counts = np.bincount(self.card_node, minlength=len(self.node))
        slots = np.arange(len(self.card_node)) - np.repeat(np.cumsum(counts) - counts, counts)
        free = np.zeros((len(self.node), max(1, int(counts.max(initial=0)))))
        free[self.card_node, slots] = self.free_milli
        return free

    def by_node(self, values: npt.ArrayLike) -> Floats:
        """The sum over each node's cards of `values`, one a card."""
        weights = np.asarray(values, dtype=np.float64)
        return np.bincount(self.card_node, weights=weights, minlength=len(self.node)).astype(np.float64)

    @property
    def whole_free(self) -> Whole:
        """How many cards of each node are wholly free."""
        return self.by_node(self.free_gpus > WHOLE_GPU).astype(np.int64)

    def acceptance(self, model_sets: list[str | None], models: Texts | None = None) -> Truth:
        """Whether each of `models` (default: each node's) is one that each set accepts, spelt in any known way.

        A model that is not known is accepted only where any is. Rows are models, columns sets.
        """
        names = self.model if models is None else models
        kinds = sorted({name for name in names if name})
        column = {name: place for place, name in enumerate(kinds)}
        table = np.zeros((len(kinds) + 1, len(model_sets)), dtype=np.bool_)
        for place, text in enumerate(model_sets):
            wanted = None if text is None else set(text.split("|"))
            for name, row in column.items():
                table[row, place] = wanted is None or bool(wanted & {name, canonical_model(name)})
            table[-1, place] = wanted is None
        return table[[column.get(name, -1) for name in names]]


def read_cluster(runner: QueryRunner, at: datetime, levels: Mapping[str, str] | None = None) -> Cluster:
    """The fleet at `at`. `levels` names further levels: the key is ours, the value that of a scheduler's topology."""
    nodes = pl.DataFrame(pl.from_arrow(runner.query("fragmentation_nodes", at=at)))
    cards = pl.DataFrame(pl.from_arrow(runner.query("fragmentation_cards", at=at)))
    names = nodes.get_column("node")
    places = cards.select(
        pl.col("node").replace_strict(names, pl.int_range(len(names), eager=True), return_dtype=pl.Int64)
    )
    return Cluster(
        node=_texts(names),
        pool=_texts(nodes["pool"]),
        model=_texts(nodes["model"]),
        gpu_count=nodes["gpu_count"].to_numpy().astype(np.int64),
        **{name: _floats(nodes[name]) for name in ("cpu_milli", "memory_mib", "cpu_free_milli", "memory_free_mib")},
        domains={
            **{level: _texts(column) for level, column in _apart(nodes).items()},
            **_told(nodes.get_column("topology").to_list(), levels or {}),
        },
        card=_texts(cards["gpu_uuid"]),
        card_node=places.to_series().to_numpy().astype(np.int64),
        card_model=_texts(cards["model"]),
        is_set_aside=cards["is_set_aside"].to_numpy().astype(np.bool_),
        free_gpus=_floats(cards["free_gpus"]),
        ledger_cause=_texts(cards["free_cause"]),
    )


def _apart(nodes: pl.DataFrame) -> dict[str, pl.Series]:
    """The domains of each level, told apart where two of one name stand in different domains of a level above.

    Racks are often numbered anew in each row. A name that stands in one place only needs no more: nodes of it whose
    upper domain nobody told belong to it.
    """
    found = {level: nodes.get_column(level) for level in LEVELS}
    for level, above in _INSIDE.items():
        table = pl.DataFrame({name: found[name] for name in (level, *above)})
        is_repeated = pl.any_horizontal(pl.col(name).drop_nulls().n_unique().over(level) > 1 for name in above)
        full = pl.concat_str(pl.col(*above).fill_null(""), pl.col(level), separator="\x1f")
        named = pl.when(pl.col(level).is_null()).then(None).when(is_repeated).then(full).otherwise(pl.col(level))
        found[level] = table.select(named.alias(level)).to_series()
    return found


def _texts(column: pl.Series) -> Texts:
    return np.array(column.to_list(), dtype=np.object_)


def _floats(column: pl.Series) -> Floats:
    return column.cast(pl.Float64).fill_null(float("nan")).to_numpy().copy()


def _told(topologies: list[str | None], levels: Mapping[str, str]) -> dict[str, Texts]:
    """The domains that a scheduler names, of levels that the site asks for."""
    known: list[dict[str, Any]] = [json.loads(text) if text else {} for text in topologies]
    return {
        level: np.array([stands.get(label) or None for stands in known], dtype=np.object_)
        for level, label in levels.items()
    }
