"""The warehouse: the one place that opens the DuckDB file, reads through named queries and writes in transactions."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa

from gpuledger.clock import Clock, SystemClock
from gpuledger.config import Settings
from gpuledger.errors import BadInput, QueryRefused, WarehouseBusy, WarehouseError
from gpuledger.model import BOTTLENECKS, GPU_MODELS, PENDING_CAUSES, RECORDS, Window
from gpuledger.model.vendor_rules import vendor_rows
from warehouse import basis, faults, ingest, ledger, quality, queries, refusals, validation
from warehouse.analysis import Analysis
from warehouse.analysis import store as store_analysis
from warehouse.ledger import LedgerBuild
from warehouse.schema import migrate

_UNUSABLE = (duckdb.ConversionException, duckdb.InvalidInputException, duckdb.OutOfRangeException)
"""What DuckDB raises for a parameter's value; everything else is our fault or the machine's."""

_FILL_GPU_MODELS = (
    "merge into gpu_model using staged using (model) "
    "when matched then update by name when not matched then insert by name"
)
_FILL_VENDOR_RULES = (
    "merge into vendor_rule using staged using (vendor) "
    "when matched then update by name when not matched then insert by name"
)
_FILL_PENDING_CAUSES = (
    "merge into pending_cause using staged using (cause) "
    "when matched then update by name when not matched then insert by name"
)


class Warehouse:
    """A DuckDB file held by this process. Safe for threads: readers get a cursor each, writers take turns."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, settings: Settings, clock: Clock) -> None:
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._writing = threading.RLock()

    @classmethod
    def open(cls, path: Path | None, settings: Settings | None = None, clock: Clock | None = None) -> Self:
        """Open or create the warehouse at `path` (None: in memory), migrated to the newest schema.

        Raises WarehouseBusy when another process holds the file.
        """
        settings = settings or Settings()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            connection = duckdb.connect(
                str(path or ":memory:"),
                config={
                    "memory_limit": f"{settings.memory_limit_mib}MiB",
                    "checkpoint_threshold": "512MB",
                    "autoinstall_known_extensions": "false",
                    "autoload_known_extensions": "false",
                    "python_enable_replacements": "false",
                    "preserve_insertion_order": "false",
                },
            )
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) and "lock" in str(error):
                raise WarehouseBusy(f"{path} is held by another process: {error}") from error
            raise WarehouseError(f"{path}: {error}") from error
        connection.execute("set global timezone = 'UTC'")
        warehouse = cls(connection, settings, clock or SystemClock())
        with warehouse.writing() as cursor:
            migrate(cursor, warehouse._clock.now())
            _fill(cursor, _FILL_GPU_MODELS, _gpu_models())
            _fill(cursor, _FILL_VENDOR_RULES, vendor_rows())
            _fill(cursor, _FILL_PENDING_CAUSES, _pending_causes())
        return warehouse

    def close(self) -> None:
        """Checkpoint and let go of the file."""
        with self._writing:
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def writing(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor for the only writer. Waits for its turn."""
        with self._writing:
            try:
                with contextlib.closing(self._connection.cursor()) as cursor:
                    yield cursor
            except duckdb.Error as error:
                raise WarehouseError(f"could not write: {error}") from error

    @contextlib.contextmanager
    def reading(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A cursor that reads what is committed, whoever writes meanwhile."""
        try:
            with contextlib.closing(self._connection.cursor()) as cursor:
                yield cursor
        except duckdb.Error as error:
            raise WarehouseError(f"could not read: {error}") from error

    def query(self, name: str, /, **parameters: Any) -> pa.Table:
        """The rows of named query `name` as Arrow. Raises QueryRefused for an unknown query or wrong parameters."""
        query = queries.find(name)
        if not query.is_read:
            raise QueryRefused(f"no query to read called {name!r}: it writes")
        if set(parameters) != set(query.parameters):
            raise QueryRefused(f"{name}: takes {sorted(query.parameters)}, was given {sorted(parameters)}")
        with contextlib.closing(self._connection.cursor()) as cursor:
            try:
                return cursor.sql(query.sql, params=parameters).to_arrow_table()
            except _UNUSABLE as error:
                raise BadInput("parameters", f"{name}: {error}") from error
            except duckdb.Error as error:
                raise WarehouseError(f"{name}: {error}") from error

    def ingest(
        self, record: str, table: pa.Table, batch_id: str, *, must_know_tenants: bool = True
    ) -> ingest.IngestResult:
        """Take a batch in. Returns after it is on disk; a batch id that is known changes nothing.

        Without `must_know_tenants` its tenants need not be declared: schedulers name their own.
        Raises BadInput when the batch as a whole is unusable: unknown record, column missing, unknown or mistyped.
        """
        if record not in RECORDS:
            raise BadInput("record", f"no record called {record!r}; known: {', '.join(RECORDS)}")
        if not 1 <= len(batch_id) <= 128:
            raise BadInput("batch_id", "must have 1 to 128 characters")
        conforming = validation.conform(record, table)
        with self.writing() as cursor:
            if known := ingest.committed(cursor, batch_id):
                if known.record != record:
                    raise BadInput("batch_id", f"was used for a batch of {known.record}")
                return known
            checked = validation.check(
                record, conforming, self._limits(), self._tenants(cursor) if must_know_tenants else ()
            )
            rows = validation.latest_of_twins(record, checked.rows)
            result = ingest.IngestResult(
                batch_id,
                record,
                checked.rows.height,
                checked.rejected,
                checked.rejected_by_field,
                sum(checked.rejected_by_field.values()),
            )
            stored = ingest.store(cursor, result, rows, self._clock.now())
            if checked.refused is not None:
                refusals.note(cursor, record, checked.refused, self._clock.now())
            return stored

    def build_ledger(self, window: Window, *, until_at: datetime | None = None) -> LedgerBuild:
        """Rebuild the ledger's whole hours that `window` touches, but not past `until_at`.

        Default: the window's end or the last evidence, whichever is later.
        """
        now = begun_at = self._clock.now()
        horizon = min(now, until_at or max(window.to_at, self.evidence_extent(default=window).to_at))
        final_before_at = now - timedelta(minutes=self._settings.lateness_minutes)
        hours, spans = window.whole_hours(), 0
        for day in hours.days():
            if day.from_at < horizon:
                with self.writing() as cursor:  # a turn for each day: batches come in between
                    ledger.refresh_inventory(cursor)
                    spans += ledger.build_day(cursor, day, final_before_at, horizon)
                with self.writing() as cursor:
                    quality.build(cursor, day.from_at, min(day.to_at, horizon))
                    faults.build(cursor, day.from_at, min(day.to_at, horizon), now)
        with self.writing() as cursor:
            ledger.compare_inventory(cursor, min(hours.to_at, horizon))
            cursor.execute(
                "insert into ledger_build values ($begun_at, $from_at, $to_at)",
                {"begun_at": begun_at, "from_at": hours.from_at, "to_at": min(hours.to_at, horizon)},
            )
            return LedgerBuild(hours, spans, ledger.audit(cursor, hours))

    def recognise_faults(self, window: Window) -> int:
        """Recognise the faults told in `window`, before any build of the ledger. Gives how many were not known."""
        with self.writing() as cursor:
            return faults.recognise(cursor, window.from_at, window.to_at, self._clock.now())

    def basis_shift(self, window: Window, *, without: Sequence[str] = ("sm_active_ratio",)) -> basis.BasisShift:
        """What the ledger would say without the counters `without`; see `warehouse.basis.shift`."""
        return basis.shift(self, window, without)

    def evidence_extent(self, *, default: Window) -> Window:
        """The span of time that records speak of; `default` for an empty warehouse."""
        row = self.query("evidence_extent").to_pylist()[0]
        if row["from_at"] is None or row["from_at"] >= row["to_at"]:
            return default
        return Window(row["from_at"], row["to_at"])

    def save_analysis(self, analysis: Analysis) -> None:
        """Store what a rule's run gave over the hours that it covers."""
        with self.writing() as cursor:
            store_analysis(cursor, analysis, self._clock.now())

    def checkpoint(self) -> None:
        """Fold the write-ahead log into the file."""
        with self.writing() as cursor:
            cursor.execute("checkpoint")

    def _limits(self) -> validation.Limits:
        return validation.Limits(
            now=self._clock.now(),
            max_text_bytes=self._settings.max_text_bytes,
            future_tolerance_seconds=self._settings.future_tolerance_seconds,
            oldest_accepted_days=self._settings.oldest_accepted_days,
        )

    @staticmethod
    def _tenants(cursor: duckdb.DuckDBPyConnection) -> list[str]:
        return [row[0] for row in cursor.execute("select distinct tenant from tenant").fetchall()]


_NOT_STORED = ("pattern", "memory_gib", "compute_dies", "ai_cores")


def _gpu_models() -> list[dict[str, Any]]:
    return [
        {key: value for key, value in asdict(model).items() if key not in _NOT_STORED}
        | {"memory_bytes": model.memory_bytes}
        for model in GPU_MODELS
    ]


def _pending_causes() -> list[dict[str, Any]]:
    return [
        {"cause": cause, "rank": rank, "blame": str(blame), "is_bottleneck": cause in BOTTLENECKS}
        for rank, (cause, blame) in enumerate(PENDING_CAUSES.items())
    ]


def _fill(cursor: duckdb.DuckDBPyConnection, merge: str, rows: list[dict[str, Any]]) -> None:
    """Bring a table of constants up to the code's."""
    cursor.register("staged", pa.Table.from_pylist(rows))
    cursor.execute(merge)
    cursor.unregister("staged")
