"""The InfiniBand part of a node_exporter page of a simulated host, and the counters that it shows.

Gangs that span hosts send over the adapters what their cards send over PCIe. A rank that spins in a collective that
never ends shows some activity and sends nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuledger.simulate.fleet import Host
from gpuledger.simulate.painting import Spans, device_of
from gpuledger.simulate.script import Job, Script
from gpuledger.simulate.telemetry import Block

CARDS_PER_PORT = 2
RATE_BYTES_PER_SECOND = 50_000_000_000
"""400 Gbit/s."""
SPINNING_BYTES_PER_SECOND = 420_000_000
"""What a card sends over PCIe without sending anything over the network: polling of queues and flags."""
HEARTBEAT_BYTES_PER_SECOND = 4_000
PACKET_BYTES = 4_096
ACTIVE, LINK_UP = 4, 5
"""Numbers of the InfiniBand standard for the state and the physical state of a port."""


@dataclass(slots=True)
class Adapters:
    """What the ports of every host carried since the span began, in bytes; a ring sends as much as it receives."""

    script: Script
    _gangs: Spans = field(init=False)
    _before: dict[int, list[np.ndarray]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._gangs = Spans.of(
            [
                (device, hold.start, hold.end, 1)
                for job in self.script.jobs
                if _spans_hosts(job)
                for hold in job.holds
                if (device := device_of(self.script, hold)) is not None
            ]
        )

    def follow(self, host: Host, block: Block) -> None:
        """Count `block`, the next of `host`."""
        before = self._before.setdefault(host.index, [np.zeros(_port_count(host), dtype=np.int64)])
        interval = self.script.spec.interval_seconds
        before.append(before[-1] + self._rates(host, block).sum(axis=0) * interval)

    def carried_bytes(self, host: Host, block: Block, number: int, second: int) -> list[int]:
        """What each port of `host` carried one way up to `second`, which lies in `block`, its block of that number."""
        rates, interval = self._rates(host, block), self.script.spec.interval_seconds
        tick, rest = divmod(second - int(block.seconds[0]), interval)
        start = self._before[host.index][number] if number else np.zeros(_port_count(host), dtype=np.int64)
        carried: list[int] = (start + rates[:tick].sum(axis=0) * interval + rates[tick] * rest).tolist()
        return carried

    def _rates(self, host: Host, block: Block) -> np.ndarray:
        """Bytes a second of each (tick, port)."""
        is_in_gang = self._gangs.paint(block.seconds, block.devices) > 0
        sent = np.where(is_in_gang, np.maximum(block.values["pcie_tx"] - SPINNING_BYTES_PER_SECOND, 0), 0)
        rates = np.full((len(block.seconds), _port_count(host)), HEARTBEAT_BYTES_PER_SECOND, dtype=np.int64)
        fleet = self.script.fleet
        for device in block.devices:
            slot = fleet.cards[fleet.devices[device].card].slot
            rates[:, slot // CARDS_PER_PORT] += sent[:, device - block.devices.start]
        return np.minimum(rates, RATE_BYTES_PER_SECOND)


def _spans_hosts(job: Job) -> bool:
    return len({hold.host for hold in job.holds}) > 1


def _port_count(host: Host) -> int:
    return -(-len(host.cards) // CARDS_PER_PORT)


def page(host: Host, carried_bytes: Sequence[int]) -> bytes:
    """The page of `host` whose ports carried so many bytes, each way."""
    lines = [
        "# TYPE node_uname_info gauge",
        f'node_uname_info{{machine="x86_64",nodename="{host.name}",sysname="Linux"}} 1',
    ]
    families = {
        "port_data_transmitted_bytes_total": carried_bytes,
        "port_data_received_bytes_total": carried_bytes,
        "port_packets_transmitted_total": [count // PACKET_BYTES for count in carried_bytes],
        "port_packets_received_total": [count // PACKET_BYTES for count in carried_bytes],
        **dict.fromkeys(
            ("port_transmit_wait_total", "symbol_error_total", "link_downed_total"), [0] * len(carried_bytes)
        ),
        "rate_bytes_per_second": [RATE_BYTES_PER_SECOND] * len(carried_bytes),
        "state_id": [ACTIVE] * len(carried_bytes),
        "physical_state_id": [LINK_UP] * len(carried_bytes),
    }
    for name, values in families.items():
        lines.append(f"# TYPE node_infiniband_{name} {'counter' if name.endswith('_total') else 'gauge'}")
        lines += [
            f'node_infiniband_{name}{{device="mlx5_{port}",port="1"}} {value}' for port, value in enumerate(values)
        ]
    return ("\n".join(lines) + "\n").encode()
