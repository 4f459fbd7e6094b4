"""NVIDIA dcgm-exporter: one endpoint is one source.

A page becomes one reading for each card and each MIG slice, one holding for each pod seen on one, and one
`SourceRead` for each node. Shares: a pod holds 1/n of what it sits on, n being the pods seen there (time-slicing
divides a card, and the exporter does not say how); a slice weighs its compute slices. A slice whose profile or model
is unknown gets readings and no holdings, because nothing says how much of the card it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from urllib.parse import urlsplit

import httpx

from collector.bounds import WHOLE_COLUMNS
from collector.dcgm.devices import Device, fold, settle
from collector.dcgm.labels import DeviceSeries, SeriesReader
from collector.exposition import MAX_SERIES, ExpositionParser
from gpuledger.errors import SourceError, SourceTimeout
from gpuledger.model import Holding, QualityFlag, Reading, SourceRead, slice_share
from gpuledger.ports import Observation

SOURCE = "dcgm"
MAX_PAGE_BYTES = 96 * 2**20
MAX_SKEW_SECONDS = 600.0


class Target:
    """What is remembered between the pages of one endpoint: its series, and which nodes it spoke for."""

    def __init__(
        self,
        *,
        node: str | None = None,
        fallback_node: str = "unknown",
        interval_seconds: float = 60.0,
        max_skew_seconds: float | None = MAX_SKEW_SECONDS,
        max_series: int = MAX_SERIES,
        gpu_util_ratio_unit: str = "percent",
    ) -> None:
        self.node = node
        self.fallback_node = fallback_node
        self.interval_seconds = interval_seconds
        self.max_skew_seconds = max_skew_seconds
        self.series = SeriesReader(gpu_util_ratio_unit=gpu_util_ratio_unit)
        self.parser: ExpositionParser[DeviceSeries] = ExpositionParser(self.series.read, max_series=max_series)
        self.uncached_series = 0
        self._seen_nodes: tuple[str, ...] = ()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that a failed or empty read is about: the configured one, those seen last, or the fallback."""
        return (self.node,) if self.node else self._seen_nodes or (self.fallback_node,)

    def remember(self, nodes: Sequence[str]) -> None:
        """Note which nodes a page spoke for."""
        self._seen_nodes = tuple(nodes) or self._seen_nodes


def parse(page: bytes, now: datetime, target: Target | None = None) -> Observation:
    """What `page`, scraped at `now`, says. Never raises; `target` carries what is known from earlier pages.

    Text without any device and with lines that are no samples (a login page, say) is a failed read, not a node
    without cards.
    """
    target = target or Target()
    parsed = target.parser.parse(page)
    target.uncached_series = parsed.uncached_series
    if parsed.skipped_lines and not parsed.samples:
        return failure(target, now, f"no device on the page and {parsed.skipped_lines} lines that are no samples")
    devices = fold(parsed.samples, now, max_skew_seconds=target.max_skew_seconds, holder=target.series.holder)
    settle(devices)
    node_of = _nodes(devices, target)
    target.remember(tuple(dict.fromkeys(node_of.values())))
    sliced = {(device.gpu_uuid, device.at) for device in devices if device.slice_id}
    return Observation(
        reads=_reads(devices, node_of, target, now=now, skipped_lines=parsed.skipped_lines),
        readings=tuple(_reading(device, node_of[device.gpu_uuid], target, now) for device in devices),
        holdings=tuple(
            holding
            for device in devices
            if device.slice_id or (device.gpu_uuid, device.at) not in sliced
            for holding in _holdings(device, node_of[device.gpu_uuid], target)
        ),
    )


def _nodes(devices: list[Device], target: Target) -> dict[str, str]:
    """Each card's node: the configured one, else what any of its series says, else the fallback."""
    nodes: dict[str, str] = {}
    for device in devices:
        if device.gpu_uuid not in nodes or nodes[device.gpu_uuid] == target.fallback_node:
            nodes[device.gpu_uuid] = target.node or device.node or target.fallback_node
    return nodes


def _reads(
    devices: list[Device], node_of: dict[str, str], target: Target, *, now: datetime, skipped_lines: int
) -> tuple[SourceRead, ...]:
    seen: dict[tuple[str, datetime], set[str]] = {}
    for device in devices:
        cards = seen.setdefault((node_of[device.gpu_uuid], device.at), set())
        if not device.gpu_uuid.startswith("MIG-"):
            cards.add(device.gpu_uuid)
    if not seen:
        seen = {(node, now): set() for node in target.nodes}
    return tuple(
        SourceRead(
            ts=at,
            node=node,
            source=SOURCE,
            scope="device",
            ok=True,
            interval_seconds=target.interval_seconds,
            device_count=len(cards),
            # A bad line belongs to no node, so that the first one of the page carries them all.
            skipped_lines=0 if position else skipped_lines,
        )
        for position, ((node, at), cards) in enumerate(seen.items())
    )


