"""Samples of remote write: kept as they came, durable before the answer; and the rows that are made of them.

A sender spreads one card's series over queues and requests, so that fragments of a row come apart, twice, and late.
Samples are therefore kept first. Rows are made of all samples of a card at an instant, again whenever another one
comes, so that the rows follow from the set of samples and not from the order in which they came.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from gpuledger.clock import Clock
from gpuledger.config import Settings
from warehouse import queries
from warehouse.store import Warehouse

SAMPLES_AT_ONCE = 1_000_000
"""About how many samples become rows in one transaction."""

SERIES_KEPT = timedelta(days=1)
"""How long a series that nobody writes is remembered. Longer than any receiver goes without writing it down anew."""

_ROW = ("gpu_uuid", "ts", "source")
_READING = (*_ROW, "slice_id")
_COUNTED, _FLAGS = "invalid_count", "quality_flags"


class Fate(IntEnum):
    """What became of a sample: kept; kept before, with the same value or another, which stays; refused for its time."""

    STORED = 0
    REPEATED = 1
    CONFLICTING = 2
    TOO_OLD = 3
    IN_THE_FUTURE = 4


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

    def stage(self, samples: pa.Table, series: pa.Table) -> npt.NDArray[np.int8]:
        """Keep `samples` (series_id, time_ms, value) and the `series` that are new; on disk before it returns.

        Gives the `Fate` of each. Of several values of a series at an instant the first one stays. Raises WarehouseError
        when nothing could be kept.
        """
        fates = self._dated(samples)
        dated = _with_instants(samples.filter(pa.array(fates == Fate.STORED)) if fates.any() else samples)
        with self._warehouse.writing() as cursor, _transaction(cursor):
            if series.num_rows:
                with _staged(cursor, series):
                    _run(cursor, "keep_series", seen_at=self._clock.now())
            if dated.num_rows:
                fates[fates == Fate.STORED] = self._append(cursor, dated)
        return fates

    def _append(self, cursor: duckdb.DuckDBPyConnection, dated: pa.Table) -> npt.NDArray[np.int8]:
        """Keep what is new of `dated`; gives the fate of each."""
        with _staged(cursor, dated):
            low, high = pc.min_max(dated["ts"]).as_py().values()
            stored = _read(cursor, "samples_stored", low_at=low, high_at=high)
            if not stored.num_rows and _are_distinct(dated):
                self._keep(cursor)
                return np.zeros(dated.num_rows, np.int8)
        fates = _fates(_frame(dated), _frame(stored))
        fresh = dated.filter(pa.array(fates == Fate.STORED))
        if fresh.num_rows:
            with _staged(cursor, fresh):
                self._keep(cursor)
        return fates

    def _keep(self, cursor: duckdb.DuckDBPyConnection) -> None:
        if self._last_seq is None:
            self._last_seq = int(_read(cursor, "last_sample_seq")["seq"][0].as_py())
        # Counted on also where the transaction fails: numbers rise, and may leave one out.
        self._last_seq += 1
        _run(cursor, "keep_samples", received_at=self._clock.now(), seq=self._last_seq)

    def accepted_ms(self) -> tuple[int, int]:
        """The first and the last acceptable time of a sample, in milliseconds."""
        now, settings = self._clock.now(), self._settings
        oldest = now - timedelta(days=settings.oldest_accepted_days)
        return _milliseconds(oldest), _milliseconds(now + timedelta(seconds=settings.future_tolerance_seconds))

    def _dated(self, samples: pa.Table) -> npt.NDArray[np.int8]:
        """The fate of each sample as far as its time decides it."""
        low, high = self.accepted_ms()
        times = samples["time_ms"].to_numpy()
        fates = np.where(times < low, Fate.TOO_OLD, np.where(times > high, Fate.IN_THE_FUTURE, Fate.STORED))
        return fates.astype(np.int8)

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


def _are_distinct(samples: pa.Table) -> bool:
    """Whether each series and instant is there once."""
    ids, times = samples["series_id"].to_numpy(), samples["ts"].cast(pa.int64()).to_numpy()
    order = np.lexsort((times, ids))
    return not ((np.diff(ids[order]) == 0) & (np.diff(times[order]) == 0)).any()


def _with_instants(samples: pa.Table) -> pa.Table:
    at = pa.array(samples["time_ms"].to_numpy() * 1000).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"series_id": samples["series_id"], "ts": at, "value": samples["value"]})


def _fates(samples: pl.DataFrame, stored: pl.DataFrame) -> npt.NDArray[np.int8]:
    """The fate of each sample, beside what is stored and beside those before it."""
    key = ["series_id", "ts"]
    joined = samples.join(stored, on=key, how="left", suffix="_stored", maintain_order="left")
    is_first = pl.struct(key).is_first_distinct() & pl.col("value_stored").is_null()
    standing = pl.col("value_stored").fill_null(pl.col("value").first().over(key))
    fate = (
        pl.when(is_first)
        .then(Fate.STORED.value)
        .when(pl.col("value") == standing)
        .then(Fate.REPEATED.value)
        .otherwise(Fate.CONFLICTING.value)
    )
    return joined.select(fate.cast(pl.Int8)).to_series().to_numpy()


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
