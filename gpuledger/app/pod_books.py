"""What kube-state-metrics writes, made into records of pods and nodes, one book for each cluster that writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from collector.exposition import Series
from collector.kube_state_metrics.book import PodBook
from gpuledger.attribution.rules import Rules

MAX_CLUSTERS = 64
"""Books that are kept; a sender with ever new names of clusters makes all begin anew."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

KubeSample = tuple[Series, float, int]
"""Series, value, milliseconds."""


class PodBooks:
    """The books of all clusters. `write` takes the name of a record and its rows. Not safe for threads."""

    def __init__(self, rules: Rules, write: Callable[[str, Sequence[Any]], object]) -> None:
        self._rules, self._write = rules, write
        self._books: dict[str, PodBook] = {}

    def feed(self, samples: Iterable[KubeSample]) -> None:
        """Take samples in, in order of time; what changed is written when this returns.

        When it cannot be written the books forget all: they learn it anew from what the sender repeats.
        """
        clusters: dict[str, list[tuple[Series, float, datetime]]] = {}
        for series, value, at_ms in sorted(samples, key=lambda sample: sample[2]):
            sample = (series, value, _EPOCH + timedelta(milliseconds=at_ms))
            clusters.setdefault(series.labels.get("cluster", "default"), []).append(sample)
        try:
            for cluster, fed in clusters.items():
                for record, rows in self._book(cluster).feed(fed, is_whole_page=False).items():
                    self._write(record, rows)
        except BaseException:
            self._books.clear()
            raise

    def _book(self, cluster: str) -> PodBook:
        if cluster not in self._books and len(self._books) >= MAX_CLUSTERS:
            self._books.clear()
        return self._books.setdefault(cluster, PodBook(self._rules, cluster))
