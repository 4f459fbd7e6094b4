"""Effective training time: the share of a job's wall time that became progress (algorithms.md, section F).

*Observed* is counted from a job's own attempts and checkpoints. *Expected* is a model of failures, restarts and
checkpoints; it is always labelled as such, with the formula and whether the formula holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuledger.errors import BadInput

FIRST_ORDER_LIMIT = 0.1
"""λ(u0+Δ) up to which the first-order form agrees with simulation within .002."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a job, in hours: waited, started up, then trained, of which `lost_hours` were kept by nothing."""

    queue_hours: float
    init_hours: float
    trained_hours: float
    lost_hours: float = 0.0

    def __post_init__(self) -> None:
        """Raise BadInput for what cannot be."""
        if min(self.queue_hours, self.init_hours, self.trained_hours, self.lost_hours) < 0:
            raise BadInput("attempt", "hours must not be negative")
        if self.lost_hours > self.trained_hours + 1e-9:
            raise BadInput("lost_hours", "cannot exceed what was trained")


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Hours of a job from its first submission on; the four parts add up to `wall_hours`."""

    wall_hours: float
    productive_hours: float
    queue_hours: float
    init_hours: float
    lost_hours: float

    @property
    def ratio(self) -> float | None:
        """ETTR with queue time; None where nothing has passed."""
        return self.productive_hours / self.wall_hours if self.wall_hours > 0 else None

    @property
    def ratio_without_queue(self) -> float | None:
        """ETTR over the time in which GPUs were held."""
        held = self.wall_hours - self.queue_hours
        return self.productive_hours / held if held > 0 else None


def observed(attempts: Sequence[Attempt]) -> Observed:
    """What a job's attempts add up to. Productive is training that a checkpoint, or the job's end, preserved."""
    queue = math.fsum(one.queue_hours for one in attempts)
    init = math.fsum(one.init_hours for one in attempts)
    trained = math.fsum(one.trained_hours for one in attempts)
    lost = math.fsum(one.lost_hours for one in attempts)
    return Observed(
        wall_hours=queue + init + trained,
        productive_hours=trained - lost,
        queue_hours=queue,
        init_hours=init,
        lost_hours=lost,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A modelled ETTR. `formula` is its name; `is_valid` whether its conditions hold; `no_progress`: it was clamped."""

    ratio: float
    formula: str
    is_valid: bool
    no_progress: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What the model needs, in hours.

    λ `failures_per_hour` of the whole job, u0 `restart_hours`, Δ `checkpoint_hours`, q `requeue_hours`, R
    `productive_hours` (None: endless), w `blocking_hours` of a checkpoint.
    """

    failures_per_hour: float
    checkpoint_hours: float
    restart_hours: float = 0.0
    requeue_hours: float = 0.0
    productive_hours: float | None = None
    blocking_hours: float = 0.0

    def __post_init__(self) -> None:
        """Raise BadInput for what cannot be."""
        values = (self.failures_per_hour, self.restart_hours, self.requeue_hours, self.blocking_hours)
        if min(values) < 0 or self.checkpoint_hours <= 0:
            raise BadInput("training", "rates and hours must not be negative, and the checkpoint interval positive")
        if self.productive_hours is not None and self.productive_hours <= 0:
            raise BadInput("productive_hours", "must be positive")

    @property
    def lost_share(self) -> float:
        """λ(u0 + Δ/2): the expected share of time that failures take."""
        return self.failures_per_hour * (self.restart_hours + self.checkpoint_hours / 2)

    @property
    def paid_for_checkpoints(self) -> float:
        """Δ/(Δ+w): what is left beside checkpoints that block."""
        return self.checkpoint_hours / (self.checkpoint_hours + self.blocking_hours)

    @property
    def is_first_order(self) -> bool:
        """Whether λ(u0+Δ) is small enough for the first-order forms."""
        share = self.failures_per_hour * (self.restart_hours + self.checkpoint_hours)
        return share <= FIRST_ORDER_LIMIT + 1e-12


def published(job: Training) -> Expected:
    """(1 - λ(u0+Δ/2)) / (1 + (u0+q)/R + λq), the published first-order form (arXiv 2410.21680)."""
    name = "published_first_order"
    if job.lost_share >= 1:
        return Expected(ratio=0.0, formula=name, is_valid=False, no_progress=True)
    once = 0.0 if job.productive_hours is None else (job.restart_hours + job.requeue_hours) / job.productive_hours
    ratio = (1 - job.lost_share) / (1 + once + job.failures_per_hour * job.requeue_hours)
    return Expected(ratio=ratio * job.paid_for_checkpoints, formula=name, is_valid=job.is_first_order)


def first_order(job: Training) -> Expected:
    """R / (S(1+λq) + q) with S = (R+u0) / (1 - λ(u0+Δ/2)), derived on its own; agrees with `published`."""
    name = "first_order"
    if job.lost_share >= 1:
        return Expected(ratio=0.0, formula=name, is_valid=False, no_progress=True)
    rate, wait = job.failures_per_hour, job.requeue_hours
    if job.productive_hours is None:
        ratio = (1 - job.lost_share) / (1 + rate * wait)
    else:
        scheduled = (job.productive_hours + job.restart_hours) / (1 - job.lost_share)
        ratio = job.productive_hours / (scheduled * (1 + rate * wait) + wait)
    return Expected(ratio=ratio * job.paid_for_checkpoints, formula=name, is_valid=job.is_first_order)


def renewal(job: Training) -> Expected:
    """λΔ e^{-λ u0} / ((e^{λΔ} - 1)(1+λq)): exact for an endless job, whatever the rate."""
    load = job.failures_per_hour * job.checkpoint_hours
    kept = load / math.expm1(load) if 0 < load < 700 else float(load == 0)
    ratio = kept * math.exp(-job.failures_per_hour * job.restart_hours)
    ratio /= 1 + job.failures_per_hour * job.requeue_hours
    return Expected(
        ratio=ratio * job.paid_for_checkpoints,
        formula="exact_renewal",
        is_valid=job.productive_hours is None,
        no_progress=job.lost_share >= 1,
    )


def expected(job: Training) -> Expected:
    """The form to show: the published one while it holds, else the exact renewal form; `no_progress` clamps to 0."""
    if job.lost_share >= 1:
        return published(job)
    return published(job) if job.is_first_order else renewal(job)


def young_interval_hours(blocking_hours: float, failures_per_hour: float) -> float:
    """Young's checkpoint interval √(2w/λ), hours. Raises BadInput without a failure rate."""
    if blocking_hours < 0 or failures_per_hour <= 0:
        raise BadInput("failures_per_hour", "must be positive, and the blocking time not negative")
    return math.sqrt(2 * blocking_hours / failures_per_hour)
