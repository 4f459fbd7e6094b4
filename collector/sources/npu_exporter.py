"""Ascend NPUs: the pages of Huawei's npu-exporter, which the mapping file `ascend` describes."""

from __future__ import annotations

from typing import Unpack

from collector.mapping.source import MappedSource, PageOptions


class NpuExporterSource(MappedSource):
    """Reads one npu-exporter; `options` are those of every mapped page, without `mapping`."""

    def __init__(self, url: str, **options: Unpack[PageOptions]) -> None:
        super().__init__(url, mapping="ascend", **options)
