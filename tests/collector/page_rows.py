"""Readings and holdings in the form that expected files write them."""

from __future__ import annotations

import dataclasses
from typing import Any

from gpuledger.model import Holding, QualityFlag, Reading

IDENTITY = {"ts", "node", "gpu_uuid", "slice_id", "source", "seen_at", "interval_seconds", "model", "slice_profile"}
COUNTED = {"invalid_count", "quality_flags"}


def row_of(reading: Reading) -> dict[str, Any]:
    """Who it is of, what was refused, and under `values` every value that there is."""
    fields = dataclasses.asdict(reading)
    flags = [name for name in dir(QualityFlag) if name.isupper() and reading.quality_flags & getattr(QualityFlag, name)]
    told = {
        "gpu": reading.gpu_uuid,
        "slice": reading.slice_id,
        "profile": reading.slice_profile,
        "node": reading.node,
        "model": reading.model,
        "invalid": reading.invalid_count,
        "flags": flags,
    }
    values = {name: of for name, of in fields.items() if name not in IDENTITY | COUNTED and of is not None}
    return {name: of for name, of in told.items() if of} | {"values": values}


def holding_of(holding: Holding) -> dict[str, Any]:
    """Who holds what part of which card or slice."""
    told = {
        "gpu": holding.gpu_uuid,
        "slice": holding.slice_id,
        "pod": f"{holding.namespace}/{holding.pod}",
        "container": holding.container,
        "share": holding.share,
    }
    return {name: of for name, of in told.items() if of}
