"""Samples of remote write: kept as they came, durable before the answer; and the rows that are made of them.

A sender spreads one card's series over queues and requests, so that fragments of a row come apart, twice, and late.
Samples are therefore kept first. Rows are made of all samples of a card at an instant, again whenever another one
comes, so that the rows follow from the set of samples and not from the order in which they came.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa

from gpuledger.clock import Clock
from gpuledger.config import Settings
from warehouse import queries
from warehouse.store import Warehouse

SAMPLES_AT_ONCE = 1_000_000
"""About how many samples become rows in one transaction."""

SERIES_KEPT = timedelta(days=1)
"""How long a series that nobody writes is remembered. Longer than any receiver goes without writing it down anew."""

TOO_OLD, IN_THE_FUTURE = "too old", "in the future"
"""Why a sample is refused for its time."""

_ROW = ("gpu_uuid", "ts", "source")
_READING = (*_ROW, "slice_id")
_COUNTED, _FLAGS = "invalid_count", "quality_flags"


@dataclass(frozen=True, slots=True)
class Staged:
    """What became of a request's samples.

    `repeated` ones were kept before, `conflicting` ones with another value, which stays; `refused` by reason.
    """

    stored: int = 0
    repeated: int = 0
    conflicting: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """All samples of the rows that are to be made, or made anew; the new ones have numbers up to `upto_seq`.

    Columns: series_id, ts, value, received_at, gpu_uuid, source.
    """

    samples: pa.Table
    upto_seq: int
    low_at: datetime
    high_at: datetime


class SampleStore:
    """The samples in a warehouse. Safe for threads, as the warehouse is."""

    def __init__(self, warehouse: Warehouse, settings: Settings, clock: Clock) -> None:
        self._warehouse, self._settings, self._clock = warehouse, settings, clock
        self._last_seq: int | None = None

    def stage(self, samples: pa.Table, series: pa.Table) -> Staged:
        """Keep `samples` (series_id, time_ms, value) and the `series` that are new; on disk before it returns.

        Of several values of a series at an instant the first one stays. Times far ahead of the clock or too old are
        refused. Raises WarehouseError when nothing could be kept.
        """
        frame, refused = self._dated(samples)
        with self._warehouse.writing() as cursor, _transaction(cursor):
            if series.num_rows:
                with _staged(cursor, series):
                    _run(cursor, "keep_series", seen_at=self._clock.now())
            fresh, repeated = self._fresh(cursor, frame)
            if fresh.height:
                seq = self._next_seq(cursor)
                with _staged(cursor, fresh.to_arrow()):
                    _run(cursor, "keep_samples", received_at=self._clock.now(), seq=seq)
                self._last_seq = seq
        return Staged(fresh.height, repeated, frame.height - fresh.height - repeated, refused)

    def accepted_ms(self) -> tuple[int, int]:
        """The first and the last acceptable time of a sample, in milliseconds."""
        now, settings = self._clock.now(), self._settings
        oldest = now - timedelta(days=settings.oldest_accepted_days)
        return _milliseconds(oldest), _milliseconds(now + timedelta(seconds=settings.future_tolerance_seconds))

    def _dated(self, samples: pa.Table) -> tuple[pl.DataFrame, dict[str, int]]:
        """The samples with acceptable times, and how many others there are by reason."""
        low, high = self.accepted_ms()
        frame = typing.cast("pl.DataFrame", pl.from_arrow(samples))
        found = {
            IN_THE_FUTURE: frame.filter(pl.col("time_ms") > high).height,
            TOO_OLD: frame.filter(pl.col("time_ms") < low).height,
        }
        kept = frame.filter(pl.col("time_ms").is_between(low, high))
        at = (pl.col("time_ms") * 1000).cast(pl.Datetime("us", "UTC"))
        return kept.select("series_id", at.alias("ts"), "value"), {
            name: count for name, count in found.items() if count
        }

    @staticmethod
    def _fresh(cursor: duckdb.DuckDBPyConnection, frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
        """The samples to keep, and how many of the others say what is known already."""
        if not frame.height:
            return frame, 0
        key = ["series_id", "ts"]
        with _staged(cursor, frame.to_arrow()):
            stored = _frame(_read(cursor, "samples_stored", low_at=frame["ts"].min(), high_at=frame["ts"].max()))
        known = frame.join(stored, on=key, how="left", suffix="_stored", maintain_order="left").with_columns(
            is_first=pl.struct(key).is_first_distinct() & pl.col("value_stored").is_null(),
            standing=pl.col("value_stored").fill_null(pl.col("value").first().over(key)),
        )
        repeated = known.filter(~pl.col("is_first") & (pl.col("value") == pl.col("standing"))).height
        return known.filter("is_first").select(frame.columns), repeated

    def _next_seq(self, cursor: duckdb.DuckDBPyConnection) -> int:
        if self._last_seq is None:
            self._last_seq = int(_read(cursor, "last_sample_seq")["seq"][0].as_py())
        return self._last_seq + 1

    def waiting(self, limit: int = SAMPLES_AT_ONCE) -> Waiting | None:
        """Samples that are no rows yet, about `limit`, with all others of the same rows. None: there are none."""
        with self._warehouse.reading() as cursor:
            found = _frame(_read(cursor, "samples_waiting"))
            if not found.height:
                return None
            taken = found.filter(pl.col("sample_count").cum_sum().shift(1, fill_value=0) < limit)
            span: dict[str, Any] = {"low_at": taken["low_at"].min(), "high_at": taken["high_at"].max()}
            upto = int(taken["seq"][-1])
            samples = _read(cursor, "samples_to_assemble", upto_seq=upto, **span)
        return Waiting(samples, upto, **span)

    def series(self, series_ids: pa.Array) -> pa.Table:
        """series_id, name and labels (JSON) of the series asked for."""
        with self._warehouse.reading() as cursor, _staged(cursor, pa.table({"series_id": series_ids})):
            return _read(cursor, "series_asked")

    def fill(self, waiting: Waiting, readings: pa.Table, holdings: pa.Table, events: pa.Table) -> datetime | None:
        """Write the rows that were made of `waiting`, and that they were, in one transaction.

        Rows of which every sample is here are written anew. Where the first samples are gone already, what is new is
        filled into the row. Gives the first instant that changed.
        """
        with self._warehouse.writing() as cursor, _transaction(cursor):
            writer = _Filler(cursor, waiting)
            writer.readings(_frame(readings))
            writer.holdings(holdings)
            _write_events(cursor, events)
            low_at = writer.low_at
            span = {"low_at": waiting.low_at, "high_at": waiting.high_at, "upto_seq": waiting.upto_seq}
            _run(cursor, "fill_failed_reads", **span)
            _run(cursor, "note_assembled", upto_seq=waiting.upto_seq)
            _run(
                cursor,
                "journal_fill",
                batch_id=f"samples/{waiting.upto_seq}",
                row_count=readings.num_rows,
                committed_at=self._clock.now(),
                earliest_at=low_at,
            )
        return low_at

    def note_events(self, events: pa.Table) -> None:
        """Write quality events of the receiver."""
        if events.num_rows:
            with self._warehouse.writing() as cursor, _transaction(cursor):
                _write_events(cursor, events)

    def prune(self) -> None:
        """Forget samples that were kept long enough, and series that nobody writes any more."""
        now = self._clock.now()
        before = now - timedelta(minutes=self._settings.sample_keep_minutes)
        with self._warehouse.writing() as cursor, _transaction(cursor):
            _run(cursor, "note_series_seen", received_before_at=before)
            _run(cursor, "forget_samples", received_before_at=before)
            _run(cursor, "forget_series", seen_before_at=before - SERIES_KEPT)


class _Filler:
    """Writes the rows of one round into their tables."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, waiting: Waiting) -> None:
        self._cursor = cursor
        samples = _frame(waiting.samples)
        self._keys = samples.group_by(_ROW).agg(first_received_at=pl.col("received_at").min())
        self.low_at = typing.cast("datetime | None", samples["ts"].min())
        self._span = {"low_at": self.low_at, "high_at": samples["ts"].max()}

    def readings(self, new: pl.DataFrame) -> None:
        """Write readings, and count the reads that they show."""
        if not self._keys.height:
            return
        with _staged(self._cursor, self._keys.to_arrow()):
            old = _frame(_read(self._cursor, "readings_to_fill", **self._span))
        begun = old.group_by(_ROW).agg(begun_at=pl.col("seen_at").min())
        self._keys = self._keys.join(begun, on=_ROW, how="left").with_columns(
            is_part=(pl.col("first_received_at") > pl.col("begun_at")).fill_null(value=False),
        )
        rows = _merged(new.join(self._keys, on=_ROW), old)
        nodes = pl.concat([rows.select("node", "source", "ts"), old.select("node", "source", "ts")]).unique()
        with _staged(self._cursor, rows.to_arrow()):
            _run(self._cursor, "forget_filled_readings", **self._span)
            _run(self._cursor, "fill_readings")
        with _staged(self._cursor, nodes.to_arrow()):
            _run(self._cursor, "forget_filled_reads", **self._span)
            _run(self._cursor, "fill_reads", **self._span)

    def holdings(self, new: pa.Table) -> None:
        """Write sightings of pods."""
        if not self._keys.height:
            return
        with _staged(self._cursor, self._keys.filter(~pl.col("is_part")).to_arrow()):
            _run(self._cursor, "forget_filled_holdings", **self._span)
        with _staged(self._cursor, new):
            _run(self._cursor, "fill_holdings", **self._span)


