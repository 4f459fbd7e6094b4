"""One endpoint whose page speaks of cards: what is remembered of it, and how its pages become records.

A page becomes one reading for each card and each slice, one holding for each pod seen on one, and one `SourceRead` for
each node. What is wrong with the page is said in `quality_event` rows. An exporter with more to say than cards and
holders overrides `PageTarget.refined`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx

from collector.devices.assemble import Options, assemble
from collector.devices.freshness import TOO_OLD, at_one_instant
from collector.devices.subject import DeviceSeries, Pod, Subject
from collector.exposition import MAX_SERIES, ColumnPage, ExpositionParser, Series
from collector.fetch import Fetcher, target_name
from gpuledger.errors import SourceError
from gpuledger.model import Holding, QualityEvent, Reading, SourceRead
from gpuledger.ports import Observation

MAX_SKEW_SECONDS = 600.0
MAX_ROWS = 50_000
"""Readings that one page may give. A whole fleet is less; a target that makes up cards is told, and cut off."""


class DeviceReader(Protocol):
    """Says what the series of one exporter are about."""

    dropped_labels: int

    def read(self, series: Series) -> DeviceSeries | None:
        """What `series` is about, or None when it names no device."""
        ...

    def holder(self, subject: Subject) -> Pod | None:
        """The pod that holds the device, or None."""
        ...

    def take_events(self, now: datetime, source: str, target: str) -> list[QualityEvent]:
        """What was noticed about labels and names since the last call."""
        ...


class PageTarget:
    """What is remembered between the pages of one endpoint: its series, and which nodes it spoke for.

    `drop_labels` are left out of its series, before anything is compared or counted; `holder_labels` are those that
    say who holds a device, which multiply series without another thing being measured. With `stale_after_seconds` a
    page is one reading at the time of the scrape, whatever times its samples have: older ones say nothing any more.
    """

    def __init__(  # noqa: PLR0913 settings of one endpoint, by keyword only
        self,
        source: str,
        reader: DeviceReader,
        *,
        node: str | None = None,
        fallback_node: str = "unknown",
        interval_seconds: float = 60.0,
        max_skew_seconds: float | None = MAX_SKEW_SECONDS,
        max_series: int = MAX_SERIES,
        drop_labels: Iterable[str] = (),
        holder_labels: Iterable[str] = (),
        stale_after_seconds: float | None = None,
    ) -> None:
        self.source = source
        self.name = node or fallback_node
        self.node = node
        self.fallback_node = fallback_node
        self.interval_seconds = interval_seconds
        self.max_skew_seconds = max_skew_seconds
        self.stale_after_seconds = stale_after_seconds
        self.series = reader
        self.parser: ExpositionParser[Any] = ExpositionParser(
            reader.read, max_series=max_series, drop_labels=drop_labels, spare_labels=holder_labels
        )
        self.uncached_series = 0
        self._seen_nodes: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that a failed or empty read is about: the configured one, those seen last, or the fallback."""
        return (self.node,) if self.node else self._seen_nodes or (self.fallback_node,)

    def parsed(self, page: bytes) -> ColumnPage[Any]:
        """The samples of `page` that mean something to the reader."""
        return self.parser.parse_columns(page)

    def lacks_device(self, page: ColumnPage[Any]) -> str:
        """Why `page`, which names no device, is a failed read; empty where it may be a node without cards."""
        if page.skipped_lines:
            return f"no device on the page and {page.skipped_lines} lines that are no samples"
        return ""

    def remember(self, nodes: Sequence[str]) -> None:
        """Note which nodes a page spoke for."""
        self._seen_nodes = tuple(dict.fromkeys(nodes)) or self._seen_nodes

    def options(self, now: datetime) -> Options:
        """How the samples of a page scraped at `now` are to be understood."""
        return Options(
            now=now,
            source=self.source,
            interval_seconds=self.interval_seconds,
            node=self.node,
            fallback_node=self.fallback_node,
            max_skew_seconds=self.max_skew_seconds,
            holder=self.series.holder,
        )

    def read(self, node: str, now: datetime) -> SourceRead:
        """That `node` was read at `now`, and showed no card."""
        return SourceRead(
            ts=now,
            node=node,
            source=self.source,
            scope="device",
            ok=True,
            interval_seconds=self.interval_seconds,
            device_count=0,
        )

    def refined(
        self,
        observation: Observation,
        page: ColumnPage[Any],  # noqa: ARG002 for those who override it
        now: datetime,  # noqa: ARG002 for those who override it
    ) -> Observation:
        """`observation` with what this exporter says beside readings; as it is, where that is nothing."""
        return observation

    def events(
        self, page: ColumnPage[Any], now: datetime, *, rows_beyond: int, stale_count: int = 0
    ) -> list[QualityEvent]:
        """What was wrong with the text of `page`: lines refused, by reason, series beyond the cap, labels and names.

        `stale_count` is how many samples were too old to be believed.
        """
        wrong = [("refused_line", reason, count) for reason, count in sorted(page.refused.items())]
        wrong.append(("too_many_series", "lines beyond the cap of remembered series", page.uncached_series))
        wrong.append(("too_many_series", "cards and slices beyond what one page may show", rows_beyond))
        wrong.append(("refused_sample", TOO_OLD, stale_count))
        noticed = [
            QualityEvent(
                ts=now,
                source=self.source,
                subject_kind="target",
                subject=self.name,
                kind=kind,
                detail=detail,
                count=count,
            )
            for kind, detail, count in wrong
            if count
        ]
        return noticed + self.series.take_events(now, self.source, self.name)


