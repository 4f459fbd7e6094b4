"""Facts about GPU models, from the vendors' data sheets: power, dense BF16 peak, memory, how a card divides.

`power_idle_watts` is what an idle card of the model draws with a driver loaded, as its management tool lists it; A's
power band is measured from it. Where a model is sold with several sizes of memory or limits of power, the smallest
memory and the largest power stand here.
The names are canonical; `canonical_model` maps what drivers and exporters print onto them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class GpuModel:
    """One model: power in watts, dense `peak_bf16_flops`, compute and memory slices under MIG (0: none), its memory.

    `peak_bf16_flops` is None where the card has no BF16. `compute_dies` is into how many partitions AMD's mode CPX
    divides it, one a die (0: it has no such mode). `ai_cores` is how many AI Cores an Ascend NPU
    deals out to vNPUs (0: none).
    """

    model: str
    pattern: str
    power_idle_watts: float
    power_tdp_watts: float
    peak_bf16_flops: float | None
    compute_slices: int = 0
    memory_slices: int = 0
    memory_gib: int = 0
    vendor: str = "nvidia"
    compute_dies: int = 0
    ai_cores: int = 0

    @property
    def memory_bytes(self) -> int | None:
        """Memory of the card; None where it is not known."""
        return self.memory_gib * 2**30 or None


GPU_MODELS = (
    GpuModel("GB200", r"\bGB200\b", 140, 1200, 2500e12, 7, 8, 186),
    GpuModel("B200", r"\bB200\b", 140, 1000, 2250e12, 7, 8, 180),
    GpuModel("H200", r"\bH200\b", 75, 700, 989e12, 7, 8, 141),
    GpuModel("H800", r"\bH800\b", 70, 700, 989e12, 7, 8, 80),
    GpuModel("H20", r"\bH20\b", 70, 400, 148e12, 7, 8, 96),
    GpuModel("H100-PCIE", r"\bH100[ -]PCIE\b", 50, 350, 756e12, 7, 8, 80),
    GpuModel("H100", r"\bH100\b", 70, 700, 989e12, 7, 8, 80),
    GpuModel("A800", r"\bA800\b", 60, 400, 312e12, 7, 8, 80),
    GpuModel("A100", r"\bA100\b", 60, 400, 312e12, 7, 8, 40),
    GpuModel("A30", r"\bA30\b", 30, 165, 165e12, 4, 4, 24),
    GpuModel("A10G", r"\bA10G\b", 25, 300, 70e12, 0, 0, 24),
    GpuModel("A10", r"\bA10\b", 25, 150, 125e12, 0, 0, 24),
    GpuModel("L40S", r"\bL40S\b", 35, 350, 362e12, 0, 0, 48),
    GpuModel("L20", r"\bL20\b", 35, 275, 119e12, 0, 0, 48),
    GpuModel("L4", r"\bL4\b", 17, 72, 121e12, 0, 0, 24),
    GpuModel("T4", r"\bT4\b", 10, 70, None, 0, 0, 16),
    GpuModel("V100", r"\bV100M?\d*\b", 40, 300, None, 0, 0, 16),
    GpuModel("P100", r"\bP100\b", 30, 250, None, 0, 0, 12),
    GpuModel("2080Ti", r"\b(RTX )?2080( ?Ti)?\b", 20, 250, None, 0, 0, 11),
    GpuModel("Ascend 910C", r"\b(ASCEND[ -]?)?910(C\b|_9\d{3})", 180, 800, 752e12, memory_gib=128, vendor="ascend"),
    GpuModel("Ascend 910B", r"\b(ASCEND[ -]?)?910B\d?\b", 90, 400, 313e12, memory_gib=32, vendor="ascend", ai_cores=20),
    GpuModel(
        "Ascend 910A",
        r"\b(ASCEND[ -]?910|910(A(WN)?|PRO[AB]))\b|\bASCEND[ -]?910(A|PRO[AB])\b",
        65,
        310,
        None,
        memory_gib=32,
        vendor="ascend",
        ai_cores=32,
    ),
    GpuModel("Ascend 310P", r"\b(ASCEND[ -]?)?310P\d?\b", 18, 72, None, memory_gib=21, vendor="ascend", ai_cores=8),
    GpuModel("MI355X", r"\bMI355X\b", 140, 1400, 2516e12, memory_gib=288, vendor="amd", compute_dies=8),
    GpuModel("MI350X", r"\bMI350X\b", 140, 1000, 2300e12, memory_gib=288, vendor="amd", compute_dies=8),
    GpuModel("MI325X", r"\bMI325X\b", 140, 1000, 1307e12, memory_gib=256, vendor="amd", compute_dies=8),
    GpuModel("MI300X", r"\bMI300X\b", 140, 750, 1307e12, memory_gib=192, vendor="amd", compute_dies=8),
    GpuModel("MI300A", r"\bMI300A\b", 140, 760, 980e12, memory_gib=128, vendor="amd", compute_dies=6),
    GpuModel("MI250X", r"\bMI250X\b", 90, 560, 383e12, memory_gib=128, vendor="amd"),
    GpuModel("MI250", r"\bMI250\b", 90, 560, 362e12, memory_gib=128, vendor="amd"),
    GpuModel("MI210", r"\bMI210\b", 40, 300, 181e12, memory_gib=64, vendor="amd"),
    GpuModel("MI100", r"\bMI100\b", 35, 300, 92e12, memory_gib=32, vendor="amd"),
)

_FURTHER_SLICES = (
    (r"\bGH200\b", 7),
    (r"\bG?B300\b", 7),
    (r"\bA100X\b", 7),
    (r"\bA30X\b", 4),
    (r"\bRTX PRO 6000 BLACKWELL\b", 4),
)
"""(pattern, MIG compute slices) of models of which no power band is known here, from the vendor's MIG tables."""

