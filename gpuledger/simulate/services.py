"""Inference services that follow the day in Asia/Shanghai: fixed in size, scaled by an autoscaler, or steady.

Styles: `concentrated` keeps its size and sends the night's little traffic to its first replicas; `spread` keeps its
size and spreads it thinly, `thin` too, from one hour to the next; `scaled` starts and ends replicas with the tide;
`steady` has a small load all day, `bright` a large one; `trickle` answers so few requests that its cards read idle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

import numpy as np

from gpuledger.simulate import shapes
from gpuledger.simulate.lanes import Request, pods_job
from gpuledger.simulate.script import Hold, Job, Load, Mark, Phase, Script, Span, clip_phases

SHANGHAI_OFFSET_MINUTES = 480
TIDE = 0.88
"""How much of the peak is gone in the small hours."""

NIGHT_IDLE = Mark("waste", "idle_allocation", "tidal_idle", "replicas above the floor without any traffic at night")
STANDBY = Mark("lookalike", "idle_allocation", "standby_floor", "idle replicas of the declared floor")
LOW_LOAD = Mark("lookalike", "idle_allocation", "low_load", "a small load all day")
THIN_LOAD = Mark("lookalike", "idle_allocation", "thin_night_load", "every replica still answers at night")
LOW_SERVING = Mark("advice", "low_activity", "low_serving", "memory full, few SMs at work: a card for several services")
ANSWERING = Mark("lookalike", "idle_allocation", "answering", "a request now and then, on cards that read idle")
TRICKLE_SM_RATIO = 0.01
LOADING = Mark("lookalike", "idle_allocation", "model_load", "loading weights before the pod is ready")


@dataclass(frozen=True, slots=True)
class Service:
    """A service on `cards`, `gpus` of them a replica; `floor` is its declared minimum of replicas.

    `tide` is how much of a busy replica's activity is gone at night. `is_graded`: little activity is marked as advice.
    `server` is the kind of its servers; empty: they show no page.
    """

    team: str
    style: str
    cards: tuple[int, ...]
    gpus: int
    floor: int
    shift_minutes: int
    sm: float
    fb: float
    tide: float = 0.3
    is_graded: bool = False
    server: str = ""

    @property
    def replicas(self) -> int:
        """Replicas at its full size."""
        return len(self.cards) // self.gpus

    def own_cards(self, replica: int) -> tuple[int, ...]:
        """The cards of one replica."""
        return self.cards[replica * self.gpus : (replica + 1) * self.gpus]


def local_minute(script: Script, minute: np.ndarray | float) -> np.ndarray:
    """The minute of the local day in Asia/Shanghai."""
    start = script.spec.start_at
    return np.asarray((start.hour * 60 + start.minute + SHANGHAI_OFFSET_MINUTES + np.asarray(minute)) % 1440)


def demand_ratio(script: Script, service: Service, minute: np.ndarray | float) -> np.ndarray:
    """Demand as a part of the peak."""
    return 1 - TIDE * (1 - shapes.daylight(local_minute(script, np.asarray(minute) + service.shift_minutes)))


def needed(script: Script, service: Service, hour: int) -> int:
    """Replicas that the highest demand of script hour `hour` asks for."""
    within = hour * 60 + np.arange(0, 60, 5)
    return max(1, ceil(service.replicas * float(demand_ratio(script, service, within).max()) - 0.25))


def add_service(script: Script, service: Service, rng: np.random.Generator) -> None:
    """Put `service` on its cards until the script ends."""
    spec = script.spec
    start = -int(rng.integers(300, 2000))
    name = script.next_id(service.team, f"serve-{service.style}")
    hours = range(-(-start // 60) - 1, spec.last_minute // 60 + 1)
    want = {hour: needed(script, service, hour) for hour in hours}
    holds: list[Hold] = []
    for replica in range(service.replicas):
        for begin, end in _lives(script, service, replica, start, want):
            holds += _replica(script, service, name, (replica, begin, end), want, rng)
    job = _service_job(script, service, name, start, tuple(holds))
    script.jobs.append(job)
    if service.style == "spread":
        _plant_over_provision(script, service, name, want)
    tide = 0.08 if service.style in ("steady", "bright", "trickle") else TIDE
    peak = len(service.cards) * {"steady": 0.5, "trickle": 0.02}.get(service.style, 1.0)
    lives = sorted({(hold.pod, hold.ready, hold.end) for hold in holds})
    script.loads.append(
        Load(name, peak, tide, 25.0, service.shift_minutes, tuple((ready, end) for _, ready, end in lives))
    )


def _service_job(script: Script, service: Service, name: str, start: int, holds: tuple[Hold, ...]) -> Job:
    want = Request(service.own_cards(0), service.team, "inference", "inference", "svc")
    times = (start - 5, start, start + 4, script.spec.last_minute)
    shell = pods_job(script, want, times, ())
    script.job_count -= 1
    return replace(
        shell,
        workload_id=name,
        pods=service.replicas,
        min_replicas=service.floor,
        is_gang=False,
        holds=holds,
        server=service.server,
    )


def _lives(script: Script, service: Service, replica: int, start: int, want: dict[int, int]) -> list[tuple[int, int]]:
    """When a replica exists: always, or (scaled) in the hours that want it; cut at outages of its cards."""
    last = script.spec.last_minute
    spans = [(start, last)]
    if service.style == "scaled" and replica >= service.floor:
        spans = _runs(want, lambda count: count > replica, (start, last))
        spans = [(max(start, begin - 15), end) for begin, end in spans if end - begin >= 60]
    lives = []
    cards = service.own_cards(replica)
    for begin, end in spans:
        clock = begin
        while (clock := script.usable_from(cards, clock)) < end:
            stop = min(end, script.usable_until(cards, clock))
            if stop - clock >= 30:
                lives.append((clock, stop))
            clock = stop + 5
    return lives


def _runs(want: dict[int, int], test: Callable[[int], bool], span: tuple[int, int]) -> list[tuple[int, int]]:
    """Maximal stretches of script minutes in whose hours `test` holds, clipped to `span`."""
    runs: list[tuple[int, int]] = []
    for hour, count in sorted(want.items()):
        if not test(count):
            continue
        if runs and runs[-1][1] == hour * 60:
            runs[-1] = (runs[-1][0], hour * 60 + 60)
        else:
            runs.append((hour * 60, hour * 60 + 60))
    clipped = [(max(begin, span[0]), min(end, span[1])) for begin, end in runs]
    return [(begin, end) for begin, end in clipped if begin < end]


def _replica(
    script: Script,
    service: Service,
    name: str,
    life: tuple[int, int, int],
    want: dict[int, int],
    rng: np.random.Generator,
) -> list[Hold]:
    replica, begin, end = life
    ready = min(end, begin + int(rng.integers(3, 8)))
    phases = [Phase(begin, ready, shapes.idle(0.1), LOADING), *_traffic(service, replica, (ready, end), want)]
    want_cards = Request(service.own_cards(replica), service.team, "inference", "inference", "svc")
    pod = f"{name}-{replica}-{begin + 10_000:x}"
    job = pods_job(script, want_cards, (begin, begin, ready, end), clip_phases(phases, begin, end))
    script.job_count -= 1
    return [replace(hold, pod=pod) for hold in job.holds]


def _traffic(service: Service, replica: int, span: tuple[int, int], want: dict[int, int]) -> list[Phase]:
    low = (LOW_SERVING,) if service.is_graded else ()
    busy = shapes.serving(service.sm, service.fb, service.tide)
    all_day = {
        "steady": Phase(*span, shapes.serving(max(0.08, service.sm * 0.2), service.fb, 0.0), LOW_LOAD, low),
        "bright": Phase(*span, busy),
        "trickle": Phase(*span, replace(shapes.idle(service.fb), sm=TRICKLE_SM_RATIO, util=0.02), ANSWERING, low),
    }
    if service.style in all_day:
        return [all_day[service.style]]
    if service.style == "thin":
        night = _runs(want, lambda count: count <= max(service.floor, service.replicas // 2), span)
        few = shapes.serving(0.2 * service.sm, service.fb, 0.0)
        parts = [Phase(*run, few, THIN_LOAD, low) for run in night]
        return sorted([*parts, *(Phase(*day, busy) for day in _between(night, span))], key=lambda phase: phase.start)
    if service.style == "spread":
        night = _runs(want, lambda count: count <= max(service.floor, service.replicas // 2), span)
        thin = shapes.serving(service.sm, service.fb, 0.8)
        day = [Phase(begin, end, thin) for begin, end in _between(night, span)]
        return sorted([*day, *(Phase(*run, thin, THIN_LOAD) for run in night)], key=lambda phase: phase.start)
    if service.style == "scaled" and replica >= service.floor:
        return [Phase(*span, busy)]
    called = _runs(want, lambda count: count > replica, span)
    mark = STANDBY if replica < service.floor else NIGHT_IDLE
    rest = [Phase(begin, end, shapes.idle(service.fb), mark) for begin, end in _between(called, span)]
    return sorted([*rest, *(Phase(*run, busy) for run in called)], key=lambda phase: phase.start)


def _between(runs: list[tuple[int, int]], span: tuple[int, int]) -> list[tuple[int, int]]:
    edges = [span[0], *(edge for run in runs for edge in run), span[1]]
    return [(begin, end) for begin, end in zip(edges[::2], edges[1::2], strict=True) if begin < end]


def _plant_over_provision(script: Script, service: Service, name: str, want: dict[int, int]) -> None:
    host = script.fleet.cards[service.cards[0]].host
    for hour, count in want.items():
        spare = service.replicas - max(count, service.floor)
        if spare > 0:
            span = Span(host, hour * 60, hour * 60 + 60, "overprovisioned_at_night")
            script.over_provided.append((name, service.team, span, float(spare * service.gpus)))
