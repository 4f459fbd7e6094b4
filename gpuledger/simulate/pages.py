"""Pages as dcgm-exporter 4.x writes them, from the same blocks as the back-fill."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from gpuledger.errors import BadInput, SourceError
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.pods import CONTAINER
from gpuledger.simulate.script import Script
from gpuledger.simulate.spec import BLOCK_SECONDS
from gpuledger.simulate.telemetry import FB_RESERVED_MIB, MILLIONTHS, Block, Telemetry

DRIVER = "570.124.06"
KEPT_BLOCKS = 512


class Family(NamedTuple):
    """A metric: its name, type and help, the block's value it shows, and what to divide that by (0: a whole number)."""

    name: str
    type: str
    help: str
    key: str
    divisor: int = 0


FAMILIES = (
    Family("DCGM_FI_DEV_SM_CLOCK", "gauge", "SM clock frequency (in MHz).", "sm_mhz"),
    Family("DCGM_FI_DEV_MEM_CLOCK", "gauge", "Memory clock frequency (in MHz).", "mem_mhz"),
    Family("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Memory temperature (in C).", "mem_temp_c"),
    Family("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", "temp_c"),
    Family("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", "power_mw", 1000),
    Family(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", "Total energy consumption since boot (in mJ).", "energy_mj"
    ),
    Family("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", "util_pct"),
    Family("DCGM_FI_DEV_MEM_COPY_UTIL", "gauge", "Memory utilization (in %).", "copy_pct"),
    Family("DCGM_FI_DEV_ENC_UTIL", "gauge", "Encoder utilization (in %).", "zero"),
    Family("DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder utilization (in %).", "zero"),
    Family("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", "xid"),
    Family("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB).", "fb_free_mib"),
    Family("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB).", "fb_used_mib"),
    Family("DCGM_FI_DEV_FB_RESERVED", "gauge", "Framebuffer memory reserved (in MiB).", "fb_reserved_mib"),
    Family(
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active.", "gr_ppm", MILLIONTHS
    ),
    Family(
        "DCGM_FI_PROF_SM_ACTIVE",
        "gauge",
        "The ratio of cycles an SM has at least 1 warp assigned.",
        "sm_ppm",
        MILLIONTHS,
    ),
    Family(
        "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
        "gauge",
        "Ratio of cycles the tensor pipe is active.",
        "tensor_ppm",
        MILLIONTHS,
    ),
    Family(
        "DCGM_FI_PROF_DRAM_ACTIVE",
        "gauge",
        "Ratio of cycles the memory interface is sending or receiving.",
        "dram_ppm",
        MILLIONTHS,
    ),
    Family("DCGM_FI_PROF_PCIE_TX_BYTES", "gauge", "The rate of data sent over PCIe (in bytes a second).", "pcie_tx"),
    Family(
        "DCGM_FI_PROF_PCIE_RX_BYTES", "gauge", "The rate of data received over PCIe (in bytes a second).", "pcie_rx"
    ),
)
OWN_TO_A_SLICE = {"fb_free_mib", "fb_used_mib", "gr_ppm", "sm_ppm", "tensor_ppm", "dram_ppm"}
"""What differs between the slices of a card; of everything else each slice shows the card's."""
NOT_UNDER_MIG = {
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
}


