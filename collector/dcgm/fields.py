"""The exporter's metric names, what each measures and in which unit. Units go by name, never by magnitude.

A name that says ratio may still be a percentage: DCGM 4.6 renamed field 203 to `DCGM_FI_DEV_GPU_UTIL_RATIO` and kept
the integer percentage. 4.7 is reported to give the same name to a true ratio; a target of that version is configured
with `gpu_util_ratio_unit = "ratio"`, because the value itself cannot tell (0.5 may be half a percent).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

from collector.bounds import BOUNDS

MIB = 2.0**20


@dataclass(frozen=True, slots=True)
class Field:
    """One metric: the `column` of a reading it fills, and how.

    The exporter's value times `times`, divided by `divided_by`, is in the column's unit (two numbers, because 57 %
    is 57 / 100 and not 57 * 0.01); `low` and `high` bound the result, inclusive. Where several metrics fill one
    column the lowest `rank` wins. `is_device_wide` metrics describe the physical card even when the exporter repeats
    them for every MIG slice.
    """

    column: str
    times: float = 1.0
    divided_by: float = 1.0
    rank: int = 0
    is_device_wide: bool = False
    low: float = 0.0
    high: float = 0.0

    def measured(self, value: float) -> float | None:
        """`value` in the column's unit, or None when it is no measurement: not finite, a blank code, out of range."""
        scaled = value * self.times / self.divided_by
        if not math.isfinite(value) or _is_blank(value) or not self.low <= scaled <= self.high:
            return None
        return scaled


def _is_blank(value: float) -> bool:
    """Whether DCGM meant "blank", "not found", "not supported" or "no permission".

    The int64 codes lie above every range and need no test (as floats all are 2**63); the other two kinds are small
    enough to pass for large counters.
    """
    return 2147483632.0 <= value <= 2147483635.0 or 140737488355328.0 <= value <= 140737488355331.0


def _field(column: str, *, times: float = 1.0, divided_by: float = 1.0, device_wide: bool = False) -> Field:
    low, high = BOUNDS.get(column, (0.0, 2.0**50))
    return Field(column, times, divided_by, is_device_wide=device_wide, low=low, high=high)


FB_FREE = "fb_free_bytes"
NVLINK_TX = "nvlink_tx_bytes_per_second"
NVLINK_RX = "nvlink_rx_bytes_per_second"
"""Columns that only serve to compute others: the total memory, and traffic in both directions together."""

PROFILING_COLUMNS = ("gr_engine_active_ratio", "sm_active_ratio", "tensor_active_ratio", "dram_active_ratio")

_GPU_UTIL = _field("gpu_util_ratio", divided_by=100)
_MEM_COPY_UTIL = _field("mem_copy_util_ratio", divided_by=100)
_ENC_UTIL = _field("enc_util_ratio", divided_by=100)
_DEC_UTIL = _field("dec_util_ratio", divided_by=100)
_GR_ENGINE = _field("gr_engine_active_ratio")
_SM = _field("sm_active_ratio")
_TENSOR = _field("tensor_active_ratio")
_DRAM = _field("dram_active_ratio")
_FB_USED = _field("fb_used_bytes", times=MIB)
_FB_FREE = _field(FB_FREE, times=MIB)
_POWER = _field("power_watts", device_wide=True)
_ENERGY = _field("energy_joules", divided_by=1000, device_wide=True)
_SM_CLOCK = _field("sm_clock_hertz", times=1e6, device_wide=True)
_MEM_CLOCK = _field("mem_clock_hertz", times=1e6, device_wide=True)
_GPU_TEMP = _field("gpu_temp_celsius", device_wide=True)
_MEMORY_TEMP = _field("memory_temp_celsius", device_wide=True)
_XID = _field("xid_code", device_wide=True)
_THROTTLE = _field("throttle_reasons", device_wide=True)
_ECC = _field("ecc_uncorrected_count", device_wide=True)
_LIMIT = _field("power_limit_watts", device_wide=True)

