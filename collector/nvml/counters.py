"""What NVML gives as numbered fields: temperatures, errors that memory remembers, and what moved over PCIe and NVLink.

All of a card is asked in one call, and each field answers for itself. One that a card does not have is not asked again.
Traffic is a counter here; where GPM gives it as a rate (Hopper and later) that is better and no link is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pynvml

from collector.nvml.calls import DeviceCalls, DeviceLostError, is_lost, is_unsupported

_FIELDS = {
    pynvml.NVML_FI_DEV_MEMORY_TEMP: "memory_celsius",
    pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER: "pcie_replays",
    pynvml.NVML_FI_DEV_REMAPPED_COR: "remapped_correctable",
    pynvml.NVML_FI_DEV_REMAPPED_UNC: "remapped_uncorrectable",
    pynvml.NVML_FI_DEV_REMAPPED_FAILURE: "remap_failure",
    pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: "recovery_action",
    pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: "links",
    pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES: "pcie_tx_bytes",
    pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES: "pcie_rx_bytes",
}

_LINK_FIELDS = (
    (pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES, pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES, 1),
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX, 1024),
    (pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_TX, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_RAW_RX, 1024),
)
"""(sent, received, bytes a unit), best first: all bytes, payload in KiB, payload and protocol in KiB."""

_MAX_LINKS = 64
_WRAPS_BELOW = 2**32
_SHORTEST_SECONDS = 0.05

_VALUES = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


class Rates:
    """Counters of one subject as rates between two looks."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._before: dict[Any, float] = {}

    def since_last(self, counters: Mapping[Any, float], at: float) -> dict[Any, float] | None:
        """Units a second of each counter since the look before, `at` being seconds of a monotonic clock.

        None at the first look, and when a counter fell or came or went: after a reset nobody knows what moved.
        """
        before, before_at = self._before, self._at
        self._before, self._at = dict(counters), at
        if before_at is None or at - before_at < _SHORTEST_SECONDS or before.keys() != counters.keys():
            return None
        moved = {name: count - before[name] for name, count in counters.items()}
        if any(change < 0 for change in moved.values()):
            return None
        return {name: change / (at - before_at) for name, change in moved.items()}


@dataclass(slots=True)
class Counters:
    """The fields of one card. `clock` gives monotonic seconds."""

    clock: Callable[[], float]
    _wanted: list[int] = field(default_factory=lambda: list(_FIELDS))
    _link_fields: list[tuple[int, int, int]] = field(default_factory=lambda: list(_LINK_FIELDS))
    _pcie: Rates = field(default_factory=Rates)
    _nvlink: Rates = field(default_factory=Rates)

    def forget(self) -> None:
        """Ask everything again."""
        self._wanted, self._link_fields = list(_FIELDS), list(_LINK_FIELDS)

    def read(self, calls: DeviceCalls, handle: Any) -> dict[str, float]:
        """Every field that answered, by our name and in the unit of NVML's table. Raises DeviceLostError."""
        answers = dict(zip(self._wanted, _ask(calls, handle, self._wanted), strict=True))
        self._wanted = [number for number, answer in answers.items() if answer is not False]
        return {_FIELDS[number]: answer for number, answer in answers.items() if _is_number(answer)}

    def pcie(self, fields: Mapping[str, float]) -> dict[str, float]:
        """Bytes a second over PCIe, sent and received by the card.

        The table says that these counters may wrap, not where. One that fits 32 bits would wrap several times between
        two looks and is not believed; one that counts further reaches that size within seconds of work.
        """
        counters = {name: fields[name] for name in ("pcie_tx_bytes", "pcie_rx_bytes") if name in fields}
        if len(counters) < 2 or min(counters.values()) < _WRAPS_BELOW:
            return {}
        rates = self._pcie.since_last(counters, self.clock()) or {}
        return {f"{name}_per_second": rate for name, rate in rates.items()}

    def nvlink(self, calls: DeviceCalls, handle: Any, links: float) -> float | None:
        """Bytes a second over all of the card's `links`, both directions. None where it cannot be told."""
        if not 0 < links <= _MAX_LINKS:
            return None
        while self._link_fields:
            sent, received, unit_bytes = self._link_fields[0]
            asked = [(number, link) for link in range(int(links)) for number in (sent, received)]
            answers = _ask(calls, handle, asked)
            if all(answer is False for answer in answers):
                self._link_fields.pop(0)
                continue
            counted = {place: answer for place, answer in zip(asked, answers, strict=True) if _is_number(answer)}
            if None in answers or not counted:
                return None
            rates = self._nvlink.since_last(counted, self.clock())
            return None if rates is None else sum(rates.values()) * unit_bytes
        return None


def _is_number(answer: float | bool | None) -> bool:
    return answer is not None and answer is not False


def _ask(calls: DeviceCalls, handle: Any, asked: Sequence[int] | Sequence[tuple[int, int]]) -> list[Any]:
    """For each asked field its value, None where it has none now, False where the card does not have it."""
    if not asked:
        return []
    values: Iterable[Any] | None = calls.ask("fields", pynvml.nvmlDeviceGetFieldValues, handle, asked)
    if values is None:
        return [None] * len(asked)
    return [_value(calls, value) for value in values]


def _value(calls: DeviceCalls, given: Any) -> float | bool | None:
    if given.nvmlReturn == 0:
        name = _VALUES.get(given.valueType)
        value: float | None = None if name is None else getattr(given.value, name)
        return value
    if is_lost(given.nvmlReturn):
        raise DeviceLostError(f"NVML {given.nvmlReturn}")
    if is_unsupported(given.nvmlReturn) or given.nvmlReturn == pynvml.NVML_ERROR_INVALID_ARGUMENT:
        return False
    calls.is_partial = True
    return None
