"""The cards and slices of one process's NVML: found, named, and told apart.

A card that does not say who it is (lost at the start, garbage for a name) is looked for again in every pass.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import pynvml

from collector.nvml.calls import DeviceCalls, DeviceLostError, give_up_if_useless, is_lost
from collector.nvml.counters import Counters
from collector.nvml.events import address
from collector.nvml.places import INDEX

_MAX_CARDS = 256
_MAX_SLICES = 64
_MAX_INSTANCE = 255
_MAX_PROFILE = 64
_UUID = re.compile(r"GPU-[\x21-\x7e]{1,92}", re.ASCII)
_PROFILE = re.compile(r"\b(\d+g\.\d+gb)\b", re.ASCII)
_NO_NAME = ""


@dataclass(slots=True)
class Card:
    """A physical GPU.

    `seen_us` is the driver's time of its latest utilization sample of a process, 0 before the first; `accounted` the
    processes that the driver kept accounts of in the last pass (None: not asked yet, or switched off).
    """

    uuid: str
    name: str
    handle: Any
    calls: DeviceCalls = field(default_factory=DeviceCalls)
    counters: Counters = field(default_factory=lambda: Counters(time.monotonic))
    has_events: bool | None = None
    is_sliced: bool | None = None
    slice_calls: dict[str, DeviceCalls] = field(default_factory=dict)
    seen_us: int = 0
    accounted: set[int] | None = None


@dataclass(slots=True)
class Slice:
    """A GPU instance. `handles` are those of its compute instances; the first one speaks for its memory."""

    uuid: str
    instance: int
    profile: str | None
    handles: list[Any]
    calls: DeviceCalls


class Devices:
    """All cards that were found so far. `find` looks for the others."""

    def __init__(self) -> None:
        self.cards: list[Card] = []
        self.nameless: dict[int, bool] = {}
        """Positions at which a card is that did not say who it is; whether it is lost."""
        self._count = 0
        self._found: set[int] = set()

    def find(self, skip: Collection[str], announce: Callable[[str], None]) -> None:
        """Ask for the cards that are not known yet, but those in `skip`. Raises RestartNeededError, NVMLError."""
        if not self._count:
            self._count = min(pynvml.nvmlDeviceGetCount(), _MAX_CARDS)
        for position in range(self._count):
            place = f"{INDEX}{position}"
            if position in self._found or place in skip:
                continue
            announce(place)
            self.nameless.pop(position, None)
            card, has_gone = _found(position)
            if card is None or card.uuid in {known.uuid for known in self.cards}:
                self.nameless[position] = has_gone
            else:
                self._found.add(position)
                self.cards.append(card)

    @property
    def addresses(self) -> dict[int, str]:
        """The UUID at each handle's address."""
        return {address(card.handle): card.uuid for card in self.cards}


def _found(position: int) -> tuple[Card | None, bool]:
    """The card at `position`; None, and whether it is lost, for one that does not say its UUID."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(position)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
    except pynvml.NVMLError as error:
        give_up_if_useless(error)
        return None, is_lost(error.value)
    except Exception:  # bytes that are no text
        return None, False
    if not _UUID.fullmatch(uuid):
        return None, False
    return Card(uuid, _name(handle), handle), False


def _name(handle: Any) -> str:
    try:
        name: str = pynvml.nvmlDeviceGetName(handle)
    except pynvml.NVMLError as error:
        give_up_if_useless(error)
        return _NO_NAME
    except Exception:  # bytes that are no text
        return _NO_NAME
    return name if name.isprintable() else _NO_NAME


def slices(card: Card) -> list[Slice]:
    """The card's GPU instances; several compute instances in one are one slice. Raises DeviceLostError."""
    mode = card.calls.ask("mig mode", pynvml.nvmlDeviceGetMigMode, card.handle)
    is_sliced = mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    if card.is_sliced is not None and is_sliced != card.is_sliced:
        # What a whole card offers is not what a sliced one does.
        card.calls.forget()
        card.counters.forget()
    card.is_sliced = is_sliced
    if not is_sliced:
        card.slice_calls.clear()
        return []
    found: dict[int, Slice] = {}
    for uuid, handle in _parts(card):
        calls = card.slice_calls.setdefault(uuid, DeviceCalls())
        calls.is_partial = False
        instance = calls.ask("instance", pynvml.nvmlDeviceGetGpuInstanceId, handle)
        if instance is None or instance > _MAX_INSTANCE:
            card.calls.is_partial = True
        elif instance in found:
            found[instance].handles.append(handle)
        else:
            found[instance] = Slice(uuid, instance, _profile(calls, handle), [handle], calls)
    kept = {part.uuid for part in found.values()}
    card.slice_calls = {uuid: calls for uuid, calls in card.slice_calls.items() if uuid in kept}
    return list(found.values())


def _parts(card: Card) -> Iterator[tuple[str, Any]]:
    """(UUID, handle) of each compute instance. The UUID is another one when an instance was made anew."""
    count = card.calls.ask("mig count", pynvml.nvmlDeviceGetMaxMigDeviceCount, card.handle) or 0
    for position in range(min(count, _MAX_SLICES)):
        try:
            handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, position)
        except pynvml.NVMLError as error:
            give_up_if_useless(error)
            if is_lost(error.value):
                raise DeviceLostError(f"NVML {error.value}") from error
            continue  # an empty position
        uuid = card.calls.ask("mig uuid", pynvml.nvmlDeviceGetUUID, handle) or f"{card.uuid}/{position}"
        yield uuid, handle


def _profile(calls: DeviceCalls, handle: Any) -> str | None:
    """The slice's profile ("3g.40gb"), from its name or, where the name lacks it, from its attributes."""
    match = _PROFILE.search(calls.ask("name", pynvml.nvmlDeviceGetName, handle) or "")
    if match is not None:
        return match[1]
    attributes = calls.ask("attributes", pynvml.nvmlDeviceGetAttributes, handle)
    if attributes is None or attributes.gpuInstanceSliceCount > _MAX_PROFILE:
        return None
    return f"{attributes.gpuInstanceSliceCount}g.{-(-attributes.memorySizeMB // 1024)}gb"