class PageMaker:
    """Makes pages, keeping the blocks that they come from."""

    def __init__(self, script: Script, telemetry: Telemetry) -> None:
        self.script = script
        self.telemetry = telemetry
        self._hosts = {host.name: host for host in script.fleet.hosts}
        self._blocks: OrderedDict[tuple[int, int], Block] = OrderedDict()
        self._energy: dict[int, list[np.ndarray]] = {}
        self._holders: dict[int, list[tuple[int, int, str]]] = {}
        for run in telemetry.runs:
            labels = f'container="{CONTAINER}",namespace="{run.namespace}",pod="{run.name}"'
            for device in run.devices:
                self._holders.setdefault(device, []).append((run.start * 60, run.shown_until * 60, labels))

    def first_energy(self, hosts: range) -> np.ndarray:
        """What the energy counters of the devices of `hosts` read when the span begins, in millijoules."""
        fleet = self.script.fleet
        return np.array(
            [
                2_000_000_000_000 + 7_000_003 * device.card
                for host in hosts
                for device in (fleet.devices[row] for row in fleet.devices_of(fleet.hosts[host]))
            ],
            dtype=np.int64,
        )

    def page(self, node: str, second: int) -> bytes:
        """The page of `node` at `second` of the script."""
        host = self._hosts.get(node)
        if host is None:
            raise BadInput("node", "no such node")
        block = self._block(host, second // BLOCK_SECONDS)
        tick = (second % BLOCK_SECONDS) // self.script.spec.interval_seconds
        if not block.is_read[tick, 0]:
            raise SourceError("the exporter does not answer")
        rows = list(self._rows(host, block, tick, second))
        lines: list[str] = []
        for family in FAMILIES:
            lines += (f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.type}")
            for device, labels in rows:
                if self.script.fleet.devices[device].slice is None or family.name not in NOT_UNDER_MIG:
                    lines.append(f"{family.name}{{{labels}}} {self._value(family, block, tick, device)}")
        return ("\n".join(lines) + "\n").encode()

    def _value(self, family: Family, block: Block, tick: int, device: int) -> str:
        value = self._number(family.key, block, tick, device)
        return f"{value / family.divisor:.6f}" if family.divisor else str(value)

    def _number(self, key: str, block: Block, tick: int, device: int) -> int:
        if key == "zero":
            return 0
        if key == "mem_mhz":
            return self.script.fleet.host_of(self.script.fleet.devices[device].card).hardware.mem_clock_mhz
        if key == "fb_reserved_mib":
            return FB_RESERVED_MIB
        if key not in OWN_TO_A_SLICE:
            device = self.script.fleet.cards[self.script.fleet.devices[device].card].first_device
        column = device - block.devices.start
        if key == "fb_free_mib":
            used = int(block.values["fb_used_mib"][tick, column])
            return self.telemetry.fb_total_mib(device) - FB_RESERVED_MIB - used
        return int(block.values[key][tick, column])

    def _rows(self, host: Host, block: Block, tick: int, second: int) -> Iterator[tuple[int, str]]:
        fleet = self.script.fleet
        for device in fleet.devices_of(host):
            card = fleet.cards[fleet.devices[device].card]
            part = fleet.devices[device].slice
            if not block.is_shown[tick, device - block.devices.start] or (part is None and card.slices):
                continue
            base = f'gpu="{card.slot}",UUID="{card.gpu_uuid}",pci_bus_id="{card.pci_bus_id}",device="nvidia{card.slot}"'
            base += f',modelName="{host.hardware.product}"'
            if part is not None:
                base += f',GPU_I_PROFILE="{part.profile}",GPU_I_ID="{part.slice_id}"'
            base += f',Hostname="{host.name}",DCGM_FI_DRIVER_VERSION="{DRIVER}"'
            shown = [] if block.is_blank[tick, device - block.devices.start] else self._holders.get(device, [])
            holders = [pod for begin, end, pod in shown if begin <= second < end]
            if len(holders) <= 1:
                yield device, ",".join([base, *holders])
                continue
            yield device, base
            for slot, pod in enumerate(holders):
                yield device, f'{base},{pod},vgpu="{slot}"'

    def _block(self, host: Host, number: int) -> Block:
        key = (host.index, number)
        if key not in self._blocks:
            self._blocks[key] = self._make(host, number)
            while len(self._blocks) > KEPT_BLOCKS:
                self._blocks.popitem(last=False)
        return self._blocks[key]

    def _make(self, host: Host, number: int) -> Block:
        hosts = range(host.index, host.index + 1)
        known = self._energy.setdefault(host.index, [self.first_energy(hosts)])
        while len(known) <= number:
            earlier = self.telemetry.block(len(known) - 1, hosts, known[-1])
            known.append(earlier.values["energy_mj"][-1])
        return self.telemetry.block(number, hosts, known[number])
