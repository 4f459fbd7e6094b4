"""The same history judged with and without SM activity: what moves, and that nothing is lost on the way."""

from __future__ import annotations

import pytest

from gpuledger.app.basis import basis_shift
from gpuledger.errors import BadInput
from gpuledger.model import Window
from tests.warehouse.judged import AT, MINUTE, Judged


def test_hours_move_and_their_sum_stays() -> None:
    """Utilization says 99 % of three cards: one works (0.8), one hardly (0.4), one not at all, at idle power."""
    ledger = Judged()
    ledger.hold("a", "b", "c")
    for card, active, watts in (("a", 0.8, 600.0), ("b", 0.4, 400.0), ("c", 0.04, 100.0)):
        ledger.read(card, 0, 60, gpu_util_ratio=0.99, sm_active_ratio=active, power_watts=watts)
    before = ledger.hours()
    assert before == {"alloc_productive": 1.0, "alloc_low": 1.0, "alloc_idle": 1.0}
    window = Window(AT, AT + 60 * MINUTE)
    found = basis_shift(ledger.house, window, {"without": "sm_active_ratio"})
    assert found["matrix"] == [
        {"state_with": "alloc_idle", "state_without": "alloc_ungraded", "gpu_hours": pytest.approx(1.0)},
        {"state_with": "alloc_low", "state_without": "alloc_ungraded", "gpu_hours": pytest.approx(1.0)},
        {"state_with": "alloc_productive", "state_without": "alloc_ungraded", "gpu_hours": pytest.approx(1.0)},
    ]
    sums = {row["state"]: (row["gpu_hours_with"], row["gpu_hours_without"]) for row in found["states"]}
    assert sums["alloc_ungraded"] == (0, pytest.approx(3.0))
    assert ledger.hours() == before, "nothing was stored"
    for wrong in ("gpu_util_ratio", "colour"):
        with pytest.raises(BadInput):
            basis_shift(ledger.house, window, {"without": wrong})
    ledger.house.close()
