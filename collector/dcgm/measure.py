"""Which values are measurements: in the column's unit, within its bounds, and no code that means "blank".

A value that is none becomes missing, never zero and never the bound. One exception: DCGM counts a slice's cycles
against a clock of its own, so that a busy slice may show a little more than all of them. Up to `CLAMP_LIMIT` that is
1, with a flag; what lies above is counted against the wrong number of processors, and says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.dcgm.codes import Flags, Floats, Numbers
from collector.dcgm.fields import FIELDS

CLAMP_LIMIT = 1.05

COLUMNS = (*dict.fromkeys(field.column for field in FIELDS[1:]),)
"""Columns that metrics fill, in the order of their codes."""

COLUMN = np.array([0, *(COLUMNS.index(field.column) for field in FIELDS[1:])], np.int64)
RANK = np.array([field.rank for field in FIELDS], np.int64)
IS_DEVICE_WIDE = np.array([field.is_device_wide for field in FIELDS])
IS_MASK = np.array([field.is_mask for field in FIELDS])
IS_COUNT = np.array([bool(field.label) for field in FIELDS])
_IS_PROFILED = np.array([field.is_profiled for field in FIELDS])
_TIMES = np.array([field.times for field in FIELDS])
_DIVIDED_BY = np.array([field.divided_by for field in FIELDS])
_LOW = np.array([field.low for field in FIELDS])
_HIGH = np.array([field.high for field in FIELDS])

_BLANKS = (
    *(2.0**31 - 16 + code for code in range(4)),  # int32: blank, not found, not supported, no permission
    *(2.0**47 + code for code in range(4)),  # the same in double precision; as int64 all are 2**63
    2.0**63,
)
_MAX_COUNT = 1e9
_SCALES = (1.0, 100.0, 1e3, 1e6, 1e9, 1024.0, 2.0**20)
_SENTINELS = np.unique([blank * scale for blank in _BLANKS for scale in _SCALES])


@dataclass(frozen=True, slots=True)
class Measured:
    """Values in their columns' units, and what became of each: good, rejected, or neither (it says nothing)."""

    values: Floats
    is_good: Flags
    is_bad: Flags
    is_clamped: Flags


def is_sentinel(values: Floats) -> Flags:
    """Which values are DCGM's blank codes, as written or scaled on the way."""
    # Most values are far too small, which costs less to see than to look each one up.
    found: Flags = values >= _SENTINELS[0]
    found[found] = np.isin(values[found], _SENTINELS)
    return found


def measure(values: Floats, fields: Numbers, meanings: Floats, is_slice: Flags) -> Measured:
    """What samples of `fields` (codes) measured; `is_slice` says which of them are a slice's own."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = values * _TIMES[fields] / _DIVIDED_BY[fields]
    is_good = (scaled >= _LOW[fields]) & (scaled <= _HIGH[fields])
    is_clamped = is_slice & _IS_PROFILED[fields] & (scaled > 1) & (scaled <= CLAMP_LIMIT)
    if is_clamped.any():
        scaled[is_clamped] = 1.0
        is_good |= is_clamped
    is_blank = is_sentinel(values)
    is_good &= ~is_blank
    is_count = IS_COUNT[fields]
    if not is_count.any():
        return Measured(scaled, is_good, ~is_good, is_clamped)
    is_bad = np.where(is_count, ~((values >= 0) & (values <= _MAX_COUNT)) | is_blank, ~is_good)
    says_something = (meanings <= _HIGH[fields]) & ((values > 0) | IS_MASK[fields])
    return Measured(
        values=np.where(is_count, np.where(values > 0, meanings, 0.0), scaled),
        is_good=np.where(is_count, says_something & ~is_bad, is_good),
        is_bad=is_bad,
        is_clamped=is_clamped,
    )
