"""What can happen to a training or batch job: each plot gives the phases of its ranks between ready and end.

A plot plants waste or a look-alike on purpose and says so in its marks; durations come from the plot, never from a
rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpuledger.simulate import shapes
from gpuledger.simulate.script import Mark, Phase
from gpuledger.simulate.shapes import Shape

WARM_UP = Mark("lookalike", "idle_allocation", "warm_up", "compiling and loading before the first step")
CHECKPOINT = Mark("lookalike", "idle_allocation", "checkpoint_dip", "pauses of a few minutes", dips_only=True)
DATA_STALL = Mark("lookalike", "idle_allocation", "data_stall", "short regular waits for input", dips_only=True)
EVALUATION = Mark("lookalike", "idle_allocation", "evaluation_phase", "low activity while a checkpoint is scored")
SHORT_PAUSE = Mark("lookalike", "idle_allocation", "short_pause", "a pause between stages")
SILENT = Mark("lookalike", "idle_allocation", "silent_profiling", "profiling counters read 0 while the card works")
FINISHED = Mark("waste", "idle_allocation", "finished_not_released", "the work is done, the pod sleeps on")
NEVER_USED = Mark("waste", "idle_allocation", "never_used", "held from the start without any work")
MEMORY_HELD = Mark("waste", "idle_allocation", "memory_held", "every rank waits with its memory held")
NO_PROCESS = Mark("waste", "idle_allocation", "no_process", "the process died and nobody noticed for hours")
STALLED = Mark("waste", "stalled", "collective_hang", "ranks spin without progress until somebody kills the job")
PARTIAL = Mark("waste", "none", "gang_partial_idle", "one rank idle in a gang whose others work")


@dataclass(frozen=True, slots=True)
class Cast:
    """What a plot has to work with: the span from ready to end in minutes, and the job's usual activity."""

    rng: np.random.Generator
    ready: int
    end: int
    sm: float
    fb: float

    def pick(self, low: int, high: int) -> int:
        """A whole number of minutes in [`low`, `high`]."""
        return int(self.rng.integers(low, high + 1))

    def cut(self, low: float, high: float) -> int:
        """A minute at `low` to `high` of the span."""
        return self.ready + int((self.end - self.ready) * self.rng.uniform(low, high))


Phases = list[Phase]
Plot = Callable[[Cast], tuple[Phases, Phases | None]]
"""Phases of every rank, and those of the last rank where it differs."""


def _work(cast: Cast, start: int, end: int, shape: Shape | None = None) -> Phase:
    base = shape or shapes.training(cast.sm, cast.fb)
    every, lasting = cast.pick(55, 150), cast.pick(1, 5)
    return Phase(start, end, base.with_dips(every, lasting, cast.pick(0, every)), CHECKPOINT)


def _warm(cast: Cast) -> Phase:
    return Phase(cast.ready, min(cast.end, cast.ready + cast.pick(1, 9)), shapes.idle(0.05), WARM_UP)


def plain(cast: Cast) -> tuple[Phases, None]:
    """Warm-up, then steady steps with checkpoints."""
    warm = _warm(cast)
    return [warm, _work(cast, warm.end, cast.end)], None


def evaluated(cast: Cast) -> tuple[Phases, None]:
    """Steps, with an evaluation every few hours and sometimes a pause of 8 to 22 minutes before it."""
    phases = [_warm(cast)]
    clock = phases[0].end
    while clock < cast.end:
        stop = clock + cast.pick(120, 300)
        phases.append(_work(cast, clock, stop))
        clock = stop
        if cast.rng.random() < 0.5:
            pause = cast.pick(8, 22)
            phases.append(Phase(clock, clock + pause, shapes.idle(cast.fb), SHORT_PAUSE))
            clock += pause
        lasting = cast.pick(25, 90)
        scoring = shapes.evaluation(cast.rng.uniform(0.09, 0.22), cast.fb)
        phases.append(Phase(clock, clock + lasting, scoring, EVALUATION))
        clock += lasting
    return phases, None


