"""What the columns of a reading are called where an operator meets them: on the page of the vendor's exporter."""

from __future__ import annotations

from collections.abc import Mapping

from gpuledger.app.problem_rows import family
from gpuledger.model.vendor_rules import VENDOR_RULES, counters_to_enable

NAMES: Mapping[str, str] = {
    "gpu_util_ratio": "GPU_UTIL",
    "sm_active_ratio": "SM_ACTIVE",
    "core_active_ratio": "CORE_ACTIVE",
    "tensor_active_ratio": "PIPE_TENSOR_ACTIVE",
    "dram_active_ratio": "DRAM_ACTIVE",
    "fb_used_bytes": "FB_USED",
    "power_watts": "POWER_USAGE",
    "nvlink_bytes_per_second": "NVLINK_BANDWIDTH_TOTAL",
    "energy_joules": "TOTAL_ENERGY_CONSUMPTION",
}
"""The short name of each column that can be missing."""

FIELDS: Mapping[str, Mapping[str, str]] = {
    "nvidia": {
        "gpu_util_ratio": "DCGM_FI_DEV_GPU_UTIL",
        "sm_active_ratio": "DCGM_FI_PROF_SM_ACTIVE",
        "tensor_active_ratio": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "dram_active_ratio": "DCGM_FI_PROF_DRAM_ACTIVE",
        "fb_used_bytes": "DCGM_FI_DEV_FB_USED",
        "power_watts": "DCGM_FI_DEV_POWER_USAGE",
        "nvlink_bytes_per_second": "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
        "energy_joules": "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    },
    "amd": {"fb_used_bytes": "GPU_USED_VRAM", "power_watts": "GPU_PACKAGE_POWER"},
    "ascend": {"fb_used_bytes": "npu_chip_info_hbm_used_memory", "power_watts": "npu_chip_info_power"},
}
"""The field of the vendor's exporter. Where the counter that grades is not here, the vendor's rule knows it."""

VENDOR_OF_SOURCE: Mapping[str, str] = {
    "dcgm": "nvidia",
    "nvml": "nvidia",
    "nvidia_smi": "nvidia",
    "amd_exporter": "amd",
    "amdsmi": "amd",
    "npu_exporter": "ascend",
}
"""Sources that read cards of one vendor only, for cards whose model is not known."""

_GRADING = {
    rule.vendor: "core_active_ratio" if rule.is_graded_by_core else "sm_active_ratio"
    for rule in VENDOR_RULES
    if rule.counters_to_enable
}


def vendor_of(vendor: str, source: str) -> str:
    """The vendor of the cards that a row speaks of: as their models say, else as their source does, else empty."""
    return vendor or VENDOR_OF_SOURCE.get(family(source).partition(":")[0], "")


def field_of(column: str, vendor: str) -> str:
    """What to look for on the exporter's page of `vendor`; the short name where the exporter is not known."""
    known = FIELDS.get(vendor, {}).get(column)
    if known:
        return known
    if _GRADING.get(vendor) == column:
        return ", ".join(counters_to_enable(vendor))
    return NAMES.get(column, column)