_FIELDS: Mapping[str, Field] = {
    "DCGM_FI_DEV_GPU_UTIL": _GPU_UTIL,
    "DCGM_FI_DEV_GPU_UTIL_RATIO": _GPU_UTIL,
    "DCGM_FI_DEV_MEM_COPY_UTIL": _MEM_COPY_UTIL,
    "DCGM_FI_DEV_ENC_UTIL": _ENC_UTIL,
    "DCGM_FI_DEV_DEC_UTIL": _DEC_UTIL,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": _GR_ENGINE,
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": _GR_ENGINE,
    "DCGM_FI_PROF_SM_ACTIVE": _SM,
    "DCGM_FI_PROF_SM_UTIL_RATIO": _SM,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": _TENSOR,
    "DCGM_FI_PROF_TENSOR_UTIL_RATIO": _TENSOR,
    "DCGM_FI_PROF_DRAM_ACTIVE": _DRAM,
    "DCGM_FI_PROF_DRAM_UTIL_RATIO": _DRAM,
    "DCGM_FI_PROF_PCIE_TX_BYTES": _field("pcie_tx_bytes_per_second", device_wide=True),
    "DCGM_FI_PROF_PCIE_RX_BYTES": _field("pcie_rx_bytes_per_second", device_wide=True),
    "DCGM_FI_PROF_NVLINK_TX_BYTES": _field(NVLINK_TX, device_wide=True),
    "DCGM_FI_PROF_NVLINK_RX_BYTES": _field(NVLINK_RX, device_wide=True),
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": _field("nvlink_bytes_per_second", times=1e6, device_wide=True),
    "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL": _field("nvlink_bytes_per_second", times=1e6, device_wide=True),
    "DCGM_FI_DEV_FB_USED": _FB_USED,
    "DCGM_FI_DEV_FB_FREE": _FB_FREE,
    "DCGM_FI_DEV_FB_RESERVED": _field("fb_reserved_bytes", times=MIB),
    "DCGM_FI_DEV_FB_TOTAL": _field("fb_total_bytes", times=MIB),
    "DCGM_FI_DEV_POWER_USAGE": _POWER,
    "DCGM_FI_DEV_BOARD_POWER_WATTS": _POWER,
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": _LIMIT,
    "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS": _LIMIT,
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": dataclasses.replace(_LIMIT, rank=1),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": _ENERGY,
    "DCGM_FI_DEV_SM_CLOCK": _SM_CLOCK,
    "DCGM_FI_DEV_MEM_CLOCK": _MEM_CLOCK,
    "DCGM_FI_DEV_GPU_TEMP": _GPU_TEMP,
    "DCGM_FI_DEV_GPU_TEMP_CELSIUS": _GPU_TEMP,
    "DCGM_FI_DEV_MEMORY_TEMP": _MEMORY_TEMP,
    "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS": _MEMORY_TEMP,
    "DCGM_FI_DEV_XID_ERRORS": _XID,
    "DCGM_FI_DEV_XID_ERROR": _XID,
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": _THROTTLE,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": _THROTTLE,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": _ECC,
    # dcgm-exporter 1.x
    "DCGM_GPU_UTILIZATION": _GPU_UTIL,
    "DCGM_MEM_COPY_UTILIZATION": _MEM_COPY_UTIL,
    "DCGM_ENC_UTILIZATION": _ENC_UTIL,
    "DCGM_DEC_UTILIZATION": _DEC_UTIL,
    "DCGM_FB_USED": _FB_USED,
    "DCGM_FB_FREE": _FB_FREE,
    "DCGM_POWER_USAGE": _POWER,
    "DCGM_TOTAL_ENERGY_CONSUMPTION": _ENERGY,
    "DCGM_SM_CLOCK": _SM_CLOCK,
    "DCGM_MEMORY_CLOCK": _MEM_CLOCK,
    "DCGM_GPU_TEMP": _GPU_TEMP,
    "DCGM_MEMORY_TEMP": _MEMORY_TEMP,
    "DCGM_XID_ERRORS": _XID,
    # the exporter that Slurm sites run beside DCGM: percent, and a 0-1 share in spite of its name
    "NVIDIA_GPU_DUTY_CYCLE": _GPU_UTIL,
    "NVIDIA_GPU_GRAPHICS_UTIL_PERCENT": _GR_ENGINE,
    "NVIDIA_GPU_SM_UTIL_PERCENT": _SM,
}


def is_device_metric(name: str) -> bool:
    """Whether a series of this name proves that its device is there, whether or not we use its value."""
    upper = name.upper()
    return upper.startswith("DCGM_") or upper in _FIELDS


def field_named(name: str, *, gpu_util_ratio_unit: str = "percent") -> Field | None:
    """The field that metric `name` measures, or None. Old namespaces write the names in lower case."""
    upper = name.upper()
    if upper == "DCGM_FI_DEV_GPU_UTIL_RATIO" and gpu_util_ratio_unit == "ratio":
        return dataclasses.replace(_GPU_UTIL, divided_by=1.0)
    return _FIELDS.get(upper)
