"""Activity from NVML's GPM counters (Hopper and later): what moved between two samples of one device or slice.

The earlier sample is that of the previous pass, so that the activity covers the whole interval. Only a device seen
for the first time costs a wait, because two samples must lie at least 100 ms apart.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

import pynvml

from collector.nvml.calls import DeviceCalls, DeviceLostError
from collector.nvml.places import ACTIVITY

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


@dataclass(slots=True)
class _Samples:
    """Memory for two samples of one subject: the earlier one, and one to take the next into."""

    earlier: Any
    spare: Any

    def free(self) -> None:
        for sample in (self.earlier, self.spare):
            with contextlib.suppress(pynvml.NVMLError):  # a few bytes more, for as long as this process lives
                pynvml.nvmlGpmSampleFree(sample)


class Activity:
    """Keeps the earlier sample of every subject."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str | None], _Samples] = {}

    def prepare(self, subjects: Iterable[Subject], skip: Collection[str], announce: Callable[[str], None]) -> None:
        """Take a first sample of subjects not seen before, and wait once for all of them."""
        known = list(subjects)
        for gone in self._samples.keys() - {subject.key for subject in known}:
            self._samples.pop(gone).free()
        new = [subject for subject in known if subject.key not in self._samples and ACTIVITY not in skip]
        started = [subject for subject in new if self._start(subject, announce)]
        if started:
            time.sleep(MINIMUM_SECONDS)

    def since_last(self, subject: Subject) -> dict[str, float]:
        """The metrics since the earlier sample, in the units of their names; without the ones it cannot give."""
        samples = self._samples.get(subject.key)
        if samples is None or not _sampled(subject, samples.spare):
            return {}
        samples.earlier, samples.spare = samples.spare, samples.earlier
        return self._between(subject, samples.spare, samples.earlier)

    def _start(self, subject: Subject, announce: Callable[[str], None]) -> bool:
        """Take the first sample of `subject`; False where there is none to take."""
        announce(subject.uuid)
        try:
            if not self._is_supported(subject):
                return False
            announce(ACTIVITY)
            made = [subject.calls.ask("gpm allocate", pynvml.nvmlGpmSampleAlloc) for _ in range(2)]
            if None in made:
                return False
            announce(subject.uuid)
            samples = _Samples(*made)
            if _sampled(subject, samples.earlier):
                self._samples[subject.key] = samples
                return True
            samples.free()
        except DeviceLostError:
            pass  # the pass over the device itself says so
        return False

    @staticmethod
    def _is_supported(subject: Subject) -> bool:
        support = subject.calls.ask("gpm support", pynvml.nvmlGpmQueryDeviceSupport, subject.device)
        return support is not None and bool(support.isSupportedDevice)

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


def _sampled(subject: Subject, sample: Any) -> bool:
    """Take a sample of `subject` into `sample`; False where there is none. Raises DeviceLostError."""
    if subject.instance is None:
        taken = subject.calls.ask("gpm sample", pynvml.nvmlGpmSampleGet, subject.device, sample)
    else:
        arguments = (subject.device, subject.instance, sample)
        taken = subject.calls.ask("gpm slice sample", pynvml.nvmlGpmMigSampleGet, *arguments)
    return taken is not None
