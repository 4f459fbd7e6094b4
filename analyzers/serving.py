"""What servers of models say of a stretch: evidence for rules, and what may be advised of something that serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from analyzers.efficiency_rule import SubjectKey, by_subject, fact, in_stretch
from gpuledger.model import Window
from gpuledger.ports import QueryRunner

QUERY = "serving_load"
NEVER_STOP: Mapping[str, Any] = {"never": "stop"}
"""The guardrail of everything that serves: others depend on it, and only its owner knows who."""

_KNOWN_RATIO = 0.5
"""The part of a stretch's hours that a server must have been read for, before its silence says anything."""


def loads(
    runner: QueryRunner, window: Window, rows: Sequence[Mapping[str, Any]]
) -> Mapping[SubjectKey, Mapping[str, Any]]:
    """The hours of `serving_load` of the subjects of `rows`, as {subject: {"rows": [...]}}."""
    return by_subject(runner.query(QUERY, from_at=window.from_at, to_at=window.to_at), rows) if rows else {}


def served(facts: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Evidence from the hours that the stretch of `row` touches: requests a second and running, the cache at its most.

    Each only where servers told it.
    """
    hours = _hours(facts, row)
    counted = sum(hour["counted_seconds"] or 0.0 for hour in hours if hour["request_count"] is not None)
    requests = sum(hour["request_count"] or 0.0 for hour in hours)
    running = [hour for hour in hours if hour["running_requests"] is not None]
    read = sum(hour["read_seconds"] for hour in running)
    caches = [hour["kv_cache_used_max_ratio"] for hour in hours if hour["kv_cache_used_max_ratio"] is not None]
    told = {
        "requests_per_second": requests / counted if counted > 0 else None,
        "running_requests": sum(hour["running_requests"] * hour["read_seconds"] for hour in running) / read
        if read > 0
        else None,
        "kv_cache_used_max_ratio": max(caches, default=None),
    }
    return tuple(fact(metric, value, None, row, QUERY) for metric, value in told.items() if value is not None)


def unasked(facts: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Evidence that nobody asked anything in an idle stretch: its server was read, and an idle minute serves nothing.

    None where the server was read for less than half of the stretch's hours.
    """
    hours = _hours(facts, row)
    length = (row["window_end"] - row["window_start"]).total_seconds()
    if not hours or sum(hour["read_seconds"] for hour in hours) < _KNOWN_RATIO * length:
        return ()
    return (fact("requests_per_second", 0.0, None, row, QUERY),)


def _hours(facts: Mapping[str, Any], row: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [hour for hour in facts.get("rows", ()) if in_stretch(hour["hour_at"], row)]
