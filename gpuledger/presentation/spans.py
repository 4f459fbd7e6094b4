"""A GPU's spans of state, arranged for a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuledger.model import State, Window

_SAME = ("slice_id", "state", "cause", "basis", "share", "workload_id", "tenant")


def joined(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of query `gpu_timeline` with spans that follow each other unchanged (the ledger cuts at hours) made one."""
    found: list[dict[str, Any]] = []
    open_spans: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda each: each["from_at"]):
        key = tuple(row[name] for name in _SAME)
        last = open_spans.get(key)
        if last is not None and last["until_at"] == row["from_at"]:
            last["until_at"] = row["until_at"]
            continue
        span = dict(row)
        open_spans[key] = span
        found.append(span)
    return found


def shares(spans: Iterable[Mapping[str, Any]], window: Window) -> dict[State, float]:
    """The part of `window` that the GPU spent in each state, 0 to 1, by overlap and share."""
    length = (window.to_at - window.from_at).total_seconds()
    parts: dict[State, float] = {}
    for span in spans:
        start, end = max(span["from_at"], window.from_at), min(span["until_at"], window.to_at)
        seconds = max(0.0, (end - start).total_seconds())
        state = State(span["state"])
        parts[state] = parts.get(state, 0.0) + seconds * span["share"] / length
    return parts
