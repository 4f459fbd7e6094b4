"""From one scheduler into the warehouse: reads, keeps the book, and says what could not be seen."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa
import structlog

from gpuledger.app.schedulers.book import LEARNT, SnapshotBook
from gpuledger.app.schedulers.rows import moved
from gpuledger.clock import Clock
from gpuledger.errors import (
    ConfigError,
    GpuledgerError,
    InconsistentSnapshot,
    NotPermitted,
    SchedulerUnreachable,
    WarehouseError,
)
from gpuledger.model import SourceRead, to_table
from gpuledger.ports import SchedulerReader, SchedulerSnapshot

log = structlog.get_logger("gpuledger.schedulers")

_STAMP = "%Y%m%dT%H%M%S.%fZ"

TICK = timedelta(microseconds=1)

REASONS: tuple[tuple[type[Exception], str], ...] = (
    (NotPermitted, "not_permitted"),
    (InconsistentSnapshot, "inconsistent"),
    (SchedulerUnreachable, "unreachable"),
    (ConfigError, "config"),
    (WarehouseError, "not_stored"),
    (GpuledgerError, "other"),
)
"""Words for failures, the first that fits; anything else is a fault of the adapter."""


class House(Protocol):
    """What a feed needs of the service."""

    def query(self, name: str, /, **parameters: Any) -> pa.Table:
        """The rows of a named query."""
        ...

    def ingest(self, record: str, table: pa.Table, batch_id: str, *, must_know_tenants: bool = True) -> Any:
        """Take a batch in; it is on disk when this returns."""
        ...


@dataclass(frozen=True, slots=True)
class Health:
    """How reading a scheduler goes. `error` is that of the last try, None where it was good."""

    read_at: datetime | None = None
    scope: str = "complete"
    error: str | None = None
    reason: str | None = None


def reason_of(error: Exception) -> str:
    """One word for why a read failed."""
    return next((word for kind, word in REASONS if isinstance(error, kind)), "adapter")


class Feed:
    """Reads one scheduler into `house`. `read`, `store` and `repeat` may be called from any thread; they take turns."""

    def __init__(
        self,
        reader: SchedulerReader,
        house: House,
        clock: Clock,
        *,
        interval_seconds: float,
        told: Callable[[str, Health], None] = lambda _name, _health: None,
    ) -> None:
        self.name = reader.name if reader.cluster == "default" else f"{reader.name}/{reader.cluster}"
        self.reader = reader
        self.health = Health()
        self.interval_seconds = interval_seconds
        self._house, self._clock, self._told = house, clock, told
        self._book: SnapshotBook | None = None
        self._last: SchedulerSnapshot | None = None
        self._repeated_at: datetime | None = None
        self._prefix = f"snapshot:{self.name}:"
        self._turn = threading.Lock()

    def read(self) -> None:
        """Read once and store what changed. What goes wrong is noted, and raised."""
        try:
            self.store(self.reader.snapshot())
        except Exception as error:
            self.note(error)
            raise

    def repeat(self) -> None:
        """What was seen last still holds now, as a watch told of no change; nothing where the last read failed."""
        try:
            with self._turn:  # what was seen last is asked for inside: another thread may be storing what is newer
                if self._last is not None and self.health.error is None:
                    self._keep(moved(self._last, self._clock.now()), is_repeated=True)
        except Exception as error:
            self.note(error)
            raise

    def store(self, snapshot: SchedulerSnapshot) -> None:
        """Store what changed with a snapshot that somebody else took. What goes wrong is raised, not noted."""
        with self._turn:
            self._keep(snapshot)

    def close(self) -> None:
        """Let go of the reader's connections, where it keeps any."""
        close = getattr(self.reader, "close", None)
        if close is not None:
            close()

    def note(self, error: Exception) -> None:
        """A read failed: what the scheduler did meanwhile is not known, and the records say so."""
        why = f"{type(error).__name__}: {error}"
        self.health = replace(self.health, error=why, reason=reason_of(error))
        self._told(self.name, self.health)
        now = self._clock.now()
        failed = SourceRead(
            ts=now,
            node=self.name,
            source=self.name,
            scope="device",
            ok=False,
            interval_seconds=self.interval_seconds,
            error=why[:500],
        )
        with suppress(GpuledgerError):  # the warehouse itself may be what failed
            self._house.ingest("source_read", to_table("source_read", [failed]), self._batch(now, "failed"))

    def _batch(self, at: datetime, part: str) -> str:
        return f"{self._prefix}{at.astimezone(UTC).strftime(_STAMP)}:{part}"

    def _keep(self, snapshot: SchedulerSnapshot, *, is_repeated: bool = False) -> None:
        if self._repeated_at is not None and snapshot.taken_at <= self._repeated_at:
            # What was taken a moment before the last one was repeated is the newer of the two all the same.
            snapshot = moved(snapshot, self._repeated_at + TICK)
        self._repeated_at = snapshot.taken_at if is_repeated else None
        book = self._book or self._learn()
        self._book = None  # should storing end half-way, what is stored decides what comes next
        rows, after = book.take(snapshot)
        for record, table in rows.items():
            self._house.ingest(record, table, self._batch(snapshot.taken_at, record), must_know_tenants=False)
        if after is not book:
            done = self._batch(snapshot.taken_at, "done")
            self._house.ingest("quality_event", to_table("quality_event", []), done)
            self._last = snapshot
        self._book = after
        self.health = Health(read_at=snapshot.taken_at, scope=str(snapshot.scope))
        self._told(self.name, self.health)

    def _learn(self) -> SnapshotBook:
        """The book as the warehouse has it, so that what was open at a restart does not stay open for ever."""
        stored = {record: self._house.query(f"open_{record}", scheduler=self.name) for record in LEARNT}
        stored["wait"] = pa.concat_tables([stored["wait"], self._house.query("last_wait", scheduler=self.name)])
        last = self._house.query("last_snapshot", prefix=self._prefix)["batch_id"].to_pylist()[0]
        last_at = None
        if last is not None:
            stamp = str(last).removeprefix(self._prefix).partition(":")[0]
            last_at = datetime.strptime(stamp, _STAMP).replace(tzinfo=UTC)
        return SnapshotBook.learnt(self.name, self.interval_seconds, last_at, stored)
