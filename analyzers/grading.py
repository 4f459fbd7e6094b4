"""Which counters of an exporter would let work be graded that is now ungraded, by vendor."""

from __future__ import annotations

from collections.abc import Mapping

GRADING_COUNTERS: Mapping[str, tuple[str, ...]] = {
    "nvidia": (
        "DCGM_FI_PROF_SM_ACTIVE (1002)",
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE (1004)",
        "DCGM_FI_PROF_DRAM_ACTIVE (1005)",
    ),
    "ascend": ("npu_chip_info_utilization (AI Core)",),
    "amd": ("profiler fields of SM and matrix activity",),
}
"""Fields of dcgm-exporter's counters file with their DCGM numbers; of npu-exporter the AI Core's utilization."""


def counters_to_enable(vendor: str) -> tuple[str, ...]:
    """The counters that grade a card of `vendor`; empty where none is known."""
    return GRADING_COUNTERS.get(vendor, ())
