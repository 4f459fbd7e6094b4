"""What of a simulated NPU's readings npu-exporter tells, and how: whole percents, no energy, no PCIe, no SMs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

UNTOLD = (
    "mem_copy_util_ratio",
    "fb_reserved_bytes",
    "mem_clock_hertz",
    "energy_joules",
    "pcie_tx_bytes_per_second",
    "pcie_rx_bytes_per_second",
)
WITH_HBM = ("gpu_util_ratio", "dram_active_ratio", "memory_temp_celsius", "nvlink_bytes_per_second")
"""Columns that only chips with HBM fill, and no part of a chip."""


def tell_npus(
    data: dict[str, pa.Array],
    values: Mapping[str, np.ndarray],
    *,
    is_npu: np.ndarray,
    has_hbm: np.ndarray,
    is_slice: np.ndarray,
    is_parted: np.ndarray,
) -> None:
    """Give the rows of NPUs in `data` what npu-exporter says of them; other rows stay as they are.

    A chip in parts shows neither AI Cores nor memory: its parts do.
    """
    core, dram = (np.rint(values[key] / 10_000) / 100 for key in ("sm_ppm", "dram_ppm"))
    told = {
        "gpu_util_ratio": pa.array(values["util_pct"] / 100),
        "core_active_ratio": pa.array(core, mask=is_parted),
        "dram_active_ratio": pa.array(dram),
        "memory_temp_celsius": pa.array(values["mem_temp_c"] / 1),
        "nvlink_bytes_per_second": pa.array((values["pcie_tx"] + values["pcie_rx"]) / 1),
    }
    lacks = pa.array(is_slice | ~has_hbm)
    for name in WITH_HBM:
        told[name] = pc.if_else(lacks, pa.scalar(None, pa.float64()), told[name])
    npus = pa.array(is_npu)
    for name in UNTOLD:
        data[name] = pc.if_else(npus, pa.scalar(None, data[name].type), data[name])
    for name, column in told.items():
        data[name] = pc.if_else(npus, column, data.get(name, pa.nulls(len(npus), pa.float64())))
