"""Nodes as arrays, and what pods ask of them: the state that a placer changes, in whole thousandths.

Nodes are in the order of their names, so that the first of several equals is the one with the smallest name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from analyzers.fgd import NodeState, TaskClass

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]

ABSENT = -1
"""Stands where a node has no card in a slot; below every request, zero included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodShape:
    """What one pod asks for: `num_gpu` GPUs with `gpu_milli` each, CPU and memory, on one of `models` (empty: any)."""

    cpu_milli: int
    memory_mib: int = 0
    gpu_milli: int = 0
    num_gpu: int = 0
    models: frozenset[str] = frozenset()

    @property
    def requested_milli(self) -> int:
        """Thousandths of a GPU that the pod asks for in all."""
        return self.num_gpu * self.gpu_milli

    def as_class(self, weight: float = 1.0) -> TaskClass:
        """The shape as the index sees it, which knows no memory."""
        return TaskClass(
            cpu_milli=self.cpu_milli,
            gpu_milli=self.gpu_milli,
            num_gpu=self.num_gpu,
            models=self.models,
            weight=weight,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNode:
    """A node as it is when a run begins."""

    state: NodeState
    memory_free_mib: int = 2**40


class Fleet:
    """What is free on each node. `gpu_free_milli` has one row a node and one column a slot."""

    def __init__(self, nodes: Sequence[FleetNode]) -> None:
        """Copy `nodes`, sorted by name. Raises ValueError for two of one name."""
        ordered = sorted(nodes, key=lambda one: one.state.node)
        self.names = [one.state.node for one in ordered]
        if len(set(self.names)) < len(self.names):
            raise ValueError("two nodes have one name")
        slots = max((len(one.state.gpu_free_milli) for one in ordered), default=0)
        self.gpu_free_milli: Integers = np.full((len(ordered), slots), ABSENT, dtype=np.int64)
        for i, one in enumerate(ordered):
            self.gpu_free_milli[i, : len(one.state.gpu_free_milli)] = one.state.gpu_free_milli
        self.cpu_free_milli: Integers = np.array([one.state.cpu_free_milli for one in ordered], dtype=np.int64)
        self.memory_free_mib: Integers = np.array([one.memory_free_mib for one in ordered], dtype=np.int64)
        self.models = [one.state.model for one in ordered]
        self._accepting: dict[frozenset[str], Booleans] = {}

    def accepts(self, models: frozenset[str]) -> Booleans:
        """For each node, whether its model is one of `models`."""
        if models not in self._accepting:
            self._accepting[models] = np.array([not models or model in models for model in self.models], dtype=np.bool_)
        return self._accepting[models]

    def feasible(self, shape: PodShape) -> Booleans:
        """For each node, whether it has room for a pod of `shape`."""
        fitting = (self.gpu_free_milli >= shape.gpu_milli).sum(axis=1) >= shape.num_gpu
        room = (self.cpu_free_milli >= shape.cpu_milli) & (self.memory_free_mib >= shape.memory_mib)
        return np.asarray(fitting & room & self.accepts(shape.models), dtype=np.bool_)

    def free_slots(self, node: int) -> tuple[int, ...]:
        """What is free of each card of `node`, in the order of their slots."""
        return tuple(milli for milli in self.gpu_free_milli[node].tolist() if milli != ABSENT)

    def least_free(self, node: int, shape: PodShape) -> tuple[int, ...]:
        """The slots that `shape` takes on `node`: fitting ones from the least free upward, lowest slot first."""
        frees = self.gpu_free_milli[node].tolist()
        fitting = [slot for slot, free in enumerate(frees) if free >= shape.gpu_milli]
        return tuple(sorted(fitting, key=lambda slot: (frees[slot], slot))[: shape.num_gpu])

    def take(self, node: int, slots: Sequence[int], shape: PodShape) -> None:
        """Put a pod of `shape` on `slots` of `node`. Raises ValueError where there is no room for it."""
        frees = self.gpu_free_milli[node, list(slots)]
        if (
            len(set(slots)) != shape.num_gpu
            or (frees < shape.gpu_milli).any()
            or self.cpu_free_milli[node] < shape.cpu_milli
            or self.memory_free_mib[node] < shape.memory_mib
        ):
            raise ValueError(f"{shape} has no room on {self.names[node]} in slots {tuple(slots)}")
        self.gpu_free_milli[node, list(slots)] -= shape.gpu_milli
        self.cpu_free_milli[node] -= shape.cpu_milli
        self.memory_free_mib[node] -= shape.memory_mib
