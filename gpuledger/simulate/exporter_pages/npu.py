"""Pages as Huawei's npu-exporter writes them: whole percents, every sample dated by when its group was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from gpuledger.simulate.exporter_pages.sheet import Row, Sheet
from gpuledger.simulate.fleet import MigSlice

MANY = "NotDisplayedForMultiPod"
HBM_LATER_MS = 4_700
CHIP_AFTER_MS = 350
PERCENT_PPM = 10_000


class Family(NamedTuple):
    """A metric of a chip: its name and help, and its value from the sheet; `is_hbm`: of chips that have HBM only."""

    name: str
    help: str
    value: Callable[[Sheet, int], float]
    is_hbm: bool = False


def _own(key: str, divisor: int = 1) -> Callable[[Sheet, int], float]:
    return lambda sheet, device: sheet.own(key, device) / divisor


def _percent(key: str) -> Callable[[Sheet, int], float]:
    return lambda sheet, device: round(sheet.own(key, device) / PERCENT_PPM)


def _fault(sheet: Sheet, device: int) -> float:
    number = sheet.own("npu_fault", device)
    return sheet.telemetry.script.ailments[number - 1].code if number else 0


def _total(sheet: Sheet, device: int) -> float:
    return sheet.telemetry.fb_total_mib(device)


FAMILIES = (
    Family("npu_chip_info_error_code", "the npu error code", _fault),
    Family("npu_chip_info_aicore_current_freq", "the npu ai core current frequency, unit is 'MHz'", _own("sm_mhz")),
    Family(
        "npu_chip_info_bandwidth_rx",
        "the npu interface receive speed, unit is 'MB/s'",
        _own("pcie_rx", 10**6),
        is_hbm=True,
    ),
    Family(
        "npu_chip_info_bandwidth_tx",
        "the npu interface transport speed, unit is 'MB/s'",
        _own("pcie_tx", 10**6),
        is_hbm=True,
    ),
    Family(
        "npu_chip_info_hbm_bandwidth_utilization", "the npu hbm bandwidth util rate", _percent("dram_ppm"), is_hbm=True
    ),
    Family("npu_chip_info_hbm_temperature", "the npu hbm temperature", _own("mem_temp_c"), is_hbm=True),
    Family("npu_chip_info_health_status", "the npu health status", lambda *_: 1),
    Family("npu_chip_info_overall_utilization", "the overall utilization of npu", _own("util_pct"), is_hbm=True),
    Family("npu_chip_info_power", "the npu power", _own("power_mw", 1000)),
    Family("npu_chip_info_temperature", "the npu temperature", _own("temp_c")),
)
OF_WHOLE_CHIPS = (Family("npu_chip_info_utilization", "the ai core utilization", _percent("sm_ppm")),)
MEMORY = {
    True: (
        Family("npu_chip_info_hbm_total_memory", "the npu hbm total memory", _total),
        Family("npu_chip_info_hbm_used_memory", "the npu hbm used memory", _own("fb_used_mib")),
    ),
    False: (
        Family("npu_chip_info_total_memory", "the npu total memory", _total),
        Family("npu_chip_info_used_memory", "the npu used memory", _own("fb_used_mib")),
    ),
}
"""Of chips with HBM, and of those without. A chip in parts shows neither, nor its AI Cores: the parts do."""
PARTS = (
    Family("vnpu_pod_aicore_utilization", "the vnpu aicore utilization rate, unit is '%'", _percent("sm_ppm")),
    Family("vnpu_pod_total_memory", "the vnpu total memory on pod, unit is 'KB'", lambda s, d: _total(s, d) * 1024),
    Family(
        "vnpu_pod_used_memory",
        "the vnpu used memory on pod, unit is 'KB'",
        lambda sheet, device: sheet.own("fb_used_mib", device) * 1024,
    ),
)


def page(sheet: Sheet) -> bytes:
    """The page of `sheet`: families in the order of their names, in each the chips in order."""
    chips = {row.card.index: row for row in sheet.rows}
    whole = [row for row in chips.values() if row.slice is None]
    lines = ["# HELP machine_npu_nums Amount of npu installed on the machine.", "# TYPE machine_npu_nums gauge"]
    lines.append(f"machine_npu_nums {len(chips)}")
    has_hbm = sheet.host.hardware.has_hbm
    of_chips = [family for family in FAMILIES if has_hbm or not family.is_hbm]
    for family in sorted((*of_chips, *OF_WHOLE_CHIPS, *MEMORY[has_hbm]), key=attrgetter("name")):
        rows: Sequence[Row] = list(chips.values()) if family in of_chips else whole
        lines += _family(family, (_chip(sheet, family, row) for row in rows))
    for family in PARTS:
        lines += _family(family, (_part(sheet, family, row, row.slice) for row in sheet.rows if row.slice is not None))
    return ("\n".join(lines) + "\n").encode()


def _family(family: Family, samples: Iterator[str]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} gauge"
    yield from samples


def _chip(sheet: Sheet, family: Family, row: Row) -> str:
    card = row.card
    labels = (
        f'{_holder(row) if row.slice is None else _holder(None)},id="{card.slot}",model_name="{_model(sheet)}"'
        f',pcie_bus_info="{card.pci_bus_id}",vdie_id="{card.gpu_uuid}"'
    )
    return f"{family.name}{{{labels}}} {family.value(sheet, card.first_device)} {_measured(sheet, family, row)}"


def _part(sheet: Sheet, family: Family, row: Row, part: MigSlice) -> str:
    labels = (
        f'aicore_count="{part.profile}",{_holder(row)},id="{row.card.slot}",is_virtual="false"'
        f',model_name="{_model(sheet)}",v_dev_id="{part.slice_id}"'
    )
    return f"{family.name}{{{labels}}} {family.value(sheet, row.device)} {_measured(sheet, family, row)}"


def _model(sheet: Sheet) -> str:
    return f"{sheet.host.hardware.model.removeprefix('Ascend ')}-Ascend-V1"


def _holder(row: Row | None) -> str:
    """The labels that name a pod: empty without one, and of several none is named."""
    holders = [] if row is None else row.holders
    if len(holders) == 1:
        of = holders[0]
        return f'container_name="{of.container}",namespace="{of.namespace}",pod_name="{of.pod}"'
    name = MANY if holders else ""
    return f'container_name="{name}",namespace="{name}",pod_name="{name}"'


def _measured(sheet: Sheet, family: Family, row: Row) -> int:
    """Milliseconds from 1970 at which the sample was taken: some seconds before the page is read."""
    read = sheet.telemetry.script.spec.start_at.timestamp() + sheet.second
    group = HBM_LATER_MS if "_hbm_" in family.name else 0
    return int(read * 1000) - CHIP_AFTER_MS * (8 - row.card.slot) - group
