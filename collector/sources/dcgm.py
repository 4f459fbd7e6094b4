"""NVIDIA dcgm-exporter: one endpoint is one source."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import httpx

from collector.dcgm.labels import HOLDER_LABELS, SeriesReader
from collector.devices import page
from collector.devices.page import PageSource, PageTarget, host_of
from gpuledger.ports import Observation

SOURCE = "dcgm"


class Target(PageTarget):
    """What is remembered between the pages of one endpoint; options as those of `PageTarget`."""

    def __init__(self, *, gpu_util_ratio_unit: str = "percent", **options: Any) -> None:
        reader = SeriesReader(gpu_util_ratio_unit=gpu_util_ratio_unit)
        super().__init__(SOURCE, reader, holder_labels=HOLDER_LABELS, **options)


def parse(text: bytes, now: datetime, target: Target | None = None) -> Observation:
    """What the page `text`, scraped at `now`, says: `collector.devices.page.parse`."""
    return page.parse(text, now, target or Target())


class DcgmSource(PageSource):
    """Reads one endpoint."""

    def __init__(  # noqa: PLR0913 settings of one endpoint, by keyword only
        self,
        url: str,
        *,
        node: str | None = None,
        interval_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        gpu_util_ratio_unit: str = "percent",
        drop_labels: Iterable[str] = (),
        client: httpx.Client | None = None,
    ) -> None:
        target = Target(
            node=node,
            fallback_node=host_of(url),
            interval_seconds=interval_seconds,
            gpu_util_ratio_unit=gpu_util_ratio_unit,
            drop_labels=drop_labels,
        )
        super().__init__(url, target, timeout_seconds=timeout_seconds, client=client)
