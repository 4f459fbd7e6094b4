"""`gpuledger import prometheus`: the history of a metrics server into the warehouse, without anything on a node.

What was done stands in the warehouse's own journal: each chunk of time ends with an empty batch whose id names it. A
second run asks for the ids and skips those chunks. The journal cannot disagree with the warehouse, which a file beside
it could; and it is where the warehouse is, also behind a service on another machine.
"""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer

from collector.attribution import load
from collector.prometheus.backfill import Backfill, Request
from collector.prometheus.client import QueryClient
from collector.prometheus.families import Window, reads_of
from collector.prometheus.plan import (
    Chunk,
    Estimate,
    Pace,
    Survey,
    choose_step,
    chunk_points,
    chunks,
    estimate,
    instant,
    milliseconds,
    span_ms,
)
from collector.prometheus.promql import Matcher
from collector.prometheus.survey import Span, survey
from gpuledger.app import parameters
from gpuledger.app.client import Client
from gpuledger.app.printing import progress
from gpuledger.clock import SystemClock
from gpuledger.errors import BadInput, SourceError
from gpuledger.model import to_table

NEWEST_SECONDS = 60
"""What is newer is left for the next run: servers show their last seconds late."""
HOPELESS_CHUNKS = 3
"""After so many failures in a row a run ends: the server is not there, or refuses all of it."""
ASKED_ABOVE_SAMPLES = 20_000_000
"""A larger import is begun only after a yes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for, beside where the server is."""

    span: Span
    step: str = "auto"
    matchers: Sequence[Matcher] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    is_again: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """An import before it begins: its chunks, what they cost, and the text with which all its batch ids begin."""

    request: Request
    chunks: Sequence[Chunk]
    cost: Estimate
    prefix: str


def span_of(since: str, until: str | None, now: datetime) -> Span:
    """The span from texts: ISO 8601, or a time back from `now` ("30d"). Raises BadInput naming what is wrong."""
    newest = now - timedelta(seconds=NEWEST_SECONDS)
    begin, end = _point("since", since, now), min(_point("until", until, now) if until else newest, newest)
    if begin >= end:
        raise BadInput("until", f"{end.isoformat()} is not after since ({begin.isoformat()})")
    if end - begin > parameters.LONGEST_WINDOW:
        raise BadInput("since", f"is more than {parameters.LONGEST_WINDOW.days} days before until")
    return Span(begin, end)


def _point(name: str, text: str, now: datetime) -> datetime:
    if text[:1].isdigit() and text[-1:].isalpha() and "T" not in text:
        return now - timedelta(milliseconds=span_ms(name, text))
    return parameters.instant(name, text)


def wanted(
    span: Span, *, step: str, match: Sequence[str], param: Sequence[str], pace: tuple[int, float], is_again: bool
) -> Wanted:
    """The options as they are meant. Raises BadInput naming the one that is wrong."""
    return Wanted(
        span=span,
        step=step,
        matchers=tuple(Matcher.parse(text) for text in match),
        params=_pairs("param", param, "="),
        pace=Pace(concurrency=pace[0], requests_per_second=pace[1]),
        is_again=is_again,
    )


