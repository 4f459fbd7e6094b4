"""Failures of nodes: what of the faults that were told counts for a rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta

from analyzers.health.incidents import Incident, without_planned

ONE_FAILURE = timedelta(minutes=10)
"""Faults of one node that are no further apart are one failure: a link's fault is told by both of its cards."""


def failures_of(found: Sequence[Incident]) -> tuple[dict[str, list[Incident]], dict[str, int]]:
    """Failures of the hardware by node, each told once, and how many incidents stand apart and why."""
    happened, planned = without_planned(found)
    apart = {
        "planned": len(planned),
        "caused_by_work_or_note": sum(not one.is_of_hardware for one in happened),
        "begin_unknown": sum(one.is_of_hardware and not one.fault["is_begin_known"] for one in happened),
    }
    by_node: dict[str, list[Incident]] = defaultdict(list)
    last: dict[str, datetime] = {}
    for one in happened:
        node = one.fault["node"]
        if not one.is_of_hardware or not one.fault["is_begin_known"] or not node:
            continue
        if node not in last or one.fault["ts"] - last[node] > ONE_FAILURE:
            by_node[node].append(one)
        last[node] = one.fault["ts"]
    return dict(by_node), apart
