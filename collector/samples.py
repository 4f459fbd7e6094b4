"""Samples of many series as columns: what every way in decodes to, and what assembling into records begins with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

Meaning = TypeVar("Meaning")

NO_TIMESTAMP = np.iinfo(np.int64).min
"""The time of a sample that has none of its own: it was taken when it was read."""


@dataclass(frozen=True, slots=True)
class Samples(Generic[Meaning]):
    """Samples in the order in which they came.

    `meanings` holds each series once; `series` (int64) points into it, one entry a sample; `values` (float64) is as
    written; `times_ms` (int64) is milliseconds from 1970, or `NO_TIMESTAMP`.
    """

    meanings: Sequence[Meaning]
    series: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]
    times_ms: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.values)

    @classmethod
    def of(cls, samples: Iterable[tuple[Meaning, float, int | None]]) -> Samples[Meaning]:
        """From (meaning, value, milliseconds or None); equal objects are one series."""
        rows = list(samples)
        numbers: dict[int, int] = {}
        meanings: list[Meaning] = []
        series = np.empty(len(rows), np.int64)
        for row, (meaning, _, _) in enumerate(rows):
            number = numbers.setdefault(id(meaning), len(meanings))
            if number == len(meanings):
                meanings.append(meaning)
            series[row] = number
        values = np.array([value for _, value, _ in rows], np.float64)
        times = np.array([NO_TIMESTAMP if at is None else at for _, _, at in rows], np.int64)
        return cls(meanings, series, values, times)
