"""The exporter's metrics by DCGM field: what each measures, in which unit, under which names. Units go by name.

DCGM knows a field by its number and has renamed many: exporter 1.x had names of its own, 2.x to 4.5 used the
`DCGM_FI_` names, DCGM 4.6 gave most of them units. Old namespaces write any of them in lower case.

A name that says ratio may still be a percentage: DCGM 4.6 renamed field 203 to `DCGM_FI_DEV_GPU_UTIL_RATIO` and kept
the integer percentage. 4.7 is reported to give the same name to a true ratio; a target of that version is configured
with `gpu_util_ratio_unit = "ratio"`, because the value itself cannot tell (0.5 may be half a percent).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from collector.devices.fields import FB_FREE, FIELDS, NVLINK_RX, NVLINK_TX, Field, bounded

MIB = 2.0**20

_BLANKS = (
    *(2.0**31 - 16 + code for code in range(4)),  # int32: blank, not found, not supported, no permission
    *(2.0**47 + code for code in range(4)),  # the same in double precision; as int64 all are 2**63
    2.0**63,
)
_SCALES = (1.0, 100.0, 1e3, 1e6, 1e9, 1024.0, 2.0**20)
SENTINELS = tuple(np.unique([blank * scale for blank in _BLANKS for scale in _SCALES]).tolist())
"""DCGM's blank codes, as written or scaled on the way."""


def _field(column: str, *, times: float = 1.0, divided_by: float = 1.0, device_wide: bool = False) -> Field:
    return bounded(Field(column, times, divided_by, is_device_wide=device_wide, blanks=SENTINELS))


def _card(column: str, *, times: float = 1.0, divided_by: float = 1.0) -> Field:
    return _field(column, times=times, divided_by=divided_by, device_wide=True)


def _percent(column: str) -> Field:
    return _field(column, divided_by=100)


def _profiled(column: str) -> Field:
    return dataclasses.replace(_field(column), is_profiled=True)


def _second(field: Field) -> Field:
    return dataclasses.replace(field, rank=1)


_LIMIT = _card("power_limit_watts")
_PCIE_TX = _card("pcie_tx_bytes_per_second")
_PCIE_RX = _card("pcie_rx_bytes_per_second")
_THROTTLE = _card("throttle_reasons")
_XID = _card("xid_code")
_PREFIX = "DCGM_FI_"

