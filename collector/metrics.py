"""The agent about itself, for Prometheus: reads, rows, what was refused, and the way from the spool to the service."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collector.shipper import ShipCounts
from collector.spool import Spool
from gpuledger.errors import ConfigError
from gpuledger.ports import Observation, Source

_PREFIX = "gpuledger_collector"


class AgentMetrics:
    """Counters of one agent in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reads = self._counter("reads", "reads of a source, by outcome (ok, failed)", "source", "outcome")
        self.overruns = self._counter("overruns", "turns skipped because the read before had not ended", "source")
        self.rows = self._counter("rows", "rows read", "record")
        self.invalid_values = self._counter("invalid_values", "values that were no measurements", "source")
        self.skipped_lines = self._counter("skipped_lines", "lines of a page that were not legal", "source")
        self.lost_rows = self._counter("unbatched_rows", "rows that could not be made into a batch", "record")
        self.last_success = Gauge(
            f"{_PREFIX}_last_success_timestamp_seconds",
            "when a source was last read",
            ["source"],
            registry=self.registry,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def note(self, source: str, observation: Observation, now: datetime) -> None:
        """Count what one read gave."""
        is_ok = all(read.ok for read in observation.reads)
        self.reads.labels(source, "ok" if is_ok else "failed").inc()
        if is_ok:
            self.last_success.labels(source).set(now.timestamp())
        self.invalid_values.labels(source).inc(sum(reading.invalid_count for reading in observation.readings))
        self.skipped_lines.labels(source).inc(sum(read.skipped_lines for read in observation.reads))

    def watch(self, spool: Spool, shipped: ShipCounts, sources: Sequence[Source]) -> None:
        """Show the counts that others keep."""
        self.registry.register(_Kept(spool, shipped, sources))

    def serve(self, listen: str) -> Server:
        """Answer on `listen` (HOST:PORT). Raises ConfigError when that is not possible."""
        host, _, port = listen.rpartition(":")
        try:
            server, thread = start_http_server(int(port), host.strip("[]"), registry=self.registry)
        except (OSError, ValueError) as error:
            raise ConfigError(f"metrics_listen: cannot listen on {listen!r}: {error}") from error
        return Server(server, thread)


class Server:
    """A running metrics endpoint."""

    def __init__(self, server: WSGIServer, thread: Any) -> None:
        self._server = server
        self._thread = thread

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Kept(Collector):
    """Reads the counts where they are kept, at each scrape."""

    def __init__(self, spool: Spool, shipped: ShipCounts, sources: Sequence[Source]) -> None:
        self._spool = spool
        self._shipped = shipped
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """The families."""
        spool, shipped = self._spool, self._shipped
        yield GaugeMetricFamily(f"{_PREFIX}_spool_bytes", "bytes of waiting batches", spool.size_bytes)
        yield GaugeMetricFamily(f"{_PREFIX}_spool_batches", "batches waiting", spool.batch_count)
        counts = {
            "dropped_batches": ("batches dropped because the spool was full", spool.counts.dropped_batches),
            "dropped_rows": ("rows of dropped batches", spool.counts.dropped_rows),
            "corrupt_batches": ("damaged spool files", spool.counts.corrupt_batches),
            "refused_batches": ("batches that the service will never take", spool.counts.set_aside_batches),
            "shipped_batches": ("batches that the service has", shipped.shipped_batches),
            "shipped_rows": ("rows that the service has", shipped.shipped_rows),
            "rejected_rows": ("rows that the service refused one by one", shipped.rejected_rows),
            "retries": ("sendings repeated because the service was not available", shipped.retries),
        }
        for name, (text, value) in counts.items():
            yield CounterMetricFamily(f"{_PREFIX}_{name}", text, value)
        family = GaugeMetricFamily(
            f"{_PREFIX}_source_state", "what a source says about itself", labels=("source", "kind")
        )
        for source in self._sources:
            kept: Mapping[str, int] = getattr(source, "counts", {})
            for kind, count in kept.items():
                family.add_metric((source.name, kind), count)
        yield family
