"""Ascend NPUs: the pages of Huawei's npu-exporter, which the mapping file `ascend` describes."""

from __future__ import annotations

from typing import Any

from collector.mapping.source import MappedSource


class NpuExporterSource(MappedSource):
    """Reads one npu-exporter; `options` are those of every mapped page, without `mapping`."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, mapping="ascend", **options)
