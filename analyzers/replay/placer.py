"""Puts pods on nodes one after the other, under one policy, and keeps what each arrival changed.

Deterministic but for `RandomFit`, which a seed decides: of equal nodes the one with the smallest name is taken, of
equal cards the lowest slot, several cards from the least free upward (algorithms.md, section B). A pod that does not
fit when it arrives is not tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from analyzers.fgd import TaskClass
from analyzers.replay.fleet import ABSENT, Fleet, Integers, PodShape
from analyzers.replay.gradient import Cards, Floats, Gradient


class Policy(Protocol):
    """Chooses a place. `shape` is a position in the list of shapes that the policy was made with."""

    def node(self, fleet: Fleet, shape: int) -> int | None:
        """The node for a pod of `shape`, or None where it fits nowhere."""
        ...

    def slots(self, fleet: Fleet, node: int, shape: int) -> tuple[int, ...]:
        """The slots that it takes there."""
        ...

    def changed(self, fleet: Fleet, node: int) -> None:
        """`node` holds more, or less, than before."""
        ...


def _cards(fleet: Fleet, node: int) -> Cards:
    return tuple(sorted(fleet.free_slots(node)))


class FragmentDescent:
    """FGD: where the index falls most, by its score of 0 to 100. Scores are made anew only where a node changed."""

    def __init__(self, fleet: Fleet, shapes: Sequence[PodShape], classes: Sequence[TaskClass]) -> None:
        """Score every one of `shapes` on every node of `fleet` by the index over `classes`."""
        self._shapes = list(shapes)
        self._gradient = Gradient(classes, self._shapes)
        self._scores: Integers = np.full((len(self._shapes), len(fleet.names)), -1, dtype=np.int64)
        for node in range(len(fleet.names)):
            self.changed(fleet, node)

    def node(self, fleet: Fleet, shape: int) -> int | None:
        """The node of the highest score that also has the memory."""
        if not fleet.names:
            return None
        room = fleet.memory_free_mib >= self._shapes[shape].memory_mib
        row = np.where(room, self._scores[shape], -1)
        best = int(row.argmax())
        return best if row[best] >= 0 else None

    def slots(self, fleet: Fleet, node: int, shape: int) -> tuple[int, ...]:
        """For a pod of one GPU the best card by score, else the least free ones."""
        wanted = self._shapes[shape]
        if wanted.num_gpu != 1:
            return fleet.least_free(node, wanted)
        best = self._gradient.best_frees(
            fleet.models[node], int(fleet.cpu_free_milli[node]), _cards(fleet, node), shape
        )
        return (next(slot for slot, free in enumerate(fleet.gpu_free_milli[node].tolist()) if free in best),)

    def changed(self, fleet: Fleet, node: int) -> None:
        """Score every shape on `node` again."""
        self._scores[:, node] = self._gradient.column(
            fleet.models[node], int(fleet.cpu_free_milli[node]), _cards(fleet, node)
        )


class BestFit:
    """Where least is left: half CPU and half GPUs, each as part of the largest node, in whole points of 100."""

    def __init__(self, fleet: Fleet, shapes: Sequence[PodShape]) -> None:
        """Measure against the largest node of `fleet` as it is now."""
        self._shapes = list(shapes)
        self._gpus_free_milli: Integers = np.maximum(fleet.gpu_free_milli, 0).sum(axis=1)
        self._largest_cpu_milli = max(1, int(fleet.cpu_free_milli.max(initial=0)))
        self._largest_gpu_milli = max(1, int(self._gpus_free_milli.max(initial=0)))

    def node(self, fleet: Fleet, shape: int) -> int | None:
        """The node with the least left."""
        wanted = self._shapes[shape]
        fits = fleet.feasible(wanted)
        if not fits.any():
            return None
        cpu = (fleet.cpu_free_milli - wanted.cpu_milli) / self._largest_cpu_milli
        gpu = (self._gpus_free_milli - wanted.requested_milli) / self._largest_gpu_milli
        points = (100 * (1 - (cpu + gpu) / 2)).astype(np.int64)
        return int(np.where(fits, points, np.iinfo(np.int64).min).argmax())

    def slots(self, fleet: Fleet, node: int, shape: int) -> tuple[int, ...]:
        """The least free cards that are enough."""
        return fleet.least_free(node, self._shapes[shape])

    def changed(self, fleet: Fleet, node: int) -> None:
        """Sum the free cards of `node` again."""
        self._gpus_free_milli[node] = np.maximum(fleet.gpu_free_milli[node], 0).sum()


class RandomFit:
    """Any node that has room, each as likely as the other; on it any cards that are enough."""

    def __init__(self, shapes: Sequence[PodShape], rng: np.random.Generator) -> None:
        """`rng` decides."""
        self._shapes = list(shapes)
        self._rng = rng

    def node(self, fleet: Fleet, shape: int) -> int | None:
        """One of those that have room."""
        fitting = np.flatnonzero(fleet.feasible(self._shapes[shape]))
        return int(fitting[self._rng.integers(fitting.size)]) if fitting.size else None

    def slots(self, fleet: Fleet, node: int, shape: int) -> tuple[int, ...]:
        """Some of the cards that are enough."""
        wanted = self._shapes[shape]
        fitting = np.flatnonzero(fleet.gpu_free_milli[node] >= wanted.gpu_milli)
        taken = self._rng.choice(fitting, wanted.num_gpu, replace=False) if wanted.num_gpu else fitting[:0]
        return tuple(sorted(taken.tolist()))

    def changed(self, fleet: Fleet, node: int) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Where a pod went: its node and slots, or None and no slots where there was no room."""

    node: str | None
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Run:
    """What a run gave, one entry an arrival, in thousandths of GPUs.

    What had arrived and was allocated after it, and how much of the free was fragments (the index F over the fleet);
    `empty_fragment_milli` is F before the first.
    """

    places: list[Placed]
    arrived_milli: Integers
    allocated_milli: Integers
    fragment_milli: Floats
    empty_fragment_milli: float


