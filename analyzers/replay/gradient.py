"""The FGD index and its scores for every shape on a node at once (algorithms.md, section B).

The index of a node depends on its model, on how much is free on its cards (in any order) and on which classes its CPU
suffices for. With the classes sorted by CPU, a running sum over what each can use of the cards gives the index for any
CPU in one look-up. So what a set of cards means is worked out once and kept; a node that changed costs one gather.
`analyzers.fgd` is the definition, one node and one pod at a time; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzers.fgd import TaskClass
from analyzers.replay.fleet import Booleans, Integers, PodShape

Floats = npt.NDArray[np.float64]
Cards = tuple[int, ...]
"""Free thousandths of the cards of a node, the least free first."""

DECIMALS = 6
"""Digits of a thousandth of a GPU that a change is rounded to: a score must not turn on the last bit of a sum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Worth:
    """What a set of cards is worth: all that is free, and the weighted usable part for the first k classes by CPU."""

    free_milli: int
    usable_milli: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outlook:
    """What each shape would leave of a set of cards. One entry a (shape, choice of card), shapes in order.

    `starts` says where a shape's entries begin, `shapes` which shape that is. `least` is the free part of the card that
    the entry takes, where one is chosen.
    """

    shapes: Integers
    starts: Integers
    cpu_milli: Integers
    free_milli: Floats
    usable_milli: Floats
    least: Integers


def scores(delta_milli: Floats) -> Integers:
    """int(100 x sigmoid(-delta / 1000)) of each: 50 is "changes nothing", more is better."""
    exponent = np.clip(np.round(delta_milli, DECIMALS) / 1000, -500, 500)
    return np.asarray((100 / (1 + np.exp(exponent))).astype(np.int64))


