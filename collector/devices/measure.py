"""Which values are measurements: in the column's unit, within its bounds, and no code that means "blank".

A value that is none becomes missing, never zero and never the bound. One exception: DCGM counts a slice's cycles
against a clock of its own, so that a busy slice may show a little more than all of them. Up to `CLAMP_LIMIT` that is
1, with a flag; what lies above is counted against the wrong number of processors, and says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.devices.codes import Flags, Floats, Numbers
from collector.devices.fields import Table

CLAMP_LIMIT = 1.05
_MAX_COUNT = 1e9


@dataclass(frozen=True, slots=True)
class Measured:
    """Values in their columns' units, and what became of each: good, rejected, or neither (it says nothing)."""

    values: Floats
    is_good: Flags
    is_bad: Flags
    is_clamped: Flags


def _is_blank(values: Floats, fields: Numbers, table: Table) -> Flags:
    """Which values are a blank code of their field."""
    is_blank = np.zeros(len(values), np.bool_)
    for number, blanks in enumerate(table.blank_sets):
        if len(blanks):
            # Most values lie outside, which costs less to see than to look each one up.
            near = np.flatnonzero((values >= blanks[0]) & (values <= blanks[-1]))
            near = near[table.blank_set[fields[near]] == number]
            is_blank[near[np.isin(values[near], blanks)]] = True
    return is_blank


def measure(values: Floats, fields: Numbers, meanings: Floats, is_slice: Flags, table: Table) -> Measured:
    """What samples of `fields` (codes) measured; `is_slice` says which of them are a slice's own."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * table.times[fields] / table.divided_by[fields]
    is_good = (scaled >= table.low[fields]) & (scaled <= table.high[fields])
    is_clamped = is_slice & table.is_profiled[fields] & (scaled > 1) & (scaled <= CLAMP_LIMIT)
    if is_clamped.any():
        scaled[is_clamped] = 1.0
        is_good |= is_clamped
    is_blank = _is_blank(values, fields, table)
    is_good &= ~is_blank
    is_count = table.is_count[fields]
    if not is_count.any():
        return Measured(scaled, is_good, ~is_good, is_clamped)
    is_bad = np.where(is_count, ~((values >= 0) & (values <= _MAX_COUNT)) | is_blank, ~is_good)
    says_something = (meanings <= table.high[fields]) & ((values > 0) | table.is_mask[fields])
    return Measured(
        values=np.where(is_count, np.where(values > 0, meanings, 0.0), scaled),
        is_good=np.where(is_count, says_something & ~is_bad, is_good),
        is_bad=is_bad,
        is_clamped=is_clamped,
    )
