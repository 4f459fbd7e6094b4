"""A source that reads the page of one server of models; the servers differ by their dialect alone."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar
from urllib.parse import urlsplit

import httpx

from collector.fetch import Fetcher, target_name
from collector.serving.metrics import Dialect
from collector.serving.page import RATIO_UNITS, Target, parse
from gpuledger.errors import SourceError
from gpuledger.model.vocabulary import ENGINE_ROLES
from gpuledger.ports import Observation


class EngineSource:
    """Reads the page of one server. A subclass names its dialect.

    Options: `url`; `namespace` and `pod` (and `cluster`) say where the server runs, `workload_id` which service it is;
    `role` is prefill or decode where the server does not say so itself; `ratio_unit` is percent where this server
    gives its ratios as 0 to 100. Raises ValueError for another role or unit.
    """

    dialect: ClassVar[Dialect]

    def __init__(  # noqa: PLR0913 settings of one endpoint, by keyword only
        self,
        url: str,
        *,
        cluster: str = "default",
        namespace: str = "",
        pod: str = "",
        workload_id: str = "",
        role: str = "",
        ratio_unit: str = "ratio",
        interval_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        client: httpx.Client | None = None,
    ) -> None:
        if role not in ("", *ENGINE_ROLES):
            raise ValueError(f"role: must be one of {', '.join(ENGINE_ROLES)}")
        if ratio_unit not in RATIO_UNITS:
            raise ValueError(f"ratio_unit: must be one of {', '.join(RATIO_UNITS)}")
        self.name = target_name(self.dialect.source, url)
        self.interval_seconds = interval_seconds
        self._fetcher = Fetcher(url, client or httpx.Client(), timeout_seconds=timeout_seconds)
        parts = urlsplit(url)
        self._target = Target(
            self.dialect,
            name=self.name,
            node=f"{parts.hostname or 'unknown'}:{parts.port or (443 if parts.scheme == 'https' else 80)}",
            cluster=cluster,
            namespace=namespace,
            pod=pod,
            workload_id=workload_id,
            role=role,
            ratio_unit=ratio_unit,
            interval_seconds=interval_seconds,
        )

    def read(self, now: datetime) -> Observation:
        """Scrape once. Never raises: a server that is down or answers nonsense is a failed read."""
        try:
            return parse(self._fetcher.page(), now, self._target)
        except SourceError as error:
            return Observation(reads=(self._target.read(now, error=str(error)),))
        except Exception as error:  # the port promises an observation, whatever a broken target provokes
            return Observation(reads=(self._target.read(now, error=f"{type(error).__name__} while reading"),))