class Gradient:
    """The index over `classes`, and the scores of `shapes` (by position)."""

    def __init__(self, classes: Sequence[TaskClass], shapes: Sequence[PodShape]) -> None:
        """`classes` keep their weights as given."""
        self._classes = sorted(classes, key=lambda one: one.cpu_milli)
        self._class_cpu_milli = np.array([one.cpu_milli for one in self._classes], dtype=np.int64)
        self._milli = np.array([one.gpu_milli for one in self._classes], dtype=np.int64)
        self._count = np.array([one.num_gpu for one in self._classes], dtype=np.int64)
        self._weight = np.array([one.weight for one in self._classes], dtype=np.float64)
        self._total_weight = float(self._weight.sum())
        self._shapes = list(shapes)
        self._accepting: dict[str | None, Booleans] = {}
        self._worths: dict[tuple[str | None, Cards], _Worth] = {}
        self._outlooks: dict[tuple[str | None, Cards], _Outlook] = {}

    def fragment_milli(self, model: str | None, cpu_free_milli: int, cards: Cards) -> float:
        """F of a node: the free thousandths of its cards that the classes are expected not to be able to use."""
        worth = self._worth(model, cards)
        rank = int(np.searchsorted(self._class_cpu_milli, cpu_free_milli, side="right"))
        return self._total_weight * worth.free_milli - float(worth.usable_milli[rank])

    def column(self, model: str | None, cpu_free_milli: int, cards: Cards) -> Integers:
        """The best score of each shape on a node; -1 where cards, CPU or model do not fit."""
        outlook = self._outlook(model, cards)
        column: Integers = np.full(len(self._shapes), -1, dtype=np.int64)
        if outlook.shapes.size:
            found = self._scores(outlook, self.fragment_milli(model, cpu_free_milli, cards), cpu_free_milli)
            column[outlook.shapes] = np.maximum.reduceat(found, outlook.starts)
        return column

    def best_frees(self, model: str | None, cpu_free_milli: int, cards: Cards, shape: int) -> set[int]:
        """How much is free on the cards that are best for a pod of one GPU of `shape`; several are equally good."""
        outlook = self._outlook(model, cards)
        position = int(np.searchsorted(outlook.shapes, shape))
        begin = int(outlook.starts[position])
        end = int(outlook.starts[position + 1]) if position + 1 < outlook.starts.size else outlook.least.size
        found = self._scores(outlook, self.fragment_milli(model, cpu_free_milli, cards), cpu_free_milli)[begin:end]
        return set(outlook.least[begin:end][found == found.max()].tolist())

    def _scores(self, outlook: _Outlook, now_milli: float, cpu_free_milli: int) -> Integers:
        cpu_after = cpu_free_milli - outlook.cpu_milli
        ranks = np.searchsorted(self._class_cpu_milli, cpu_after, side="right")
        usable = outlook.usable_milli[np.arange(ranks.size), ranks]
        found = scores(self._total_weight * outlook.free_milli - usable - now_milli)
        found[cpu_after < 0] = -1
        return found

    def _worth(self, model: str | None, cards: Cards) -> _Worth:
        key = (model, cards)
        if key not in self._worths:
            free = np.array(cards, dtype=np.int64)
            fitting = free[:, None] >= self._milli
            usable = np.where(fitting, free[:, None], 0).sum(axis=0)
            can = (fitting.sum(axis=0) >= self._count) & (self._milli > 0) & (self._count > 0) & self._accepts(model)
            summed = np.cumsum(np.where(can, usable, 0) * self._weight)
            worth = _Worth(free_milli=int(free.sum()), usable_milli=np.concatenate(([0.0], summed)))
            self._worths[key] = worth
        return self._worths[key]

    def _accepts(self, model: str | None) -> Booleans:
        if model not in self._accepting:
            accepted = [not one.models or model in one.models for one in self._classes]
            self._accepting[model] = np.array(accepted, dtype=np.bool_)
        return self._accepting[model]

    def _outlook(self, model: str | None, cards: Cards) -> _Outlook:
        key = (model, cards)
        if key not in self._outlooks:
            self._outlooks[key] = self._look_ahead(model, cards)
        return self._outlooks[key]

    def _look_ahead(self, model: str | None, cards: Cards) -> _Outlook:
        shapes, starts, cpu, least = [], [], [], []
        after: list[_Worth] = []
        choices: dict[tuple[int, int], list[tuple[int, _Worth]]] = {}
        for i, shape in enumerate(self._shapes):
            if shape.models and model not in shape.models:
                continue
            asked = (shape.gpu_milli, shape.num_gpu)
            if asked not in choices:
                choices[asked] = [(free, self._worth(model, left)) for free, left in _choices(cards, *asked)]
            if choices[asked]:
                shapes.append(i)
                starts.append(len(after))
                for free, worth in choices[asked]:
                    cpu.append(shape.cpu_milli)
                    after.append(worth)
                    least.append(free)
        width = self._class_cpu_milli.size + 1
        return _Outlook(
            shapes=np.array(shapes, dtype=np.int64),
            starts=np.array(starts, dtype=np.int64),
            cpu_milli=np.array(cpu, dtype=np.int64),
            free_milli=np.array([worth.free_milli for worth in after], dtype=np.float64),
            usable_milli=np.array([worth.usable_milli for worth in after], dtype=np.float64).reshape(-1, width),
            least=np.array(least, dtype=np.int64),
        )


def _choices(cards: Cards, gpu_milli: int, num_gpu: int) -> list[tuple[int, Cards]]:
    """The ways to take `num_gpu` cards: the free part of the first card taken, and what is left of all."""
    fitting = [free for free in cards if free >= gpu_milli]
    if len(fitting) < num_gpu:
        return []
    firsts = sorted(set(fitting)) if num_gpu == 1 else fitting[:1] or [0]
    found = []
    for first in firsts:
        begin = cards.index(first) if num_gpu else 0
        taken = [free - gpu_milli for free in cards[begin : begin + num_gpu]]
        found.append((first, tuple(sorted((*cards[:begin], *taken, *cards[begin + num_gpu :])))))
    return found
