"""One process's use of NVML: devices found, then read in passes. Values stay in NVML's own units.

Runs inside the child process only: any call may hang in the kernel for ever. Before the calls at a place (see `places`)
its name is announced, so that the parent knows where a pass hangs and can ask for the next one without that place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Any

import pynvml

from collector.nvml.activity import Activity, Subject
from collector.nvml.calls import DeviceCalls, DeviceLostError, RestartNeededError, text_of
from collector.nvml.devices import Card, Devices, Slice, slices
from collector.nvml.events import Events
from collector.nvml.lists import Lists
from collector.nvml.owners import Owners
from collector.nvml.places import EVENTS, INIT

_RUNNING = (
    ("compute processes", "nvmlDeviceGetComputeRunningProcesses_v3"),
    ("graphics processes", "nvmlDeviceGetGraphicsRunningProcesses_v3"),
    ("shared processes", "nvmlDeviceGetMPSComputeRunningProcesses_v3"),
)

Announce = Callable[[str], None]


class Session:
    """Finds the devices of this node. Raises pynvml.NVMLError when the library cannot start."""

    def __init__(self, owners: Owners, skip: Collection[str], announce: Announce) -> None:
        announce(INIT)
        # Where starting hung, the next process starts without attaching to every card at once.
        pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_ATTACH if INIT in skip else 0)
        self._activity = Activity()
        self._devices = Devices()
        self._events = Events()
        self._lists = Lists()
        self._owners = owners
        self._pids: set[int] = set()

    def read(self, skip: Collection[str], announce: Announce) -> dict[str, Any]:
        """One pass over all cards except `skip`. Raises RestartNeededError and pynvml.NVMLError."""
        self._devices.find(skip, announce)
        if EVENTS not in skip:
            announce(EVENTS)
            self._events.open()
        lost: set[str] = set()
        failed: dict[str, str] = {}
        parts: dict[str, list[Slice]] = {}
        wanted = [card for card in self._devices.cards if card.uuid not in skip]
        for card in wanted:
            announce(card.uuid)
            with_slices = _attempt(card, partial(self._begin, card, skip), lost, failed)
            if with_slices is not None:
                parts[card.uuid] = with_slices
        began = [card for card in wanted if card.uuid in parts]
        self._activity.prepare([one for card in began for one in _subjects(card, parts[card.uuid])], skip, announce)
        devices, self._pids = [], set()
        for card in began:
            announce(card.uuid)
            device = _attempt(card, partial(self._device, card, parts[card.uuid]), lost, failed)
            if device is not None:
                devices.append(device)
        self._owners.keep(self._pids)
        return {
            "devices": devices,
            "lost": sorted(lost),
            "failed": failed,
            "nameless": list(self._devices.nameless.values()),
            "events": self._drained(skip, announce),
            "skipped": sorted(skip),
        }

    def _begin(self, card: Card, skip: Collection[str]) -> list[Slice]:
        card.calls.is_partial = False
        if card.has_events is None and EVENTS not in skip:
            card.has_events = self._events.watch(card.calls, card.handle)
        return slices(card)

    def _drained(self, skip: Collection[str], announce: Announce) -> list[dict[str, Any]]:
        if EVENTS in skip:
            return []
        announce(EVENTS)
        return self._events.drain(self._devices.addresses)

    def _device(self, card: Card, parts: list[Slice]) -> dict[str, Any]:
        ask, handle = card.calls.ask, card.handle
        utilization = ask("utilization", pynvml.nvmlDeviceGetUtilizationRates, handle)
        encoder = ask("encoder", pynvml.nvmlDeviceGetEncoderUtilization, handle)
        decoder = ask("decoder", pynvml.nvmlDeviceGetDecoderUtilization, handle)
        subject, *part_subjects = _subjects(card, parts)
        fields = card.counters.read(card.calls, handle)
        activity = self._activity.since_last(subject)
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
            "power_milliwatts": ask("power", pynvml.nvmlDeviceGetPowerUsage, handle),
            "power_limit_milliwatts": ask("power limit", pynvml.nvmlDeviceGetEnforcedPowerLimit, handle),
            "energy_millijoules": ask("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption, handle),
            "sm_megahertz": ask("sm clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            "memory_megahertz": ask("memory clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            "celsius": ask("temperature", pynvml.nvmlDeviceGetTemperature, handle, temperature),
            "throttle_reasons": ask("throttle", pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
            "ecc_uncorrected": ask("ecc", pynvml.nvmlDeviceGetTotalEccErrors, handle, *ecc),
            "retirement_pending": _retirement_pending(card.calls, handle, fields),
            "fields": fields,
            "traffic": _traffic(card, fields, activity),
            "activity": activity,
            **self._work(card, card.calls, [handle], is_whole=True),
            "slices": [self._slice(card, part, one) for part, one in zip(parts, part_subjects, strict=True)],
            "is_partial": card.calls.is_partial or any(part.calls.is_partial for part in parts),
        }

    def _slice(self, card: Card, part: Slice, subject: Subject) -> dict[str, Any]:
        return {
            "instance": part.instance,
            "profile": part.profile,
            "memory": _memory(part.calls, part.handles[0]),
            "activity": self._activity.since_last(subject),
            **self._work(card, part.calls, part.handles, is_whole=False),
        }

    def _work(self, card: Card, calls: DeviceCalls, handles: Iterable[Any], *, is_whole: bool) -> dict[str, Any]:
        """Who works here: `processes` that run, `recent_processes` that ran since the last pass, whose they are.

        `pods` (uids) and Slurm `jobs` are those of recent processes. A process is counted once, in whatever lists it
        stands; the server of a shared card is none.
        """
        lists = [
            calls.ask(name, self._lists.processes, function, handle)
            for handle in handles
            for name, function in _RUNNING
        ]
        running = {pid for listed in lists if listed for pid in listed if not self._owners.is_mps_server(pid)}
        since = self._since(card) if is_whole else set()
        recent = running | {pid for pid in since if not self._owners.is_mps_server(pid)}
        self._pids |= recent
        owners = [self._owners.owner(pid) for pid in recent]
        is_known = lists[0] is not None
        return {
            "processes": len(running) if is_known else None,
            "recent_processes": len(recent) if is_known else None,
            "pods": sorted({owner.pod_uid for owner in owners if owner.pod_uid}),
            "jobs": sorted({owner.slurm_job for owner in owners if owner.slurm_job and not owner.pod_uid}),
        }

    def _since(self, card: Card) -> set[int]:
        """Processes of the card that may have come and gone since the last pass."""
        found: set[int] = set()
        sampled = card.calls.ask("process utilization", self._lists.sampled, card.handle, card.seen_us)
        if sampled is not None:
            # Without a time of ours to compare with, old slots of the list cannot be told from new ones.
            found |= sampled[0] if card.seen_us else set()
            card.seen_us = sampled[1]
        mode = card.calls.ask("accounting mode", pynvml.nvmlDeviceGetAccountingMode, card.handle)
        is_on = mode == pynvml.NVML_FEATURE_ENABLED
        accounted = card.calls.ask("accounting", self._lists.accounted, card.handle) if is_on else None
        if accounted is not None and card.accounted is not None:
            found |= accounted - card.accounted
        card.accounted = accounted
        return found


def _attempt(card: Card, work: Callable[[], Any], lost: set[str], failed: dict[str, str]) -> Any:
    """What `work` gives, or None: whatever is wrong with one card costs that card alone."""
    try:
        return work()
    except DeviceLostError:
        lost.add(card.uuid)
    except RestartNeededError:
        raise
    except Exception as error:
        failed[card.uuid] = text_of(error)
    return None


def _subjects(card: Card, parts: Iterable[Slice]) -> Iterator[Subject]:
    yield Subject(card.uuid, card.handle, card.calls)
    for part in parts:
        yield Subject(card.uuid, card.handle, part.calls, part.instance, part.uuid)


def _memory(calls: DeviceCalls, handle: Any) -> dict[str, int | None] | None:
    """Bytes of memory; `reserved` is None where only the first version of the call exists, whose `used` includes it."""
    memory = calls.ask("memory", pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if memory is not None:
        return {"total": memory.total, "used": memory.used, "reserved": memory.reserved}
    memory = calls.ask("memory v1", pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else {"total": memory.total, "used": memory.used, "reserved": None}


def _retirement_pending(calls: DeviceCalls, handle: Any, fields: dict[str, float]) -> int | None:
    """Whether bad pages wait for the next reset, on cards before row remapping (Volta and older)."""
    if "remap_failure" in fields:
        return None
    return calls.ask("pages pending", pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)


def _traffic(card: Card, fields: dict[str, float], activity: dict[str, float]) -> dict[str, float]:
    """Rates of links from counters, where GPM does not give them."""
    traffic = {} if "pcie_tx_mib_per_second" in activity else card.counters.pcie(fields)
    if "nvlink_tx_mib_per_second" not in activity:
        nvlink = card.counters.nvlink(card.calls, card.handle, fields.get("links", 0))
        if nvlink is not None:
            traffic["nvlink_bytes_per_second"] = nvlink
    return traffic
