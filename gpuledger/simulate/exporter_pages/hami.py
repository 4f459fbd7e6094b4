"""Pages of HAMi 2.9: the monitor's of one host, and the scheduler's of all hosts that share cards with it.

The monitor shows what cards do, and containers without the part that they were given; a container's own utilization
stays at 0, as HAMi's does where its cores are not limited. What was given is on the scheduler's page only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gpuledger.simulate.exporter_pages.sheet import Holder, Row, Sheet
from gpuledger.simulate.fleet import Card, Host

ZONE = 'zone="vGPU"'
MIB = 2**20


class Family(NamedTuple):
    """A metric of a card: its name, the block's value that it shows, what to multiply that with and divide it by."""

    name: str
    key: str
    times: int = 1
    divided_by: int = 1


FAMILIES = (
    Family("hami_host_gpu_utilization_ratio", "util_pct"),
    Family("hami_host_gpu_memory_controller_utilization_ratio", "copy_pct"),
    Family("hami_host_gpu_memory_used_bytes", "fb_used_mib", times=MIB),
    Family("hami_host_gpu_temperature_celsius", "temp_c"),
    Family("hami_host_gpu_power_usage_watts", "power_mw", divided_by=1000),
)

Given = tuple[Host, Card, Sequence[Holder]]
"""A card, and who was given parts of it."""


def page(sheet: Sheet) -> bytes:
    """The monitor's page of `sheet`."""
    host, lines = sheet.host, list[str]()
    for family in FAMILIES:
        lines.append(f"# TYPE {family.name} gauge")
        for row in sheet.rows:
            value = sheet.own(family.key, row.device) * family.times / family.divided_by
            lines.append(f"{family.name}{{{_card(host, row.card)},{ZONE}}} {value:.17g}")
    held = [(row, holder) for row in sheet.rows for holder in row.holders]
    lines += _family("hami_vgpu_memory_limit_bytes", (_limit(host, *one) for one in held))
    lines += _family("hami_container_device_utilization_ratio", (f"{{{_container(*one)},{ZONE}}} 0" for one in held))
    return ("\n".join(lines) + "\n").encode()


def scheduler_page(given: Iterable[Given]) -> bytes:
    """The scheduler's page of the cards in `given`."""
    given = list(given)
    sizes = (f"{{{_card(host, card)},{ZONE}}} {host.hardware.fb_total_mib * MIB}" for host, card, _ in given)
    parts = [(_part(host, card, one), host, one) for host, card, holders in given for one in holders]
    lines = _family("hami_gpu_memory_limit_bytes", sizes)
    lines += _family(
        "hami_vgpu_memory_allocated_bytes",
        (f"{labels} {_memory_mib(host, one) * MIB}" for labels, host, one in parts),
    )
    lines += _family("hami_vgpu_core_allocated_ratio", (f"{labels} {one.share * 100:.17g}" for labels, _, one in parts))
    return ("\n".join(lines) + "\n").encode()


def _family(name: str, samples: Iterable[str]) -> list[str]:
    return [f"# TYPE {name} gauge", *(name + sample for sample in samples)]


def _card(host: Host, card: Card) -> str:
    product = f'device_type="NVIDIA-{host.hardware.product}"'
    return f'device_index="{card.slot}",{product},device_uuid="{card.gpu_uuid}",node="{host.name}"'


def _container(row: Row, holder: Holder) -> str:
    of = f'container="{holder.container}",device_uuid="{row.card.gpu_uuid}"'
    return f'{of},namespace="{holder.namespace}",pod="{holder.pod}",vdevice_index="0"'


def _limit(host: Host, row: Row, holder: Holder) -> str:
    return f"{{{_container(row, holder)},{ZONE}}} {_memory_mib(host, holder) * MIB}"


def _part(host: Host, card: Card, holder: Holder) -> str:
    of = f'container_index="0",device_uuid="{card.gpu_uuid}",namespace="{holder.namespace}"'
    return f'{{{of},node="{host.name}",pod="{holder.pod}",{ZONE}}}'


def _memory_mib(host: Host, holder: Holder) -> int:
    """Pods get less memory than cores here: what counts is the larger part."""
    return int(host.hardware.fb_total_mib * holder.share * 0.75)
