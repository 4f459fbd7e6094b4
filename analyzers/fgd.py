"""The FGD index and its placement score for one node, in integers of thousandths (algorithms.md, section B).

`sql/report/fragmentation_index.sql` gives the same index for a whole fleet; a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskClass:
    """A request shape and its weight: `num_gpu` GPUs with `gpu_milli` each, on one of `models` (empty: any)."""

    cpu_milli: int
    gpu_milli: int
    num_gpu: int
    models: frozenset[str] = frozenset()
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """What is free on a node: CPU, and thousandths of each GPU in the order of their slots."""

    node: str
    cpu_free_milli: int
    gpu_free_milli: tuple[int, ...]
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """One way to put a pod on a node: the GPUs taken, the change of the index, and the score of 0 to 100."""

    node: str
    gpus: tuple[int, ...]
    delta_milli: float
    score: int


def accepts(node: NodeState, task: TaskClass) -> bool:
    """Whether the node's model, CPU and GPUs have room for one pod of `task`."""
    if task.models and node.model not in task.models:
        return False
    fitting = sum(free >= task.gpu_milli for free in node.gpu_free_milli)
    return fitting >= task.num_gpu and node.cpu_free_milli >= task.cpu_milli


def unusable_milli(node: NodeState, task: TaskClass) -> int:
    """F_n(m): free thousandths of the node's GPUs that a pod of `task` could not use."""
    is_usable = task.gpu_milli > 0 and task.num_gpu > 0 and accepts(node, task)
    return sum(free for free in node.gpu_free_milli if not is_usable or free < task.gpu_milli)


def fragment_milli(node: NodeState, classes: Iterable[TaskClass]) -> float:
    """F_n(M): the weighted sum of `unusable_milli`, weights as given."""
    return math.fsum(task.weight * unusable_milli(node, task) for task in classes)


def score(delta_milli: float) -> int:
    """int(100 x sigmoid(-delta / 1000)): 50 is "changes nothing", more is better."""
    exponent = delta_milli / 1000
    ratio = math.exp(-exponent) / (1 + math.exp(-exponent)) if exponent > 0 else 1 / (1 + math.exp(exponent))
    return int(100 * ratio)


def _after(node: NodeState, task: TaskClass, gpus: Sequence[int]) -> NodeState:
    left = tuple(free - task.gpu_milli * (slot in gpus) for slot, free in enumerate(node.gpu_free_milli))
    return replace(node, cpu_free_milli=node.cpu_free_milli - task.cpu_milli, gpu_free_milli=left)


def _choices(node: NodeState, task: TaskClass) -> Iterator[tuple[int, ...]]:
    """Each feasible GPU for a pod of one GPU; else the fitting GPUs from the least free upward, lowest slot first."""
    fitting = [slot for slot, free in enumerate(node.gpu_free_milli) if free >= task.gpu_milli]
    if task.num_gpu == 1:
        yield from ((slot,) for slot in fitting)
    else:
        yield tuple(sorted(fitting, key=lambda slot: (node.gpu_free_milli[slot], slot))[: task.num_gpu])


def placements(node: NodeState, classes: Sequence[TaskClass], pod: TaskClass) -> list[Placement]:
    """Every placement of `pod` on `node` that FGD compares; empty when it does not fit."""
    if not accepts(node, pod):
        return []
    before = fragment_milli(node, classes)
    found = []
    for gpus in _choices(node, pod):
        delta = fragment_milli(_after(node, pod, gpus), classes) - before
        found.append(Placement(node=node.node, gpus=gpus, delta_milli=delta, score=score(delta)))
    return found


def best_placement(nodes: Iterable[NodeState], classes: Sequence[TaskClass], pod: TaskClass) -> Placement | None:
    """The placement with the highest score; ties go to the smallest node name, then to the lowest GPU."""
    found = [placement for node in nodes for placement in placements(node, classes, pod)]
    return min(found, key=lambda placement: (-placement.score, placement.node, placement.gpus), default=None)
