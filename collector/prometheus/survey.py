"""Asks a source what it has, with a few cheap queries, before anything is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import numpy.typing as npt

from collector.prometheus.answer import Answer
from collector.prometheus.client import QueryClient
from collector.prometheus.families import NAMES, Window, is_of_pods, queries
from collector.prometheus.plan import MAX_POINTS, Cost, Survey, likely_interval_ms, milliseconds
from collector.prometheus.promql import Matcher, is_label, selector
from gpuledger.errors import SourceError

_LOOKS = 12
_BACK_SECONDS = (600, 3600)
_ENOUGH = 3
"""Samples of which two distances can be compared."""
_TRIAL_SAMPLES = 20_000


@dataclass(frozen=True, slots=True)
class Span:
    """What to import: the steps that begin in [`since`, `until`]."""

    since: datetime
    until: datetime

    def looks(self) -> tuple[int, int, int]:
        """(first, last, step) in milliseconds of a dozen instants spread over the span."""
        length = max(milliseconds(self.until) - milliseconds(self.since), 60_000 * _LOOKS)
        step = length // _LOOKS // 1000 * 1000
        first = milliseconds(self.until) - length + step
        return first, first + (_LOOKS - 1) * step, step


def survey(client: QueryClient, span: Span, matchers: Sequence[Matcher]) -> Survey:
    """What `client`'s server has in `span`. Raises SourceError where it has nothing about GPUs, or does not answer."""
    first, last, step = span.looks()
    every = selector("", [NAMES, *matchers])
    names = client.names(every, milliseconds(span.since), milliseconds(span.until))
    is_closed = _is_closed(client, last)
    wanted = queries(names, matchers, Window(60_000, is_closed), is_raw=True)
    devices = [name for name in wanted if not is_of_pods(name)]
    if not devices:
        raise SourceError(f"{client.name} has no metrics of dcgm-exporter in this span; {_what_else(names, matchers)}")
    counts = _devices(client.query_range(f"count by (__name__) ({every})", first, last, step))
    pods = {name: f"count({query})" for name, query in wanted.items() if is_of_pods(name)}
    counts |= {name: _Counts.of(client.query_range(query, first, last, step)) for name, query in pods.items()}
    live = {name: float(counts[name].values.sum()) / _LOOKS if name in counts else 0.0 for name in wanted}
    widest = widest_of(live)
    fullest = counts[widest].fullest_ms() if widest in counts else None
    return Survey(
        live,
        sum(float(seen.values.max(initial=0.0)) for seen in counts.values()),
        _interval_ms(client, widest, matchers, last if fullest is None else fullest),
        is_closed,
        fullest,
    )


def _what_else(names: Sequence[str], matchers: Sequence[Matcher]) -> str:
    if names:
        return f"what it has is of kube-state-metrics or of no use here ({len(names)} metrics)"
    return "nothing at all matches" + (": are the matchers right?" if matchers else ": does it scrape dcgm-exporter?")


def widest_of(live: Mapping[str, float]) -> str:
    """The metric of devices with most series."""
    return max((name for name in live if not is_of_pods(name)), key=lambda name: (live[name], name))


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many series there were at each look."""

    times_ms: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]

    @classmethod
    def of(cls, answer: Answer) -> _Counts:
        is_number = np.isfinite(answer.values)
        return cls(answer.times_ms[is_number], answer.values[is_number])

    def fullest_ms(self) -> int | None:
        """The newest of the looks with most series."""
        return int(self.times_ms[self.values == self.values.max()].max()) if len(self.values) else None


def _devices(answer: Answer) -> dict[str, _Counts]:
    """Series by metric, at each look; a server that drops the name (some proxies do) tells nothing of it."""
    ends = np.cumsum(answer.lengths)[:-1]
    parts = zip(np.split(answer.times_ms, ends), np.split(answer.values, ends), strict=True)
    return {
        labels["__name__"]: _Counts(times[np.isfinite(values)], values[np.isfinite(values)])
        for labels, (times, values) in zip(answer.series(), parts, strict=False)  # nothing at all is one empty part
        if "__name__" in labels
    }


def _is_closed(client: QueryClient, at_ms: int) -> bool:
    """Whether a range holds its first instant: a range of a second then holds two whole seconds."""
    try:
        answer = client.query("count_over_time(vector(1)[1s:1s])", at_ms // 1000 * 1000)
    except SourceError:
        return False  # then no sample is missed, and one that lies on the last millisecond of a step may be seen twice
    return bool(len(answer.values) == 1 and answer.values[0] == 2)


def _interval_ms(client: QueryClient, metric: str, matchers: Sequence[Matcher], at_ms: int) -> int | None:
    """The distance of samples in the one series that has most of them before `at_ms`."""
    for seconds in _BACK_SECONDS:
        most = client.query(f"topk(1, count_over_time({selector(metric, matchers)}[{seconds}s]))", at_ms)
        for labels in list(most.series())[:1]:
            own = [Matcher(name, "=", text) for name, text in labels.items() if is_label(name) and name != "__name__"]
            answer = client.query(f"{selector(metric, own)}[{seconds}s]", at_ms)
            times = answer.times_ms[: int(answer.lengths[0])].tolist() if len(answer.lengths) else []
            if len(times) >= _ENOUGH:
                return likely_interval_ms(times)
    return None


def trial(client: QueryClient, query: str, found: Survey, span: Span, step_ms: int) -> Cost | None:
    """What `query`, which the import will ask in steps of `step_ms`, takes where the source is known to have series.

    One step alone tells what a request costs however small it is, many steps tell what a sample costs. Waiting for a
    turn at the pace that was asked for is no part of it. None where nothing is known to be.
    """
    if found.fullest_ms is None:
        return None
    last = found.fullest_ms // step_ms * step_ms
    points = min(max(2, round(_TRIAL_SAMPLES / max(found.series[widest_of(found.series)], 1.0))), MAX_POINTS)
    first = max(last - (points - 1) * step_ms, milliseconds(span.since) // step_ms * step_ms)
    small, small_seconds = _timed(client, query, last, last, step_ms)
    again, again_seconds = _timed(client, query, last, last, step_ms)
    large, large_seconds = _timed(client, query, min(first, last), last, step_ms)
    alone = min(small_seconds, again_seconds)
    more = large - max(small, again)
    per_sample = max(0.0, large_seconds - alone) / more if more > 0 else 0.0
    return Cost(max(0.0, alone - small * per_sample), per_sample)


def _timed(client: QueryClient, query: str, first_ms: int, last_ms: int, step_ms: int) -> tuple[int, float]:
    answer = client.query_range(query, first_ms, last_ms, step_ms)
    return len(answer.values), client.last_seconds