_BY_NUMBER: Mapping[int, tuple[Field, str]] = {
    100: (_card("sm_clock_hertz", times=1e6), "DEV_SM_CLOCK DCGM_SM_CLOCK"),
    101: (_card("mem_clock_hertz", times=1e6), "DEV_MEM_CLOCK DCGM_MEMORY_CLOCK"),
    112: (_THROTTLE, "DEV_CLOCKS_EVENT_REASONS DEV_CLOCK_THROTTLE_REASONS DCGM_CLOCK_THROTTLE_REASONS"),
    140: (_card("memory_temp_celsius"), "DEV_MEMORY_TEMP_CELSIUS DEV_MEMORY_TEMP DCGM_MEMORY_TEMP"),
    150: (_card("gpu_temp_celsius"), "DEV_GPU_TEMP_CELSIUS DEV_GPU_TEMP DCGM_GPU_TEMP"),
    155: (_card("power_watts"), "DEV_BOARD_POWER_WATTS DEV_POWER_USAGE DCGM_POWER_USAGE"),
    156: (
        _card("energy_joules", divided_by=1000),
        "DEV_TOTAL_ENERGY_CONSUMPTION DCGM_TOTAL_ENERGY_CONSUMPTION",
    ),
    157: (_second(_card("power_watts")), "DEV_BOARD_POWER_RAW_WATTS DEV_POWER_USAGE_INSTANT"),
    160: (_second(_LIMIT), "DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS DEV_POWER_MGMT_LIMIT DCGM_POWER_MGMT_LIMIT"),
    164: (_LIMIT, "DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS DEV_ENFORCED_POWER_LIMIT DCGM_ENFORCED_POWER_LIMIT"),
    # Thousands of bytes a second, as NVML says, whatever a counter file calls them.
    200: (
        dataclasses.replace(_second(_PCIE_TX), times=1000.0),
        "DEV_PCIE_TX_THROUGHPUT DCGM_PCIE_TX_THROUGHPUT",
    ),
    201: (
        dataclasses.replace(_second(_PCIE_RX), times=1000.0),
        "DEV_PCIE_RX_THROUGHPUT DCGM_PCIE_RX_THROUGHPUT",
    ),
    202: (_card("pcie_replay_count"), "DEV_PCIE_REPLAY_TOTAL DEV_PCIE_REPLAY_COUNTER DCGM_PCIE_REPLAY_COUNTER"),
    203: (_percent("gpu_util_ratio"), "DEV_GPU_UTIL_RATIO DEV_GPU_UTIL DCGM_GPU_UTILIZATION"),
    204: (_percent("mem_copy_util_ratio"), "DEV_MEM_COPY_UTIL DCGM_MEM_COPY_UTILIZATION"),
    206: (_percent("enc_util_ratio"), "DEV_ENC_UTIL DCGM_ENC_UTILIZATION"),
    207: (_percent("dec_util_ratio"), "DEV_DEC_UTIL DCGM_DEC_UTILIZATION"),
    # The gauge keeps the last error for ever, so that what was counted lately says more.
    230: (_second(_XID), "DEV_XID_ERROR DEV_XID_ERRORS DCGM_XID_ERRORS"),
    250: (_field("fb_total_bytes", times=MIB), "DEV_FB_TOTAL DCGM_FB_TOTAL"),
    251: (_field(FB_FREE, times=MIB), "DEV_FB_FREE DCGM_FB_FREE"),
    252: (_field("fb_used_bytes", times=MIB), "DEV_FB_USED DCGM_FB_USED"),
    253: (_field("fb_reserved_bytes", times=MIB), "DEV_FB_RESERVED DCGM_FB_RESERVED"),
    311: (_card("ecc_uncorrected_count"), "DEV_ECC_DBE_VOL_TOTAL DCGM_ECC_DBE_VOLATILE_TOTAL"),
    393: (
        _card("row_remap_uncorrectable_count"),
        "DEV_ROW_REMAP_UNCORRECTABLE_TOTAL DEV_UNCORRECTABLE_REMAPPED_ROWS DCGM_UNCORRECTABLE_REMAPPED_ROWS",
    ),
    394: (
        _card("row_remap_correctable_count"),
        "DEV_ROW_REMAP_CORRECTABLE_TOTAL DEV_CORRECTABLE_REMAPPED_ROWS DCGM_CORRECTABLE_REMAPPED_ROWS",
    ),
    395: (_card("row_remap_failure"), "DEV_ROW_REMAP_FAILED DEV_ROW_REMAP_FAILURE DCGM_ROW_REMAP_FAILURE"),
    449: (
        _card("nvlink_bytes_per_second", times=1e6),
        "DEV_NVLINK_THROUGHPUT_TOTAL DEV_NVLINK_BANDWIDTH_TOTAL DCGM_NVLINK_BANDWIDTH_TOTAL",
    ),
    1001: (_profiled("gr_engine_active_ratio"), "PROF_GR_ENGINE_UTIL_RATIO PROF_GR_ENGINE_ACTIVE"),
    1002: (_profiled("sm_active_ratio"), "PROF_SM_UTIL_RATIO PROF_SM_ACTIVE"),
    1003: (_profiled("sm_occupancy_ratio"), "PROF_SM_OCCUPANCY_RATIO PROF_SM_OCCUPANCY"),
    1004: (_profiled("tensor_active_ratio"), "PROF_TENSOR_UTIL_RATIO PROF_PIPE_TENSOR_ACTIVE"),
    1005: (_profiled("dram_active_ratio"), "PROF_DRAM_UTIL_RATIO PROF_DRAM_ACTIVE"),
    1006: (_profiled("fp64_active_ratio"), "PROF_FP64_UTIL_RATIO PROF_PIPE_FP64_ACTIVE"),
    1007: (_profiled("fp32_active_ratio"), "PROF_FP32_UTIL_RATIO PROF_PIPE_FP32_ACTIVE"),
    1008: (_profiled("fp16_active_ratio"), "PROF_FP16_UTIL_RATIO PROF_PIPE_FP16_ACTIVE"),
    1009: (_PCIE_TX, "PROF_PCIE_TX_BYTES"),
    1010: (_PCIE_RX, "PROF_PCIE_RX_BYTES"),
    1011: (_card(NVLINK_TX), "PROF_NVLINK_TX_BYTES"),
    1012: (_card(NVLINK_RX), "PROF_NVLINK_RX_BYTES"),
}
"""By field number: the field, and its names, newest first; all but those of exporter 1.x without `DCGM_FI_`."""

