"""What a fault cost, in GPU-hours: of work that it ended, of cards that it took away, of peers that stood still.

    GPUs x (since the last checkpoint + until it was noticed + until it was queued again + until it was ready)
        + cards out of use + peers of the gang that stood still            (algorithms.md, section F)

Every part is kept with its bounds: where nobody tells of checkpoints, what was lost lies between nothing and the
assumed interval.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

BY_FAULT = frozenset({"failed", "evicted", "requeued", "let_go"})
"""Ends that a fault may have brought; what finished, was cancelled, preempted or suspended is apart."""

WITHOUT_PROGRESS = frozenset({"inference", "notebook"})
"""Kinds of work that keep nothing from step to step."""

LONGEST_WAIT_HOURS = 24.0
"""A later start is the owner's own decision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One part of a loss: GPU-hours with bounds, and how they are known.

    `label`: measured; assumed (no checkpoint was ever told); not_restarted; open (it goes on); unknown.
    """

    name: str
    gpu_hours: float
    low: float
    high: float
    label: str = "measured"
    workload_id: str = ""


def _measured(name: str, gpu_hours: float, workload_id: str = "") -> Part:
    value = max(0.0, gpu_hours)
    return Part(name=name, gpu_hours=value, low=value, high=value, workload_id=workload_id)


def hours_between(begin: datetime, end: datetime) -> float:
    """Hours from `begin` to `end`, not below 0."""
    return max(0.0, (end - begin) / timedelta(hours=1))


def was_ended(work: Mapping[str, Any]) -> bool:
    """Whether the work ended by the fault, as far as is known."""
    return work["ended_at"] is not None and work["end_reason"] in BY_FAULT


def work_parts(work: Mapping[str, Any], *, assumed_checkpoint_hours: float, known_until_at: datetime) -> list[Part]:
    """What the work of a row of query `hardware_fault_work` lost by its end. Empty where the fault did not end it."""
    if not was_ended(work):
        return []
    gpus, name = work["ended_gpus"] or work["gang_gpus"], work["workload_id"]
    parts = [_since_checkpoint(work, gpus, assumed_checkpoint_hours)]
    ended_at, begun_at, ready_at = work["ended_at"], work["next_started_at"], work["next_ready_at"]
    parts.append(_measured("detect", gpus * hours_between(work["ts"], ended_at), name))
    if begun_at is None:
        waited = min(LONGEST_WAIT_HOURS, hours_between(ended_at, known_until_at))
        high = gpus * waited
        parts.append(Part(name="requeue", gpu_hours=0.0, low=0.0, high=high, label="not_restarted", workload_id=name))
        return parts
    parts.append(_measured("requeue", gpus * hours_between(ended_at, begun_at), name))
    if ready_at is None:
        high = gpus * hours_between(begun_at, known_until_at)
        parts.append(Part(name="init", gpu_hours=0.0, low=0.0, high=high, label="unknown", workload_id=name))
    else:
        parts.append(_measured("init", gpus * hours_between(begun_at, ready_at), name))
    return parts


def _since_checkpoint(work: Mapping[str, Any], gpus: float, assumed_checkpoint_hours: float) -> Part:
    name, part = work["workload_id"], "since_checkpoint"
    if work["work_kind"] in WITHOUT_PROGRESS:
        return _measured(part, 0.0, name)
    stop = min(work["ts"], work["ended_at"])
    begins = [at for at in (work["checkpoint_at"], work["ready_at"]) if at is not None]
    elapsed = hours_between(max(begins), stop) if begins else None
    if work["has_checkpoints"] and elapsed is not None:
        return _measured(part, gpus * elapsed, name)
    high = gpus * (assumed_checkpoint_hours if elapsed is None else min(elapsed, assumed_checkpoint_hours))
    return Part(name=part, gpu_hours=high / 2, low=0.0, high=high, label="assumed", workload_id=name)


def away_part(away: Mapping[str, Any] | None) -> Part | None:
    """The cards that were out of use after the fault: a row of query `hardware_fault_away`."""
    if away is None:
        return None
    hours = float(away["away_gpu_hours"])
    return Part(name="away", gpu_hours=hours, low=hours, high=hours, label="open" if away["is_open"] else "measured")


def still_part(still: Mapping[str, Any]) -> Part:
    """Peers that stood still while they were kept: a row of query `hardware_fault_peers`."""
    return _measured("peers_still", float(still["still_gpu_hours"]), still["workload_id"])


def total(parts: Iterable[Part]) -> tuple[float, float, float]:
    """(GPU-hours, low, high) of all parts together."""
    listed = list(parts)
    return (
        math.fsum(part.gpu_hours for part in listed),
        math.fsum(part.low for part in listed),
        math.fsum(part.high for part in listed),
    )
