"""From phases to one shape for each device and tick."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from gpuledger.simulate.script import Hold, Script
from gpuledger.simulate.shapes import FREE, Shape

_WHOLE = ("dip_every", "dip_for", "dip_offset", "throttle")


@dataclass(frozen=True, slots=True)
class Spans:
    """Stretches of devices: `value` from second `start` to before second `end`."""

    device: np.ndarray
    start: np.ndarray
    end: np.ndarray
    value: np.ndarray

    @classmethod
    def of(cls, rows: list[tuple[int, int, int, int]]) -> Spans:
        """From rows of (device, start minute, end minute, value)."""
        table = np.array(rows, dtype=np.int64).reshape(-1, 4)
        return cls(table[:, 0], table[:, 1] * 60, table[:, 2] * 60, table[:, 3])

    def paint(self, seconds: np.ndarray, devices: range, *, adding: bool = False) -> np.ndarray:
        """The value of each (tick, device): the last span that covers it wins, or all add up; 0 where none does."""
        canvas = np.zeros((len(seconds), len(devices)), dtype=np.int32)
        near = (self.start <= seconds[-1]) & (self.end > seconds[0])
        near &= (self.device >= devices.start) & (self.device < devices.stop)
        begins = np.searchsorted(seconds, self.start[near])
        ends = np.searchsorted(seconds, self.end[near])
        for device, begin, end, value in zip(
            (self.device[near] - devices.start).tolist(),
            begins.tolist(),
            ends.tolist(),
            self.value[near].tolist(),
            strict=True,
        ):
            if adding:
                canvas[begin:end, device] += value
            else:
                canvas[begin:end, device] = value
        return canvas


@dataclass(frozen=True, slots=True)
class Painting:
    """All that devices show: shapes by number, XIDs, ECC errors, and when a device or its host is dark.

    Fault codes of NPUs do not fit: `npu_fault` is which of the script's ailments it is, from 1.
    """

    shapes: dict[str, np.ndarray]
    activity: Spans
    xid: Spans
    ecc: Spans
    npu_fault: Spans
    dark: Spans
    host_dark: Spans


def paint_script(script: Script) -> Painting:
    """The painting of `script`."""
    numbers: dict[Shape, int] = {FREE: 0}
    activity: list[tuple[int, int, int, int]] = []
    for job in script.jobs:
        for hold in job.holds:
            device = device_of(script, hold)
            if device is None:
                continue
            if hold.paints:
                activity += [
                    (device, phase.start, phase.end, numbers.setdefault(phase.shape, len(numbers)))
                    for phase in hold.phases
                ]
    return Painting(
        shapes=_columns(list(numbers)),
        activity=Spans.of(activity),
        xid=Spans.of(
            [
                *_ailing(script, "xid"),
                *((d, o.start, o.end, o.xid) for o in script.outages if o.xid for d in _rows(script, o.cards)),
            ]
        ),
        ecc=Spans.of(_ailing(script, "ecc_uncorrected")),
        npu_fault=Spans.of(
            [
                (device, ailment.start, ailment.end, number)
                for number, ailment in enumerate(script.ailments, 1)
                if ailment.kind == "npu_fault"
                for device in _rows(script, (ailment.card,))
            ]
        ),
        dark=Spans.of([(d, o.start, o.end, 1) for o in script.outages if o.is_dark for d in _rows(script, o.cards)]),
        host_dark=Spans.of(_host_dark(script)),
    )


def device_of(script: Script, hold: Hold) -> int | None:
    """The device that a hold is about, None for CPU only."""
    if hold.card is None:
        return None
    return script.fleet.cards[hold.card].first_device + (0 if hold.slice_index is None else 1 + hold.slice_index)


def _rows(script: Script, cards: tuple[int, ...]) -> list[int]:
    known = [script.fleet.cards[card] for card in cards]
    return [row for card in known for row in range(card.first_device, card.first_device + 1 + len(card.slices))]


def _ailing(script: Script, kind: str) -> list[tuple[int, int, int, int]]:
    return [
        (device, ailment.start, ailment.end, ailment.code)
        for ailment in script.ailments
        if ailment.kind == kind
        for device in _rows(script, (ailment.card,))
    ]


def _host_dark(script: Script) -> list[tuple[int, int, int, int]]:
    silent = [(span.host, span.start, span.end, 1) for span in script.silent_exporters]
    whole = [o for o in script.outages if o.is_dark and o.cards == script.fleet.hosts[o.host].cards]
    return [*silent, *((outage.host, outage.start, outage.end, 1) for outage in whole)]


def _columns(known: list[Shape]) -> dict[str, np.ndarray]:
    return {
        field.name: np.array(
            [getattr(shape, field.name) for shape in known],
            dtype=np.int32 if field.name in _WHOLE else (bool if field.name == "is_silent" else np.float32),
        )
        for field in fields(Shape)
    }
