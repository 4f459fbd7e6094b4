"""What the ledger would say if some counters were switched off: the same history judged twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuledger.errors import BadInput
from gpuledger.model import Window
from warehouse import ledger

if TYPE_CHECKING:
    from warehouse.store import Warehouse

COUNTERS = (
    "sm_active_ratio",
    "gr_engine_active_ratio",
    "tensor_active_ratio",
    "dram_active_ratio",
    "core_active_ratio",
    "power_watts",
)
"""Counters that can be left out: what an exporter may not give."""

LONGEST_HOURS = 7 * 24
"""Longest window: it is judged anew from its readings."""


@dataclass(frozen=True, slots=True)
class BasisShift:
    """GPU-hours of `window` by (state with all counters, state without `without`). Their sum is the ledger's."""

    window: Window
    without: tuple[str, ...]
    gpu_hours: dict[tuple[str, str], float]


def shift(warehouse: Warehouse, window: Window, without: Sequence[str]) -> BasisShift:
    """Judge the whole hours of `window` again without the counters `without`, beside the ledger as it is stored.

    Nothing is stored: readings and spans of one day at a time lie in temporary tables of a reading connection.
    Raises BadInput for a counter that cannot be left out, for none, and for a window longer than LONGEST_HOURS.
    """
    if not without or (unknown := sorted(set(without) - set(COUNTERS))):
        raise BadInput(
            "without", f"name one or more of {', '.join(COUNTERS)}" + (f"; not {unknown[0][:40]!r}" if without else "")
        )
    hours = window.whole_hours()
    if (hours.to_at - hours.from_at).total_seconds() > LONGEST_HOURS * 3600:
        raise BadInput("to", f"the window may be {LONGEST_HOURS} hours long at most")
    found: dict[tuple[str, str], float] = {}
    for day in hours.days():
        for with_it, without_it, gpu_hours in _day(warehouse, day, list(without)):
            found[with_it, without_it] = found.get((with_it, without_it), 0.0) + gpu_hours
    return BasisShift(hours, tuple(without), found)


def _day(warehouse: Warehouse, day: Window, without: list[str]) -> list[tuple[str, str, float]]:
    context = {"from_at": day.from_at - ledger.CONTEXT, "to_at": day.to_at + ledger.CONTEXT}
    with warehouse.reading() as cursor:
        ledger.run(cursor, "basis_with", from_at=day.from_at, to_at=day.to_at)
        ledger.name_models(cursor)
        ledger.run(cursor, "basis_reading", without=without, **context)
        ledger.run(cursor, "basis_span")
        for step in ledger.STEPS:
            ledger.run(cursor, step, **context)
        ledger.run(cursor, "state_span", from_at=day.from_at, to_at=day.to_at)
        ledger.run(cursor, "basis_matrix")
        return cursor.execute("select state_with, state_without, gpu_hours from basis_matrix").fetchall()
