"""What the cluster's objects are made from: the script's pods and cards, with resources as a cluster spells them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property
from typing import Any

from gpuledger.simulate import Simulation
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.pods import NAMESPACES, OWNER_KINDS, PodRun, pod_runs
from gpuledger.simulate.script import Job, Outage, Script

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
LATEST = 10**9
"""A minute that never comes."""


def namespace_of(job: Job) -> str:
    """The namespace that a job's pods are in."""
    return NAMESPACES.get(job.kind, "default")


def owner_of(job: Job, uid: str) -> Object:
    """The reference to the object that controls a job's pods."""
    kind = OWNER_KINDS.get(job.kind, "Job")
    api = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": api, "kind": kind, "name": job.workload_id, "uid": uid, "controller": True}


def slice_resource(profile: str) -> str:
    """The resource of MIG slices of a profile."""
    return f"nvidia.com/mig-{profile}"


@dataclass(frozen=True, slots=True)
class Work:
    """A job with GPUs: when it waits ([`submit`, `start`)) and runs ([`start`, `end`)); what its pods ask for.

    `start` is `LATEST` for one that never ran: it is withdrawn at `end`.
    """

    job: Job
    runs: tuple[PodRun, ...]
    resource: str
    per_pod: int
    pods: int

    @property
    def submit(self) -> int:
        """When it came."""
        return self.job.submit

    @property
    def start(self) -> int:
        """When it got its cards."""
        return LATEST if self.job.start is None else self.job.start

    @property
    def end(self) -> int:
        """When it was over, or withdrawn."""
        return self.job.end

    @property
    def amount(self) -> int:
        """What all its pods ask for, in units of its resource."""
        return self.per_pod * self.pods

    def waits(self, minute: int) -> bool:
        """Whether it waits for quota."""
        return self.submit <= minute < min(self.start, self.end)

    def is_running(self, minute: int) -> bool:
        """Whether it holds its cards."""
        return self.start <= minute < self.end


class Facts:
    """A simulation's script, indexed for the making of objects. Minutes are the script's."""

    def __init__(self, simulation: Simulation) -> None:
        self.spec = simulation.spec
        self.script: Script = simulation.script
        self.runs: Sequence[PodRun] = pod_runs(self.script)

    def text(self, minute: int) -> str:
        """A minute as the API writes times."""
        return self.spec.instant(minute).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    @cached_property
    def hosts(self) -> Sequence[Host]:
        """The hosts that the scheduler lists."""
        missing = set(self.spec.nodes_missing_from_scheduler)
        return [host for host in self.script.fleet.hosts if host.name not in missing]

    @cached_property
    def copies(self) -> Mapping[int, int]:
        """By card: into how many copies it is divided by time; cards that are not divided are left out."""
        smallest: dict[int, float] = {}
        for job in self.script.jobs:
            for hold in job.holds:
                if hold.card is not None and hold.slice_index is None and hold.share < 1:
                    smallest[hold.card] = min(hold.share, smallest.get(hold.card, 1.0))
        return {card: round(1 / share) for card, share in smallest.items()}

    def offers(self, card: int) -> Counter[str]:
        """What a card adds to its node's resources."""
        slices = self.script.fleet.cards[card].slices
        if slices:
            return Counter(slice_resource(part.profile) for part in slices)
        return Counter({SHARED: self.copies[card]}) if card in self.copies else Counter({GPU: 1})

    def resource(self, run: PodRun) -> str:
        """The resource that a pod asks for."""
        part = self.script.fleet.devices[run.devices[0]].slice
        if part is not None:
            return slice_resource(part.profile)
        return SHARED if run.share < 1 else GPU

    @cached_property
    def works(self) -> Sequence[Work]:
        """All jobs that ask for GPUs."""
        runs: dict[str, list[PodRun]] = defaultdict(list)
        for run in self.runs:
            runs[run.job.workload_id].append(run)
        return [self._work(job, runs[job.workload_id]) for job in self.script.jobs if job.num_gpu]

    def _work(self, job: Job, runs: list[PodRun]) -> Work:
        if runs:
            return Work(job, tuple(runs), self.resource(runs[0]), len(runs[0].devices), len(runs))
        return Work(job, (), GPU if job.gpu_milli >= 1000 else SHARED, job.num_gpu, job.pods)

    @cached_property
    def outages(self) -> Mapping[int, Sequence[Outage]]:
        """By host."""
        found: dict[int, list[Outage]] = defaultdict(list)
        for outage in self.script.outages:
            found[outage.host].append(outage)
        return found

    @cached_property
    def minutes(self) -> Sequence[int]:
        """Every minute at which an object may change, in order."""
        found: set[int] = set()
        for job in self.script.jobs:
            found |= {job.submit, job.end, *(hold.start for hold in job.holds), *(hold.end for hold in job.holds)}
        for run in self.runs:
            found |= {run.start, run.end, run.listed_until}
        for outage in self.script.outages:
            found |= {outage.start, outage.end}
        return sorted(found)
