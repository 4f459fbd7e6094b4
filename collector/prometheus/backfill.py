"""History of a Prometheus, Thanos or VictoriaMetrics server as records, one chunk of time after the other.

A chunk is asked for metric by metric, put together by the same assembler as every other way in, and forgotten. Its
records carry `source` "prometheus"; their interval is the step. Pods and nodes of kube-state-metrics go through a book
in order of time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from collector.devices.assemble import Options, assemble
from collector.exporters import DeviceReader
from collector.exposition import Series
from collector.kube_state_metrics.book import PodBook
from collector.prometheus.answer import Answer
from collector.prometheus.client import QueryClient
from collector.prometheus.columns import SeriesMemory, changes
from collector.prometheus.families import Window, is_of_pods, pod_step_ms, queries
from collector.prometheus.plan import Chunk
from collector.prometheus.promql import Matcher
from collector.samples import Samples
from gpuledger.attribution import Rules
from gpuledger.errors import SourceError
from gpuledger.model import QualityEvent, QualityFlag, to_table

SOURCE = "prometheus"
ROWS_PER_TABLE = 100_000
_DETAIL_CHARACTERS = 500

Tables = Iterator[tuple[str, pa.Table]]
"""(record name, table) in the order in which they are stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is imported: `names` are the server's metrics, of which those that mean something are asked for.

    `is_raw`: the step is the source's own interval, so that every step holds one sample. `seen_at` is when the import
    runs; of two that read the same step the later one counts. `cluster` names the cluster of all pods and nodes; None:
    their `cluster` label does, as in remote write, and `own_cluster` where they carry none.
    """

    names: Sequence[str]
    window: Window
    is_raw: bool
    seen_at: datetime
    matchers: Sequence[Matcher] = ()
    concurrency: int = 4
    gpu_util_ratio_unit: str = "percent"
    rules: Rules | None = None
    cluster: str | None = None
    own_cluster: str = "default"
    queries: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        asked = queries(self.names, self.matchers, self.window, is_raw=self.is_raw)
        object.__setattr__(self, "queries", asked)


class Backfill:
    """Reads chunks of one server. Chunks are to be read in order of time; one that failed may be read again later."""

    def __init__(self, client: QueryClient, request: Request) -> None:
        self._client = client
        self._request = request
        self._reader = DeviceReader(gpu_util_ratio_unit=request.gpu_util_ratio_unit)
        self._devices = SeriesMemory(self._reader.read)
        self._series: SeriesMemory[Series] = SeriesMemory(lambda series: series)
        self._books: dict[str, PodBook] = {}
        self.sample_count = 0

    def read(self, chunk: Chunk) -> Tables:
        """The records of `chunk`. Raises SourceError, before it gives any, when one of its queries fails."""
        return self.records(chunk, self._ask(chunk))

    def records(self, chunk: Chunk, answers: Mapping[str, Answer]) -> Tables:
        """The records that `answers`, by metric, amount to."""
        self.sample_count += sum(len(answer.values) for answer in answers.values())
        devices = [(metric, answer) for metric, answer in answers.items() if not is_of_pods(metric)]
        pods = [(metric, answer) for metric, answer in answers.items() if is_of_pods(metric)]
        warned = _warnings(answers)
        yield from self._device_records(chunk, devices, is_partial=bool(warned))
        if pods:
            yield from self._pod_records(self._series.samples(pods, pod_step_ms(chunk.step_ms)))
        if warned:
            yield "quality_event", to_table("quality_event", self._partial(chunk, warned))

    def _pod_records(self, samples: Samples[Series]) -> Tables:
        fed: dict[str, list[tuple[Series, float, datetime]]] = {}
        for one in changes(samples):
            cluster = self._request.cluster or one[0].labels.get("cluster") or self._request.own_cluster
            fed.setdefault(cluster, []).append(one)
        for cluster, ones in fed.items():
            book = self._books.setdefault(cluster, PodBook(self._request.rules, cluster))
            for record, rows in book.feed(ones, is_whole_page=False).items():
                yield from _cut(record, to_table(record, rows))

    def gap(self, chunk: Chunk, reason: str) -> pa.Table:
        """The event that says that `chunk` could not be read."""
        detail = f"{chunk}: {reason}"[:_DETAIL_CHARACTERS]
        return to_table("quality_event", [self._event(chunk, "gap", detail, chunk.points)])

    def _device_records(self, chunk: Chunk, answers: list[tuple[str, Answer]], *, is_partial: bool) -> Tables:
        samples = self._devices.samples(answers, chunk.step_ms)
        if not len(samples):
            return
        options = Options(
            now=self._request.seen_at,
            source=SOURCE,
            interval_seconds=chunk.step_ms / 1000,
            max_skew_seconds=None,
            holder=self._reader.holder,
        )
        made = assemble(samples, options)
        readings = _flagged(made.readings, QualityFlag.PARTIAL) if is_partial else made.readings
        yield from _cut("reading", readings)
        yield from _cut("holding", made.holdings)
        yield from _cut("source_read", made.reads)
        yield from _cut("quality_event", made.events if self._request.is_raw else _lasting_claims(made.events))

    def _ask(self, chunk: Chunk) -> dict[str, Answer]:
        def ask(asked: tuple[str, str]) -> tuple[str, Answer]:
            metric, query = asked
            step = pod_step_ms(chunk.step_ms) if is_of_pods(metric) else chunk.step_ms
            last = chunk.first_ms + (chunk.last_ms - chunk.first_ms) // step * step
            return metric, self._client.query_range(query, chunk.first_ms + step, last + step, step)

        pool = ThreadPoolExecutor(self._request.concurrency)
        coming = [pool.submit(ask, asked) for asked in self._request.queries.items()]
        try:
            return dict(one.result() for one in coming)
        except SourceError:
            pool.shutdown(cancel_futures=True)  # after one failure the others need not be asked
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)  # whoever interrupts does not wait for answers

    def _partial(self, chunk: Chunk, warned: Mapping[str, int]) -> list[QualityEvent]:
        return [self._event(chunk, "partial_answer", text, count) for text, count in warned.items()]

    def _event(self, chunk: Chunk, kind: str, detail: str, count: int) -> QualityEvent:
        return QualityEvent(
            ts=chunk.from_at,
            source=SOURCE,
            subject_kind="target",
            subject=self._client.name,
            kind=kind,
            detail=detail,
            count=count,
        )


def _warnings(answers: Mapping[str, Answer]) -> Mapping[str, int]:
    """What servers said beside their answers, and of how many."""
    return Counter(text[:_DETAIL_CHARACTERS] for answer in answers.values() for text in set(answer.warnings))


def _flagged(readings: pa.Table, flag: int) -> pa.Table:
    place = readings.schema.get_field_index("quality_flags")
    flags = pc.bit_wise_or(readings["quality_flags"], pa.scalar(flag, pa.int64()))
    return readings.set_column(place, readings.schema.field(place), flags)


def _lasting_claims(events: pa.Table) -> pa.Table:
    """Without claims of several pods on a card in one step alone: within a step one may have followed the other."""
    frame = cast("pl.DataFrame", pl.from_arrow(events))
    is_claim = pl.col("kind") == "double_claim"
    lasting = frame.filter(~is_claim | (pl.len().over("subject", "kind", "detail") > 1))
    return lasting.to_arrow().cast(events.schema)


def _cut(record: str, table: pa.Table) -> Tables:
    for offset in range(0, table.num_rows, ROWS_PER_TABLE):
        yield record, table.slice(offset, ROWS_PER_TABLE)
