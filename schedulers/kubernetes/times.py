"""Kubernetes' way to write instants."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from gpuledger.errors import BadInput


@lru_cache(maxsize=65_536)
def _parsed(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def instant(value: Any, field: str = "time") -> datetime | None:
    """An RFC 3339 text as an instant in UTC; None for what is not set. Raises BadInput naming `field` otherwise."""
    if value is None or value == "":
        return None
    at = _parsed(value) if isinstance(value, str) else None
    if at is None:
        raise BadInput(field, f"{str(value)[:40]!r} is no time")
    return at
