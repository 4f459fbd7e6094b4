"""NVML calls that fill a list. The binding makes its buffers as large as the library says; here they are bounded.

A library that answers nonsense (four billion processes) must cost one answer, not the memory of the node. One call
with a buffer that is there already is also half the work of asking for the size first.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml

PROCESSES = 4096
SAMPLES = 4096
ACCOUNTED = 8192
"""The driver keeps the accounts of about 4000 processes."""

_NO_SAMPLES = (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS)
_MAX_PERCENT = 100


class Lists:
    """The buffers of one process, used for one call after the other."""

    def __init__(self) -> None:
        self._processes = (pynvml.c_nvmlProcessInfo_v3_t * PROCESSES)()
        self._samples = (pynvml.c_nvmlProcessUtilizationSample_t * SAMPLES)()
        self._accounted = (ctypes.c_uint * ACCOUNTED)()

    def processes(self, function: str, handle: Any) -> set[int]:
        """Process ids that `function`, one of the calls that list running processes, gives. Raises NVMLError."""
        filled = self._filled(function, handle, self._processes)
        return {self._processes[position].pid for position in range(filled)}

    def sampled(self, handle: Any, last_seen_us: int) -> tuple[set[int], int]:
        """Process ids with utilization samples after `last_seen_us`, and the latest of their times.

        The driver leaves old slots and such that were never written in the list: a sample that is not newer, or not
        0 to 100 %, is none. Raises NVMLError.
        """
        count = ctypes.c_uint(SAMPLES)
        call = _function("nvmlDeviceGetProcessUtilization")
        code = call(handle, self._samples, ctypes.byref(count), ctypes.c_ulonglong(last_seen_us))
        if code in _NO_SAMPLES and (code or not count.value):
            return set(), last_seen_us
        _check(code, count.value, SAMPLES)
        kept = [sample for sample in self._samples[: count.value] if _is_sample(sample, last_seen_us)]
        return {sample.pid for sample in kept}, max((sample.timeStamp for sample in kept), default=last_seen_us)

    def accounted(self, handle: Any) -> set[int]:
        """Process ids that the driver keeps accounts of, those that ended included. Raises NVMLError."""
        filled = self._filled("nvmlDeviceGetAccountingPids", handle, self._accounted)
        return set(self._accounted[:filled])

    @staticmethod
    def _filled(function: str, handle: Any, buffer: Any) -> int:
        count = ctypes.c_uint(len(buffer))
        _check(_function(function)(handle, ctypes.byref(count), buffer), count.value, len(buffer))
        return count.value


def _is_sample(sample: Any, last_seen_us: int) -> bool:
    percents = (sample.smUtil, sample.memUtil, sample.encUtil, sample.decUtil)
    return bool(sample.pid and sample.timeStamp > last_seen_us and max(percents) <= _MAX_PERCENT)


def _function(name: str) -> Any:
    try:
        return getattr(pynvml.nvmlLib, name)
    except AttributeError as error:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from error


def _check(code: int, count: int, room: int) -> None:
    if code:
        raise pynvml.NVMLError(code)
    if count > room:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN)
