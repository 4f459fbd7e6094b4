"""How many GPUs a job has or asks for, and on which nodes: counted once, and "not known" where no text tells."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuledger.errors import BadInput
from schedulers.slurm.facts import Job
from schedulers.slurm.names import array_size, hosts
from schedulers.slurm.tres import gpu_count, gpus, gres, held_gpus, is_slice, share_of, tres


@dataclass(frozen=True, slots=True)
class Hold:
    """The GPUs of a job: in all (None: could not be counted) and by node (a node without an entry: not known).

    `is_guess`: nobody said how many on each node, and they divide evenly.
    """

    total: float | None
    by_node: Mapping[str, float] = field(default_factory=dict)
    problem: str = ""
    is_guess: bool = False


def hold(job: Job) -> Hold:
    """What `job` has, or had. Never raises: what cannot be counted says so in `problem`."""
    try:
        names = hosts(job.nodes)
        placed = {node: gpu_count(gres(text)) for node, text in job.gres_by_node}
        total = held_gpus(job.tres_alloc)
    except BadInput as error:
        return Hold(None, problem=str(error))
    if not total and placed:
        total = sum(placed.values())  # AccountingStorageTRES leaves GPUs out
    if placed and sum(placed.values()) == total:
        return Hold(total, {name: placed.get(name, 0.0) for name in names})
    if len(names) == 1 or not total:
        return Hold(total, dict.fromkeys(names, total))
    each = gpu_count(gres(job.per_node))
    if names and each * len(names) == total:
        return Hold(total, dict.fromkeys(names, each))
    if names and total % len(names) == 0:
        return Hold(total, dict.fromkeys(names, total / len(names)), is_guess=True)
    return Hold(total, problem=f"{total:g} GPUs on {len(names)} nodes, and nobody said how many on each")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a job asks for: GPUs in all and on each node, and on how many nodes."""

    gpus: float
    per_node: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """The GPUs that jobs may have on each node now. `is_open`: there may be more, of jobs that were not understood."""

    least: Mapping[str, float]
    most: Mapping[str, float]
    is_open: bool

    def allow(self, node: str, used: float) -> bool:
        """Whether `used` GPUs of `node` can be those of the jobs."""
        least = self.least.get(node, 0.0)
        return least <= used and (self.is_open or used <= self.most.get(node, 0.0))


def bounds(jobs: Iterable[tuple[Job, Hold]], *, is_whole: bool) -> Bounds:
    """What jobs may have. Those that come or go (completing, suspended) may have theirs or not.

    Not `is_whole`: some jobs were not understood.
    """
    least: dict[str, float] = {}
    most: dict[str, float] = {}
    is_open = not is_whole
    for job, held in jobs:
        is_open = is_open or bool(held.problem) or held.is_guess
        is_sure = not held.is_guess and not job.states & {
            "COMPLETING",
            "SUSPENDED",
            "STOPPED",
            "CONFIGURING",
            "RESIZING",
        }
        for node, count in held.by_node.items():
            most[node] = most.get(node, 0.0) + count
            least[node] = least.get(node, 0.0) + (count if is_sure else 0.0)
    return Bounds(least, most, is_open)


def wish(job: Job) -> Wish:
    """What one task of `job` asks for. Raises BadInput for a text that breaks off."""
    nodes = max(1, job.node_count)
    total = gpus(tres(job.tres_req or job.tres_alloc)) or gpu_count(gres(job.per_job))
    each = gpu_count(gres(job.per_node))
    if not total:
        total = each * nodes
    return Wish(total, each or math.ceil(total / nodes), nodes)


def tasks(job: Job) -> tuple[int, bool]:
    """How many tasks `job` stands for, and whether Slurm cut their list."""
    return array_size(job.array_tasks) if job.array_tasks else (1, False)


def share_milli(job: Job) -> int:
    """Thousandths of a card that each of its GPUs is: 1000 but for MIG slices of one known profile."""
    types = {one.type for text in (job.per_node, job.per_job, *dict(job.gres_by_node).values()) for one in gres(text)}
    shares = {share_of(kind) for kind in types if is_slice(kind)}
    only = shares.pop() if len(shares) == 1 else None
    return 1000 if only is None else round(1000 * only)
