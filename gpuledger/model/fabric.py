"""The network between nodes: what each port of InfiniBand, RoCE and Omni-Path adapters told of itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, interval, measure
from gpuledger.model.vocabulary import LINK_LAYERS, LINK_STATES, PHYSICAL_STATES

MOST_COUNTED = 2**62
"""A port of 400 Gbit/s needs two years to carry as many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReading:
    """What one port of a network adapter told at `ts`. Grain: (`node`, `device`, `port`, `source`, `ts`).

    Everything below `rate_bits_per_second` is a counter since the driver was loaded, which may start anew; bytes are
    whole bytes, whatever words the driver counts in. `wait_ticks` are moments in which data waited unsent;
    how long a tick lasts is the adapter's. The `congestion_` columns and those below are RoCE's and Omni-Path's.
    `at_least` names, in order and separated by commas, the counters that stand at the end of their range: they stick
    there, so that their value is a lower bound and their rate is unknown. None: not told, or no measurement.
    """

    ts: datetime
    node: str
    device: str
    port: str
    source: str
    interval_seconds: float | None = interval()
    link_layer: str = choice(LINK_LAYERS, default="unknown")
    state: str = choice(LINK_STATES, default="unknown")
    physical_state: str = choice(PHYSICAL_STATES, default="unknown")
    rate_bits_per_second: float | None = measure("bits/second", low=0, high=1e14)
    sent_bytes: int | None = measure("bytes", low=0, high=MOST_COUNTED)
    received_bytes: int | None = measure("bytes", low=0, high=MOST_COUNTED)
    sent_packets: int | None = measure("packets", low=0, high=MOST_COUNTED)
    received_packets: int | None = measure("packets", low=0, high=MOST_COUNTED)
    wait_ticks: int | None = measure("ticks", low=0, high=MOST_COUNTED)
    symbol_errors: int | None = measure("count", low=0, high=MOST_COUNTED)
    received_errors: int | None = measure("packets", low=0, high=MOST_COUNTED)
    sent_discards: int | None = measure("packets", low=0, high=MOST_COUNTED)
    link_downed_count: int | None = measure("count", low=0, high=MOST_COUNTED)
    link_recovery_count: int | None = measure("count", low=0, high=MOST_COUNTED)
    congestion_sent_packets: int | None = measure("packets", low=0, high=MOST_COUNTED)
    congestion_handled_packets: int | None = measure("packets", low=0, high=MOST_COUNTED)
    out_of_sequence_packets: int | None = measure("packets", low=0, high=MOST_COUNTED)
    sequence_errors: int | None = measure("count", low=0, high=MOST_COUNTED)
    ack_timeouts: int | None = measure("count", low=0, high=MOST_COUNTED)
    retransmits: int | None = measure("count", low=0, high=MOST_COUNTED)
    at_least: str = ""
