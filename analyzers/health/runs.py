"""Runs of training from their attempts: how much of their time was kept, and between which bounds where nobody says.

A run goes from its job's first submission to its end, or to its last checkpoint while it goes on: what it does after
that is neither kept nor lost yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

from analyzers.health.ettr import Attempt, Observed, observed
from analyzers.health.losses import hours_between


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One job's run. `best` and `worst` differ where a failed attempt told of no checkpoint: its loss has bounds only.

    `gpus` is the mean over held time. `restart_hours` and `requeue_hours` are those of later attempts.
    """

    workload_id: str
    tenant: str
    gpus: float
    best: Observed
    worst: Observed
    restart_hours: tuple[float, ...] = ()
    requeue_hours: tuple[float, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Whether what it lost is known within bounds only."""
        return self.best != self.worst


def runs(rows: Iterable[Mapping[str, Any]], *, assumed_checkpoint_hours: float = 1.0) -> tuple[list[Run], int]:
    """Runs from rows of query `ettr_attempts`, and how many jobs cannot be judged yet (nothing kept, nothing ended)."""
    found, unjudged = [], 0
    for _, group in groupby(rows, key=lambda row: row["workload_id"]):
        run = _run(list(group), assumed_checkpoint_hours)
        if run is None:
            unjudged += 1
        else:
            found.append(run)
    return found, unjudged


def _run(attempts: Sequence[Mapping[str, Any]], assumed_checkpoint_hours: float) -> Run | None:
    is_judged = any(row["ended_at"] is not None or row["checkpoint_at"] is not None for row in attempts)
    if not is_judged:
        return None
    best, worst, gpu_hours, held_hours = [], [], 0.0, 0.0
    waits_since: datetime = attempts[0]["submitted_at"]
    for row in attempts:
        end = row["ended_at"] or row["checkpoint_at"]
        if end is None:  # it runs and has saved nothing: how this attempt ends is not known
            break
        ready_at = min(row["ready_at"] or end, end)
        queue, init = hours_between(waits_since, row["started_at"]), hours_between(row["started_at"], ready_at)
        trained = hours_between(ready_at, end)
        least, most = _lost(row, ready_at, end, assumed_checkpoint_hours)
        best.append(Attempt(queue_hours=queue, init_hours=init, trained_hours=trained, lost_hours=least))
        worst.append(Attempt(queue_hours=queue, init_hours=init, trained_hours=trained, lost_hours=most))
        gpu_hours += row["gpus"] * (init + trained)
        held_hours += init + trained
        waits_since = end
    return Run(
        workload_id=attempts[0]["workload_id"],
        tenant=attempts[0]["tenant"],
        gpus=gpu_hours / held_hours if held_hours > 0 else float(attempts[0]["gpus"]),
        best=observed(best),
        worst=observed(worst),
        restart_hours=tuple(one.init_hours for one in best[1:]),
        requeue_hours=tuple(one.queue_hours for one in best[1:]),
    )


def _lost(
    row: Mapping[str, Any], ready_at: datetime, end: datetime, assumed_checkpoint_hours: float
) -> tuple[float, float]:
    """(least, most) hours of training that an attempt lost."""
    if row["is_kept_at_end"] or row["ended_at"] is None:
        return 0.0, 0.0
    if row["has_checkpoints"]:
        kept_until = row["checkpoint_at"]
        lost = hours_between(max(kept_until, ready_at) if kept_until else ready_at, end)
        return lost, lost
    return 0.0, min(hours_between(ready_at, end), assumed_checkpoint_hours)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetTime:
    """GPU-hours of runs together: each run's hours times its GPUs."""

    wall: float
    productive: float
    queue: float
    init: float
    lost: float

    @property
    def ratio(self) -> float | None:
        """ETTR with queue time."""
        return self.productive / self.wall if self.wall > 0 else None

    @property
    def ratio_without_queue(self) -> float | None:
        """ETTR over held time."""
        held = self.wall - self.queue
        return self.productive / held if held > 0 else None


def together(listed: Iterable[tuple[float, Observed]]) -> FleetTime:
    """The sums over (GPUs, hours) of runs."""
    pairs = list(listed)
    return FleetTime(
        wall=sum(gpus * one.wall_hours for gpus, one in pairs),
        productive=sum(gpus * one.productive_hours for gpus, one in pairs),
        queue=sum(gpus * one.queue_hours for gpus, one in pairs),
        init=sum(gpus * one.init_hours for gpus, one in pairs),
        lost=sum(gpus * one.lost_hours for gpus, one in pairs),
    )
