"""Faults that a mapped page tells: what appeared since the page before, once each.

A code stands on the page for as long as the card has it, and a state for as long as it lasts. An agent that begins to
read tells the codes that are there, since nobody may have. Of a state only the fall is told: a port that was never up
is no fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import numpy as np

from collector.devices.subject import FaultSeries
from collector.samples import Samples
from gpuledger.model import FaultEvent

_MAX_CARDS = 50_000
_MAX_CODE = 2.0**53


class FaultBook:
    """What one target's cards showed on the page before."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._codes: dict[str, set[tuple[str, str]]] = {}
        self._states: dict[tuple[str, str], bool] = {}

    def events(self, samples: Samples[Any], now: datetime, node_of: Mapping[str, str]) -> list[FaultEvent]:
        """The faults that `samples` tell anew; `node_of` names the node of each card of the page."""
        if max(len(self._codes), len(self._states)) > _MAX_CARDS:
            self._codes.clear()
            self._states.clear()
        shown: dict[str, set[tuple[str, str]]] = defaultdict(set)
        told: dict[tuple[str, str, str], FaultEvent] = {}
        for found, value in _tellings(samples):
            gpu = found.subject.gpu_uuid
            if gpu not in node_of:
                continue
            code = found.state or f"{int(value):X}"
            if not (self._fell(found, value) if found.state else self._appeared(found, code, shown[gpu])):
                continue
            told[gpu, found.kind, code] = FaultEvent(
                ts=now,
                node=node_of[gpu],
                gpu_uuid=gpu,
                vendor=found.vendor,
                kind=found.kind,
                code=code,
                source=self._source,
                count=1,
            )
        for gpu in node_of:
            if shown[gpu] or gpu in self._codes:
                self._codes[gpu] = shown[gpu]
        return list(told.values())

    def _fell(self, found: FaultSeries, value: float) -> bool:
        """Whether a state that was well on the page before is not any more."""
        key = found.subject.gpu_uuid, found.name
        before, self._states[key] = self._states.get(key), value > 0
        return before is True and value == 0

    def _appeared(self, found: FaultSeries, code: str, shown: set[tuple[str, str]]) -> bool:
        """Whether the card did not have `code` on the page before; notes it in `shown`."""
        if code == "0":
            return False
        shown.add((found.kind, code))
        return (found.kind, code) not in self._codes.get(found.subject.gpu_uuid, ())


def _tellings(samples: Samples[Any]) -> Iterator[tuple[FaultSeries, float]]:
    """The samples that tell of faults, without those that have no value."""
    series = {slot: found for slot, found in enumerate(samples.meanings) if type(found) is FaultSeries}
    for at in np.flatnonzero(np.isin(samples.series, list(series))).tolist():
        found, value = series[int(samples.series[at])], float(samples.values[at])
        if 0 <= value < _MAX_CODE and value not in found.blanks:
            yield found, value
