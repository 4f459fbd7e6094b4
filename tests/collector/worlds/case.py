"""What the conformance suite needs to know of a source: one that answers, and a way to break it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuledger.ports import Source

FIRST = "GPU-00000000-0000-0000-0000-000000000000"
SECOND = "GPU-00000001-0000-0000-0000-000000000000"


@dataclass(kw_only=True)
class Case:
    """One source that reads node `n1` every 15 s.

    One that lists devices shows two cards, `uuids`, of `model`. The first has `power_watts` and the core or graphics
    activity `activity`, a (column, value); the second has no power reading. Of another source the suite asks only what
    every source promises. `break_it` makes the next read fail.
    """

    source: Source
    break_it: Callable[[], object]
    lists_devices: bool = True
    uuids: tuple[str, str] = (FIRST, SECOND)
    model: str = "H100"
    power_watts: float = 512.345
    activity: tuple[str, float] = ("gpu_util_ratio", 0.97)
