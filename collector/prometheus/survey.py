"""Asks a source what it has, with a few cheap queries, before anything is fetched."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from collector.prometheus.answer import Answer
from collector.prometheus.client import QueryClient
from collector.prometheus.families import NAMES, Window, is_of_pods, queries
from collector.prometheus.plan import Survey, likely_interval_ms, milliseconds
from collector.prometheus.promql import Matcher, selector
from gpuledger.errors import SourceError

_LOOKS = 12
_SHORT = timedelta(minutes=10)
_TRIAL_POINTS = 30
_NONE = np.empty(0)


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
    if not any(not is_of_pods(name) for name in wanted):
        raise SourceError(f"{client.name} has no metrics of dcgm-exporter in this span, of {len(names)} that match")
    counts = _devices(client.query_range(f"count by (__name__) ({every})", first, last, step))
    pods = {name: f"count({query})" for name, query in wanted.items() if is_of_pods(name)}
    counts |= {name: _finite(client.query_range(query, first, last, step).values) for name, query in pods.items()}
    live = {name: float(counts.get(name, _NONE).sum()) / _LOOKS for name in wanted}
    widest = max((name for name in wanted if not is_of_pods(name)), key=lambda name: (live[name], name))
    interval = _interval_ms(client, selector(widest, matchers), span)
    taken = _trial(client, selector(widest, matchers), span, Window(interval or 60_000, is_closed))
    return Survey(
        live,
        sum(float(seen.max(initial=0.0)) for seen in counts.values()),
        interval,
        is_closed,
        seconds_per_sample=taken,
    )


def _devices(answer: Answer) -> dict[str, npt.NDArray[np.float64]]:
    """Series by metric, at each look; a server that drops the name (some proxies do) tells nothing of it."""
    parts = np.split(answer.values, np.cumsum(answer.lengths)[:-1])
    named = zip(answer.series(), parts, strict=True)
    return {labels["__name__"]: _finite(values) for labels, values in named if "__name__" in labels}


def _finite(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return values[np.isfinite(values)]


def _is_closed(client: QueryClient, at_ms: int) -> bool:
    """Whether a range holds its first instant: a range of a second then holds two whole seconds."""
    try:
        answer = client.query("count_over_time(vector(1)[1s:1s])", at_ms // 1000 * 1000)
    except SourceError:
        return False  # then no sample is missed, and one that lies on the last millisecond of a step may be seen twice
    return bool(len(answer.values) == 1 and answer.values[0] == 2)


def _interval_ms(client: QueryClient, series: str, span: Span) -> int | None:
    first, last, step = span.looks()
    short = int(_SHORT.total_seconds())
    found = _finite(client.query_range(f"max(count_over_time({series}[{short}s]))", first, last, step).values)
    return likely_interval_ms(float(found.max(initial=0.0)), short)


def _trial(client: QueryClient, series: str, span: Span, window: Window) -> float | None:
    """Seconds that a sample took in a small request for the newest steps; None where these are empty."""
    last = milliseconds(span.until) // window.step_ms * window.step_ms
    begun = time.monotonic()
    answer = client.query_range(window.last(series), last - (_TRIAL_POINTS - 1) * window.step_ms, last, window.step_ms)
    return (time.monotonic() - begun) / len(answer.values) if len(answer.values) else None