def _pairs(name: str, texts: Sequence[str], sign: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        key, found, value = text.partition(sign)
        if not found or not key.strip():
            raise BadInput(name, f"must be written as name{sign}value")  # without the text: it may be a secret
        pairs[key.strip()] = value.strip()
    return pairs


def server(  # noqa: PLR0913 each is one option
    url: str,
    asked: Wanted,
    *,
    headers: Sequence[str],
    token: str | None,
    user: str | None,
    ca_file: Path | None,
    timeout_seconds: float,
) -> QueryClient:
    """A client of the server at `url`. Credentials are sent and never shown. Raises BadInput, ConfigError."""
    sent = _pairs("header", headers, ":")
    if token:
        sent["Authorization"] = f"Bearer {token}"
    name, _, password = (user or "").partition(":")
    return QueryClient(
        url,
        clock=SystemClock(),
        headers=sent,
        auth=(name, password) if user else None,
        params=asked.params,
        requests_per_second=asked.pace.requests_per_second,
        timeout_seconds=timeout_seconds,
        ca_file=str(ca_file) if ca_file else None,
    )


def prepared(source: QueryClient, asked: Wanted, more: Mapping[str, Any]) -> Plan:
    """Look at the server and plan. Raises SourceError, BadInput."""
    unit = more["gpu_util_ratio_unit"]
    if unit not in {"percent", "ratio"}:
        raise BadInput("gpu_util_ratio_unit", "must be percent or ratio")
    found = survey(source, asked.span, asked.matchers)
    return plan(source.name, found, asked, SystemClock().now(), **{**more, "rules": load(more["rules"])})


def run(client: Client, source: QueryClient, what: Plan) -> dict[str, Any]:
    """Import, then build the ledger of these hours, also of those that an interrupted run has brought."""
    answer = Import(client, Backfill(source, what.request), what).run()
    if answer["imported"] or answer["chunks_had_before"]:
        span = {"from_": what.chunks[0].from_at, "to": what.chunks[-1].to_at}
        answer["ledger"] = client.post("/v1/ledger/build", **span)
    return answer


def plan(server_name: str, found: Survey, wanted: Wanted, now: datetime, **more: Any) -> Plan:
    """What importing `wanted` means for a server with what `found` says. `more` goes into the request."""
    step_ms = choose_step(found, wanted.span.until - wanted.span.since, wanted.step)
    request = Request(
        names=tuple(found.series),
        window=Window(step_ms, found.is_closed),
        is_raw=found.interval_ms is not None and step_ms <= found.interval_ms,
        seen_at=now,
        matchers=wanted.matchers,
        concurrency=wanted.pace.concurrency,
        **more,
    )
    # The last step must have ended.
    last = min(milliseconds(wanted.span.until), milliseconds(now) - 1000 * NEWEST_SECONDS - step_ms)
    cut = list(chunks(wanted.span.since, instant(last), step_ms, chunk_points(found.peak_series)))
    reads = {metric: reads_of(query) for metric, query in request.queries.items()}
    what = (server_name, step_ms, sorted(map(str, wanted.matchers)), sorted(wanted.params.items()), request.cluster)
    salt = (now.isoformat(),) if wanted.is_again else ()
    digest = hashlib.sha256(repr((*what, *salt)).encode()).hexdigest()[:16]
    return Plan(request, cut, estimate(found, cut, reads, wanted.pace, step_ms=step_ms), f"prometheus-{digest}-")


class Import:
    """One run: chunk after chunk into the warehouse, and those that failed once more at the end."""

    def __init__(self, client: Client, source: Backfill, what: Plan) -> None:
        self._client = client
        self._source = source
        self._plan = what
        self.rows: Counter[str] = Counter()
        self.rejected: list[dict[str, Any]] = []
        self.skipped = 0

    def run(self) -> dict[str, Any]:
        """Everything that is not there yet; gives what was taken in and what could not be read."""
        done = set(self._client.query("batch_list", prefix=self._plan.prefix)["batch_id"].to_pylist())
        open_chunks = [chunk for chunk in self._plan.chunks if self._batch(chunk, "done") not in done]
        self.skipped = len(self._plan.chunks) - len(open_chunks)
        failed, untried = self._read_all(open_chunks)
        if not untried:
            failed = [(chunk, reason) for chunk, _ in failed if (reason := self._read(chunk)) is not None]
        for chunk, reason in failed:
            self._store("quality_event", self._source.gap(chunk, reason), self._batch(chunk, "gap"))
        return {
            "imported": dict(self.rows),
            "rejected_count": len(self.rejected),
            "rejected": self.rejected,
            "chunks": len(self._plan.chunks),
            "chunks_had_before": self.skipped,
            "chunks_not_tried": untried,
            "gaps": [{"from": chunk.from_at, "to": chunk.to_at, "reason": reason} for chunk, reason in failed],
        }

    def _read_all(self, cut: Sequence[Chunk]) -> tuple[list[tuple[Chunk, str]], int]:
        """Take `cut` in; gives what failed, and how many were not even tried because a few before had all failed."""
        failed: list[tuple[Chunk, str]] = []
        streak = 0
        with progress() as bar:
            task = bar.add_task("import prometheus", total=len(self._plan.chunks), completed=self.skipped)
            for number, chunk in enumerate(cut):
                reason = self._read(chunk)
                streak = 0 if reason is None else streak + 1
                if reason is not None:
                    failed.append((chunk, reason))
                if streak == HOPELESS_CHUNKS:
                    return failed, len(cut) - number - 1
                bar.advance(task)
        return failed, 0

    def _read(self, chunk: Chunk) -> str | None:
        """Take `chunk` in; gives the reason when the server did not answer, and then nothing of it was stored."""
        try:
            for number, (record, table) in enumerate(self._source.read(chunk)):
                self._store(record, table, self._batch(chunk, f"{number}-{record}"))
        except SourceError as error:
            return str(error)
        self._store("quality_event", to_table("quality_event", []), self._batch(chunk, "done"))
        return None

    def _batch(self, chunk: Chunk, part: str) -> str:
        return f"{self._plan.prefix}{chunk.first_ms // 1000}-{chunk.points}-{part}"

    def _store(self, record: str, table: pa.Table, batch_id: str) -> None:
        answer = self._client.ingest(record, table, batch_id)
        self.rows.update({record: answer["accepted"]} if answer["accepted"] else {})
        self.rejected += answer["rejected"]


def described(cost: Estimate) -> dict[str, Any]:
    """An estimate for people and scripts."""
    return {name: value for name, value in asdict(cost).items() if value is not None}


def agreed(cost: Estimate, *, is_yes: bool) -> bool:
    """Whether to begin: small imports are, larger ones after `--yes` or a yes at the terminal."""
    if is_yes or cost.samples <= ASKED_ABOVE_SAMPLES:
        return True
    if not sys.stdin.isatty():
        raise BadInput("yes", f"{cost.samples:,} samples: say --yes, or --estimate-only, or take a coarser --step")
    return typer.confirm(f"Fetch {cost.samples:,} samples in about {cost.seconds} s?", err=True)
