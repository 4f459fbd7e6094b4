"""One endpoint of an exporter that a mapping file describes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx

from collector.devices.page import PageSource, PageTarget, host_of
from collector.mapping.file import MappingFile, load
from collector.mapping.reader import MappedReader


class MappedTarget(PageTarget):
    """What is remembered between the pages of one mapped endpoint; `options` are those of `PageTarget`."""

    def __init__(self, mapping: MappingFile, **options: Any) -> None:
        node = options.get("node") or options.get("fallback_node") or "unknown"
        reader = MappedReader(mapping, node=node)
        super().__init__(mapping.source, reader, holder_labels=reader.holder_labels, **options)


class MappedSource(PageSource):
    """Reads one endpoint as `mapping` says: the name of a shipped mapping, or a file."""

    target_type: type[MappedTarget] = MappedTarget

    def __init__(  # noqa: PLR0913 settings of one endpoint, by keyword only
        self,
        url: str,
        *,
        mapping: str | Path,
        node: str | None = None,
        interval_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        drop_labels: Iterable[str] = (),
        client: httpx.Client | None = None,
    ) -> None:
        target = self.target_type(
            load(mapping),
            node=node,
            fallback_node=host_of(url),
            interval_seconds=interval_seconds,
            drop_labels=drop_labels,
        )
        super().__init__(url, target, timeout_seconds=timeout_seconds, client=client)
