"""Lanes on which stories follow each other without a gap, each story coming round before any comes again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gpuledger.simulate import shapes
from gpuledger.simulate.lanes import STARTING, USERS, Request, pods_job
from gpuledger.simulate.script import Hold, Job, Phase, Script, clip_phases
from gpuledger.simulate.stories import Scene, Story

SHORTEST, LONGEST = 300, 660
"""Minutes that a job lasts."""
HEALTHY_SM = (0.60, 0.85)
HEALTHY_FB = (0.60, 0.90)
CPU_PART = 0.72


@dataclass(frozen=True, slots=True)
class Lane:
    """Cards that one job after the other holds: jobs of `team` and `kind`."""

    cards: tuple[int, ...]
    team: str
    kind: str = "training"


class Deck:
    """Deals `stories` in an order of its own for each lap, so that each is told once in a lap."""

    def __init__(self, stories: Sequence[Story], rng: np.random.Generator) -> None:
        self.stories = tuple(stories)
        self.rng = rng
        self.left: list[Story] = []

    def deal(self) -> Story:
        """The next story."""
        if not self.left:
            self.left = [self.stories[number] for number in self.rng.permutation(len(self.stories))]
        return self.left.pop()


def perform(script: Script, lane: Lane, deck: Deck) -> None:
    """Fill `lane` with jobs from minute 0 to the end of the script; an outage of its cards ends the job on them."""
    clock, last = 0, script.spec.last_minute
    while (clock := script.usable_from(lane.cards, clock)) < last:
        limit = script.usable_until(lane.cards, clock)
        end = min(limit, clock + int(deck.rng.integers(SHORTEST, LONGEST + 1)))
        end = limit if limit - end < SHORTEST else end
        if end - clock < 90:
            clock = end
            continue
        script.jobs.append(_job(script, lane, deck, (clock, end)))
        clock = end


def _job(script: Script, lane: Lane, deck: Deck, span: tuple[int, int]) -> Job:
    start, end = span
    rng, ready = deck.rng, start + int(deck.rng.integers(2, 9))
    hardware = script.fleet.host_of(lane.cards[0]).hardware
    scene = Scene(
        rng,
        ready,
        end,
        ranks=len(lane.cards),
        hardware=hardware,
        sm=float(rng.uniform(*HEALTHY_SM)),
        fb=float(rng.uniform(*HEALTHY_FB)),
        is_over=end <= script.spec.end_minute,
    )
    play = deck.deal()(scene)
    stage = "evaluation" if lane.kind == "batch" else "posttraining"
    want = Request(lane.cards, lane.team, lane.kind, stage, str(rng.choice(USERS)), cpu_part=CPU_PART)
    first = Phase(start, ready, shapes.FREE, STARTING)
    submit = script.waiting_from(start, int(rng.integers(1, 35)), len(lane.cards))
    job = pods_job(script, want, (submit, start, ready, end), ())
    holds = tuple(
        replace(
            hold,
            phases=clip_phases([first, *play.odd.get(rank, play.common)], start, end),
            marks=play.marks,
        )
        for rank, hold in enumerate(job.holds)
    )
    job = replace(job, holds=holds, progress=play.progress)
    return job if play.pods == 1 else _in_two_pods(job)


def _in_two_pods(job: Job) -> Job:
    half = len(job.holds) // 2
    holds: list[Hold] = [
        replace(hold, pod=f"{job.workload_id}-{int(rank >= half)}") for rank, hold in enumerate(job.holds)
    ]
    return replace(
        job,
        holds=tuple(holds),
        pods=2,
        num_gpu=half,
        cpu_milli=job.cpu_milli // 2,
        memory_mib=job.memory_mib // 2,
        is_gang=True,
    )
