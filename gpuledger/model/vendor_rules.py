"""What makes a minute idle, still or graded, for each vendor's cards: one row a vendor (algorithms.md, section 0).

The ledger reads the rows as the table `vendor_rule`. A threshold that is None does not count for that vendor: a
counter that a vendor does not have decides nothing there. AI Core utilization and SM activity stay apart throughout.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from gpuledger.model.vocabulary import VENDORS


@dataclass(frozen=True, slots=True, kw_only=True)
class VendorRule:
    """The thresholds of one vendor; ratios are 0 to 1 and compared strictly unless the name says otherwise.

    The first of SM activity, core activity, engine activity and utilization that was read decides whether a minute is
    quiet (`*_idle_below_ratio`). Encoder, decoder and power must agree; with `dram_idle_below_ratio` the memory must
    too, where it was read. `is_power_needed`: a quiet minute without power is neither idle nor active.

    `productive_from_ratio` grades the hour's mean of the grading counter: at least that much is productive, less is
    low. 0: what is active is productive. `is_graded_by_core`: the vendor's core activity grades, not SM.

    `still_*`: with utilization of at least `busy_from_ratio` on all ranks, telemetry alone says that nothing is
    computed: the vendor's cores, or else the tensor cores, and the memory are still, and power is low (None: only step
    events can say it). `counters_to_enable`: what to switch on where active hours cannot be
    graded.
    """

    vendor: str
    sm_idle_below_ratio: float | None = None
    core_idle_below_ratio: float | None = None
    gr_engine_idle_below_ratio: float | None = None
    gpu_util_idle_below_ratio: float | None = None
    dram_idle_below_ratio: float | None = None
    is_power_needed: bool = False
    is_graded_by_core: bool = False
    productive_from_ratio: float = 0.5
    busy_from_ratio: float = 0.9
    still_tensor_below_ratio: float | None = None
    still_dram_below_ratio: float | None = None
    still_core_below_ratio: float | None = None
    counters_to_enable: tuple[str, ...] = ()


NVIDIA_COUNTERS = (
    "DCGM_FI_PROF_SM_ACTIVE (1002)",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE (1004)",
    "DCGM_FI_PROF_DRAM_ACTIVE (1005)",
)

VENDOR_RULES = (
    VendorRule(
        vendor="nvidia",
        sm_idle_below_ratio=0.05,
        gr_engine_idle_below_ratio=0.01,
        gpu_util_idle_below_ratio=0.01,
        still_tensor_below_ratio=0.02,
        still_dram_below_ratio=0.05,
        counters_to_enable=NVIDIA_COUNTERS,
    ),
    VendorRule(
        vendor="ascend",
        core_idle_below_ratio=0.05,
        gpu_util_idle_below_ratio=0.01,
        dram_idle_below_ratio=0.05,
        is_graded_by_core=True,
        productive_from_ratio=0.0,
        still_core_below_ratio=0.05,
        still_dram_below_ratio=0.05,
        counters_to_enable=("npu_chip_info_utilization (AI Core)",),
    ),
    VendorRule(
        vendor="amd",
        sm_idle_below_ratio=0.05,
        gr_engine_idle_below_ratio=0.01,
        gpu_util_idle_below_ratio=0.01,
        is_power_needed=True,
        still_tensor_below_ratio=0.02,
        still_dram_below_ratio=0.05,
        counters_to_enable=("GPU_PROF_SM_ACTIVE", "GPU_PROF_TENSOR_ACTIVE_PERCENT"),
    ),
    VendorRule(
        vendor="other",
        sm_idle_below_ratio=0.05,
        core_idle_below_ratio=0.05,
        gr_engine_idle_below_ratio=0.01,
        gpu_util_idle_below_ratio=0.01,
        still_tensor_below_ratio=0.02,
        still_dram_below_ratio=0.05,
    ),
)
"""One rule for each of VENDORS. Of a card of unknown model the counters that it has decide."""


def counters_to_enable(vendor: str) -> tuple[str, ...]:
    """The exporter's counters that would grade active hours of a vendor's cards; NVIDIA's for an unknown vendor."""
    counters = {rule.vendor: rule.counters_to_enable for rule in VENDOR_RULES}
    return counters.get(vendor) or NVIDIA_COUNTERS


def vendor_rows() -> list[dict[str, object]]:
    """The rules as rows of the table `vendor_rule`."""
    names = [field.name for field in fields(VendorRule) if field.name != "counters_to_enable"]
    return [{name: getattr(rule, name) for name in names} for rule in VENDOR_RULES]


if [rule.vendor for rule in VENDOR_RULES] != list(VENDORS):
    raise AssertionError("every vendor has one rule")
