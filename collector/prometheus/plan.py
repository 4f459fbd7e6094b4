"""What an import will ask, before it asks: the step, the chunks, and what they cost source and warehouse. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import median

from gpuledger.errors import BadInput

MAX_POINTS = 11_000
"""Points of one series that a server answers at most; Prometheus refuses more with `bad_data`."""
CHUNK_SAMPLES = 3_000_000
"""Samples that one chunk may bring into memory."""
AUTO_SAMPLES = 1_000_000_000
"""More than that is not fetched unless a step is given: the automatic step becomes coarser."""
COARSER_STEPS_MS = (60_000, 300_000)
IMPORT_SAMPLES_PER_SECOND = 300_000
"""What decoding, assembling and storing take together on one core; benchmarks/backfill_decode.py measures the first
two."""
BYTES_PER_SAMPLE = 26
"""A sample in an answer, before compression."""
_POINTS = (11_000, 10_080, 5_760, 2_880, 1_440, 720, 360, 240, 120, 60, 30, 20, 10, 5, 2, 1)
_NICE_SECONDS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600)
_NEAR = 0.1


@dataclass(frozen=True, slots=True)
class Chunk:
    """The steps that begin at `first_ms`, `first_ms` + `step_ms`, ..., `last_ms`, all included."""

    first_ms: int
    last_ms: int
    step_ms: int

    @property
    def points(self) -> int:
        """How many steps."""
        return (self.last_ms - self.first_ms) // self.step_ms + 1

    @property
    def from_at(self) -> datetime:
        """When the first step begins."""
        return instant(self.first_ms)

    @property
    def to_at(self) -> datetime:
        """When the last step ends."""
        return instant(self.last_ms + self.step_ms)

    def __str__(self) -> str:
        return f"{self.from_at.isoformat()}/{self.to_at.isoformat()}"


def instant(milliseconds: int) -> datetime:
    """Milliseconds from 1970 as an instant in UTC."""
    return datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=milliseconds)


def milliseconds(at: datetime) -> int:
    """An instant as whole milliseconds from 1970."""
    return (at - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def chunk_points(series: float) -> int:
    """How many steps of `series` series one chunk takes: one of a few sizes, so that a second run cuts alike."""
    affordable = CHUNK_SAMPLES / max(series, 1.0)
    return next((points for points in _POINTS if points <= affordable), 1)


def chunks(since: datetime, until: datetime, step_ms: int, points: int) -> Iterator[Chunk]:
    """The steps that begin in [`since`, `until`], both included, each in exactly one chunk, in order of time.

    Steps begin at multiples of the step, and chunks at multiples of their length, whatever `since` is: only the first
    and the last chunk of a span depend on its ends.
    """
    first = milliseconds(since) // step_ms * step_ms
    last = milliseconds(until) // step_ms * step_ms
    length = points * step_ms
    while first <= last:
        end = min(first // length * length + length - step_ms, last)
        yield Chunk(first, end, step_ms)
        first = end + step_ms


def split(chunk: Chunk, had: Iterable[Chunk]) -> tuple[list[Chunk], list[Chunk]]:
    """(what of `chunk` is in `had`, what is not), in order of time. All have the same step; `had` may overlap."""
    step, next_ms = chunk.step_ms, chunk.first_ms
    present: list[Chunk] = []
    missing: list[Chunk] = []
    for one in sorted(had, key=lambda other: other.first_ms):
        first, last = max(one.first_ms, next_ms), min(one.last_ms, chunk.last_ms)
        if first > last:
            continue
        if first > next_ms:
            missing.append(Chunk(next_ms, first - step, step))
        if present and present[-1].last_ms + step == first:
            first = present.pop().first_ms
        present.append(Chunk(first, last, step))
        next_ms = last + step
    if next_ms <= chunk.last_ms:
        missing.append(Chunk(next_ms, chunk.last_ms, step))
    return present, missing


@dataclass(frozen=True, slots=True)
class Cost:
    """What a source takes to answer: for each request, however small, and for each sample in it."""

    seconds_per_request: float
    seconds_per_sample: float


@dataclass(frozen=True, slots=True)
class Survey:
    """What a source holds: live series by metric (the mean over the span) and at most, and its own interval.

    `is_closed`: its windows hold their first instant. `fullest_ms`: the newest instant at which it had most series.
    `cost` is what a trial has measured; None where there was none.
    """

    series: Mapping[str, float]
    peak_series: float
    interval_ms: int | None
    is_closed: bool
    fullest_ms: int | None = None
    cost: Cost | None = None

    @property
    def total_series(self) -> float:
        """Live series of all metrics."""
        return sum(self.series.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What an import costs. `samples` come over the wire; `source_samples` are read by the source from its store."""

    metrics: int
    series: int
    step_seconds: float
    source_interval_seconds: float | None
    points: int
    chunks: int
    requests: int
    samples: int
    source_samples: int
    largest_query_samples: int
    megabytes: int
    seconds: int