def place(
    fleet: Fleet, shapes: Sequence[PodShape], arrivals: Sequence[int], policy: Policy, classes: Sequence[TaskClass]
) -> Run:
    """Place a pod of `shapes[i]` for each i of `arrivals`, changing `fleet`; `classes` weigh the index that is kept."""
    index = Gradient(classes, ())
    fragments = [
        index.fragment_milli(fleet.models[node], int(fleet.cpu_free_milli[node]), _cards(fleet, node))
        for node in range(len(fleet.names))
    ]
    empty = total = float(np.sum(fragments))
    places: list[Placed] = []
    arrived, allocated, fragment = [0], [0], []
    for i in arrivals:
        shape = shapes[i]
        node = policy.node(fleet, i)
        if node is None:
            places.append(Placed(node=None, slots=()))
        else:
            slots = policy.slots(fleet, node, i)
            fleet.take(node, slots, shape)
            policy.changed(fleet, node)
            after = index.fragment_milli(fleet.models[node], int(fleet.cpu_free_milli[node]), _cards(fleet, node))
            total += after - fragments[node]
            fragments[node] = after
            places.append(Placed(node=fleet.names[node], slots=slots))
        arrived.append(arrived[-1] + shape.requested_milli)
        allocated.append(allocated[-1] + shape.requested_milli * (node is not None))
        fragment.append(total)
    return Run(
        places=places,
        arrived_milli=np.array(arrived[1:], dtype=np.int64),
        allocated_milli=np.array(allocated[1:], dtype=np.int64),
        fragment_milli=np.array(fragment, dtype=np.float64),
        empty_fragment_milli=empty,
    )


def gpu_milli(fleet: Fleet) -> int:
    """Thousandths of the GPUs that `fleet` has free; of an empty fleet, all."""
    return int(np.where(fleet.gpu_free_milli == ABSENT, 0, fleet.gpu_free_milli).sum())
