"""People at notebooks: whole cards, quarters of a card by time-slicing, and MIG slices."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuledger.simulate import shapes
from gpuledger.simulate.lanes import USERS
from gpuledger.simulate.script import Hold, Job, Mark, Phase, Script, clip_phases
from gpuledger.simulate.services import SHANGHAI_OFFSET_MINUTES

NIGHT_HELD = Mark("waste", "idle_allocation", "memory_held", "a notebook left open overnight")
ABANDONED = Mark("waste", "idle_allocation", "never_used", "a slice requested and never opened")
BREAK = Mark("lookalike", "idle_allocation", "short_break", "a person away for some minutes")
HIDDEN = Mark("waste", "none", "hidden_by_sharing", "idle on a card that the other sharers keep busy")
STARTING = Mark("lookalike", "idle_allocation", "starting", "image pull before the notebook opens")
CPU_CORES_PER_SHARE = 3


@dataclass(frozen=True, slots=True)
class Seat:
    """Where a notebook runs: a card, a slice of it, or a part of its time. `marks` are true of those ever used."""

    card: int
    share: float
    slice_index: int | None = None
    paints: bool = True
    marks: tuple[Mark, ...] = ()


def local_days(script: Script, opens: int, closes: int) -> list[tuple[int, int]]:
    """[opens, closes) of each local day (minutes after local midnight) as script minutes, a day early to the end."""
    start = script.spec.start_at
    midnight = -((start.hour * 60 + start.minute + SHANGHAI_OFFSET_MINUTES) % 1440)
    days = range(-1, script.spec.last_minute // 1440 + 2)
    return [(midnight + day * 1440 + opens, midnight + day * 1440 + closes) for day in days]


def add_notebook(
    script: Script, team: str, seat: Seat, rng: np.random.Generator, habit: str, mark: Mark | None = None
) -> None:
    """A notebook on `seat`; `habit` is `returned` (ended each evening), `kept` (held over night) or `abandoned`.

    `mark` is what is true of the hours in which somebody works.
    """
    days = _office_days(script, rng)
    who = (team, str(rng.choice(USERS)))
    if habit == "returned":
        for begin, end in days:
            _one(script, who, seat, (begin, end), _day(rng, begin, end, mark))
        return
    span = (-int(rng.integers(60, 600)), script.spec.last_minute)
    phases = [Phase(*span, shapes.idle(0.0), ABANDONED)] if habit == "abandoned" else _kept(rng, days, mark)
    _one(script, who, seat, span, phases)


def add_classroom(script: Script, team: str, card: int, rng: np.random.Generator) -> None:
    """Four notebooks that share a card's time: three people who work in step, and one who never does.

    All keep their notebooks over night. By day the idle one cannot be told from the others: a card has one set of
    counters.
    """
    days = _office_days(script, rng)
    span = (-int(rng.integers(60, 600)), script.spec.last_minute)
    together = _kept(rng, days)
    nights = [phase for phase in together if phase.mark == NIGHT_HELD]
    alone = sorted([*nights, *(Phase(*day, shapes.idle(0.1), HIDDEN) for day in days)], key=lambda phase: phase.start)
    for part in range(4):
        seat = Seat(card, 0.25, None, paints=part == 0)
        _one(script, (team, USERS[part]), seat, span, alone if part == 3 else together)


def _office_days(script: Script, rng: np.random.Generator) -> list[tuple[int, int]]:
    return local_days(script, 540 + int(rng.integers(0, 60)), 1_140 + int(rng.integers(0, 120)))


def _kept(rng: np.random.Generator, days: list[tuple[int, int]], mark: Mark | None = None) -> list[Phase]:
    """Days of work with whole nights of held memory between them."""
    phases: list[Phase] = []
    for begin, end in days:
        if phases:
            phases.append(Phase(phases[-1].end, begin, shapes.idle(0.35), NIGHT_HELD))
        phases += _day(rng, begin, end, mark)
    return phases


def _day(rng: np.random.Generator, begin: int, end: int, mark: Mark | None = None) -> list[Phase]:
    """Runs of cells with breaks of 6 to 24 minutes; the day ends with a run, so that no break melts into the night."""
    phases: list[Phase] = []
    clock = begin + 1
    while clock < end:
        stop = clock + int(rng.integers(40, 160))
        stop = end if end - stop < 30 else stop
        phases.append(Phase(clock, stop, shapes.interactive(float(rng.uniform(0.12, 0.4)), 0.35), mark))
        clock = min(end, stop + int(rng.integers(6, 25)))
        if stop < clock:
            phases.append(Phase(stop, clock, shapes.idle(0.35), BREAK))
    return phases


def _one(script: Script, who: tuple[str, str], seat: Seat, span: tuple[int, int], phases: list[Phase]) -> None:
    """One pod for each stretch of `span` in which no outage holds the card."""
    clock, last = span[0], min(span[1], script.spec.last_minute)
    while (clock := script.usable_from((seat.card,), clock)) < last:
        end = min(last, script.usable_until((seat.card,), clock))
        if end - clock >= 60 and end > 0:
            script.jobs.append(_pod(script, who, seat, (clock, end), phases))
        clock = end + 5


def _pod(script: Script, who: tuple[str, str], seat: Seat, span: tuple[int, int], phases: list[Phase]) -> Job:
    team, user = who
    begin, end = span
    host = script.fleet.host_of(seat.card)
    cpu = CPU_CORES_PER_SHARE * 1000 if seat.share < 1 else 8_000
    memory = int(host.hardware.memory_mib / 8 * 0.7 * seat.share)
    ready = begin + 1
    name = script.next_id(team, "notebook")
    first = Phase(begin, ready, shapes.FREE, STARTING)
    hold = Hold(
        pod=f"{name}-0",
        host=host.index,
        card=seat.card,
        start=begin,
        ready=ready,
        end=end,
        cpu_milli=cpu,
        memory_mib=memory,
        share=seat.share,
        slice_index=seat.slice_index,
        phases=(first, *clip_phases(phases, ready, end)),
        paints=seat.paints,
        marks=seat.marks if any(phase.shape.sm for phase in phases) else (),
    )
    return Job(
        workload_id=name,
        kind="notebook",
        stage="notebook",
        team=team,
        user=user,
        submit=begin,
        start=begin,
        end=end,
        pods=1,
        num_gpu=1,
        gpu_milli=int(seat.share * 1000),
        cpu_milli=cpu,
        memory_mib=memory,
        model_set=host.hardware.model,
        holds=(hold,),
    )
