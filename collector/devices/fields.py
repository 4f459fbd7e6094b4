"""What a metric measures: the column of a reading that it fills, in which unit, and which of its values are none.

The fields of all vendors stand in one table, `FIELDS`, so that samples of any of them may lie in one batch.
"""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from collector.bounds import BOUNDS
from collector.devices.codes import Flags, Floats, Numbers

FB_FREE = "fb_free_bytes"
NVLINK_TX = "nvlink_tx_bytes_per_second"
NVLINK_RX = "nvlink_rx_bytes_per_second"
HELPER_COLUMNS = (FB_FREE, NVLINK_TX, NVLINK_RX)
"""Columns that only serve to compute others: the total memory, and traffic in both directions together."""

HELD_CORES = "held_core_ratio"
HELD_MEMORY = "held_memory_bytes"
HOLDER_COLUMNS = (HELD_CORES, HELD_MEMORY)
"""What a holder was given of its card, where the exporter says it: they are no reading, and make the holder's share."""

PROFILING_COLUMNS = (
    "gr_engine_active_ratio",
    "sm_active_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
    "sm_occupancy_ratio",
    "fp16_active_ratio",
    "fp32_active_ratio",
    "fp64_active_ratio",
)

_HELPER_BOUNDS = (0.0, 2.0**50)


@dataclass(frozen=True, slots=True)
class Field:
    """One metric name: the `column` of a reading it fills, and how.

    The exporter's value times `times`, divided by `divided_by`, is in the column's unit (two numbers, because 57 %
    is 57 / 100 and not 57 * 0.01); `low` and `high` bound the result, inclusive. Where several metrics fill one
    column the lowest `rank` wins. `is_device_wide` metrics describe the physical card even when the exporter repeats
    them for every slice; `is_profiled` ones are cycles counted, which may slightly exceed all of a slice. `blanks` are
    values as written that mean "no value".

    Where `label` names one, the value only counts how often the thing in that label happened lately: what the column
    gets is the label's meaning, and a count of zero says nothing. `is_mask` columns collect bits of several series,
    `is_summed` ones add up parts of a card that a label tells apart (its links), and with `is_averaged` the column gets
    their mean. Of an `is_single` one a set of labels has one value: several that differ are none. Where
    an `is_final` one is there without a value no metric of a higher rank stands in for it.
    """

    column: str
    times: float = 1.0
    divided_by: float = 1.0
    rank: int = 0
    is_device_wide: bool = False
    is_profiled: bool = False
    is_mask: bool = False
    is_summed: bool = False
    is_averaged: bool = False
    is_single: bool = False
    is_final: bool = False
    label: str = ""
    low: float = 0.0
    high: float = 0.0
    blanks: tuple[float, ...] = ()
    index: int = 0


def bounded(field: Field) -> Field:
    """`field` with the bounds of its column."""
    low, high = BOUNDS.get(field.column, _HELPER_BOUNDS)
    if field.column == HELD_CORES:
        high = 1.0
    return dataclasses.replace(field, low=low, high=high)


class Table(NamedTuple):
    """The fields as columns, each at its index. `column` points into `columns`, `blank_set` into `blank_sets`."""

    columns: tuple[str, ...]
    column: Numbers
    rank: Numbers
    is_device_wide: Flags
    is_profiled: Flags
    is_mask: Flags
    is_summed: Flags
    is_averaged: Flags
    is_single: Flags
    is_final: Flags
    is_count: Flags
    is_of_holder: Flags
    times: Floats
    divided_by: Floats
    low: Floats
    high: Floats
    blank_set: Numbers
    blank_sets: tuple[Floats, ...]

    def __len__(self) -> int:
        return len(self.column)


class FieldTable:
    """Every field once, by number. The first stands for series that only prove that their device is there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fields = [Field("")]
        self._known: dict[Field, Field] = {}
        self._table: Table | None = None

    def register(self, field: Field) -> Field:
        """`field` with its index; the same one for equal fields."""
        plain = dataclasses.replace(field, index=0)
        with self._lock:
            if plain not in self._known:
                self._known[plain] = dataclasses.replace(plain, index=len(self._fields))
                self._fields.append(self._known[plain])
                self._table = None
            return self._known[plain]

    @property
    def table(self) -> Table:
        """The fields registered so far."""
        table = self._table
        if table is None:
            with self._lock:
                table = self._table = _table(self._fields)
        return table


def _table(fields: list[Field]) -> Table:
    columns = (*dict.fromkeys(field.column for field in fields[1:]),)
    blank_sets = (*dict.fromkeys(field.blanks for field in fields),)
    return Table(
        columns=columns,
        column=np.array([0, *(columns.index(field.column) for field in fields[1:])], np.int64),
        rank=np.array([field.rank for field in fields], np.int64),
        is_device_wide=np.array([field.is_device_wide for field in fields]),
        is_profiled=np.array([field.is_profiled for field in fields]),
        is_mask=np.array([field.is_mask for field in fields]),
        is_summed=np.array([field.is_summed for field in fields]),
        is_averaged=np.array([field.is_averaged for field in fields]),
        is_single=np.array([field.is_single for field in fields]),
        is_final=np.array([field.is_final for field in fields]),
        is_count=np.array([bool(field.label) and not field.is_summed for field in fields]),
        is_of_holder=np.array([field.column in HOLDER_COLUMNS for field in fields]),
        times=np.array([field.times for field in fields]),
        divided_by=np.array([field.divided_by for field in fields]),
        low=np.array([field.low for field in fields]),
        high=np.array([field.high for field in fields]),
        blank_set=np.array([blank_sets.index(field.blanks) for field in fields], np.int64),
        blank_sets=tuple(np.unique(np.array(blanks, np.float64)) for blanks in blank_sets),
    )


FIELDS = FieldTable()
