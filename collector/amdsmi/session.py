"""One process's use of amdsmi: cards and partitions, read in passes. Values stay in the library's own units.

Runs inside the child process only: any call may hang in the kernel for ever. The module belongs to the ROCm that is
installed, and differs between releases: what it does not have, or does not answer, is None.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

Announce = Callable[[str], None]

INIT = "init"
"""The place where the library starts and lists its cards; a card's place is its number, "gpu 3"."""


class Session:
    """The library, started. `library` is the module amdsmi. Raises what the module raises."""

    def __init__(self, library: Any, announce: Announce) -> None:
        announce(INIT)
        self._library = library
        library.amdsmi_init()

    def read(self, skip: Collection[str], announce: Announce) -> dict[str, Any]:
        """One pass over all cards and partitions except those at `skip`."""
        announce(INIT)
        devices = []
        for number, handle in enumerate(self._library.amdsmi_get_processor_handles()):
            place = f"gpu {number}"
            if place not in skip:
                announce(place)
                devices.append({"place": place, "index": number, **self._device(handle)})
        return {"devices": devices}

    def _device(self, handle: Any) -> dict[str, Any]:
        kinds, metrics, clocks = (
            getattr(self._library, name, None)
            for name in ("AmdSmiTemperatureType", "AmdSmiTemperatureMetric", "AmdSmiClkType")
        )
        current = getattr(metrics, "CURRENT", None)
        return {
            "uuid": self._ask("amdsmi_get_gpu_device_uuid", handle),
            "board": self._ask("amdsmi_get_gpu_board_info", handle),
            "asic": self._ask("amdsmi_get_gpu_asic_info", handle),
            "partition": self._ask("amdsmi_get_gpu_accelerator_partition_profile", handle),
            "activity": self._ask("amdsmi_get_gpu_activity", handle),
            "power": self._ask("amdsmi_get_power_info", handle),
            "energy": self._ask("amdsmi_get_energy_count", handle),
            "memory": self._ask("amdsmi_get_gpu_vram_usage", handle),
            "celsius": self._ask("amdsmi_get_temp_metric", handle, getattr(kinds, "HOTSPOT", None), current),
            "memory_celsius": self._ask("amdsmi_get_temp_metric", handle, getattr(kinds, "VRAM", None), current),
            "clock": self._ask("amdsmi_get_clock_info", handle, getattr(clocks, "GFX", None)),
            "memory_clock": self._ask("amdsmi_get_clock_info", handle, getattr(clocks, "MEM", None)),
            "ecc": self._ask("amdsmi_get_gpu_total_ecc_count", handle),
        }

    def _ask(self, name: str, handle: Any, *arguments: Any) -> Any:
        """What function `name` says of `handle`; None where it is not there, or says no."""
        function = getattr(self._library, name, None)
        if function is None or None in arguments:
            return None
        try:
            return function(handle, *arguments)
        except Exception:  # the module's own errors differ by release: one value less
            return None
