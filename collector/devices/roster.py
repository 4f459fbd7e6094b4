"""Series that are kept between batches, with their columns ready.

Samples may point into any list of series; from a plain one the columns are gathered each time, which costs more than
all the arithmetic that follows once there are a hundred thousand series in no order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from collector.devices.codes import Floats, Numbers, dense
from collector.devices.subject import DeviceSeries, Subject

_PACKED = np.dtype([("subject", "<i8"), ("field", "<i8"), ("meaning", "<f8")])
_packed_of = attrgetter("packed")


class Roster(Sequence[DeviceSeries]):
    """A growing list of series. Not safe for a writer beside readers."""

    def __init__(self) -> None:
        self._series: list[DeviceSeries] = []
        self._columns = np.zeros(1024, _PACKED)
        self._slots: dict[int, int] = {}
        self.subjects: list[Subject] = []

    def append(self, series: DeviceSeries) -> int:
        """Keep `series`; answers its number."""
        number = len(self._series)
        if number == len(self._columns):
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)])
        subject = series.subject
        slot = self._slots.setdefault(subject.number, len(self.subjects))
        if slot == len(self.subjects):
            self.subjects.append(subject)
        self._columns[number] = (slot, 0 if series.field is None else series.field.index, series.meaning)
        self._series.append(series)
        return number

    @property
    def columns(self) -> npt.NDArray[np.void]:
        """(position in `subjects`, field, meaning) of each series."""
        return self._columns[: len(self._series)]

    def __len__(self) -> int:
        return len(self._series)

    @overload
    def __getitem__(self, at: int) -> DeviceSeries: ...

    @overload
    def __getitem__(self, at: slice) -> list[DeviceSeries]: ...

    def __getitem__(self, at: Any) -> Any:
        return self._series[at]


@dataclass(frozen=True, slots=True)
class Described:
    """The series that samples point to: `subjects`, and for each series its subject, field and meaning.

    `sample_series` is each sample's position among them.
    """

    subjects: list[Subject]
    series_subject: Numbers
    series_field: Numbers
    series_meaning: Floats
    sample_series: Numbers


def describe(meanings: Sequence[DeviceSeries], series: Numbers) -> Described:
    """The columns of those of `meanings` that `series` points to."""
    used, sample_series = dense(series, len(meanings))
    if isinstance(meanings, Roster):
        columns = meanings.columns[used]
        slots, series_subject = dense(columns["subject"], len(meanings.subjects))
        subjects = [meanings.subjects[slot] for slot in slots.tolist()]
    else:
        known = meanings if len(used) == len(meanings) else [meanings[at] for at in used.tolist()]
        columns = np.frombuffer(b"".join(map(_packed_of, known)), _PACKED)
        _, first, series_subject = np.unique(columns["subject"], return_index=True, return_inverse=True)
        subjects = [known[at].subject for at in first.tolist()]
    return Described(subjects, series_subject, columns["field"], columns["meaning"], sample_series)
