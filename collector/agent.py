"""The agent: reads sources side by side, batches what they gave, and lets the shipper empty the spool.

Every source has a thread of its own to wait in, so that a slow or hung one delays nobody; a turn that comes while the
read before has not ended is skipped and counted. Rows of all sources go into one batch for each record and flush.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime
from itertools import chain
from typing import Any

import httpx
import pyarrow as pa
import structlog

from collector.building import build_sources
from collector.clocks import ClockWatch
from collector.discovery import completed
from collector.metrics import AgentMetrics
from collector.schedule import Schedule
from collector.settings import CollectorSettings
from collector.shipper import Shipper
from collector.spool import Spool
from gpuledger.clock import Clock
from gpuledger.model import QualityEvent, to_table
from gpuledger.ports import Observation, Source

FLUSH_ROWS = 20_000
_GRACE_SECONDS = 5.0

_log = structlog.get_logger(__name__)


class Buffer:
    """Rows by record until the next flush, those of each observation together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: dict[str, list[Sequence[Any]]] = {}

    def add(self, observation: Observation) -> dict[str, int]:
        """Take all rows of `observation`; answers how many of each record."""
        taken: dict[str, Sequence[Any]] = {
            "source_read": observation.reads,
            "reading": observation.readings,
            "holding": observation.holdings,
            **observation.others,
        }
        with self._lock:
            for record, rows in taken.items():
                self._rows.setdefault(record, []).append(tuple(rows))
        return {record: len(rows) for record, rows in taken.items()}

    def take(self) -> dict[str, list[Sequence[Any]]]:
        """All rows, which leave the buffer: for each record those of each observation that has any."""
        with self._lock:
            rows, self._rows = self._rows, {}
        filled = {record: [some for some in parts if some] for record, parts in rows.items()}
        return {record: parts for record, parts in filled.items() if parts}

    @property
    def row_count(self) -> int:
        """Rows waiting."""
        with self._lock:
            return sum(len(rows) for parts in self._rows.values() for rows in parts)


class Agent:
    """Reads `sources` into `spool`. `run` blocks until its event is set; what was read by then is in the spool."""

    def __init__(
        self, sources: Sequence[Source], *, clock: Clock, spool: Spool, metrics: AgentMetrics, flush_seconds: float
    ) -> None:
        self._sources = sources
        self._clock = clock
        self._spool = spool
        self._metrics = metrics
        self._flush_seconds = flush_seconds
        self._buffer = Buffer()
        self._running: dict[int, Future[None]] = {}
        self._failing: set[str] = set()

    def run(self, stop: threading.Event) -> None:
        """Read until `stop` is set."""
        schedule = Schedule([source.interval_seconds for source in self._sources], time.monotonic())
        flush_at = time.monotonic() + self._flush_seconds
        pool = ThreadPoolExecutor(max_workers=len(self._sources), thread_name_prefix="source")
        try:
            while not stop.is_set():
                now = time.monotonic()
                for number in schedule.take_due(now):
                    self._start(pool, number)
                if now >= flush_at or self._buffer.row_count >= FLUSH_ROWS:
                    self.flush()
                    flush_at = now + self._flush_seconds
                stop.wait(max(0.0, min(schedule.next_at, flush_at) - time.monotonic()))
            wait(self._running.values(), timeout=_GRACE_SECONDS)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            self.flush()

    def tell(self, event: QualityEvent) -> None:
        """Take in what was noticed beside the reading of sources."""
        self._buffer.add(Observation(reads=(), others={"quality_event": (event,)}))

    def flush(self) -> None:
        """Put the buffered rows into the spool."""
        for record, parts in self._buffer.take().items():
            try:
                tables = [to_table(record, chain.from_iterable(parts))]
            except Exception:  # a plug-in's source may give rows of wrong types; those of others must go on
                tables = [table for rows in parts if (table := self._batched(record, rows)) is not None]
            if tables:
                self._put(record, pa.concat_tables(tables))

    def _batched(self, record: str, rows: Sequence[Any]) -> pa.Table | None:
        """The rows of one observation; None, counted and logged, where they are no rows of `record`."""
        try:
            return to_table(record, rows)
        except Exception:  # whatever makes a row none of its record: it is counted and logged with its trace
            self._lose(record, len(rows))
        return None

    def _put(self, record: str, table: pa.Table) -> None:
        try:
            self._spool.put(record, table)
        except Exception:  # a full disk, say; the other records must go on
            self._lose(record, len(table))

    def _lose(self, record: str, row_count: int) -> None:
        self._metrics.lost_rows.labels(record).inc(row_count)
        _log.exception("rows could not be batched", record=record, rows=row_count)

    def _start(self, pool: ThreadPoolExecutor, number: int) -> None:
        source, running = self._sources[number], self._running.get(number)
        if running is not None and not running.done():
            self._metrics.overruns.labels(source.name).inc()
            self.tell(_overrun(source.name, self._clock.now()))
            return
        self._running[number] = pool.submit(self._read, source)

    def _read(self, source: Source) -> None:
        now = self._clock.now()
        try:
            observation = source.read(now)
        except Exception:  # the port forbids it; a plug-in's mistake must not end its thread's turn unseen
            self._metrics.reads.labels(source.name, "failed").inc()
            _log.exception("a source raised", source=source.name)
            return
        for record, count in self._buffer.add(observation).items():
            self._metrics.rows.labels(record).inc(count)
        self._metrics.note(source.name, observation, now)
        self._log_change(source.name, observation)

    def _log_change(self, name: str, observation: Observation) -> None:
        """Say when a source starts or stops failing, not at every read."""
        errors = [read.error for read in observation.reads if not read.ok]
        if errors and name not in self._failing:
            self._failing.add(name)
            _log.warning("source fails", source=name, error=errors[0])
        elif not errors and name in self._failing:
            self._failing.discard(name)
            _log.info("source is back", source=name)


