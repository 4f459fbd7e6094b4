"""What waits, and who may use how much: quotas, the blocked team's queue, bursts, and when only whole nodes wait."""

from __future__ import annotations

from itertools import pairwise
from math import ceil

import numpy as np

from gpuledger.simulate.demand import Steps, team_steps
from gpuledger.simulate.lanes import USERS
from gpuledger.simulate.script import Job, Quotas, Script
from gpuledger.simulate.teams import BLOCKED, EVALUATION, TEAMS, UNDERUSED

SMALLEST_MILLI = 142
"""A seventh of a card: with such a pod waiting, any free share of a host with free CPUs is usable."""
BUSY_PART = 0.9
"""How much of its quota a well-sized team uses."""


def plan_big_only(script: Script, rng: np.random.Generator) -> None:
    """Twice a day, for some hours, nothing but whole-node pods waits."""
    for day in range(-1, script.spec.last_minute // 1440 + 1):
        for hour in (2, 13):
            begin = day * 1440 + hour * 60 + int(rng.integers(0, 60))
            script.big_only.append((begin, begin + int(rng.integers(240, 420))))


def settle_quotas(script: Script) -> None:
    """Size each team's quota by what it runs, give what is left to one that needs little, and block another."""
    end = script.spec.end_minute
    steps = {team.name: team_steps(script, team.name, 0, end) for team in TEAMS}
    nominal = {team: _fitting(own) for team, own in steps.items() if own.running.any()}
    nominal[BLOCKED] = _peak(steps[BLOCKED])
    others = sum(gpus for team, gpus in nominal.items() if team != UNDERUSED)
    peak = _peak(steps[UNDERUSED])
    nominal[UNDERUSED] = float(max(len(script.fleet.cards) - others, ceil(2.5 * max(peak, 2.0))))
    script.quotas = Quotas(nominal, UNDERUSED, BLOCKED)


def _fitting(steps: Steps) -> float:
    hourly = steps.hourly_demand()
    return float(ceil(max(1.0, hourly.mean() / BUSY_PART, np.quantile(hourly, 0.97))))


def _peak(steps: Steps) -> float:
    return float(max(1, ceil(steps.running.max())))


def queue_blocked(script: Script, rng: np.random.Generator) -> None:
    """The blocked team always waits: for small pods, or in the big-only stretches for whole nodes."""
    extra = max(2.0, 0.6 * script.quotas.nominal[BLOCKED])
    clock = -1440
    for begin, end in [*script.big_only, (script.spec.last_minute, script.spec.last_minute)]:
        if clock < begin:
            _wait_small(script, (clock, begin), extra, rng)
        for _ in range(max(1, round(extra / 8)) if begin < end else 0):
            _withdrawn(script, BLOCKED, "train", (begin, end), (8, 1000), rng)
        clock = end


def _wait_small(script: Script, span: tuple[int, int], extra: float, rng: np.random.Generator) -> None:
    _withdrawn(script, BLOCKED, "notebook", span, (1, SMALLEST_MILLI), rng)
    _withdrawn(script, BLOCKED, "train", span, (1, 1000), rng)
    left = extra - 1
    while left > 0:
        gpus = min(ceil(left), int(rng.choice((1, 2, 4))))
        _withdrawn(script, BLOCKED, "train", span, (gpus, 1000), rng)
        left -= gpus


def burst(script: Script, rng: np.random.Generator) -> None:
    """About every second day the evaluation team asks for more than its quota, for an hour or so."""
    nominal = script.quotas.nominal.get(EVALUATION, 1.0)
    quiet = _quiet(script)
    for begin, end in quiet[:: max(1, len(quiet) // max(1, script.spec.days // 2))]:
        span = (begin + 20, min(end - 10, begin + 20 + int(rng.integers(50, 80))))
        if span[0] < span[1]:
            _withdrawn(script, EVALUATION, "score", span, (min(8, ceil(0.6 * nominal) + 1), 1000), rng)


def _quiet(script: Script) -> list[tuple[int, int]]:
    """Stretches of the span in which small pods may wait."""
    gaps = [(first[1], second[0]) for first, second in pairwise(script.big_only)]
    return [(a, b) for a, b in gaps if a > 0 and b - a > 120 and b < script.spec.end_minute]


def _withdrawn(
    script: Script,
    team: str,
    what: str,
    span: tuple[int, int],
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> None:
    """A pod that waits during `span` and is then withdrawn; `shape` is GPUs a pod and thousandths of each."""
    num_gpu, milli = shape
    kind = {"notebook": "notebook", "score": "batch"}.get(what, "training")
    script.jobs.append(
        Job(
            workload_id=script.next_id(team, what),
            kind=kind,
            stage={"notebook": "notebook", "batch": "evaluation"}.get(kind, "posttraining"),
            team=team,
            user=str(rng.choice(USERS)),
            submit=span[0],
            start=None,
            end=span[1],
            pods=1,
            num_gpu=num_gpu,
            gpu_milli=milli,
            cpu_milli=2_000 if milli < 1000 else 4_000 * num_gpu,
            memory_mib=8_192 * num_gpu,
        )
    )
