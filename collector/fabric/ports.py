"""One row for each port, from what was told of its counters in whichever words."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from collector.fabric.counters import COUNTERS, NO_CHANGE, PHYSICAL_STATES, STATES, Counter, link_layer
from gpuledger.model import LinkReading, QualityEvent, SourceRead
from gpuledger.model.fabric import MOST_COUNTED
from gpuledger.ports import Observation

MAX_PORTS = 512
"""Ports of one node; a page or a folder that makes up more is told, and cut off."""
MAX_NAME = 64

MAX_BITS_PER_SECOND = 1e14


@dataclass(slots=True)
class Port:
    """What was told of one port: counts in the kernel's unit by column, a second place to look, states and rate."""

    device: str
    port: str
    counts: dict[str, int] = field(default_factory=dict)
    later: dict[str, int] = field(default_factory=dict)
    layer: str = ""
    state: int = NO_CHANGE
    physical_state: int = NO_CHANGE
    rate_bits_per_second: float | None = None


@dataclass(slots=True)
class Reader:
    """Who reads: `node`, its `source`, how often; and what was noticed, by kind and detail."""

    node: str
    source: str
    target: str
    interval_seconds: float
    wrong: Tally[tuple[str, str]] = field(default_factory=Tally)

    def read(self, now: datetime, *, skipped_lines: int = 0, error: str | None = None) -> SourceRead:
        """The attempt to read. It lists ports, no cards: their number is not told."""
        return SourceRead(
            ts=now,
            node=self.node,
            source=self.source,
            scope="device",
            ok=error is None,
            interval_seconds=self.interval_seconds,
            skipped_lines=skipped_lines,
            error=error,
        )

    def failed(self, now: datetime, error: str) -> Observation:
        """A read that gave nothing."""
        return Observation(reads=(self.read(now, error=error),), others=self._events(now))

    def observed(self, ports: Mapping[tuple[str, str], Port], now: datetime, *, skipped_lines: int = 0) -> Observation:
        """The rows of `ports`, in their order. Without any port the read has failed: traffic is unknown, not zero."""
        if not ports:
            return self.failed(now, "no port of a network adapter")
        kept = [*ports.values()][:MAX_PORTS]
        if len(kept) < len(ports):
            self.wrong["too_many_series", "ports beyond what a node may have"] += len(ports) - len(kept)
        rows = tuple(self._row(port, now) for port in kept)
        read = self.read(now, skipped_lines=skipped_lines)
        return Observation(reads=(read,), others={"link_reading": rows, **self._events(now)})

    def _row(self, port: Port, now: datetime) -> LinkReading:
        columns: dict[str, Any] = {}
        at_end = []
        for counter in COUNTERS:
            count = self._count(counter, port)
            if count is not None:
                columns[counter.column] = count * counter.unit_bytes
                if counter.is_at_end(count):
                    at_end.append(counter.column)
        return LinkReading(
            ts=now,
            node=self.node,
            device=port.device,
            port=port.port,
            source=self.source,
            interval_seconds=self.interval_seconds,
            link_layer=link_layer(port.device, port.layer),
            state=self._named(STATES, port.state, "state"),
            physical_state=self._named(PHYSICAL_STATES, port.physical_state, "physical state"),
            rate_bits_per_second=port.rate_bits_per_second,
            at_least=",".join(at_end),
            **columns,
        )

    def _count(self, counter: Counter, port: Port) -> int | None:
        """The count to believe: the first place's, unless it has none or has stopped and the second has one."""
        count, later = port.counts.get(counter.column), port.later.get(counter.column)
        if later is not None and (count is None or counter.is_at_end(count)):
            count = later
        if count is not None and not 0 <= count * counter.unit_bytes <= MOST_COUNTED:
            self.wrong["rejected_value", f"{counter.column} of a port is no measurement"] += 1
            return None
        return count

    def _named(self, names: Mapping[int, str], told: int, what: str) -> str:
        if told not in names and told != NO_CHANGE:
            self.wrong["rejected_value", f"{what} of a port is none that is known"] += 1
        return names.get(told, "unknown")

    def _events(self, now: datetime) -> dict[str, tuple[QualityEvent, ...]]:
        told, self.wrong = self.wrong, Tally()
        events = tuple(
            QualityEvent(
                ts=now,
                source=self.source,
                subject_kind="target",
                subject=self.target,
                kind=kind,
                detail=detail,
                count=count,
            )
            for (kind, detail), count in sorted(told.items())
            if count
        )
        return {"quality_event": events} if events else {}