_MIG_PROFILE = re.compile(r"(?:MIG )?(?:(\d+)c\.)?(\d+)g\.\d+gb(?:[+.-][a-z]+)*", re.IGNORECASE)
"""`1g.5gb`, `1c.3g.20gb`; attributes follow as `+me`, `+gfx`, `+me.all`, `-me`, in resource names as `.me`."""

_AMD_PARTITION = re.compile(r"(spx|dpx|tpx|qpx|cpx)(?:_nps\d)?", re.IGNORECASE)
"""`dpx`, in resource names as `cpx_nps4`: how the dies of a card are grouped; how its memory is does not matter."""

_AMD_PARTS = {"spx": 1, "dpx": 2, "tpx": 3, "qpx": 4}
"""Parts of a card in each of AMD's modes; in CPX every die is one."""

_VNPU = re.compile(r"(?:vir)?(\d+(?:\.\d+)?)c?(?:[._]\w+)*", re.IGNORECASE)
"""AI Cores of a vNPU: `vir04_3c` of the template, `4c.3cpu` of the resource, `4.00` of the exporter are four."""


@cache
def canonical_model(name: str | None) -> str | None:
    """The canonical name of what a driver printed ("NVIDIA H100 80GB HBM3" is "H100"); unknown names stay."""
    if not name:
        return None
    for known in GPU_MODELS:
        if re.search(known.pattern, name, re.IGNORECASE):
            return known.model
    return name


@cache
def vendor_of(name: str | None) -> str:
    """The vendor of a model, of VENDORS; "other" for one that is not known."""
    known = next((model for model in GPU_MODELS if model.model == canonical_model(name)), None)
    return known.vendor if known else "other"


def _compute_slices(model: str | None) -> int:
    known = next((m for m in GPU_MODELS if m.model == canonical_model(model)), None)
    if known is not None:
        return known.compute_slices
    return next((slices for pattern, slices in _FURTHER_SLICES if re.search(pattern, model or "", re.IGNORECASE)), 0)


def _ai_cores(model: str | None) -> int:
    return next((m.ai_cores for m in GPU_MODELS if m.model == canonical_model(model)), 0)


@cache
def slice_share(model: str | None, profile: str | None) -> float | None:
    """The share of the physical GPU that a MIG profile takes, by compute slices (3g.20gb of an A100 is 3/7).

    One of AMD's partitions is one part of its mode (dpx: a half; cpx: a die of so many), an Ascend vNPU its AI Cores.

    A compute instance inside a GPU instance ("1c.3g.20gb") counts its own slices; attributes ("1g.5gb+me") take none.
    None when the model or the profile is not known, or the model has no such profile.
    """
    if (mode := _AMD_PARTITION.fullmatch(profile or "")) is not None:
        known = next((m for m in GPU_MODELS if m.model == canonical_model(model)), None)
        parts = _AMD_PARTS.get(mode[1].lower()) or (known.compute_dies if known else 0)
        return 1 / parts if parts else None
    if (npu := _ai_cores(model)) and (part := _VNPU.fullmatch(profile or "")) is not None:
        return float(part[1]) / npu if 0 < float(part[1]) <= npu else None
    match, slices = _MIG_PROFILE.fullmatch(profile or ""), _compute_slices(model)
    if match is None or not slices or int(match[2]) > slices:
        return None
    return int(match[1] or match[2]) / slices
