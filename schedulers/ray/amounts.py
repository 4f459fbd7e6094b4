"""Ray's amounts without rounding errors: it counts in ten-thousandths of a resource, and so do we."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from gpuledger.errors import BadInput

PER_UNIT = 10_000
"""Ray's own resolution: a GPU has ten thousand parts, and a sum of them is an integer."""

_OF_GROUP = re.compile(r"(?P<resource>.+)_group_(?:\d+_)?(?P<group>[0-9a-f]{36,})")

Parts = Mapping[str, int]
"""Ten-thousandths by resource name."""


def parts(value: Any, field: str) -> int:
    """`value` as ten-thousandths: 0.1 is 1000, and so is 0.09999999999999998. Raises BadInput naming `field`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadInput(field, f"{type(value).__name__} is no amount")
    amount = Decimal(repr(value))
    if not amount.is_finite() or amount < 0:
        raise BadInput(field, f"{value} is no amount")
    return int((amount * PER_UNIT).to_integral_value(ROUND_HALF_EVEN))


def units(amount: int) -> float:
    """Ten-thousandths as the number that is written so: 10000 is 1.0."""
    return amount / PER_UNIT


def demands(told: Any, field: str) -> dict[str, int]:
    """A mapping of resources to amounts, as parts. Raises BadInput."""
    if not isinstance(told, Mapping):
        raise BadInput(field, "is no mapping of resources to amounts")
    return {str(name): parts(amount, f"{field}.{name}") for name, amount in told.items()}


def inside_group(demand: Parts) -> dict[str, int] | None:
    """What a task or actor takes of the placement group that it runs in; None where it runs in none.

    Ray writes such a demand twice, as `GPU_group_<id>` and, for one bundle, as `GPU_group_<index>_<id>`.
    """
    found: dict[str, int] = {}
    is_inside = False
    for name, amount in demand.items():
        if match := _OF_GROUP.fullmatch(name):
            is_inside = True
            found[match["resource"]] = max(amount, found.get(match["resource"], 0))
    return found if is_inside else None


def fits(demand: Parts, offered: Parts) -> bool:
    """Whether one node that has `offered` can take `demand`."""
    return all(offered.get(name, 0) >= amount for name, amount in demand.items() if amount)
