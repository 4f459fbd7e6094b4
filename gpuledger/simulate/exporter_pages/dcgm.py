"""Pages as dcgm-exporter 4.x writes them, from the same blocks as the back-fill."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gpuledger.simulate.exporter_pages.sheet import Row, Sheet
from gpuledger.simulate.telemetry import FB_RESERVED_MIB, MILLIONTHS

DRIVER = "570.124.06"


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


def page(sheet: Sheet) -> bytes:
    """The page of `sheet`: families in turn, in each the devices in order."""
    rows = [(row, labels) for row in sheet.rows for labels in _labels(sheet, row)]
    lines: list[str] = []
    for family in FAMILIES:
        lines += (f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.type}")
        for row, labels in rows:
            if row.slice is None or family.name not in NOT_UNDER_MIG:
                lines.append(f"{family.name}{{{labels}}} {_value(sheet, family, row.device)}")
    return ("\n".join(lines) + "\n").encode()


def _value(sheet: Sheet, family: Family, device: int) -> str:
    value = _number(sheet, family.key, device)
    return f"{value / family.divisor:.6f}" if family.divisor else str(value)


def _number(sheet: Sheet, key: str, device: int) -> int:
    if key == "zero":
        return 0
    if key == "mem_mhz":
        return sheet.host.hardware.mem_clock_mhz
    if key == "fb_reserved_mib":
        return FB_RESERVED_MIB
    if key == "fb_free_mib":
        return sheet.fb_free_mib(device)
    return sheet.own(key, device) if key in OWN_TO_A_SLICE else sheet.of_card(key, device)


def _labels(sheet: Sheet, row: Row) -> Iterator[str]:
    """One set of labels for a card or slice; where pods share it, one for each of them besides."""
    card = row.card
    base = f'gpu="{card.slot}",UUID="{card.gpu_uuid}",pci_bus_id="{card.pci_bus_id}",device="nvidia{card.slot}"'
    base += f',modelName="{sheet.host.hardware.product}"'
    if row.slice is not None:
        base += f',GPU_I_PROFILE="{row.slice.profile}",GPU_I_ID="{row.slice.slice_id}"'
    base += f',Hostname="{sheet.host.name}",DCGM_FI_DRIVER_VERSION="{DRIVER}"'
    pods = [f'container="{of.container}",namespace="{of.namespace}",pod="{of.pod}"' for of in row.holders]
    if len(pods) <= 1:
        yield ",".join([base, *pods])
        return
    yield base
    for slot, pod in enumerate(pods):
        yield f'{base},{pod},vgpu="{slot}"'
