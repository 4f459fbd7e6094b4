"""From answers to columnar samples: each series is understood once and then known by its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Generic, TypeVar

import numpy as np

from collector.exposition import Series
from collector.prometheus.answer import Answer, labels_of
from collector.prometheus.plan import instant
from collector.samples import Samples
from gpuledger.errors import SourceError

Meaning = TypeVar("Meaning")

MAX_KNOWN_SERIES = 500_000


class SeriesMemory(Generic[Meaning]):
    """What the series of answers mean. A full memory starts afresh, so that churning labels cost time, not memory."""

    def __init__(self, resolve: Callable[[Series], Meaning | None], max_series: int = MAX_KNOWN_SERIES) -> None:
        self._resolve = resolve
        self._max_series = max_series
        self._known: dict[tuple[str, bytes], Meaning | None] = {}

    def meaning(self, metric: str, labels: bytes) -> Meaning | None:
        """What a series of `metric` means. Functions over time drop the name, so that it comes with the question."""
        key = (metric, labels)
        if key not in self._known:
            if len(self._known) >= self._max_series:
                self._known.clear()
            try:
                named = labels_of(labels)
            except ValueError as error:
                raise SourceError(f"{metric}: labels that are none: {error}") from error
            name = named.pop("__name__", metric)
            self._known[key] = self._resolve(Series(name, named))
        return self._known[key]

    def samples(self, answers: Sequence[tuple[str, Answer]], shift_ms: int = 0) -> Samples[Meaning]:
        """The samples of (metric, answer) pairs, their times `shift_ms` earlier: a step is named by its begin."""
        meanings: list[Meaning] = []
        series, values, times = [], [], []
        for metric, answer in answers:
            numbers = np.empty(len(answer.labels), np.int64)
            for place, labels in enumerate(answer.labels):
                meaning = self.meaning(metric, labels)
                numbers[place] = -1 if meaning is None else len(meanings)
                if meaning is not None:
                    meanings.append(meaning)
            of_sample = np.repeat(numbers, answer.lengths)
            is_meant = of_sample >= 0
            series.append(of_sample[is_meant])
            values.append(answer.values[is_meant])
            times.append(answer.times_ms[is_meant] - shift_ms)
        if not series:
            return Samples.of([])
        return Samples(meanings, np.concatenate(series), np.concatenate(values), np.concatenate(times))


def changes(samples: Samples[Series]) -> Iterator[tuple[Series, float, datetime]]:
    """The first and the last sample of each series and those whose value is new, in order of time.

    What lies between says nothing more: a pod's series repeat their values for as long as the pod is listed.
    """
    if not len(samples):
        return
    order = np.lexsort((samples.times_ms, samples.series))
    series, values, times = samples.series[order], samples.values[order], samples.times_ms[order]
    is_first = np.r_[True, series[1:] != series[:-1]]
    is_last = np.r_[is_first[1:], True]
    is_new = np.r_[True, values[1:] != values[:-1]]
    kept = np.flatnonzero(is_first | is_last | is_new)
    for row in kept[np.argsort(times[kept], kind="stable")].tolist():
        yield samples.meanings[series[row]], float(values[row]), instant(int(times[row]))
