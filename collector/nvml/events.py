"""What the driver tells by itself, kept by it until it is fetched: errors (XID), and cards that became unavailable."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pynvml

from collector.nvml.calls import DeviceCalls, give_up_if_useless

_WANTED = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeGpuUnavailableError
_MAX_EVENTS = 1000
"""Fetched in one pass at most; what is left comes with the next one."""

_NO_INSTANCE = 0xFFFFFFFF


class Events:
    """One set of events for all cards of this process."""

    def __init__(self) -> None:
        self._set: Any = None
        self._is_made = False

    def open(self) -> None:
        """Make the set, once. Without one there are no events. Raises RestartNeededError."""
        if not self._is_made:
            self._is_made = True
            self._set = _created()

    def watch(self, calls: DeviceCalls, handle: Any) -> bool:
        """Register the events of a card. False where it, or the driver, has none. Raises DeviceLostError."""
        if self._set is None:
            return False
        offered = calls.ask("event types", pynvml.nvmlDeviceGetSupportedEventTypes, handle)
        wanted = _WANTED & offered if offered else pynvml.nvmlEventTypeXidCriticalError
        return calls.ask("events", _register, handle, wanted, self._set) is not None

    def drain(self, cards: Mapping[int, str]) -> list[dict[str, Any]]:
        """What was told since the last time, equal events counted. `cards` is the UUID at each handle's `address`.

        The handle tells the card: one that fell off the bus cannot be asked for its UUID any more.
        """
        found = Counter(self._fetched(cards)) if self._set is not None else Counter()
        return [
            {"uuid": uuid, "xid": xid, "instance": instance, "count": count}
            for (uuid, xid, instance), count in found.items()
        ]

    def _fetched(self, cards: Mapping[int, str]) -> Iterator[tuple[str, int | None, int | None]]:
        for _ in range(_MAX_EVENTS):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, 0)
            except pynvml.NVMLError as error:
                give_up_if_useless(error)
                return  # most often: nothing more
            uuid = cards.get(address(event.device))
            if uuid is not None:
                is_xid = event.eventType == pynvml.nvmlEventTypeXidCriticalError
                instance = None if event.gpuInstanceId == _NO_INSTANCE else event.gpuInstanceId
                yield uuid, event.eventData if is_xid else None, instance


def address(handle: Any) -> int:
    """What distinguishes a handle: a device has one for the life of the process."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _created() -> Any:
    try:
        return pynvml.nvmlEventSetCreate()
    except pynvml.NVMLError as error:
        give_up_if_useless(error)
        return None


def _register(handle: Any, types: int, events: Any) -> bool:
    pynvml.nvmlDeviceRegisterEvents(handle, types, events)
    return True
