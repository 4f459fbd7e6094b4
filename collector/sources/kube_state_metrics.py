"""kube-state-metrics: one endpoint is one source of pods, workloads, nodes and what a scheduler may give away.

Several shards are several endpoints; replicas of one shard say the same twice, which changes nothing.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from collector.exposition import ExpositionParser, Series
from collector.fetch import Fetcher, target_name
from collector.kube_state_metrics.book import METRICS, PodBook
from gpuledger.attribution import Rules, load
from gpuledger.errors import SourceError
from gpuledger.model import SourceRead
from gpuledger.ports import Observation

SOURCE = "kube_state_metrics"
MAX_SERIES = 1_000_000
"""A page lists every pod of a cluster, a few dozen series each."""


class Target:
    """What is remembered between the pages of one endpoint."""

    def __init__(
        self,
        name: str = "unknown",
        *,
        interval_seconds: float = 30.0,
        rules: Rules | None = None,
        cluster: str = "default",
    ) -> None:
        self.name = name
        self.interval_seconds = interval_seconds
        self.book = PodBook(rules, cluster)
        self.parser: ExpositionParser[Series] = ExpositionParser(_wanted, max_series=MAX_SERIES)

    def read(self, now: datetime, *, skipped_lines: int = 0, error: str | None = None) -> SourceRead:
        """The attempt to read the page. The `node` of it is the endpoint's host: the page speaks for a cluster."""
        return SourceRead(
            ts=now,
            node=self.name,
            source=SOURCE,
            scope="device",
            ok=error is None,
            interval_seconds=self.interval_seconds,
            skipped_lines=skipped_lines,
            error=error,
        )


def _wanted(series: Series) -> Series | None:
    return series if series.name in METRICS else None


def parse(page: bytes, now: datetime, target: Target | None = None) -> Observation:
    """What `page`, scraped at `now`, says that is new. `target` carries what is known from earlier pages.

    A page on which nothing is about pods or nodes (a login page, an empty answer) is a failed read: it must not end
    every pod.
    """
    target = target or Target()
    parsed = target.parser.parse(page)
    if not parsed.samples:
        error = f"nothing about pods or nodes on the page; {parsed.skipped_lines} lines that are no samples"
        return Observation(reads=(target.read(now, error=error),))
    changed = target.book.feed([(series, value, now) for series, value, _ in parsed.samples], is_whole_page=True)
    return Observation(reads=(target.read(now, skipped_lines=parsed.skipped_lines),), others=changed)


class KubeStateMetricsSource:
    """Reads one endpoint. `rules` is a file of attribution rules; `client` may be shared by many sources."""

    def __init__(
        self,
        url: str,
        *,
        cluster: str = "default",
        interval_seconds: float = 30.0,
        timeout_seconds: float = 20.0,
        rules: Path | None = None,
        client: httpx.Client | None = None,
    ) -> None:
        self.name = target_name(SOURCE, url)
        self.interval_seconds = interval_seconds
        self._fetcher = Fetcher(url, client or httpx.Client(), timeout_seconds=timeout_seconds)
        self._target = Target(
            urlsplit(url).hostname or "unknown", interval_seconds=interval_seconds, rules=load(rules), cluster=cluster
        )

    @property
    def counts(self) -> dict[str, int]:
        """Samples of pods beyond the number that is remembered."""
        return {"refused_pods": self._target.book.refused_pods}

    def read(self, now: datetime) -> Observation:
        """Scrape once. Never raises: a target that is down or answers nonsense is a failed read."""
        try:
            return parse(self._fetcher.page(), now, self._target)
        except SourceError as error:
            return Observation(reads=(self._target.read(now, error=str(error)),))
        except Exception as error:  # the port promises an observation, whatever a broken target provokes
            return Observation(reads=(self._target.read(now, error=f"{type(error).__name__} while reading"),))
