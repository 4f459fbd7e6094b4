"""Each vendor's rule: what is idle, what is graded and by what, at each threshold and beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

from gpuledger.model import GPU_MODELS, canonical_model, vendor_of
from gpuledger.model.vendor_rules import VENDOR_RULES, VendorRule, counters_to_enable
from gpuledger.model.vocabulary import VENDORS
from tests.warehouse.judged import H100, Judged

ASCEND, AMD, STRANGE = "Ascend910B3", "AMD Instinct MI300X OAM", "Accelerator X"

# Power bands at 15 %: H100 70 + 0.15 x 630 = 164.5 W; Ascend 910B 90 + 0.15 x 310 = 136.5 W;
# MI300X 140 + 0.15 x 610 = 231.5 W.


@pytest.fixture
def ledger() -> Iterator[Judged]:
    judged = Judged()
    yield judged
    judged.house.close()


@pytest.mark.parametrize(
    ("model", "read", "state", "basis"),
    [
        # NVIDIA: SM activity, graded at 0.5.
        (H100, {"sm_active_ratio": 0.049, "power_watts": 164.0}, "alloc_idle", "sm_active+power"),
        (H100, {"sm_active_ratio": 0.05, "power_watts": 164.0}, "alloc_low", "sm_active+power"),
        (H100, {"sm_active_ratio": 0.049, "power_watts": 164.5}, "alloc_low", "sm_active+power"),
        (H100, {"sm_active_ratio": 0.499}, "alloc_low", "sm_active"),
        (H100, {"sm_active_ratio": 0.5}, "alloc_productive", "sm_active"),
        # Utilization, the engine or power alone grade nothing.
        (H100, {"gpu_util_ratio": 0.99, "power_watts": 600.0}, "alloc_ungraded", "gpu_util+power"),
        (H100, {"gr_engine_active_ratio": 0.99}, "alloc_ungraded", "gr_engine_active"),
        (H100, {"power_watts": 600.0}, "alloc_ungraded", "power"),
        # Tensor activity alone is the least that SM activity can be.
        (H100, {"gpu_util_ratio": 0.99, "tensor_active_ratio": 0.5}, "alloc_productive", "gpu_util+tensor_active"),
        (H100, {"gpu_util_ratio": 0.99, "tensor_active_ratio": 0.49}, "alloc_ungraded", "gpu_util"),
        # AI Core activity is no counter of NVIDIA's.
        (H100, {"gpu_util_ratio": 0.99, "core_active_ratio": 0.9}, "alloc_ungraded", "gpu_util"),
        # Ascend: AI Core, with HBM and power where they are read; 5 % and more is graded active.
        (ASCEND, {"core_active_ratio": 0.049, "power_watts": 136.0}, "alloc_idle", "core_active+power"),
        (ASCEND, {"core_active_ratio": 0.05, "power_watts": 136.0}, "alloc_productive", "core_active+power"),
        (ASCEND, {"core_active_ratio": 0.3, "power_watts": 300.0}, "alloc_productive", "core_active+power"),
        (ASCEND, {"core_active_ratio": 0.049, "power_watts": 136.5}, "alloc_low", "core_active+power"),
        (ASCEND, {"core_active_ratio": 0.01, "dram_active_ratio": 0.049}, "alloc_idle", "core_active"),
        (ASCEND, {"core_active_ratio": 0.01, "dram_active_ratio": 0.05}, "alloc_low", "core_active"),
        (ASCEND, {"power_watts": 300.0}, "alloc_ungraded", "power"),
        # AMD: gfx activity and power in the low band; gfx activity alone grades nothing.
        (AMD, {"gpu_util_ratio": 0.009, "power_watts": 231.0}, "alloc_idle", "gpu_util+power"),
        (AMD, {"gpu_util_ratio": 0.009, "power_watts": 231.5}, "alloc_ungraded", "gpu_util+power"),
        (AMD, {"gpu_util_ratio": 0.01, "power_watts": 231.0}, "alloc_ungraded", "gpu_util+power"),
        (AMD, {"gpu_util_ratio": 0.009}, "alloc_unknown", "no_power"),
        (AMD, {"gpu_util_ratio": 0.0, "process_count": 0}, "alloc_idle", "no_process"),
        (AMD, {"gpu_util_ratio": 0.99, "power_watts": 700.0}, "alloc_ungraded", "gpu_util+power"),
        (AMD, {"sm_active_ratio": 0.6, "power_watts": 700.0}, "alloc_productive", "sm_active+power"),
        # Of a model that nobody knows, the counters that it has decide.
        (STRANGE, {"core_active_ratio": 0.3}, "alloc_productive", "core_active"),
        (STRANGE, {"sm_active_ratio": 0.3}, "alloc_low", "sm_active"),
        (STRANGE, {"gpu_util_ratio": 0.99}, "alloc_ungraded", "gpu_util"),
    ],
)  # fmt: skip
def test_one_hour_of_one_card(ledger: Judged, model: str, read: dict[str, Any], state: str, basis: str) -> None:
    ledger.hold("g")
    ledger.read("g", 0, 60, model=model, **read)
    assert ledger.hours("state", "basis") == {(state, basis): 1.0}


def test_ai_core_and_sm_activity_are_never_averaged(ledger: Judged) -> None:
    """An NVIDIA card and an NPU of one job: each is graded by its own counter, and each counter keeps its column."""
    ledger.hold("g", "npu")
    ledger.read("g", 0, 60, sm_active_ratio=0.4)
    ledger.read("npu", 0, 60, model=ASCEND, core_active_ratio=0.4)
    assert ledger.hours("gpu_uuid", "state") == {("g", "alloc_low"): 1.0, ("npu", "alloc_productive"): 1.0}
    with ledger.house.reading() as cursor:
        rows = cursor.execute(
            "select gpu_uuid, sm_active_ratio, core_active_ratio from activity_hour order by gpu_uuid"
        ).fetchall()
    assert rows == [("g", pytest.approx(0.4), None), ("npu", None, pytest.approx(0.4))]


def test_an_ai_core_of_zero_at_high_power_contradicts_itself(ledger: Judged) -> None:
    ledger.hold("g")
    ledger.read("g", 0, 60, model=ASCEND, core_active_ratio=0.0, power_watts=300.0)
    assert ledger.hours("state", "basis") == {("alloc_unknown", "contradictory"): 1.0}


HANGING: dict[str, Any] = {
    "gpu_util_ratio": 0.9,
    "core_active_ratio": 0.0,
    "dram_active_ratio": 0.0,
    "power_watts": 213.9,
}


def test_a_hung_collective_on_npus(ledger: Judged) -> None:
    """Ranks wait for each other: the chips are busy, AI Cores and HBM at rest, power below 90 + 0.4 x 310 = 214 W."""
    neighbours: list[tuple[dict[str, Any], str]] = [
        ({}, "alloc_stalled"),
        ({"core_active_ratio": 0.049, "dram_active_ratio": 0.049}, "alloc_stalled"),
        ({"power_watts": 100.0}, "alloc_stalled"),
        # Each of utilization, AI Cores, HBM and power must agree; without HBM or power nothing says that it hangs.
        ({"gpu_util_ratio": 0.89}, "alloc_low"),
        ({"core_active_ratio": 0.05}, "alloc_productive"),
        ({"dram_active_ratio": 0.05}, "alloc_low"),
        ({"dram_active_ratio": None}, "alloc_low"),
        ({"power_watts": None}, "alloc_idle"),
        # An AI Core of exactly zero at more power than waiting takes contradicts itself: utilization alone is left.
        ({"power_watts": 214.0}, "alloc_ungraded"),
        ({"power_watts": 214.0, "core_active_ratio": 0.01}, "alloc_low"),
    ]
    for number, (unlike, _) in enumerate(neighbours):
        cards = (f"{number}-g", f"{number}-h")
        ledger.hold(*cards, workload_id=f"w{number}", pod=f"p{number}")
        for card in cards:
            ledger.read(card, 0, 60, model=ASCEND, **(HANGING | unlike))
    hours = ledger.hours("workload_id", "state")
    assert hours == {(f"w{number}", state): 2.0 for number, (_, state) in enumerate(neighbours)}


def test_npus_of_which_one_computes_do_not_hang(ledger: Judged) -> None:
    ledger.hold("g", "h")
    ledger.read("g", 0, 60, model=ASCEND, **HANGING)
    ledger.read("h", 0, 60, model=ASCEND, **(HANGING | {"core_active_ratio": 0.6, "power_watts": 300.0}))
    assert ledger.hours("gpu_uuid", "state") == {("g", "alloc_low"): 1.0, ("h", "alloc_productive"): 1.0}


@pytest.mark.parametrize(
    ("printed", "model", "vendor"),
    [
        ("Ascend910B3", "Ascend 910B", "ascend"),
        ("910B4", "Ascend 910B", "ascend"),
        ("Ascend910", "Ascend 910A", "ascend"),
        ("910ProB", "Ascend 910A", "ascend"),
        ("Ascend910_9392", "Ascend 910C", "ascend"),
        ("310P3", "Ascend 310P", "ascend"),
        ("AMD Instinct MI250X", "MI250X", "amd"),
        ("AMD_Instinct_MI300X_OAM", "AMD_Instinct_MI300X_OAM", "other"),
        ("NVIDIA H100 80GB HBM3", "H100", "nvidia"),
    ],
)
def test_names_that_tools_print(printed: str, model: str, vendor: str) -> None:
    assert (canonical_model(printed), vendor_of(printed)) == (model, vendor)


def test_every_vendor_has_one_rule_and_every_model_one_of_them() -> None:
    assert tuple(rule.vendor for rule in VENDOR_RULES) == VENDORS
    assert {model.vendor for model in GPU_MODELS} <= set(VENDORS)
    for rule in VENDOR_RULES:
        ratios = [getattr(rule, field.name) for field in fields(VendorRule) if field.name.endswith("_ratio")]
        assert all(ratio is None or 0 <= ratio <= 1 for ratio in ratios)


def test_the_table_of_rules_is_the_code_s(ledger: Judged) -> None:
    with ledger.house.reading() as cursor:
        rows = cursor.execute("select vendor, core_idle_below_ratio, is_power_needed from vendor_rule").fetchall()
    assert sorted(rows) == sorted((r.vendor, r.core_idle_below_ratio, r.is_power_needed) for r in VENDOR_RULES)


def test_counters_that_would_grade() -> None:
    assert "DCGM_FI_PROF_SM_ACTIVE (1002)" in counters_to_enable("nvidia")
    assert counters_to_enable("other") == counters_to_enable("nvidia")
    assert all("DCGM" not in counter for counter in (*counters_to_enable("ascend"), *counters_to_enable("amd")))
