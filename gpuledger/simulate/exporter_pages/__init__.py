"""Pages of simulated hosts, as the exporter of the host's vendor writes them: one module for each exporter.

Each has `page(sheet) -> bytes`; `FORMATS` says which hosts show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from gpuledger.simulate.exporter_pages import amd, dcgm, hami, npu
from gpuledger.simulate.exporter_pages.sheet import Sheet

FORMATS: Mapping[str, Callable[[Sheet], bytes]] = MappingProxyType(
    {"nvidia": dcgm.page, "ascend": npu.page, "amd": amd.page, "hami": hami.page}
)
"""Of a vendor, or of what shares its cards, the format; a vendor that is not here shows NVIDIA's."""


def page(sheet: Sheet) -> bytes:
    """The page that the host of `sheet` shows."""
    return FORMATS.get(sheet.host.hardware.sharing or sheet.host.hardware.facts.vendor, dcgm.page)(sheet)