def _write_events(cursor: duckdb.DuckDBPyConnection, new: pa.Table) -> None:
    if new.num_rows:
        at = _frame(new)["ts"]
        with _staged(cursor, new):
            _run(cursor, "fill_events", low_at=at.min(), high_at=at.max())


def _merged(new: pl.DataFrame, old: pl.DataFrame) -> pl.DataFrame:
    """`new` rows; where samples of a row are gone (`is_part`), with what `old` knows and they do not say."""
    joined = new.join(old, on=_READING, how="left", suffix="_old")
    chosen: dict[str, pl.Expr] = {}
    for name in old.columns:
        before = pl.col(f"{name}_old")
        if name in _READING:
            continue
        if name == _COUNTED:
            filled = pl.max_horizontal(name, before)
        elif name == _FLAGS:
            filled = pl.col(name) | before.fill_null(0)
        else:
            filled = pl.coalesce(name, before)
        chosen[name] = pl.when("is_part").then(filled).otherwise(pl.col(name))
    chosen["seen_at"] = pl.when("is_part").then("begun_at").otherwise("first_received_at")
    return joined.with_columns(**chosen).select(old.columns)


def _milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def _frame(table: pa.Table) -> pl.DataFrame:
    return typing.cast("pl.DataFrame", pl.from_arrow(table))


def _run(cursor: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> None:
    query = queries.find(name)
    cursor.execute(query.sql, {key: parameters[key] for key in query.parameters})


def _read(cursor: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> pa.Table:
    query = queries.find(name)
    return cursor.sql(query.sql, params={key: parameters[key] for key in query.parameters}).to_arrow_table()


@contextmanager
def _staged(cursor: duckdb.DuckDBPyConnection, rows: pa.Table) -> Iterator[None]:
    cursor.register("staged", rows)
    try:
        yield
    finally:
        cursor.unregister("staged")


@contextmanager
def _transaction(cursor: duckdb.DuckDBPyConnection) -> Iterator[None]:
    cursor.execute("begin")
    try:
        yield
        cursor.execute("commit")
    except BaseException:
        with suppress(duckdb.Error):  # what failed may have ended the transaction already
            cursor.execute("rollback")
        raise