def _reading(device: Device, node: str, target: Target, now: datetime) -> Reading:
    flags = QualityFlag.VALUE_REJECTED if device.rejected else 0
    flags |= QualityFlag.PROFILING_CONTRADICTED if device.is_contradicted else 0
    flags |= QualityFlag.DUPLICATE_COPIES if device.has_copies else 0
    measured = {name: int(value) if name in WHOLE_COLUMNS else value for name, value in device.values.items()}
    return Reading(
        ts=device.at,
        node=node,
        gpu_uuid=device.gpu_uuid,
        slice_id=device.slice_id,
        source=SOURCE,
        seen_at=now,
        interval_seconds=target.interval_seconds,
        model=device.model,
        slice_profile=device.slice_profile,
        invalid_count=len(device.rejected),
        quality_flags=flags,
        **measured,  # type: ignore[arg-type]  # columns come from the field table, which is checked against Reading
    )


def _holdings(device: Device, node: str, target: Target) -> Iterator[Holding]:
    weight = slice_share(device.model, device.slice_profile) if device.slice_id else 1.0
    if weight is None:
        return
    for pod in device.pods.values():
        yield Holding(
            ts=device.at,
            node=node,
            gpu_uuid=device.gpu_uuid,
            slice_id=device.slice_id,
            namespace=pod.namespace,
            pod=pod.name,
            container=pod.container or None,
            source=SOURCE,
            share=weight / len(device.pods),
            interval_seconds=target.interval_seconds,
        )


def failure(target: Target, now: datetime, error: str) -> Observation:
    """The observation of a read that failed, for each node that the target speaks for."""
    return Observation(
        reads=tuple(
            SourceRead(
                ts=now,
                node=node,
                source=SOURCE,
                scope="device",
                ok=False,
                interval_seconds=target.interval_seconds,
                error=error,
            )
            for node in target.nodes
        )
    )


class DcgmSource:
    """Reads one endpoint.

    `timeout_seconds` bounds connecting, each wait for data and, checked between chunks, the whole page, so that a
    read ends within twice that time. `client` may be shared by many sources.
    """

    def __init__(
        self,
        url: str,
        *,
        node: str | None = None,
        interval_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        gpu_util_ratio_unit: str = "percent",
        client: httpx.Client | None = None,
    ) -> None:
        parts = urlsplit(url)
        self.name = f"dcgm:{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}{parts.path}"
        self.interval_seconds = interval_seconds
        self._url = url
        self._timeout_seconds = timeout_seconds
        self._client = client or httpx.Client()
        self._target = Target(
            node=node,
            fallback_node=parts.hostname or "unknown",
            interval_seconds=interval_seconds,
            gpu_util_ratio_unit=gpu_util_ratio_unit,
        )

    @property
    def counts(self) -> dict[str, int]:
        """What the target's labels cost: labels dropped (once a series), and series beyond the cache's bound."""
        return {"dropped_labels": self._target.series.dropped_labels, "uncached_series": self._target.uncached_series}

    def read(self, now: datetime) -> Observation:
        """Scrape once. Never raises: a target that is down or answers nonsense is a failed read."""
        try:
            return parse(self._fetch(), now, self._target)
        except SourceError as error:
            return failure(self._target, now, str(error))
        except Exception as error:  # the port promises an observation, whatever a broken target provokes
            return failure(self._target, now, f"{type(error).__name__} while reading")

    def _fetch(self) -> bytes:
        """The page. Raises SourceError without the address, which may carry a password."""
        deadline = time.monotonic() + self._timeout_seconds
        # No compression: a page is bounded in bytes, and small bodies can unpack to large ones.
        headers = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity"}
        page = bytearray()
        try:
            with self._client.stream("GET", self._url, headers=headers, timeout=self._timeout_seconds) as answer:
                if answer.status_code != httpx.codes.OK:
                    raise SourceError(f"HTTP {answer.status_code}")
                for chunk in answer.iter_raw():
                    page += chunk
                    if len(page) > MAX_PAGE_BYTES:
                        raise SourceError(f"page larger than {MAX_PAGE_BYTES} bytes")
                    if time.monotonic() > deadline:
                        raise SourceTimeout(f"no whole page within {self._timeout_seconds:g} s")
        except httpx.TimeoutException as error:
            raise SourceTimeout(f"no answer within {self._timeout_seconds:g} s") from error
        except httpx.HTTPError as error:
            raise SourceError(f"not reachable: {type(error).__name__}") from error
        return bytes(page)
