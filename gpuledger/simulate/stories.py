"""What a job of the accuracy fleets goes through: the parts of a story, and stories of healthy work.

Unlike the plots of the mixed fleet, a story may also tell steps, phases and a model, and may make one rank unlike the
others. What it plants stands in its marks; durations and levels come from the definitions that a reader of the
specification has (30 min idle, half of the SMs), never from a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gpuledger.simulate import shapes
from gpuledger.simulate.fleet import Hardware
from gpuledger.simulate.plots import CHECKPOINT, WARM_UP
from gpuledger.simulate.progress import Progress, Stepping
from gpuledger.simulate.script import Mark, Phase
from gpuledger.simulate.shapes import Shape

GRACE_MINUTES = 15
"""What everybody has after ready: idleness is planted only behind it."""
HEALTHY_MFU = 0.42
PARAMETERS = 13e9
"""What a job that declares its model declares."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What a story has to work with: from ready to end in minutes, its ranks and their hardware, usual levels.

    `is_over`: it ends within the span, so that its whole life can be looked back on.
    """

    rng: np.random.Generator
    ready: int
    end: int
    ranks: int
    hardware: Hardware
    sm: float
    fb: float
    is_over: bool = True

    def pick(self, low: int, high: int) -> int:
        """A whole number of minutes in [`low`, `high`]."""
        return int(self.rng.integers(low, high + 1))

    def cut(self, low: float, high: float) -> int:
        """A minute at `low` to `high` of the span."""
        return self.ready + int((self.end - self.ready) * self.rng.uniform(low, high))

    @property
    def any_rank(self) -> int:
        """A rank that something happens to."""
        return int(self.rng.integers(self.ranks))


@dataclass(frozen=True, slots=True)
class Play:
    """A story told: the phases of all ranks, those of `odd` ones, and what the job says of itself.

    With `pods` 2 the first half of the ranks is one pod, the other half another. `marks` are true of all its holds.
    """

    common: list[Phase]
    odd: Mapping[int, list[Phase]] = field(default_factory=dict)
    progress: Progress | None = None
    pods: int = 1
    marks: tuple[Mark, ...] = ()


Story = Callable[[Scene], Play]


def warm_up(scene: Scene) -> Phase:
    """Loading and compiling: up to 14 minutes after ready."""
    return Phase(scene.ready, min(scene.end, scene.ready + scene.pick(1, 14)), shapes.idle(0.05), WARM_UP)


def settle(scene: Scene) -> Phase:
    """The grace after ready, in which nothing is asked of anybody."""
    return Phase(scene.ready, min(scene.end, scene.ready + GRACE_MINUTES), shapes.idle(0.0), WARM_UP)


def usual(scene: Scene) -> Shape:
    """Steps at a healthy level."""
    return shapes.training(scene.sm, scene.fb)


def work(scene: Scene, start: int, end: int, shape: Shape | None = None) -> Phase:
    """Steps with a checkpoint of 1 to 5 minutes every hour or two."""
    every, lasting = scene.pick(55, 150), scene.pick(1, 5)
    dipped = (shape or usual(scene)).with_dips(every, lasting, scene.pick(0, every))
    return Phase(start, end, dipped, CHECKPOINT)


def stepping(scene: Scene, start: int, end: int, mfu: float = HEALTHY_MFU) -> Stepping:
    """Steps of 30 to 90 s whose tokens give `mfu` of the hardware's dense BF16 peak."""
    seconds = float(scene.pick(30, 90))
    peak = scene.hardware.facts.peak_bf16_flops or 1e14
    return Stepping(start, end, seconds, round(mfu * peak * scene.ranks * seconds / (6 * PARAMETERS)))


def plain(scene: Scene) -> Play:
    """Warm-up, then steps with checkpoints."""
    warm = warm_up(scene)
    return Play([warm, work(scene, warm.end, scene.end)])


def logged(scene: Scene) -> Play:
    """The same, with a step log, a declared model and checkpoints."""
    play = plain(scene)
    start = play.common[0].end
    checkpoints = tuple(range(start + 60, scene.end, 60))
    return replace(play, progress=Progress((stepping(scene, start, scene.end),), PARAMETERS, checkpoints=checkpoints))
