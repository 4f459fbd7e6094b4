"""One process's use of NVML: devices found once, then read in passes. Values stay in NVML's own units.

Runs inside the child process only: any call may hang in the kernel for ever.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pynvml

from collector.nvml.activity import Activity, Subject
from collector.nvml.calls import DeviceCalls, DeviceLostError, give_up_if_useless

_PROFILE = re.compile(r"\b(\d+g\.\d+gb)\b")


@dataclass(slots=True)
class _Card:
    uuid: str
    name: str
    handle: Any
    calls: DeviceCalls = field(default_factory=DeviceCalls)
    has_events: bool | None = None
    slice_calls: dict[str, DeviceCalls] = field(default_factory=dict)


@dataclass(slots=True)
class _Slice:
    uuid: str
    instance: int
    profile: str | None
    handle: Any
    calls: DeviceCalls


class Session:
    """Finds the devices of this node. Raises pynvml.NVMLError when the library cannot start."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._activity = Activity()
        self._cards: list[_Card] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuid, name = pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetName(handle)
                self._cards.append(_Card(uuid, name, handle))
            except pynvml.NVMLError as error:
                # A card that does not even say who it is: its missing row says so.
                give_up_if_useless(error)
        self._events = self._event_set()

    def read(self, skip: Collection[str], announce: Callable[[str], None]) -> dict[str, Any]:
        """One pass over all cards except `skip`; `announce` is told each UUID before its calls, any may hang."""
        wanted = [card for card in self._cards if card.uuid not in skip]
        slices: dict[str, list[_Slice]] = {}
        lost: list[str] = []
        for card in wanted:
            card.calls.is_partial = False
            announce(card.uuid)
            try:
                self._watch(card)
                slices[card.uuid] = list(self._slices(card))
            except DeviceLostError:
                lost.append(card.uuid)
        subjects = [subject for card in wanted for subject in self._subjects(card, slices.get(card.uuid, []))]
        self._activity.prepare(subjects, announce)
        xids = dict(self._drain_events())
        devices = []
        for card in wanted:
            if card.uuid in slices:
                announce(card.uuid)
                try:
                    devices.append(self._device(card, slices[card.uuid], xids.get(card.uuid)))
                except DeviceLostError:
                    lost.append(card.uuid)
        return {"devices": devices, "lost": lost, "skipped": sorted(skip)}

    @staticmethod
    def _subjects(card: _Card, slices: Iterable[_Slice]) -> Iterator[Subject]:
        yield Subject(card.uuid, card.handle, card.calls)
        for part in slices:
            yield Subject(card.uuid, card.handle, part.calls, part.instance)

    def _device(self, card: _Card, slices: list[_Slice], xid: int | None) -> dict[str, Any]:
        ask, handle = card.calls.ask, card.handle
        utilization = ask("utilization", pynvml.nvmlDeviceGetUtilizationRates, handle)
        encoder = ask("encoder", pynvml.nvmlDeviceGetEncoderUtilization, handle)
        decoder = ask("decoder", pynvml.nvmlDeviceGetDecoderUtilization, handle)
        card_subject, *slice_subjects = self._subjects(card, slices)
        temperature = pynvml.NVML_TEMPERATURE_GPU
        ecc = (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC)
        return {
            "uuid": card.uuid,
            "name": card.name,
            "gpu_percent": None if utilization is None else utilization.gpu,
            "memory_percent": None if utilization is None else utilization.memory,
            "encoder_percent": None if encoder is None else encoder[0],
            "decoder_percent": None if decoder is None else decoder[0],
            "memory": _memory(card.calls, handle),
            "processes": _process_count(card.calls, handle),
            "power_milliwatts": ask("power", pynvml.nvmlDeviceGetPowerUsage, handle),
            "power_limit_milliwatts": ask("power limit", pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
            "energy_millijoules": ask("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            "sm_megahertz": ask("sm clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            "memory_megahertz": ask("memory clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            "celsius": ask("temperature", pynvml.nvmlDeviceGetTemperature, handle, temperature),
            "memory_celsius": _memory_temperature(card.calls, handle),
            "throttle_reasons": ask("throttle", pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
            "ecc_uncorrected": ask("ecc", pynvml.nvmlDeviceGetTotalEccErrors, handle, *ecc),
            "xid": 0 if xid is None and card.has_events else xid,
            "activity": self._activity.since_last(card_subject),
            "slices": [self._slice(part, subject) for part, subject in zip(slices, slice_subjects, strict=True)],
            "is_partial": card.calls.is_partial or any(part.calls.is_partial for part in slices),
        }

    def _slice(self, part: _Slice, subject: Subject) -> dict[str, Any]:
        return {
            "instance": part.instance,
            "profile": part.profile,
            "memory": _memory(part.calls, part.handle),
            "processes": _process_count(part.calls, part.handle),
            "activity": self._activity.since_last(subject),
        }

    @staticmethod
    def _slices(card: _Card) -> Iterator[_Slice]:
        """The card's GPU instances; several compute instances in one are one slice."""
        mode = card.calls.ask("mig mode", pynvml.nvmlDeviceGetMigMode, card.handle)
        if mode is None or mode[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
            return
        seen: set[int] = set()
        for position in range(card.calls.ask("mig count", pynvml.nvmlDeviceGetMaxMigDeviceCount, card.handle) or 0):
            try:
                handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, position)
            except pynvml.NVMLError as error:
                give_up_if_useless(error)
                continue  # an empty position
            uuid = card.calls.ask("mig uuid", pynvml.nvmlDeviceGetUUID, handle) or f"{card.uuid}/{position}"
            calls = card.slice_calls.setdefault(uuid, DeviceCalls())
            calls.is_partial = False
            instance = calls.ask("instance", pynvml.nvmlDeviceGetGpuInstanceId, handle)
            if instance is not None and instance not in seen:
                seen.add(instance)
                yield _Slice(uuid, instance, _profile(calls, handle), handle, calls)

    @staticmethod
    def _event_set() -> Any:
        """A set to receive XID events, or None where events are not offered."""
        try:
            return pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            give_up_if_useless(error)
            return None

    def _watch(self, card: _Card) -> None:
        """Register the card's XID events, once; not at the start, because this call too may hang at one card."""
        if self._events is not None and card.has_events is None:
            card.has_events = card.calls.ask("events", _register, card.handle, self._events) is not None

    def _drain_events(self) -> Iterator[tuple[str, int]]:
        """(UUID, XID) of each error since the last pass, the latest last."""
        while self._events is not None:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
                uuid = pynvml.nvmlDeviceGetUUID(event.device)
            except pynvml.NVMLError as error:
                give_up_if_useless(error)
                return
            yield uuid, event.eventData


def _register(handle: Any, events: Any) -> bool:
    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    return True


def _memory(calls: DeviceCalls, handle: Any) -> dict[str, int | None] | None:
    """Bytes of memory; `reserved` is None where only the first version of the call exists, whose `used` includes it."""
    memory = calls.ask("memory", pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if memory is not None:
        return {"total": memory.total, "used": memory.used, "reserved": memory.reserved}
    memory = calls.ask("memory v1", pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else {"total": memory.total, "used": memory.used, "reserved": None}


def _process_count(calls: DeviceCalls, handle: Any) -> int | None:
    """Distinct compute processes, clients of a shared server included. None when the driver does not say."""
    processes = calls.ask("processes", pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
    if processes is None:
        return None
    clients = calls.ask("shared processes", pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle) or []
    return len({process.pid for process in (*processes, *clients)})


def _memory_temperature(calls: DeviceCalls, handle: Any) -> int | None:
    values = calls.ask("memory temperature", pynvml.nvmlDeviceGetFieldValues, handle, [pynvml.NVML_FI_DEV_MEMORY_TEMP])
    return values[0].value.uiVal if values is not None and values[0].nvmlReturn == 0 else None


def _profile(calls: DeviceCalls, handle: Any) -> str | None:
    """The slice's profile ("3g.40gb"), from its name or, where the name lacks it, from its attributes."""
    match = _PROFILE.search(calls.ask("name", pynvml.nvmlDeviceGetName, handle) or "")
    if match is not None:
        return match[1]
    attributes = calls.ask("attributes", pynvml.nvmlDeviceGetAttributes, handle)
    if attributes is None:
        return None
    return f"{attributes.gpuInstanceSliceCount}g.{-(-attributes.memorySizeMB // 1024)}gb"
