"""Faults that a mapped page tells: what appeared since the page before, once each.

A code stands on the page for as long as the card has it, and a state for as long as it lasts. An agent that begins to
read tells the codes that are there, since nobody may have. Of a state only the fall is told: a port that was never up
is no fault.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np

from collector.devices.subject import FaultSeries
from collector.samples import Samples
from gpuledger.model import FaultEvent

_MAX_CARDS = 50_000
_MAX_CODE = 2.0**53


_Telling = tuple[FaultSeries, float]
_Key = tuple[str, str, str]
"""A card, the kind of its fault, and the code."""


class FaultBook:
    """What one target's cards showed on the page before."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._codes: dict[str, set[_Key]] = {}
        self._states: dict[tuple[str, str], bool] = {}

    def events(self, samples: Samples[Any], now: datetime, node_of: Mapping[str, str]) -> list[FaultEvent]:
        """The faults that `samples` tell anew; `node_of` names the node of each card of the page."""
        if max(len(self._codes), len(self._states)) > _MAX_CARDS:
            self._codes.clear()
            self._states.clear()
        told = [(found, value) for found, value in _tellings(samples) if found.subject.gpu_uuid in node_of]
        vendor_of = {**self._appeared(told, node_of), **self._fallen(told)}
        return [
            FaultEvent(
                ts=now,
                node=node_of[gpu],
                gpu_uuid=gpu,
                vendor=vendor,
                kind=kind,
                code=code,
                source=self._source,
                count=1,
            )
            for (gpu, kind, code), vendor in vendor_of.items()
        ]

    def _appeared(self, told: Sequence[_Telling], cards: Iterable[str]) -> dict[_Key, str]:
        """The codes that cards did not have on the page before, with their vendors."""
        found_of: dict[_Key, str] = {}
        for found, value in told:
            if not found.state and value:
                found_of[found.subject.gpu_uuid, found.kind, f"{int(value):X}"] = found.vendor
        shown: dict[str, set[_Key]] = defaultdict(set)
        for key in found_of:
            shown[key[0]].add(key)
        new = {key: vendor for key, vendor in found_of.items() if key not in self._codes.get(key[0], ())}
        self._codes.update({gpu: shown[gpu] for gpu in cards if gpu in shown or gpu in self._codes})
        return new

    def _fallen(self, told: Sequence[_Telling]) -> dict[_Key, str]:
        """The states that were well on the page before and are not any more; of several copies the worst counts."""
        worst: dict[tuple[str, str], _Telling] = {}
        for found, value in told:
            key = found.subject.gpu_uuid, found.name
            if found.state and value <= worst.get(key, (found, value))[1]:
                worst[key] = found, value
        fallen = {
            (gpu, found.kind, found.state): found.vendor
            for (gpu, name), (found, value) in worst.items()
            if not value and self._states.get((gpu, name))
        }
        self._states.update({key: value > 0 for key, (_, value) in worst.items()})
        return fallen


def _tellings(samples: Samples[Any]) -> Iterator[_Telling]:
    """The samples that tell of faults, without those that have no value."""
    series = {slot: found for slot, found in enumerate(samples.meanings) if type(found) is FaultSeries}
    for at in np.flatnonzero(np.isin(samples.series, list(series))).tolist():
        found, value = series[int(samples.series[at])], float(samples.values[at])
        if 0 <= value < _MAX_CODE and value not in found.blanks:
            yield found, value
