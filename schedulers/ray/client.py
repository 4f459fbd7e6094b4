"""Lists of a Ray dashboard's state API, whole or with the number of rows that it kept to itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from gpuledger.errors import NotPermitted, SchedulerUnreachable
from schedulers.rest import Query, Rest

MOST_ROWS = 10_000
"""The most that a head gives in one answer, unless it was set up otherwise (RAY_MAX_LIMIT_FROM_API_SERVER)."""

Filter = tuple[str, str, str]
"""(column, "=" or "!=", value)."""


@dataclass(frozen=True, slots=True)
class Split:
    """A way to ask for less at a time: one request for each of `values` of `column`."""

    column: str
    values: Sequence[str]


@dataclass(slots=True)
class Listing:
    """Rows of one kind, and how many more there are."""

    rows: list[Mapping[str, Any]] = field(default_factory=list)
    missing_count: int = 0


class Dashboard:
    """One Ray cluster's dashboard."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest
        self.name = rest.where("")

    def get(self, path: str, query: Query | None = None) -> tuple[Any, datetime | None]:
        """The JSON at `path`, and when the head says that it gave it. Raises NotPermitted, SchedulerUnreachable."""
        answer = self._rest.send("GET", path, query=query)
        if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise NotPermitted(f"{self._rest.where(path)}: {answer.status_code} {answer.reason_phrase}")
        return self._rest.json(answer, path), _date(answer)

    def listing(self, kind: str, filters: Sequence[Filter] = (), splits: Sequence[Split] = ()) -> Listing:
        """All rows of `kind` ("tasks", "actors") that pass `filters`.

        Where one answer does not hold them all, `splits` say how to ask again for less; what is beyond even that is
        counted as missing.
        """
        found, count = self._page(kind, filters)
        if len(found) < count and splits:
            found = []
            for value in splits[0].values:
                found += self.listing(kind, [*filters, (splits[0].column, "=", value)], splits[1:]).rows
        return Listing(found, max(0, count - len(found)))

    def _page(self, kind: str, filters: Sequence[Filter]) -> tuple[list[Mapping[str, Any]], int]:
        """One answer's rows, and how many rows there are."""
        path = f"/api/v0/{kind}"
        query: Query = {
            "detail": "True",
            "limit": MOST_ROWS,
            "filter_keys": [column for column, _, _ in filters],
            "filter_predicates": [predicate for _, predicate, _ in filters],
            "filter_values": [value for _, _, value in filters],
        }
        told, _ = self.get(path, query)
        try:
            result = told["data"]["result"]
            rows = [row for row in result["result"] if isinstance(row, Mapping)]
            beyond = max(0, result["total"] - result["num_after_truncation"])
            return rows, result["num_filtered"] + beyond
        except (TypeError, KeyError):
            raise SchedulerUnreachable(f"{self._rest.where(path)}: answers no list: {str(told)[:200]}") from None


def _date(answer: httpx.Response) -> datetime | None:
    try:
        return parsedate_to_datetime(answer.headers.get("date", "")).astimezone(UTC)
    except ValueError:
        return None