def _overrun(name: str, now: datetime) -> QualityEvent:
    return QualityEvent(
        ts=now,
        source=name.partition(":")[0],
        subject_kind="target",
        subject=name,
        kind="gap",
        detail="a turn was skipped, because the read before had not ended",
        count=1,
    )


def run(settings: CollectorSettings, clock: Clock, stop_event: threading.Event) -> None:
    """Read, spool and ship until `stop_event` is set; then ship what can be shipped at once and return.

    Raises ConfigError before anything is read when a setting cannot work.
    """
    # Targets are this cluster's own addresses: a proxy from the environment is for the way out, not for them.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    with httpx.Client(trust_env=False, limits=limits) as targets, httpx.Client() as service:
        sources = build_sources(completed(settings, targets, clock.now()), targets)
        spool = Spool(settings.spool_directory, settings.spool_limit_bytes)
        try:
            _run(settings, clock, stop_event, sources=sources, spool=spool, clients=(targets, service))
        finally:
            for source in sources:
                getattr(source, "close", lambda: None)()
            spool.close()


def _run(
    settings: CollectorSettings,
    clock: Clock,
    stop_event: threading.Event,
    *,
    sources: list[Source],
    spool: Spool,
    clients: tuple[httpx.Client, httpx.Client],
) -> None:
    """`clients` are the one for targets and the one for the service."""
    targets, service = clients
    token = settings.token.get_secret_value() if settings.token else None
    no_more = threading.Event()
    shipper = Shipper(spool, settings.service_url, token=token, stop=no_more, client=service)
    metrics = AgentMetrics()
    metrics.watch(spool, shipper.counts, sources)
    agent = Agent(sources, clock=clock, spool=spool, metrics=metrics, flush_seconds=settings.flush_seconds)
    watch = ClockWatch(clock, agent.tell)
    targets.event_hooks = {"response": [watch.look_at_target]}
    service.event_hooks = {"response": [watch.look_at_service]}
    server = metrics.serve(settings.metrics_listen) if settings.metrics_listen else None
    shipping = threading.Thread(target=shipper.run, name="shipper", daemon=True)
    shipping.start()
    try:
        agent.run(stop_event)
    finally:
        no_more.set()
        shipping.join(_GRACE_SECONDS)
        if not shipping.is_alive():
            shipper.drain()
        if server is not None:
            server.close()
