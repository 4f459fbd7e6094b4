"""The exporters of cards whose series are understood without being told: dcgm-exporter, and the shipped mappings.

Ways in that carry the series of any exporter (remote write, a metrics server) read them through `DeviceReader`.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import cache

from collector.dcgm.fields import field_named, is_device_metric
from collector.dcgm.labels import SeriesReader
from collector.devices.fields import Field
from collector.devices.subject import DeviceSeries, Pod, Subject
from collector.exposition import Series
from collector.mapping.file import understood
from collector.mapping.reader import MappedReader
from gpuledger.model import QualityEvent

_NO_NODE = "unknown"
_MAX_SUBJECTS = 200_000


class DeviceReader:
    """Turns the series of all these exporters into what they are about. Options are those of dcgm-exporter's."""

    def __init__(self, *, gpu_util_ratio_unit: str = "percent") -> None:
        self._dcgm = SeriesReader(gpu_util_ratio_unit=gpu_util_ratio_unit)
        self._mapped = [MappedReader(mapping, node=_NO_NODE, sees_pages=False) for mapping in understood()]
        self._reader_of: dict[int, MappedReader] = {}

    @property
    def dropped_labels(self) -> int:
        """Labels that no reader knows, once for each series."""
        return self._dcgm.dropped_labels

    def read(self, series: Series) -> DeviceSeries | None:
        """What `series` is about, or None when it names no device."""
        if is_device_metric(series.name):
            return self._dcgm.read(series)
        for reader in self._mapped:
            if reader.is_known(series.name) and (found := reader.read(series)) is not None:
                if len(self._reader_of) >= _MAX_SUBJECTS:
                    self._reader_of.clear()
                self._reader_of[found.subject.number] = reader
                return found
        return None

    def holder(self, subject: Subject) -> Pod | None:
        """The pod that holds the device, or None."""
        return (self._reader_of.get(subject.number) or self._dcgm).holder(subject)

    def take_events(self, now: datetime, source: str, target: str) -> list[QualityEvent]:
        """What was noticed about labels and names since the last call."""
        noticed = self._dcgm.take_events(now, source, target)
        for reader in self._mapped:
            noticed += reader.take_events(now, source, target)
        return noticed


@cache
def _mapped_fields() -> dict[str, Field | None]:
    readers = [MappedReader(mapping, node=_NO_NODE) for mapping in reversed(understood())]
    return {name: field for reader in readers for name, field in reader.fields.items()}


def device_field(name: str) -> Field | None:
    """The field that metric `name` of any of the exporters fills; of several by label, one of them."""
    return field_named(name) or _mapped_fields().get(name)


def is_of_device(name: str) -> bool:
    """Whether a series of this name proves that its device is there."""
    return is_device_metric(name) or name in _mapped_fields()


def names_holders_only(name: str) -> bool:
    """Whether a metric of a shipped mapping measures nothing: its labels only say which card is there, and whose."""
    return name in _mapped_fields() and device_field(name) is None


@cache
def mapped_holder_labels() -> tuple[str, ...]:
    """Labels that say who holds a device, of the shipped mappings."""
    labels = [label for mapping in understood() for label in MappedReader(mapping, node=_NO_NODE).holder_labels]
    return (*dict.fromkeys(labels),)


@cache
def mapped_names() -> tuple[str, ...]:
    """The names of all metrics of the shipped mappings."""
    return tuple(sorted(map(re.escape, _mapped_fields())))
