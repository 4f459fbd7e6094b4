"""How the ResourceManager writes lists, resources and times. Its releases write them differently.

A list is a list; of one element it may be that element alone; of none it may be null, "" or absent (releases with
Jettison up to 3.4, MOXy after).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gpuledger.errors import BadInput

GPU = "yarn.io/gpu"
GPU_RECORD = "yarn_io_gpu"
"""As `pod.resource` and `node_state.resource` spell it."""
UNLIMITED = 2**31 - 1
"""From here on an amount is the largest that fits a number: no limit."""

Json = Mapping[str, Any]
Amounts = Mapping[str, float]


def listed(told: Any) -> list[Json]:
    """A list, whichever way it was written. Raises BadInput for what is none."""
    if told is None or told == "":
        return []
    if isinstance(told, Mapping):
        return [told]
    if isinstance(told, list):
        return [one for one in told if isinstance(one, Mapping)]
    raise BadInput("list", f"{str(told)[:40]!r} is none")


def within(told: Any, *names: str) -> Any:
    """The value below `names`, None where one of them is absent or empty."""
    for name in names:
        if not isinstance(told, Mapping):
            return None
        told = told.get(name)
    return told


def number(value: Any, field: str) -> float:
    """A number that may be written as a text. Raises BadInput naming `field` for a negative or any other value."""
    try:
        read = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else -1.0
    except ValueError:
        read = -1.0
    if not 0 <= read < float("inf"):
        raise BadInput(field, f"{str(value)[:40]!r} is no amount")
    return read


def amounts(told: Any, field: str) -> Amounts | None:
    """A ResourceInfo's amounts by the resource's name; None where it is absent. Raises BadInput naming `field`."""
    if not isinstance(told, Mapping):
        return None
    named = listed(within(told, "resourceInformations", "resourceInformation"))
    if named:
        return {str(one.get("name")): number(one.get("value"), f"{field}.{one.get('name')}") for one in named}
    plain = (("memory-mb", "memory"), ("vcores", "vCores"))
    return {name: number(told[key], f"{field}.{key}") for name, key in plain if key in told}


def entries(told: Any, field: str) -> Amounts:
    """A map of resources to amounts: {"entry": [{"key", "value"}]}, or an object."""
    if isinstance(told, Mapping) and "entry" not in told:
        return {name: number(value, f"{field}.{name}") for name, value in told.items()}
    rows = listed(within(told, "entry"))
    return {str(one.get("key")): number(one.get("value"), f"{field}.{one.get('key')}") for one in rows}


def by_partition(told: Any, kind: str, part: str) -> dict[str, Amounts | None]:
    """`part` of each element of a list of partitions: `resourceUsagesByPartition`, `queueCapacitiesByPartition`."""
    found = {}
    for one in listed(within(told, kind)):
        found[str(one.get("partitionName") or "")] = amounts(one.get(part), part)
    return found


def total(parts: Mapping[str, Amounts | None], resource: str) -> float:
    """The sum over partitions; what was not told adds nothing."""
    return sum((part or {}).get(resource, 0.0) for part in parts.values())


def instant(value: Any) -> datetime | None:
    """Milliseconds since 1970; 0 and nothing are None. Raises BadInput for what no time can be."""
    if value in (None, "", 0, "0"):
        return None
    seconds = number(value, "time") / 1000
    if seconds > 4_102_444_800:  # the year 2100
        raise BadInput("time", f"{value} is no time in milliseconds")
    return datetime.fromtimestamp(seconds, UTC)
