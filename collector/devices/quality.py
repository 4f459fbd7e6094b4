"""What is wrong with a set of samples, as `quality_event` rows: things that the records themselves do not say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from collector.devices.codes import Floats
from collector.devices.sighted import EPOCH, Sighted
from gpuledger.model import QualityEvent

_MAX_SECONDS = 1e15


@dataclass(frozen=True, slots=True)
class Found:
    """Rows with how many columns differing series or contradictions cost; rows and their claimants; samples' skew."""

    contested: list[tuple[int, int]]
    contradicted: list[tuple[int, int]]
    claims: list[tuple[int, str, int]]
    skew: Floats


def events(
    seen: Sighted, found: Found, node_of: Callable[[int], str], now: datetime, source: str
) -> list[QualityEvent]:
    """The events, those of a GPU at its instant, those of a clock at `now` and once for each node."""

    def of_gpu(row: int, kind: str, detail: str, count: int) -> QualityEvent:
        at = EPOCH + timedelta(microseconds=int(seen.instants_us[seen.row_instant[row]]))
        gpu, slice_id = seen.gpus[seen.row_gpu[row]], seen.slices[seen.row_slice[row]]
        return QualityEvent(
            ts=at,
            source=source,
            subject_kind="gpu",
            subject=gpu,
            kind=kind,
            detail=f"slice {slice_id}: {detail}" if slice_id else detail,
            count=count,
        )

    of_gpus = [
        *(
            of_gpu(row, "conflicting_sample", "series of one metric differ and nothing says how they join", lost)
            for row, lost in found.contested
        ),
        *(
            of_gpu(row, "contradiction", "profiling counters at zero under load", lost)
            for row, lost in found.contradicted
        ),
        *(of_gpu(row, "double_claim", claimants, count) for row, claimants, count in found.claims),
    ]
    return of_gpus + [
        QualityEvent(
            ts=now,
            source=source,
            subject_kind="node",
            subject=node,
            kind="clock_skew",
            detail="samples are dated apart from the clock",
            count=int(min(seconds, _MAX_SECONDS)),
        )
        for node, seconds in sorted(_worst(seen, found.skew, node_of).items())
    ]


def _worst(seen: Sighted, skew: Floats, node_of: Callable[[int], str]) -> dict[str, float]:
    """The largest skew of each node that has any, in seconds."""
    late = np.flatnonzero(skew)
    if not len(late):
        return {}
    worst = np.zeros(len(seen.row_gpu))
    np.maximum.at(worst, seen.sighting_row[seen.sample_sighting[late]], skew[late])
    nodes: dict[str, float] = {}
    for row in np.flatnonzero(worst).tolist():
        node = node_of(row)
        nodes[node] = max(nodes.get(node, 0.0), float(worst[row]))
    return nodes
