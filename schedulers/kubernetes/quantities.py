"""Kubernetes' way to write amounts: "500m", "4Gi", "1e3", 8."""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any

from gpuledger.errors import BadInput

_FORM = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE]([+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i))?", re.ASCII)

_SUFFIXES = {
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G"), -3)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate(("T", "P", "E"), 4)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}


@lru_cache(maxsize=16_384)
def _amount(text: str, field: str) -> float:
    match = _FORM.fullmatch(text)
    if match is None:
        raise BadInput(field, f"{text[:40]!r} is no quantity")
    power = Decimal(10) ** int(match[2]) if match[2] else _SUFFIXES[match[3] or ""]
    return _finite(float(Decimal(match[1]) * power), field)


def _finite(amount: float, field: str) -> float:
    if not isfinite(amount):
        raise BadInput(field, "is no finite number")
    return amount


def quantity(value: Any, field: str = "quantity") -> float:
    """`value` (text or number) as a number in the resource's own unit: cores, bytes, devices.

    Raises BadInput naming `field` for anything else.
    """
    if isinstance(value, str):
        return _amount(value, field)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(field, f"{type(value).__name__} is no quantity")
    return _finite(float(value), field)
