"""Activity from NVML's GPM counters (Hopper and later): what moved between two samples of one device or slice.

The earlier sample is that of the previous pass, so that the activity covers the whole interval. Only a device seen
for the first time costs a wait, because two samples must lie at least 100 ms apart.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import pynvml

from collector.nvml.calls import DeviceCalls, DeviceLostError

MINIMUM_SECONDS = 0.11

_METRICS = {
    pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: "graphics_percent",
    pynvml.NVML_GPM_METRIC_SM_UTIL: "sm_percent",
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: "occupancy_percent",
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_percent",
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: "dram_percent",
    pynvml.NVML_GPM_METRIC_FP64_UTIL: "fp64_percent",
    pynvml.NVML_GPM_METRIC_FP32_UTIL: "fp32_percent",
    pynvml.NVML_GPM_METRIC_FP16_UTIL: "fp16_percent",
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: "pcie_tx_mib_per_second",
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: "pcie_rx_mib_per_second",
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC: "nvlink_tx_mib_per_second",
    pynvml.NVML_GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC: "nvlink_rx_mib_per_second",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What is sampled: a card, or one GPU instance of it (`instance` and `slice_uuid` are None for the card).

    `slice_uuid` tells an instance from one that had its number before it.
    """

    uuid: str
    device: Any
    calls: DeviceCalls
    instance: int | None = None
    slice_uuid: str | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        """What distinguishes it on this node."""
        return self.uuid, self.slice_uuid


class Activity:
    """Keeps the earlier sample of every subject."""

    def __init__(self) -> None:
        self._earlier: dict[tuple[str, str | None], Any] = {}

    def prepare(self, subjects: Iterable[Subject], announce: Callable[[str], None]) -> None:
        """Take a first sample of subjects not seen before, and wait once for all of them."""
        known = list(subjects)
        for gone in self._earlier.keys() - {subject.key for subject in known}:
            _free(self._earlier.pop(gone))
        is_new = False
        for subject in known:
            if subject.key not in self._earlier:
                announce(subject.uuid)
                is_new |= self._start(subject)
        if is_new:
            time.sleep(MINIMUM_SECONDS)

    def since_last(self, subject: Subject) -> dict[str, float]:
        """The metrics since the earlier sample, in the units of their names; without the ones it cannot give."""
        earlier = self._earlier.get(subject.key)
        if earlier is None:
            return {}
        latest = self._sample(subject)
        if latest is None:
            return {}
        self._earlier[subject.key] = latest
        try:
            return self._between(subject, earlier, latest)
        finally:
            _free(earlier)

    def _start(self, subject: Subject) -> bool:
        """Take the first sample of `subject`; False where there is none to take."""
        try:
            sample = self._sample(subject) if self._is_supported(subject) else None
        except DeviceLostError:
            return False  # the pass over the device itself says so
        if sample is None:
            return False
        self._earlier[subject.key] = sample
        return True

    @staticmethod
    def _is_supported(subject: Subject) -> bool:
        support = subject.calls.ask("gpm support", pynvml.nvmlGpmQueryDeviceSupport, subject.device)
        return support is not None and bool(support.isSupportedDevice)

    @staticmethod
    def _sample(subject: Subject) -> Any:
        sample = subject.calls.ask("gpm allocate", pynvml.nvmlGpmSampleAlloc)
        if sample is None:
            return None
        taken = None
        try:
            if subject.instance is None:
                taken = subject.calls.ask("gpm sample", pynvml.nvmlGpmSampleGet, subject.device, sample)
            else:
                arguments = (subject.device, subject.instance, sample)
                taken = subject.calls.ask("gpm slice sample", pynvml.nvmlGpmMigSampleGet, *arguments)
        finally:
            if taken is None:
                _free(sample)
        return taken

    @staticmethod
    def _between(subject: Subject, earlier: Any, latest: Any) -> dict[str, float]:
        request = pynvml.c_nvmlGpmMetricsGet_t()
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(_METRICS)
        request.sample1, request.sample2 = earlier, latest
        for position, metric in enumerate(_METRICS):
            request.metrics[position].metricId = metric
        answer = subject.calls.ask("gpm metrics", pynvml.nvmlGpmMetricsGet, request)
        if answer is None:
            return {}
        answered = answer.metrics[: len(_METRICS)]
        named = ((_METRICS.get(metric.metricId), metric) for metric in answered)
        return {name: metric.value for name, metric in named if name and metric.nvmlReturn == 0}


def _free(sample: Any) -> None:
    with contextlib.suppress(pynvml.NVMLError):  # a few bytes more, for as long as this process lives
        pynvml.nvmlGpmSampleFree(sample)