_WITHOUT_NUMBER: Mapping[str, Field] = {
    # Counted by the exporter over a sliding window: gauges, whatever their type says.
    "DCGM_EXP_XID_ERRORS_COUNT": dataclasses.replace(_XID, label="xid"),
    "DCGM_EXP_CLOCK_EVENTS_COUNT": dataclasses.replace(_second(_THROTTLE), label="clock_event", is_mask=True),
    # the exporter that Slurm sites run beside DCGM: percent, and a 0-1 share in spite of its name
    "NVIDIA_GPU_DUTY_CYCLE": _percent("gpu_util_ratio"),
    "NVIDIA_GPU_GRAPHICS_UTIL_PERCENT": _profiled("gr_engine_active_ratio"),
    "NVIDIA_GPU_SM_UTIL_PERCENT": _profiled("sm_active_ratio"),
}

CLOCK_EVENTS: Mapping[str, int] = {
    "gpu_idle": 0x1,
    "clocks_setting": 0x2,
    "power_cap": 0x4,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal": 0x20,
    "hw_thermal": 0x40,
    "hw_power_brake": 0x80,
    "display_clocks": 0x100,
}
"""The exporter's words for reasons why clocks are low, as NVML's bits."""


def _names() -> tuple[dict[str, Field], dict[str, str]]:
    fields, renamed = {}, {}
    for field, words in _BY_NUMBER.values():
        newest, *older = (word if word.startswith("DCGM_") else _PREFIX + word for word in words.split())
        fields[newest] = field
        for name in older:
            fields[name], renamed[name] = field, newest
    fields |= _WITHOUT_NUMBER
    return {name: FIELDS.register(field) for name, field in fields.items()}, renamed


_FIELDS, _renamed = _names()
RENAMED: Mapping[str, str] = MappingProxyType(_renamed)
"""Deprecated names and what DCGM calls the same field now."""

_TRUE_RATIO = FIELDS.register(dataclasses.replace(_FIELDS["DCGM_FI_DEV_GPU_UTIL_RATIO"], divided_by=1.0))


def is_device_metric(name: str) -> bool:
    """Whether a series of this name proves that its device is there, whether or not we use its value."""
    upper = name.upper()
    return upper.startswith("DCGM_") or upper in _FIELDS


def field_named(name: str, *, gpu_util_ratio_unit: str = "percent") -> Field | None:
    """The field that metric `name` measures, or None.

    Old namespaces write the names in lower case; clients that follow OpenMetrics put `_total` behind every counter.
    """
    upper = name.upper()
    if upper == "DCGM_FI_DEV_GPU_UTIL_RATIO" and gpu_util_ratio_unit == "ratio":
        return _TRUE_RATIO
    return _FIELDS.get(upper) or _FIELDS.get(upper.removesuffix("_TOTAL"))
