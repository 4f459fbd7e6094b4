"""`gpuledger import prometheus`: the history of a metrics server into the warehouse, without anything on a node.

What was done stands in the warehouse's own journal: each chunk of time ends with an empty batch whose id says which
steps it held. A second run asks for the ids and leaves those steps out, however it cuts its own chunks. The journal
cannot disagree with the warehouse, which a file beside it could; and it is where the warehouse is, also behind a
service on another machine.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import typer

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
    split,
)
from collector.prometheus.promql import Matcher
from collector.prometheus.survey import Span, survey, trial, widest_of
from gpuledger.app import parameters
from gpuledger.app.client import Client
from gpuledger.app.printing import progress
from gpuledger.attribution import load
from gpuledger.clock import SystemClock
from gpuledger.errors import BadInput, SourceError
from gpuledger.model import to_table

NEWEST_SECONDS = 60
"""What is newer is left for the next run: servers show their last seconds late."""
HOPELESS_CHUNKS = 3
"""After so many failures in a row a run ends: the server is not there, or refuses all of it."""
_COMPARED = 100
_UID = re.compile(r"[^/,]{1,36}")
_DONE = re.compile(r"(\d+)-(\d+)-done")
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
    is_again: bool = False


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
    if text[:1].isdigit() and text[-1:].isalpha() and not {"T", "-"} & set(text):
        back = span_ms(name, text)
        if back > parameters.LONGEST_WINDOW / timedelta(milliseconds=1):
            raise BadInput(name, f"is more than {parameters.LONGEST_WINDOW.days} days ago")
        return now - timedelta(milliseconds=back)
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
    own = source.external_labels().get("cluster") or "default"
    given = {**more, "rules": load(more["rules"]), "own_cluster": own}
    looked = plan(source.name, found, asked, SystemClock().now(), **given)
    step_ms, query = looked.request.window.step_ms, looked.request.queries[widest_of(found.series)]
    tried = replace(found, cost=trial(source, query, found, asked.span, step_ms))
    return plan(source.name, tried, asked, looked.request.seen_at, **given)


def run(client: Client, source: QueryClient, what: Plan) -> dict[str, Any]:
    """Import, then build the ledger of these hours, also of those that an interrupted run has brought."""
    task = Import(client, Backfill(source, what.request), what)
    try:
        answer = task.run()
        if answer["imported"] or answer["chunks_had_before"]:
            span = {"from_": what.chunks[0].from_at, "to": what.chunks[-1].to_at}
            answer["ledger"] = client.post("/v1/ledger/build", **span)
    except KeyboardInterrupt:
        sys.stderr.write(task.interrupted())
        raise
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
    cluster = request.cluster or request.own_cluster
    what = (server_name, step_ms, sorted(map(str, wanted.matchers)), sorted(wanted.params.items()), cluster)
    salt = (now.isoformat(),) if wanted.is_again else ()
    digest = hashlib.sha256(repr((*what, *salt)).encode()).hexdigest()[:16]
    cost = estimate(found, cut, reads, wanted.pace, step_ms=step_ms)
    return Plan(request, cut, cost, f"prometheus-{digest}-", is_again=wanted.is_again)


class Import:
    """One run: chunk after chunk into the warehouse, and those that failed once more at the end."""

    def __init__(self, client: Client, source: Backfill, what: Plan) -> None:
        self._client = client
        self._source = source
        self._plan = what
        self.rows: Counter[str] = Counter()
        self.rejected: list[dict[str, Any]] = []
        self.skipped = self.stored = self.total = 0
        self._is_hinted = False

    def run(self) -> dict[str, Any]:
        """Everything that is not there yet; gives what was taken in and what could not be read."""
        done = self._done()
        parts = [split(chunk, done) for chunk in self._plan.chunks]
        open_chunks = [chunk for _, missing in parts for chunk in missing]
        self.skipped = self.stored = sum(len(present) for present, _ in parts)
        self.total = self.skipped + len(open_chunks)
        failed, untried = self._read_all(open_chunks)
        if not untried:
            failed = [(chunk, reason) for chunk, _ in failed if (reason := self._read(chunk)) is not None]
        for chunk, reason in failed:
            self._store("quality_event", self._source.gap(chunk, reason), self._batch(chunk, "gap"))
        return {
            "imported": dict(self.rows),
            "rejected_count": len(self.rejected),
            "rejected": self.rejected,
            "chunks": self.total,
            "chunks_had_before": self.skipped,
            "chunks_not_tried": untried,
            "gaps": [{"from": chunk.from_at, "to": chunk.to_at, "reason": reason} for chunk, reason in failed],
        }

    def _done(self) -> list[Chunk]:
        """The steps that earlier runs have read."""
        step_ms = self._plan.request.window.step_ms
        ids = self._client.query("batch_list", prefix=self._plan.prefix)["batch_id"].to_pylist()
        found = (_DONE.fullmatch(text.removeprefix(self._plan.prefix)) for text in ids)
        begins = ((-(-int(one[1]) * 1000 // step_ms) * step_ms, int(one[2])) for one in found if one)
        return [Chunk(first, first + (points - 1) * step_ms, step_ms) for first, points in begins]

    def interrupted(self) -> str:
        """What an interrupted run has done, and how to go on."""
        how = (
            "With --again the next run reads all anew."
            if self._plan.is_again
            else "The same command goes on from there."
        )
        return f"\nInterrupted: {self.stored} of {self.total} chunks are stored. {how}\n"

    def _read_all(self, cut: Sequence[Chunk]) -> tuple[list[tuple[Chunk, str]], int]:
        """Take `cut` in; gives what failed, and how many were not even tried because a few before had all failed."""
        failed: list[tuple[Chunk, str]] = []
        streak = 0
        with progress() as bar:
            task = bar.add_task("import prometheus", total=self.total, completed=self.skipped)
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
                if record == "pod":
                    self._compare_clusters(table)
                self._store(record, table, self._batch(chunk, f"{number}-{record}"))
        except SourceError as error:
            return str(error)
        self._store("quality_event", to_table("quality_event", []), self._batch(chunk, "done"))
        self.stored += 1
        return None

    def _compare_clusters(self, pods: pa.Table) -> None:
        """Say once when the warehouse has one of `pods` under another cluster's name: uids are never given twice."""
        if self._is_hinted:
            return
        known = zip(pods["uid"].to_pylist(), pods["cluster"].to_pylist(), strict=True)
        # A name that stands in for a uid may be given twice.
        here = dict(itertools.islice(((uid, cluster) for uid, cluster in known if _UID.fullmatch(uid)), _COMPARED))
        there = self._client.query("pod_clusters", uids=",".join(here)).to_pylist()
        for row in there:
            if row["cluster"] != here[row["uid"]]:
                self._is_hinted = True
                sys.stderr.write(
                    f"Hint: pod {row['namespace']}/{row['pod']} is of cluster {row['cluster']!r} in the warehouse, of "
                    f"{here[row['uid']]!r} here, so that its workload gets a second name. If they are one cluster: "
                    f"stop, and say --cluster {row['cluster']}.\n"
                )
                return

    def _batch(self, chunk: Chunk, part: str) -> str:
        return f"{self._plan.prefix}{chunk.first_ms // 1000}-{chunk.points}-{part}"

    def _store(self, record: str, table: pa.Table, batch_id: str) -> None:
        answer = self._client.ingest(record, table, batch_id)
        self.rows.update({record: answer["accepted"]} if answer["accepted"] else {})
        self.rejected += answer["rejected"]


def announced(cost: Estimate) -> str:
    """An estimate in one line, before the import begins."""
    return (
        f"Estimate: {cost.samples:,} samples of {cost.series:,} series, one every {cost.step_seconds:g} s, in "
        f"{cost.chunks:,} chunks and {cost.requests:,} requests; {cost.megabytes:,} MB, about {cost.seconds:,} s.\n"
    )


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
