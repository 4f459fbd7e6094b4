"""How work looks to a counter: the shapes of activity, and the published quantiles that they are calibrated on.

Quantiles are of the samples above 5 % in the Acme trace (Hu et al., "Characterization of Large Language Model
Development in the Datacenter", NSDI 2024; data CC BY 4.0): a card that runs something. Over all samples, idle ones
included, the published medians of SM activity are 50.2 % (Seren) and 33.3 % (Kalos), of utilization 99 % and 98 %.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

QUANTILE_POINTS = (0.0, 0.10, 0.25, 0.50, 0.75, 0.90, 1.0)
ACTIVE_SM_RATIO = (0.30, 0.403, 0.507, 0.674, 0.773, 0.834, 0.90)
"""Seren's SM activity at QUANTILE_POINTS; the ends are cut to what a healthy training step shows."""
ACTIVE_FB_RATIO = (0.24, 0.30, 0.50, 0.68, 0.76, 0.88, 0.95)
"""Framebuffer use at QUANTILE_POINTS, between Seren's and Kalos'."""
ACTIVE_UTIL_MEDIAN_RATIO = 0.99
FLEET_SM_MEDIAN_RATIO = (0.333, 0.502)
"""Over all samples: Kalos, Seren."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What the counters of a card show while a phase lasts.

    `sm` and `util` are means (ratio); `tensor` and `dram` are parts of `sm` and of the peak; `fb` is the part of the
    framebuffer in use. Power rises with `util` by `util_power` and with `sm`. `tide` is how far the load falls at
    night. Every `dip_every` minutes the activity drops by `dip_depth` for `dip_for` minutes. `is_silent` zeroes the
    profiling counters while the card works. `clock` is the part of the usual SM clock, `throttle` NVML's reasons for
    it; `pcie` further traffic over the bus (part of 20 GB/s).
    """

    sm: float = 0.0
    util: float = 0.0
    tensor: float = 0.0
    dram: float = 0.0
    fb: float = 0.0
    util_power: float = 0.25
    tide: float = 0.0
    dip_every: int = 0
    dip_for: int = 0
    dip_offset: int = 0
    dip_depth: float = 1.0
    is_silent: bool = False
    clock: float = 1.0
    throttle: int = 0
    pcie: float = 0.0

    def with_dips(self, every: int, lasting: int, offset: int) -> Shape:
        """The same with pauses of `lasting` minutes every `every` minutes."""
        return replace(self, dip_every=every, dip_for=lasting, dip_offset=offset)


FREE = Shape()


def training(sm: float, fb: float) -> Shape:
    """A training step loop: utilization near 99 % whatever the SM activity is."""
    return Shape(sm=sm, util=0.995, tensor=0.55, dram=0.15 + 0.4 * sm, fb=fb)


def evaluation(sm: float, fb: float) -> Shape:
    """Scoring a checkpoint: short kernels and much waiting."""
    return Shape(sm=sm, util=0.45, tensor=0.3, dram=0.1, fb=fb)


def idle(fb: float) -> Shape:
    """Nothing runs; `fb` of the memory is still held."""
    return Shape(fb=fb)


def stalled(fb: float) -> Shape:
    """Ranks spin in a collective that never completes: full utilization, no math, little power."""
    return Shape(sm=0.11, util=1.0, tensor=0.03, dram=0.015, fb=fb, util_power=0.08)


def npu_waiting(fb: float) -> Shape:
    """NPUs wait in a collective that never completes: busy as a whole, AI Cores and HBM at rest, little power."""
    return Shape(sm=0.012, util=0.995, dram=0.01, fb=fb, util_power=0.15)


def serving(sm: float, fb: float, tide: float) -> Shape:
    """Answering requests: memory-bound, following the day when `tide` is not 0."""
    return Shape(sm=sm, util=min(0.95, 0.25 + 1.4 * sm), tensor=0.2, dram=0.1 + 0.7 * sm, fb=fb, tide=tide)


def interactive(sm: float, fb: float) -> Shape:
    """A person at a notebook who runs cells."""
    return Shape(sm=sm, util=min(0.9, 2.2 * sm), tensor=0.25, dram=0.4 * sm, fb=fb)


def quantile(points: tuple[float, ...], position: float) -> float:
    """The value at `position` (0 to 1) of a curve given at QUANTILE_POINTS."""
    return float(np.interp(position, QUANTILE_POINTS, points))


def daylight(minute_of_day: np.ndarray | float) -> np.ndarray:
    """How busy the public is at a minute of the local day: 0 in the small hours, 1 in the afternoon."""
    wave = 0.5 * (1 - np.cos(2 * np.pi * (np.asarray(minute_of_day) / 60 - 4) / 24))
    return np.asarray(np.clip(1.45 * wave - 0.2, 0.0, 1.0))