def parse(page: bytes, now: datetime, target: PageTarget) -> Observation:
    """What `page`, scraped at `now`, says. Never raises; `target` carries what is known from earlier pages.

    Text without any device and with lines that are no samples (a login page, say) is a failed read, not a node
    without cards. An exporter that speaks of cards only may have more such pages: `PageTarget.lacks_device`.
    """
    parsed = target.parsed(page)
    target.uncached_series = parsed.uncached_series
    if not len(parsed.samples) and (why := target.lacks_device(parsed)):
        return failure(target, now, why)
    samples, stale_count = at_one_instant(parsed.samples, now, target.stale_after_seconds, target.max_skew_seconds)
    parsed = dataclasses.replace(parsed, samples=samples)
    made = assemble(samples, target.options(now))
    reads = [SourceRead(**row) for row in made.reads.to_pylist()]
    target.remember([read.node for read in reads])
    reads = reads or [target.read(node, now) for node in target.nodes]
    # A bad line belongs to no node, so that the first one of the page carries them all.
    reads[0] = dataclasses.replace(reads[0], skipped_lines=parsed.skipped_lines)
    events = [QualityEvent(**row) for row in made.events.slice(0, MAX_ROWS).to_pylist()]
    events += target.events(parsed, now, rows_beyond=max(0, len(made.readings) - MAX_ROWS), stale_count=stale_count)
    observation = Observation(
        reads=tuple(reads),
        readings=tuple(Reading(**row) for row in made.readings.slice(0, MAX_ROWS).to_pylist()),
        holdings=tuple(Holding(**row) for row in made.holdings.slice(0, MAX_ROWS).to_pylist()),
        others={"quality_event": tuple(events)} if events else {},
    )
    return target.refined(observation, parsed, now)


def failure(target: PageTarget, now: datetime, error: str) -> Observation:
    """The observation of a read that failed, for each node that the target speaks for."""
    return Observation(
        reads=tuple(
            dataclasses.replace(target.read(node, now), ok=False, device_count=None, error=error)
            for node in target.nodes
        )
    )


class PageSource:
    """Reads one endpoint for `target`. `client` may be shared by many; `Fetcher` says what `timeout_seconds` bounds."""

    def __init__(
        self, url: str, target: PageTarget, *, timeout_seconds: float = 10.0, client: httpx.Client | None = None
    ) -> None:
        self.name = target.name = target_name(target.source, url)
        self.interval_seconds = target.interval_seconds
        self._fetcher = Fetcher(url, client or httpx.Client(trust_env=False), timeout_seconds=timeout_seconds)
        self._target = target

    @property
    def counts(self) -> dict[str, int]:
        """What the target's labels cost: labels dropped (once a series), and series beyond the cache's bound."""
        return {"dropped_labels": self._target.series.dropped_labels, "uncached_series": self._target.uncached_series}

    def read(self, now: datetime) -> Observation:
        """Scrape once. Never raises: a target that is down or answers nonsense is a failed read."""
        try:
            return parse(self._fetcher.page(), now, self._target)
        except SourceError as error:
            return failure(self._target, now, str(error))
        except Exception as error:  # the port promises an observation, whatever a broken target provokes
            return failure(self._target, now, f"{type(error).__name__} while reading")


def host_of(url: str) -> str:
    """The host that `url` names: the node of a page that names none."""
    return urlsplit(url).hostname or "unknown"
