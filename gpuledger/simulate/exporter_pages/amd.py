"""Pages as AMD's device-metrics-exporter writes them: percents, MB that are MiB, microjoules.

Each partition of a divided card repeats what is the card's, with power 0 from the second one on; its graphics activity
is the card's, divided among partitions, which measures none of them. Their dies do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gpuledger.simulate.exporter_pages.sheet import Row, Sheet
from gpuledger.simulate.telemetry import FB_RESERVED_MIB

DIES = 8
"""Dies of an MI300X."""
SERIES = 'card_model="102-G30211-0C",card_vendor="AMD",driver_version="6.12.12"'
PERCENT_PPM = 10_000
MEMORY_MODES = {"cpx": "nps4", "dpx": "nps2"}
UNEVEN_PCT = 7
"""How far dies are from their mean."""


class Family(NamedTuple):
    """A metric: its name, its value from the sheet, and further labels; `is_whole`: of undivided cards only.

    `is_profiled` are shown by exporters that were told to.
    """

    name: str
    value: Callable[[Sheet, Row], float]
    labels: str = ""
    is_whole: bool = False
    is_profiled: bool = False


def _own(key: str, divisor: int = 1) -> Callable[[Sheet, Row], float]:
    return lambda sheet, row: sheet.own(key, row.device) / divisor


def _card(key: str, factor: int = 1) -> Callable[[Sheet, Row], float]:
    return lambda sheet, row: sheet.of_card(key, row.device) * factor


def _power(sheet: Sheet, row: Row) -> float:
    return 0 if row.slice is not None and row.slice.slice_id != "0" else sheet.of_card("power_mw", row.device) / 1000


def _graphics(sheet: Sheet, row: Row) -> float:
    return sheet.own("util_pct", row.device) if row.slice is None else 13


def _total(sheet: Sheet, row: Row) -> float:
    return sheet.telemetry.fb_total_mib(row.device)


def _used(sheet: Sheet, row: Row) -> float:
    return sheet.own("fb_used_mib", row.device)


FAMILIES = (
    Family("gpu_gfx_activity", _graphics),
    Family("gpu_umc_activity", _own("copy_pct"), is_whole=True),
    Family("gpu_package_power", _power),
    Family("gpu_energy_consumed", _card("energy_mj", 1000)),
    Family("gpu_total_vram", _total),
    Family("gpu_used_vram", _used),
    Family("gpu_free_vram", lambda sheet, row: _total(sheet, row) - _used(sheet, row) - FB_RESERVED_MIB),
    Family("gpu_junction_temperature", _card("temp_c")),
    Family("gpu_memory_temperature", _card("mem_temp_c")),
    Family("gpu_clock", _card("sm_mhz"), ',clock_index="0",clock_type="system"'),
    Family("gpu_clock", lambda sheet, _: sheet.host.hardware.mem_clock_mhz, ',clock_index="8",clock_type="memory"'),
    Family("gpu_prof_sm_active", _own("sm_ppm", PERCENT_PPM), is_whole=True, is_profiled=True),
    Family("gpu_prof_gui_util_percent", _own("gr_ppm", PERCENT_PPM), is_whole=True, is_profiled=True),
    Family("gpu_prof_tensor_active_percent", _own("tensor_ppm", PERCENT_PPM), is_whole=True, is_profiled=True),
    Family("gpu_health", lambda *_: 1),
)


def page(sheet: Sheet) -> bytes:
    """The page of `sheet`: families in turn, in each the cards and partitions in order."""
    rows = [(row, _labels(sheet, row, number)) for number, row in enumerate(sheet.rows)]
    lines = ["# TYPE gpu_nodes_total gauge", f'gpu_nodes_total{{hostname="{sheet.host.name}"}} {len(rows)}']
    before = ""
    for family in FAMILIES:
        if family.is_profiled and not sheet.host.hardware.shows_profiling:
            continue
        if family.name != before:
            lines.append(f"# TYPE {family.name} gauge")
        before = family.name
        lines += [
            f"{family.name}{{{labels}{family.labels}}} {family.value(sheet, row):.17g}"
            for row, labels in rows
            if row.slice is None or not family.is_whole
        ]
    lines.append("# TYPE gpu_gfx_busy_instantaneous gauge")
    for row, labels in rows:
        lines += _dies(sheet, row, labels)
    return ("\n".join(lines) + "\n").encode()


def _dies(sheet: Sheet, row: Row, labels: str) -> Iterator[str]:
    """What each die of a card or partition does: as much as the whole, some a little more and others less."""
    mean = sheet.own("util_pct", row.device)
    count = DIES if row.slice is None else max(1, round(DIES * row.slice.share))
    apart = min(UNEVEN_PCT, mean, 100 - mean) if count > 1 else 0
    for die in range(count):
        value = mean + (apart if die % 2 else -apart)
        yield f'gpu_gfx_busy_instantaneous{{{labels},xcc_index="{die}"}} {value}'


def _labels(sheet: Sheet, row: Row, number: int) -> str:
    card, part = row.card, row.slice
    mode, partition = ("spx", "0") if part is None else (part.profile, part.slice_id)
    pod, *_ = [f'container="{of.container}",namespace="{of.namespace}",pod="{of.pod}"' for of in row.holders] or [
        'container="",namespace="",pod=""'
    ]
    return (
        f'{SERIES},card_series="{sheet.host.hardware.product}",gpu_compute_partition_type="{mode}",gpu_id="{number}"'
        f',gpu_memory_partition_type="{MEMORY_MODES.get(mode, "nps1")}",gpu_partition_id="{partition}"'
        f',gpu_uuid="{card.gpu_uuid}",hostname="{sheet.host.name}",job_id="",{pod},serial_number=""'
    )
