"""The script of a fleet's life: jobs, the holds of their pods, phases of activity, outages and planted truths.

Times are minutes since the start of the simulated span; they may be negative (work that was running before) and may lie
after its end (work that goes on).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuledger.simulate.fleet import Fleet, build_fleet
from gpuledger.simulate.progress import Progress
from gpuledger.simulate.shapes import Shape
from gpuledger.simulate.spec import FleetSpec


@dataclass(frozen=True, slots=True)
class Mark:
    """What the script planted: `kind` is "waste", "advice", "health" or "lookalike".

    `rule` is the rule that it is about ("none": no rule sees it); `dips_only` counts only the pauses of the
    phase's shape, `work_only` all but them.
    """

    kind: str
    rule: str
    cause: str
    note: str = ""
    dips_only: bool = False
    work_only: bool = False


@dataclass(frozen=True, slots=True)
class Phase:
    """One stretch [`start`, `end`) of a hold. `also` are further truths about it, in other currencies than `mark`."""

    start: int
    end: int
    shape: Shape
    mark: Mark | None = None
    also: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """A pod's hold on one card or slice, or (card None) on CPUs only. CPU in milli, memory in MiB, `share` of the card.

    `paints` is False for all but one of the pods that share a card by time-slicing: the card has one set of counters.
    `marks` are true of the whole hold from `ready` on.
    """

    pod: str
    host: int
    card: int | None
    start: int
    ready: int
    end: int
    cpu_milli: int
    memory_mib: int
    share: float = 1.0
    slice_index: int | None = None
    phases: tuple[Phase, ...] = ()
    paints: bool = True
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A workload. `start` None: it never ran, and `end` is when it was withdrawn. CPU and memory are a pod's.

    `progress` is what it says of itself; None: nothing. `server` is the kind of its servers of models; empty: they show
    no page.
    """

    workload_id: str
    kind: str
    stage: str
    team: str
    user: str
    submit: int
    start: int | None
    end: int
    pods: int
    num_gpu: int
    gpu_milli: int
    cpu_milli: int
    memory_mib: int
    model_set: str | None = None
    min_replicas: int = 0
    priority: int = 0
    is_gang: bool = False
    holds: tuple[Hold, ...] = ()
    progress: Progress | None = None
    server: str = ""

    @property
    def asked_gpus(self) -> float:
        """GPUs that all its pods ask for."""
        return self.pods * self.num_gpu * self.gpu_milli / 1000


@dataclass(frozen=True, slots=True)
class Outage:
    """[`start`, `end`): `cards` of a host are out of use, or (spare) set aside. `xid` is what the cards report."""

    condition: str
    host: int
    cards: tuple[int, ...]
    start: int
    end: int
    reason: str
    is_whole_host: bool = False
    xid: int = 0

    @property
    def is_dark(self) -> bool:
        """No exporter shows these cards meanwhile."""
        return self.condition in ("not_ready", "under_repair", "gpu_lost")


@dataclass(frozen=True, slots=True)
class Ailment:
    """Something that a card shows from `start` on while work goes on: the XID gauge, or the count of ECC errors.

    `is_told`: a driver's log tells it as a fault event too. `mark` says what is true of it, None of a mere echo.
    """

    card: int
    start: int
    end: int
    kind: str
    code: int
    mark: Mark | None
    is_told: bool = True


@dataclass(frozen=True, slots=True)
class Load:
    """What a service is asked for: the mean and the tide of its demand in GPUs, and requests per second a GPU."""

    workload_id: str
    peak_gpus: float
    tide: float
    requests_per_gpu: float
    phase_minutes: int
    replica_starts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Quotas:
    """Nominal GPUs of each team, and which of them were scripted as donor and as blocked."""

    nominal: dict[str, float]
    underused: str | None
    blocked: str | None


@dataclass(frozen=True, slots=True)
class Span:
    """A planted fact about a host: [`start`, `end`) with a cause."""

    host: int
    start: int
    end: int
    cause: str


@dataclass(slots=True)
class Script:
    """Everything that happens, built once; read-only afterwards.

    `big_only` are the stretches in which nothing but whole-node pods waits; `cpu_full` the hosts whose CPUs are used
    up; `silent_exporters` the hosts whose exporter does not answer; `over_provided` (workload, team, when, GPUs) the
    services that are larger than the night needs; `host_marks` (host, start, end, mark) what is true of whole hosts.
    """

    spec: FleetSpec
    fleet: Fleet
    jobs: list[Job] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    ailments: list[Ailment] = field(default_factory=list)
    host_marks: list[tuple[int, int, int, Mark]] = field(default_factory=list)
    loads: list[Load] = field(default_factory=list)
    big_only: list[tuple[int, int]] = field(default_factory=list)
    cpu_full: list[Span] = field(default_factory=list)
    silent_exporters: list[Span] = field(default_factory=list)
    over_provided: list[tuple[str, str, Span, float]] = field(default_factory=list)
    quotas: Quotas = field(default_factory=lambda: Quotas({}, None, None))
    job_count: int = 0

    @classmethod
    def empty(cls, spec: FleetSpec) -> Script:
        """A fleet on which nothing happens yet."""
        return cls(spec, build_fleet(spec))

    def rng(self, *stream: int) -> np.random.Generator:
        """An independent seeded generator for one part of the script."""
        return np.random.default_rng([self.spec.seed, 2, *stream])

    def next_id(self, team: str, what: str) -> str:
        """A new workload's id."""
        self.job_count += 1
        return f"{team}-{what}-{self.job_count:05d}"

    def usable_from(self, cards: Iterable[int], minute: int) -> int:
        """The first minute, not before `minute`, at which no outage holds any of `cards`."""
        wanted = set(cards)
        for outage in sorted(self.outages, key=lambda item: item.start):
            if outage.start <= minute < outage.end and wanted & set(outage.cards):
                minute = outage.end
        return minute

    def usable_until(self, cards: Iterable[int], minute: int) -> int:
        """The first minute after `minute` at which an outage takes one of `cards`, or the script ends."""
        wanted = set(cards)
        starts = [o.start for o in self.outages if o.start > minute and wanted & set(o.cards)]
        return min([*starts, self.spec.last_minute])

    def waiting_from(self, start: int, wait: int, gpus_per_pod: int) -> int:
        """When work that starts at `start` was submitted, so that small pods never wait while only whole nodes may."""
        submit = start - wait
        if gpus_per_pod >= len(self.fleet.hosts[0].cards):
            return submit
        for opens, closes in self.big_only:
            if opens < start and submit < closes:
                submit = min(start, max(submit, closes))
        return submit


def clip_phases(phases: Sequence[Phase], start: int, end: int) -> tuple[Phase, ...]:
    """The parts of `phases` inside [`start`, `end`)."""
    return tuple(
        Phase(max(phase.start, start), min(phase.end, end), phase.shape, phase.mark, phase.also)
        for phase in phases
        if max(phase.start, start) < min(phase.end, end)
    )
