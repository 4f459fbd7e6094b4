"""One endpoint of an exporter that a mapping file describes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, TypedDict

import httpx

from collector.devices.page import PageSource, PageTarget, host_of
from collector.exposition import ColumnPage
from collector.mapping.faults import FaultBook
from collector.mapping.file import MappingFile, load
from collector.mapping.reader import MappedReader
from gpuledger.ports import Observation


class MappedTarget(PageTarget):
    """What is remembered between the pages of one mapped endpoint; `options` are those of `PageTarget`."""

    def __init__(self, mapping: MappingFile, **options: Any) -> None:
        node = options.get("node") or options.get("fallback_node") or "unknown"
        reader = MappedReader(mapping, node=node, is_of_node=bool(options.get("node")))
        self._reader = reader
        self._mapping = mapping
        self._has_shown_card = False
        self._faults = FaultBook(mapping.source)
        super().__init__(
            mapping.source,
            reader,
            holder_labels=reader.holder_labels,
            stale_after_seconds=mapping.stale_after_seconds,
            **options,
        )

    def parsed(self, page: bytes) -> ColumnPage[Any]:
        """The samples of `page`; read anew where the page showed that a place is another card than was thought."""
        read = super().parsed(page)
        if self._reader.take_resolved_otherwise():
            self.parser.forget()
            read = super().parsed(page)
            self._reader.take_resolved_otherwise()
        self._has_shown_card |= len(read.samples) > 0
        return read

    def lacks_device(self, page: ColumnPage[Any]) -> str:
        """As of any page; and a mapping that fits nothing on a page of samples is not this exporter's mapping.

        Where cards were on a page before, they are lost, and the read tells it.
        """
        why = super().lacks_device(page)
        if why or self._has_shown_card or self._mapping.cards_optional or not page.ignored_lines:
            return why
        return (
            f"no device on the page: none of its {page.ignored_lines} samples is of a metric and a card "
            f"that mapping {self._mapping.source} names"
        )

    def refined(self, observation: Observation, page: ColumnPage[Any], now: datetime) -> Observation:
        """`observation` with the faults that the page tells."""
        nodes = {reading.gpu_uuid: reading.node for reading in observation.readings}
        faults = self._faults.events(page.samples, now, nodes)
        if not faults:
            return observation
        return dataclasses.replace(observation, others={**observation.others, "fault_event": tuple(faults)})


class PageOptions(TypedDict, total=False):
    """What every mapped page may be told beside its address: how `MappedSource` takes it, without `mapping`."""

    node: str | None
    interval_seconds: float
    timeout_seconds: float
    drop_labels: Iterable[str]
    client: httpx.Client | None


class MappedSource(PageSource):
    """Reads one endpoint as `mapping` says: the name of a shipped mapping, a file, or a mapping that was read."""

    target_type: type[MappedTarget] = MappedTarget

    def __init__(  # noqa: PLR0913 settings of one endpoint, by keyword only
        self,
        url: str,
        *,
        mapping: str | Path | MappingFile,
        node: str | None = None,
        interval_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        drop_labels: Iterable[str] = (),
        client: httpx.Client | None = None,
    ) -> None:
        target = self.target_type(
            mapping if isinstance(mapping, MappingFile) else load(mapping),
            node=node,
            fallback_node=host_of(url),
            interval_seconds=interval_seconds,
            drop_labels=drop_labels,
        )
        super().__init__(url, target, timeout_seconds=timeout_seconds, client=client)
