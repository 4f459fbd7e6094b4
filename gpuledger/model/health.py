"""What goes wrong with hardware, as drivers, fabrics and nodes tell it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, quantity
from gpuledger.model.vocabulary import FAULT_KINDS, VENDORS


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultEvent:
    """A fault that a driver, a kernel log or a fabric told at `ts`. Grain: (`ts`, `node`, `gpu_uuid`, `kind`, `code`).

    `code` is the vendor's own ("79" of an XID; an NPU's fault code in hexadecimal). `gpu_uuid` is empty for a node.
    """

    ts: datetime
    node: str
    gpu_uuid: str = ""
    vendor: str = choice(VENDORS, default="nvidia")
    kind: str = choice(FAULT_KINDS)
    code: str = ""
    source: str = ""
    detail: str | None = None
    count: int = quantity("count", low=1)
