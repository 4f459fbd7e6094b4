"""Numbers instead of values: what grouping millions of samples by arrays comes down to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

NONE = np.iinfo(np.int64).max
"""The code of an absent value: larger than every other, so that the smallest of some is one that is there."""

_SPARSE = 4


def factor(values: Sequence[Any], *, absent: Any = None) -> tuple[list[Any], Numbers]:
    """(distinct values in order, the position of each of `values` among them); `absent` has the code `NONE`."""
    distinct = sorted({value for value in values if value != absent})
    codes = {value: code for code, value in enumerate(distinct)}
    return distinct, np.array([codes.get(value, NONE) for value in values], np.int64)


def number(values: Sequence[Any], *, absent: Any = None) -> tuple[list[Any], Numbers]:
    """The same with the distinct values in the order in which they come: cheaper where their order is all the same."""
    codes: dict[Any, int] = {}
    numbers = [NONE if value == absent else codes.setdefault(value, len(codes)) for value in values]
    return list(codes), np.array(numbers, np.int64)


def dense(keys: Numbers, size: int) -> tuple[Numbers, Numbers]:
    """(distinct keys in order, the position of each key among them), for keys from 0 to below `size`.

    Keys that are no rarer than one in four are counted off in a table, which needs no sorting.
    """
    if size > _SPARSE * len(keys) + 1024:
        distinct, positions = np.unique(keys, return_inverse=True)
        return distinct, positions
    present = np.zeros(size, np.bool_)
    present[keys] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[keys]


def has_twins(keys: Numbers) -> bool:
    """Whether any key occurs twice."""
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


def smallest(groups: Numbers, codes: Numbers, count: int) -> Numbers:
    """The smallest code of each of `count` groups, `NONE` where a group has none."""
    least = np.full(count, NONE, np.int64)
    np.minimum.at(least, groups, codes)
    return least
