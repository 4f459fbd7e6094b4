"""What a recorded service knows of queues: limits of every kind, and waits of which less and less is known."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any


def _queue(name: str, state_at: datetime | None, **known: Any) -> dict[str, Any]:
    told = ("running", "borrowed", "lent", "reserved", "pending", "unused", "nominal", "limit")
    limits = ("borrowing_limit", "lending_limit", "guarantee")
    return {
        **{f"{column}_gpus": None for column in (*told, *limits)},
        "scheduler": "kueue/east",
        "queue": name,
        "parent": None,
        "cohort": None,
        "tenant": "research",
        "status": "open",
        "nominal_is": "set",
        "limit_is": "set",
        "state_at": state_at,
        **known,
    }


def usage(at: datetime, hostile: str) -> list[dict[str, Any]]:
    """Rows of query `queue_usage`; the last queue is called `hostile`, and nothing of it was told."""
    unset = {"nominal_is": "none", "limit_is": "not_reported", "parent": "batch", "tenant": None, "status": "held"}
    batch = {"nominal_gpus": 16.0, "limit_is": "unlimited", "running_gpus": 24.0, "borrowed_gpus": 8.0}
    night = {"nominal_is": "unlimited", "limit_gpus": 8.0, "running_gpus": 2.5, "lent_gpus": 0.0}
    told_at = at - timedelta(minutes=1)
    return [
        _queue("batch", told_at, **batch, pending_gpus=0.0),
        _queue("night", told_at, **night, pending_gpus=32.0),
        _queue(hostile, None, **unset),
    ]


def waits(hostile: str) -> list[dict[str, Any]]:
    """Rows of query `waits`; of the last nothing but that it waited is known."""
    names = ("queue", "tenant", "cause", "blame", "is_bottleneck", "gpu_hours", "reasons")
    rows = (
        ("night", "research", "fragmentation", "capacity", True, 640.0, ["FitError"]),
        ("night", "research", "held", "user", False, 120.0, ["JobHeldUser", hostile]),
        ("batch", "speech", "quota", "quota", False, 40.0, None),
        ("", "", "brand_new", None, None, None, None),
    )
    counts = {
        "scheduler": "kueue/east",
        "workload_count": 3,
        "open_count": 1,
        "wait_hours": 9.0,
        "mean_wait_hours": 3.0,
    }
    return [{**counts, **dict(zip(names, row, strict=True))} for row in rows]
