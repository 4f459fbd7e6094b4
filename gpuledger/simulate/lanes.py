"""Lanes: sets of cards on which one job follows another, so that no two jobs ever want the same card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np

from gpuledger.simulate import shapes
from gpuledger.simulate.plots import Cast, Plot, Repertoire
from gpuledger.simulate.script import Hold, Job, Mark, Phase, Script, clip_phases

STARTING = Mark("lookalike", "idle_allocation", "starting", "image pull and rendezvous before the pods are ready")
GOLDEN_RATIO = 0.6180339887498949
SHORTEST_GAP_MINUTES = 90
CPU_PART = 0.72
"""Part of a host's CPUs a GPU that training pods ask for."""
USERS = ("chen.yu", "wang.lei", "li.na", "zhao.min", "alice", "bob", "sun.jie", "zhou.hao", "maria", "wu.tong")


@dataclass(frozen=True, slots=True)
class Lane:
    """Cards that are used as one: the same number on each host, by jobs of one team."""

    cards: tuple[int, ...]
    team: str
    shortest: int = 240
    longest: int = 1_200
    kind: str = "training"


class Deck:
    """Deals plots so that each comes round before any comes again, and activity levels so that they spread evenly."""

    def __init__(self, repertoire: Repertoire, rng: np.random.Generator) -> None:
        self.repertoire = repertoire
        self.rng = rng
        self.dealt = 0
        self.left: dict[tuple[Plot, ...], list[Plot]] = {}
        self.position = float(rng.random())

    def deal(self) -> Plot:
        """The next plot."""
        self.dealt += 1
        plots = self.repertoire.turn(self.dealt)
        if not self.left.get(plots):
            self.left[plots] = list(plots)
        return self.left[plots].pop(0)

    def level(self) -> float:
        """The next quantile (0 to 1), low-discrepancy so that few jobs already follow the curve."""
        self.position = (self.position + GOLDEN_RATIO) % 1.0
        return self.position


def fill(script: Script, lanes: Sequence[Lane], deck: Deck) -> None:
    """Put jobs on `lanes` from before the start of the span to the end of the script, dealing in order of time."""
    clocks = [(-int(deck.rng.integers(0, 300)), number) for number in range(len(lanes))]
    heapify(clocks)
    while clocks:
        clock, number = heappop(clocks)
        lane = lanes[number]
        clock = script.usable_from(lane.cards, clock)
        if clock < script.spec.last_minute:
            heappush(clocks, (_next(script, lane, deck, clock), number))


def _next(script: Script, lane: Lane, deck: Deck, clock: int) -> int:
    """Put one job on `lane`, where there is room before the next outage, and say when the lane is free again."""
    limit = script.usable_until(lane.cards, clock)
    end = min(clock + _lasting(lane, deck, script.spec.end_minute), limit)
    if limit - clock >= SHORTEST_GAP_MINUTES:
        script.jobs.append(_job(script, lane, deck, (clock, end)))
    return end + int(deck.rng.integers(4, 40))


def _lasting(lane: Lane, deck: Deck, span: int) -> int:
    longest = min(lane.longest, max(lane.shortest + 60, span // 3))
    return int(deck.rng.integers(lane.shortest, longest + 1))


def _job(script: Script, lane: Lane, deck: Deck, span: tuple[int, int]) -> Job:
    start, end = span
    rng = deck.rng
    ready = min(end, start + int(rng.integers(2, 9)))
    plot = deck.deal()
    level = deck.level()
    sm = shapes.quantile(shapes.ACTIVE_SM_RATIO, level)
    fb = shapes.quantile(shapes.ACTIVE_FB_RATIO, float(rng.random()))
    common, odd = plot(Cast(rng, ready, end, sm, fb))
    first = Phase(start, ready, shapes.FREE, STARTING)
    stage = "evaluation" if lane.kind == "batch" else ("pretraining" if len(lane.cards) >= 16 else "posttraining")
    job = pods_job(
        script,
        Request(lane.cards, lane.team, lane.kind, stage, str(rng.choice(USERS))),
        (script.waiting_from(start, int(rng.integers(1, 35)), per_host(script, lane.cards)), start, ready, end),
        clip_phases([first, *common], start, end),
    )
    if odd is None or len(job.holds) < 2:
        return job
    last = replace(job.holds[-1], phases=clip_phases([first, *odd], start, end))
    return replace(job, holds=(*job.holds[:-1], last))


def per_host(script: Script, cards: tuple[int, ...]) -> int:
    """How many of `cards` sit in the first card's host."""
    host = script.fleet.cards[cards[0]].host
    return sum(script.fleet.cards[card].host == host for card in cards)


@dataclass(frozen=True, slots=True)
class Request:
    """Whole cards for one job: one pod on each host that they sit in."""

    cards: tuple[int, ...]
    team: str
    kind: str
    stage: str
    user: str
    min_replicas: int = 0
    what: str = ""
    cpu_part: float = CPU_PART


def pods_job(script: Script, want: Request, times: tuple[int, int, int, int], phases: tuple[Phase, ...]) -> Job:
    """A job on whole cards; `times` are submit, start, ready and end; every rank has the same `phases`."""
    submit, start, ready, end = times
    fleet = script.fleet
    hosts = sorted({fleet.cards[card].host for card in want.cards})
    each = len(want.cards) // len(hosts)
    hardware = fleet.hosts[hosts[0]].hardware
    cpu = int(hardware.cpu_cores * 1000 / 8 * want.cpu_part)
    memory = int(hardware.memory_mib / 8 * 0.7)
    name = script.next_id(want.team, want.what or want.kind)
    holds = tuple(
        Hold(
            pod=f"{name}-{hosts.index(fleet.cards[card].host)}",
            host=fleet.cards[card].host,
            card=card,
            start=start,
            ready=ready,
            end=end,
            cpu_milli=cpu,
            memory_mib=memory,
            phases=phases,
        )
        for card in want.cards
    )
    return Job(
        workload_id=name,
        kind=want.kind,
        stage=want.stage,
        team=want.team,
        user=want.user,
        submit=submit,
        start=start,
        end=end,
        pods=len(hosts),
        num_gpu=each,
        gpu_milli=1000,
        cpu_milli=cpu * each,
        memory_mib=memory * each,
        model_set=hardware.model,
        min_replicas=want.min_replicas,
        priority=100 if want.kind == "inference" else 50,
        is_gang=len(hosts) > 1,
        holds=holds,
    )
