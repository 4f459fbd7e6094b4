"""Which counter of a port is which column of `LinkReading`, in the kernel's files and on node_exporter's page.

Widths are those of the attribute PortCounters (InfiniBand Architecture Specification, volume 1, 16.1.3.5): a counter of
that many bits stops at its greatest value. Drivers that count in more bits go past it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

WORD_BYTES = 4
"""The kernel's data counters count words of 32 bits; node_exporter has made bytes of them already."""


@dataclass(frozen=True, slots=True)
class Counter:
    """One counter: its column, its file below the port's folder, its metric, and the bits in which it may be kept.

    `later_file` and `later_metric` are the same in 64 bits, as older drivers give it beside the short one. `words`: it
    counts words, not bytes, in the kernel's files.
    """

    column: str
    file: str
    metric: str
    bits: int = 0
    later_file: str = ""
    later_metric: str = ""
    words: bool = False

    @property
    def unit_bytes(self) -> int:
        """What one count of the kernel's stands for."""
        return WORD_BYTES if self.words else 1

    def is_at_end(self, count: int) -> bool:
        """Whether a counter of the short form would have stopped at `count`, in the kernel's unit."""
        return self.bits > 0 and count == 2**self.bits - 1


COUNTERS = (
    Counter(
        "sent_bytes",
        "counters/port_xmit_data",
        "port_data_transmitted_bytes_total",
        bits=32,
        later_file="counters_ext/port_xmit_data_64",
        later_metric="legacy_data_transmitted_bytes_total",
        words=True,
    ),
    Counter(
        "received_bytes",
        "counters/port_rcv_data",
        "port_data_received_bytes_total",
        bits=32,
        later_file="counters_ext/port_rcv_data_64",
        later_metric="legacy_data_received_bytes_total",
        words=True,
    ),
    Counter(
        "sent_packets",
        "counters/port_xmit_packets",
        "port_packets_transmitted_total",
        bits=32,
        later_file="counters_ext/port_xmit_packets_64",
        later_metric="legacy_packets_transmitted_total",
    ),
    Counter(
        "received_packets",
        "counters/port_rcv_packets",
        "port_packets_received_total",
        bits=32,
        later_file="counters_ext/port_rcv_packets_64",
        later_metric="legacy_packets_received_total",
    ),
    Counter("wait_ticks", "counters/port_xmit_wait", "port_transmit_wait_total", bits=32),
    Counter("symbol_errors", "counters/symbol_error", "symbol_error_total", bits=16),
    Counter("received_errors", "counters/port_rcv_errors", "port_errors_received_total", bits=16),
    Counter("sent_discards", "counters/port_xmit_discards", "port_discards_transmitted_total", bits=16),
    Counter("link_downed_count", "counters/link_downed", "link_downed_total", bits=8),
    Counter("link_recovery_count", "counters/link_error_recovery", "link_error_recovery_total", bits=8),
    Counter("congestion_sent_packets", "hw_counters/np_cnp_sent", "np_cnp_packets_sent_total"),
    Counter("congestion_handled_packets", "hw_counters/rp_cnp_handled", "rp_cnp_packets_handled_total"),
    Counter("out_of_sequence_packets", "hw_counters/out_of_sequence", "out_of_sequence_packets_received_total"),
    Counter(
        "sequence_errors",
        "hw_counters/packet_seq_err",
        "packet_sequence_errors_total",
        later_file="hw_counters/RcSeqNak",
    ),
    Counter(
        "ack_timeouts",
        "hw_counters/local_ack_timeout_err",
        "local_ack_timeout_errors_total",
        later_file="hw_counters/RcTimeOut",
    ),
    Counter(
        "retransmits", "hw_counters/roce_adp_retrans", "roce_adp_retransmits_total", later_file="hw_counters/RcResend"
    ),
)
"""The files of hw_counters are those of mlx5 and, second, of hfi1 (Omni-Path)."""

STATES: Mapping[int, str] = MappingProxyType({1: "down", 2: "init", 3: "armed", 4: "active", 5: "active_defer"})
PHYSICAL_STATES: Mapping[int, str] = MappingProxyType(
    {
        1: "sleep",
        2: "polling",
        3: "disabled",
        4: "training",
        5: "link_up",
        6: "error_recovery",
        7: "phy_test",
        9: "offline",
        11: "test",
    }
)
NO_CHANGE = 0
"""A state that says nothing."""

_LAYERS = {"infiniband": "infiniband", "ethernet": "ethernet"}


def link_layer(device: str, told: str) -> str:
    """What a port speaks. Omni-Path's driver calls itself InfiniBand: its devices are known by their name."""
    if device.startswith("hfi1"):
        return "omnipath"
    return _LAYERS.get(told.strip().lower(), "unknown")
