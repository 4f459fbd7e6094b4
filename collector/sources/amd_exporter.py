"""AMD Instinct cards: the pages of AMD's device-metrics-exporter, which the mapping file `amd` describes."""

from __future__ import annotations

from typing import Unpack

from collector.mapping.source import MappedSource, PageOptions


class AmdExporterSource(MappedSource):
    """Reads one device-metrics-exporter; `options` are those of every mapped page, without `mapping`."""

    def __init__(self, url: str, **options: Unpack[PageOptions]) -> None:
        super().__init__(url, mapping="amd", **options)