def starved(cast: Cast) -> tuple[Phases, None]:
    """Steps that wait for input for some minutes in each quarter of an hour."""
    warm = _warm(cast)
    lasting = cast.pick(3, 5)
    shape = shapes.training(cast.sm, cast.fb).with_dips(cast.pick(14, 20), lasting, cast.pick(0, 13))
    return [warm, Phase(warm.end, cast.end, shape, DATA_STALL)], None


def silent(cast: Cast) -> tuple[Phases, None]:
    """The profiling counters fall silent for hours in the middle."""
    warm = _warm(cast)
    first, second = cast.cut(0.15, 0.3), cast.cut(0.7, 0.9)
    mute = Shape(sm=cast.sm, util=0.995, tensor=0.55, dram=0.4, fb=cast.fb, is_silent=True)
    return [
        warm,
        _work(cast, warm.end, first),
        Phase(first, second, mute, SILENT),
        _work(cast, second, cast.end),
    ], None


def finished(cast: Cast) -> tuple[Phases, None]:
    """The work ends, the pod does not."""
    warm, done = _warm(cast), cast.cut(0.45, 0.6)
    return [warm, _work(cast, warm.end, done), Phase(done, cast.end, shapes.idle(0.0), FINISHED)], None


def never_used(cast: Cast) -> tuple[Phases, None]:
    """Nothing ever runs."""
    return [Phase(cast.ready, cast.end, shapes.idle(0.0), NEVER_USED)], None


def hung(cast: Cast) -> tuple[Phases, None]:
    """All ranks wait for hours with their memory held, then work goes on."""
    warm, first, second = _warm(cast), cast.cut(0.25, 0.35), cast.cut(0.65, 0.8)
    return [
        warm,
        _work(cast, warm.end, first),
        Phase(first, second, shapes.idle(max(cast.fb, 0.3)), MEMORY_HELD),
        _work(cast, second, cast.end),
    ], None


def crashed(cast: Cast) -> tuple[Phases, None]:
    """The process dies; it is started again hours later in the same pod."""
    warm, first, second = _warm(cast), cast.cut(0.2, 0.35), cast.cut(0.6, 0.75)
    return [
        warm,
        _work(cast, warm.end, first),
        Phase(first, second, shapes.idle(0.0), NO_PROCESS),
        _work(cast, second, cast.end),
    ], None


def stalled(cast: Cast) -> tuple[Phases, None]:
    """A collective hangs and spins until the job is killed."""
    warm, hang = _warm(cast), cast.cut(0.4, 0.6)
    return [warm, _work(cast, warm.end, hang), Phase(hang, cast.end, shapes.stalled(cast.fb), STALLED)], None


def lame(cast: Cast) -> tuple[Phases, Phases]:
    """One rank's process is gone while the others go on."""
    phases, _ = plain(cast)
    first, second = cast.cut(0.3, 0.4), cast.cut(0.7, 0.9)
    odd = [phases[0], _work(cast, phases[0].end, first), Phase(first, second, shapes.idle(0.0), PARTIAL)]
    return phases, [*odd, _work(cast, second, cast.end)]


@dataclass(frozen=True, slots=True)
class Repertoire:
    """Plots to deal: `usual` ones, and among them now and then one that looks like waste or one that is."""

    usual: tuple[Plot, ...]
    deceptive: tuple[Plot, ...]
    wasteful: tuple[Plot, ...]

    def turn(self, number: int) -> tuple[Plot, ...]:
        """What the deal of this number is taken from, in rounds of five."""
        if number % 5 == 2:
            return self.wasteful
        return self.deceptive if number % 5 in (0, 4) else self.usual


GANGS = Repertoire((plain, evaluated), (silent, starved), (hung, finished, stalled, lame))
PACKED = Repertoire((plain, evaluated, evaluated), (silent, starved), (finished, stalled, never_used, hung, crashed))
CLEAN = Repertoire((plain, evaluated), (starved, silent), (plain,))
