"""What of a simulated AMD card's readings its exporter tells: no PCIe traffic, profiling counters when undivided."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

UNTOLD = ("fb_reserved_bytes", "pcie_tx_bytes_per_second", "pcie_rx_bytes_per_second")
OF_WHOLE_CARDS = ("fb_used_bytes", "fb_total_bytes", "mem_copy_util_ratio")
PROFILED = (("sm_active_ratio", "sm_ppm"), ("gr_engine_active_ratio", "gr_ppm"), ("tensor_active_ratio", "tensor_ppm"))
MILLION = 1_000_000


def tell_amd(
    data: dict[str, pa.Array],
    values: Mapping[str, np.ndarray],
    *,
    is_amd: np.ndarray,
    is_parted: np.ndarray,
    is_slice: np.ndarray,
    is_profiled: np.ndarray,
) -> None:
    """Give the rows of AMD cards in `data` what device-metrics-exporter says of them; other rows stay as they are.

    A partition's own is what its dies do; how memory lies, where it is divided too, is not known.
    """
    cards, no_number = pa.array(is_amd), pa.scalar(None, pa.float64())
    is_divided = is_parted | is_slice
    for name in UNTOLD:
        data[name] = pc.if_else(cards, pa.scalar(None, data[name].type), data[name])
    for name in OF_WHOLE_CARDS:
        data[name] = pc.if_else(pa.array(is_amd & is_divided), pa.scalar(None, data[name].type), data[name])
    busy = pc.if_else(pa.array(is_parted), no_number, pa.array(values["util_pct"] / 100))
    data["gpu_util_ratio"] = pc.if_else(cards, busy, data["gpu_util_ratio"])
    for name, key in PROFILED:
        told = pa.array(values[key] / MILLION, mask=is_divided | ~is_profiled)
        data[name] = pc.if_else(cards, told, data[name])