def choose_step(survey: Survey, span: timedelta, wanted: str) -> int:
    """The step in milliseconds: the one `wanted` ("60s", "5m"), or for "auto" the finest that stays affordable.

    That is the source's own interval, else 60 s, else 300 s, whose samples together stay below `AUTO_SAMPLES`. Never
    finer than the source's interval: steps without a sample would look like a source that failed.
    Raises BadInput for a text that is no step.
    """
    if wanted != "auto":
        step = span_ms("step", wanted)
        if not 1000 <= step <= 3_600_000:
            raise BadInput("step", "must be between 1s and 1h")
        return max(step, survey.interval_ms or step)
    own = survey.interval_ms or COARSER_STEPS_MS[0]
    steps = [own, *(step for step in COARSER_STEPS_MS if step > own)]
    total = span / timedelta(milliseconds=1)
    return next((step for step in steps if total / step * survey.total_series <= AUTO_SAMPLES), steps[-1])


_COUNT = re.compile(r"[0-9]{1,10}")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def span_ms(name: str, text: str) -> int:
    """A span like 15s, 5m, 12h, 30d as milliseconds. Raises BadInput naming `name`."""
    number, unit = text[: len(text.rstrip("mshdw"))], text[len(text.rstrip("mshdw")) :]
    if unit not in _UNITS_MS or not _COUNT.fullmatch(number) or int(number) == 0:
        raise BadInput(name, f"{text[:40]!r} is not a span like 15s, 5m, 12h or 30d")
    return int(number) * _UNITS_MS[unit]


def likely_interval_ms(times_ms: Sequence[int]) -> int | None:
    """The interval of a series with samples at `times_ms`: their usual distance, as one that people set if near one.

    Counting them would not do: a series may be younger than the time in which they are counted.
    """
    if len(times_ms) < 2:
        return None
    usual = median(later - earlier for earlier, later in pairwise(times_ms)) / 1000
    nearest = min(_NICE_SECONDS, key=lambda seconds: abs(seconds - usual))
    return 1000 * (nearest if abs(nearest - usual) <= _NEAR * nearest else max(1, round(usual)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How hard a source may be asked."""

    concurrency: int = 4
    requests_per_second: float = 20.0


def estimate(
    survey: Survey, cut: list[Chunk], reads_by_metric: Mapping[str, int], pace: Pace, *, step_ms: int
) -> Estimate:
    """What `cut` costs: `reads_by_metric` says how often each metric's expression reads its window."""
    points = sum(chunk.points for chunk in cut)
    samples = points * survey.total_series
    thinning = max(1.0, step_ms / (survey.interval_ms or step_ms))
    read = {metric: series * reads_by_metric.get(metric, 1) * thinning for metric, series in survey.series.items()}
    requests = len(cut) * len(reads_by_metric)
    cost = survey.cost or Cost(0.0, 0.0)
    answering = requests * cost.seconds_per_request + samples * cost.seconds_per_sample
    asking = max(requests / pace.requests_per_second, answering / max(1, min(pace.concurrency, len(reads_by_metric))))
    return Estimate(
        metrics=len(survey.series),
        series=round(survey.total_series),
        step_seconds=step_ms / 1000,
        source_interval_seconds=survey.interval_ms / 1000 if survey.interval_ms else None,
        points=points,
        chunks=len(cut),
        requests=requests,
        samples=round(samples),
        source_samples=round(points * sum(read.values())),
        largest_query_samples=round(max(read.values(), default=0) * max((c.points for c in cut), default=0)),
        megabytes=round(samples * BYTES_PER_SAMPLE / 1e6),
        seconds=round(asking + samples / IMPORT_SAMPLES_PER_SECOND),
    )
