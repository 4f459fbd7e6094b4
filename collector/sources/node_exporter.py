"""node_exporter: of one endpoint's page, what it says of InfiniBand, RoCE and Omni-Path ports."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import urlsplit

import httpx

from collector.fabric.page import Target, parse
from collector.fetch import Fetcher, target_name
from gpuledger.errors import SourceError
from gpuledger.ports import Observation

SOURCE = "node_exporter"


class NodeExporterSource:
    """Reads one endpoint.

    Options: `url`; `node`, the node that it speaks for (default: the host name on the page, else the host of `url`);
    `interval_seconds`; `timeout_seconds`.
    """

    def __init__(
        self,
        url: str,
        *,
        node: str | None = None,
        interval_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        client: httpx.Client | None = None,
    ) -> None:
        self.name = target_name(SOURCE, url)
        self.interval_seconds = interval_seconds
        self._fetcher = Fetcher(url, client or httpx.Client(), timeout_seconds=timeout_seconds)
        self._target = Target(
            node=node,
            fallback_node=urlsplit(url).hostname or "unknown",
            name=self.name,
            interval_seconds=interval_seconds,
        )

    def read(self, now: datetime) -> Observation:
        """Scrape once. Never raises: a target that is down, or shows no port, is a failed read."""
        try:
            return parse(self._fetcher.page(), now, self._target)
        except SourceError as error:
            return self._target.reader.failed(now, str(error))
        except Exception as error:  # the port promises an observation, whatever a broken target provokes
            return self._target.reader.failed(now, f"{type(error).__name__} while reading")
