"""The book of one scheduler: takes its snapshots in order and gives the rows to store, only those that changed.

A pure function of what it was fed. What a whole listing lacks has ended; what a snapshot could not see has not. The
time between two snapshots counts up to three intervals: beyond that nobody looked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from types import MappingProxyType

import polars as pl
import pyarrow as pa

from gpuledger.app.schedulers import facts, works
from gpuledger.app.schedulers.look import Look
from gpuledger.app.schedulers.rows import EPISODES, SUBJECTS, empty, frame, gone, shortened, table
from gpuledger.model import RECORDS
from gpuledger.ports import SchedulerSnapshot

KNOWN_INTERVALS = 3
"""How many intervals the last snapshot speaks for: when the next one is later, what was between is not known."""

SHORTEST_SECONDS = 0.001
"""A queue's state that held for less is not worth a row, and the warehouse refuses it."""

PASSED = frozenset(
    {
        *("reading", "source_read", "holding", "service_load", "engine_reading", "link_reading"),
        *("job_step", "job_model", "workload_phase", "checkpoint", "fault_event", "price", "conversion"),
    }
)
"""What is stored as it comes, should a scheduler tell it."""

LEARNT = (
    "node",
    "condition",
    "scheduler_node",
    "node_state",
    "queue",
    "quota",
    "queue_resource",
    "workload",
    "pod",
    "allocation",
    "wait",
)
"""Records whose open rows a book learns from the warehouse when it begins."""


@dataclass(frozen=True, slots=True)
class SnapshotBook:
    """What was stored of one scheduler so far. `take` gives the rows of the next snapshot and the book after it.

    The book after it may be kept only when its rows are stored; else a new one must be learnt from the warehouse.
    """

    scheduler: str
    interval_seconds: float
    last_at: datetime | None = None
    namespaces: tuple[str, ...] | None = None
    hidden: frozenset[str] = frozenset()
    known: Mapping[str, pl.DataFrame] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def learnt(
        cls, scheduler: str, interval_seconds: float, last_at: datetime | None, stored: Mapping[str, pa.Table]
    ) -> SnapshotBook:
        """A book that goes on where another one ended at `last_at`, from the open rows that are `stored`."""
        known = {record: frame(rows) for record, rows in stored.items()}
        return cls(scheduler, interval_seconds, last_at, known=known)

    def take(self, snapshot: SchedulerSnapshot) -> tuple[dict[str, pa.Table], SnapshotBook]:
        """The rows that `snapshot` adds or changes, by record in the order to store them in, and the book after it.

        A snapshot that is not newer than the last one changes nothing.
        """
        if self.last_at is not None and snapshot.taken_at <= self.last_at:
            return {}, self
        look = Look(
            taken_at=snapshot.taken_at,
            ended_at=min(snapshot.taken_at, self._known_until(snapshot.taken_at)),
            scope=snapshot.scope,
            listed={record: self._listed(rows) for record, rows in snapshot.records.items()},
        )
        look = replace(look, hidden=self._hidden(look))
        rows: dict[str, pl.DataFrame] = {}
        known = dict(self.known)
        for record in RECORDS:
            rows[record], known[record] = self._next(record, look)
        kept = {record: frame for record, frame in known.items() if frame.height}
        after = replace(
            self,
            last_at=snapshot.taken_at,
            namespaces=look.scope.namespaces,
            hidden=look.hidden,
            known=MappingProxyType(kept),
        )
        return {record: table(record, found) for record, found in rows.items() if found.height}, after

    def _listed(self, rows: pa.Table) -> pl.DataFrame:
        """Rows of a snapshot; a condition that a scheduler states is named as that scheduler's."""
        found = shortened(frame(rows))
        if "condition" not in found.columns:
            return found
        stated = pl.when(pl.col("source") == "scheduler").then(pl.lit(self.scheduler)).otherwise("source")
        return found.with_columns(source=stated)

    def _hidden(self, look: Look) -> frozenset[str]:
        """Queues that are not listed, but may be in namespaces that were seen before and could not be seen now."""
        now = look.scope.namespaces
        if not now:
            return frozenset()
        unlisted = gone(look.of("queue"), self._before("queue"), ["queue"])["queue"]
        if now == self.namespaces:
            return self.hidden & {*unlisted}
        return frozenset() if self.namespaces and {*now} >= {*self.namespaces} else frozenset(unlisted)

    def _known_until(self, taken_at: datetime) -> datetime:
        """Until when what the last snapshot said is taken to have held."""
        reach = timedelta(seconds=KNOWN_INTERVALS * self.interval_seconds)
        return taken_at if self.last_at is None else self.last_at + reach

    def _before(self, record: str) -> pl.DataFrame:
        return self.known[record] if record in self.known else empty(record)

    def _next(self, record: str, look: Look) -> tuple[pl.DataFrame, pl.DataFrame]:
        """The rows to store of `record`, and what is known of it after that."""
        if record in SUBJECTS:
            return self._next_facts(record, look)
        if record == "queue_state":
            return self._held_states(look), look.of(record).with_columns(ts=pl.lit(look.taken_at))
        if record == "quality_event":
            return works.next_problems(self._before(record), look, self.scheduler)
        if record == "allocation":
            return works.next_allocations(self._before(record), look, self._places(look))
        if record in PASSED:
            return look.of(record), empty(record)
        step: Mapping[str, Callable[[pl.DataFrame, Look], tuple[pl.DataFrame, pl.DataFrame]]] = {
            "queue": works.next_queues,
            "workload": works.next_workloads,
            "pod": works.next_pods,
            "workload_event": works.next_events,
        }
        return step[record](self._before(record), look)

    def _next_facts(self, record: str, look: Look) -> tuple[pl.DataFrame, pl.DataFrame]:
        known, listed = self._before(record), look.of(record)
        is_open = pl.col("until_at").is_null()
        open_facts, told = known.filter(is_open), known.filter(~is_open)
        lacking = facts.missing(record, open_facts, listed) if look.is_whole(record) else empty(record)
        if "queue" in lacking.columns:
            lacking = look.visible_queues(lacking)
        if record == "wait":
            lacking = look.visible_work(lacking, self._places(look))
        told_ends = told if record in EPISODES else empty(record)
        rows, now = facts.next_facts(record, open_facts, told_ends, listed, look.taken_at)
        left = gone(lacking, now, SUBJECTS[record])
        stored = pl.concat([facts.ended(lacking, look.ended_at), rows, facts.past(record, listed, told)])
        over = facts.over(listed)
        if record in EPISODES:
            last = facts.last(record, pl.concat([told, facts.over(stored)]))
            ended = last.join(self._places(look), on="workload_id", how="semi")
            over = pl.concat([over, gone(over, ended, [*SUBJECTS[record], "from_at"])])
        return stored, pl.concat([left, over])

    def _places(self, look: Look) -> pl.DataFrame:
        """The namespaces of workloads that are listed now, or were before."""
        return pl.concat([look.of("workload"), self._before("workload")]).select("workload_id", "namespace").unique()

    def _held_states(self, look: Look) -> pl.DataFrame:
        """The queues' states of the last snapshot, with the time for which they held."""
        if self.last_at is None:
            return empty("queue_state")
        seconds = (look.ended_at - self.last_at).total_seconds()
        if seconds < SHORTEST_SECONDS:
            return empty("queue_state")
        return self._before("queue_state").with_columns(duration_seconds=pl.lit(seconds))
