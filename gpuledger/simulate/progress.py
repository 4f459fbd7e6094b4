"""What work says of its own progress: steps, its model, phases and checkpoints; in minutes of the script."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Stepping:
    """Steps of `step_seconds` that end one after the other from minute `start` to `end`.

    `tokens` are a step's. A rank computes for `compute_ratio` of a step, `slow_rank` for `slow_factor` times as long.
    """

    start: int
    end: int
    step_seconds: float
    tokens: float
    compute_ratio: float = 0.6
    slow_rank: int | None = None
    slow_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class ToldPhase:
    """A phase of PHASES that the work declares for `pod` (its number; None: all) during [`start`, `end`)."""

    phase: str
    start: int
    end: int
    pod: int | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """All that a job tells. `parameters` 0: it declares no model. `checkpoints` are minutes."""

    steps: tuple[Stepping, ...] = ()
    parameters: float = 0.0
    phases: tuple[ToldPhase, ...] = ()
    checkpoints: tuple[int, ...] = ()
