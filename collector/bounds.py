"""What a value may be before it is believed: the bounds that the record's own fields state, and closer ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType

from gpuledger.model import Reading

_WHOLE_NUMBER_BOUND = 2.0**53  # above, a float is no longer one certain integer

_PLAUSIBLE = {
    # Links: the fastest card moves under 4 TB/s; without this bound a byte counter would pass for a rate.
    "nvlink_bytes_per_second": (0.0, 4e12),
    "nvlink_tx_bytes_per_second": (0.0, 4e12),
    "nvlink_rx_bytes_per_second": (0.0, 4e12),
    # Energy since the driver was loaded: 20 years at 1.5 kW. A blank code that was scaled lies above.
    "energy_joules": (0.0, 1e12),
    # Counts and masks of 32 bits; blank codes of that width begin at 2**31 - 16.
    "throttle_reasons": (0.0, 2.0**30),
    "ecc_uncorrected_count": (0.0, 1e9),
    "pcie_replay_count": (0.0, 1e9),
    # At most 512 rows of a card can be remapped.
    "row_remap_uncorrectable_count": (0.0, 1e6),
    "row_remap_correctable_count": (0.0, 1e6),
}


def _bounds() -> dict[str, tuple[float, float]]:
    bounds = {}
    for column in dataclasses.fields(Reading):
        low, high = column.metadata.get("low"), column.metadata.get("high")
        if low is not None:
            bounds[column.name] = (low, _WHOLE_NUMBER_BOUND if high is None else high)
    return bounds | _PLAUSIBLE


BOUNDS: Mapping[str, tuple[float, float]] = MappingProxyType(_bounds())
"""Inclusive physical bounds of a reading's columns, in the column's unit."""

WHOLE_COLUMNS = frozenset(column.name for column in dataclasses.fields(Reading) if "int" in str(column.type))
"""Columns of a reading that hold whole numbers."""
