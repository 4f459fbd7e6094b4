"""Turns the texts of a URL or a command line into parameters, or says which one is wrong and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import AwareDatetime, BaseModel, Field, ValidationError

from gpuledger.errors import BadInput
from gpuledger.model import Window
from gpuledger.model.people import check_name
from gpuledger.model.vocabulary import CONVERSION_BASES, PRICE_BASES

DIMENSIONS = ("tenant", "node", "model", "state", "pool", "stage", "kind", "workload")
BUCKETS = ("hour", "day")
LANGUAGES = ("en", "zh")

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
LONGEST_WINDOW = timedelta(days=3660)
"""Ten years, as readings are accepted: a slip in a year must not set off a build of centuries."""


class Decision(BaseModel):
    """A person's word on a finding."""

    status: str = Field("", max_length=16)
    by: str = Field(min_length=1, max_length=128)
    note: str = Field("", max_length=4096)
    reason: str = Field("", max_length=32)
    owner: str = Field("", max_length=256)
    expires_at: AwareDatetime | None = None


def decision(body: bytes) -> Decision:
    """The decision in a JSON body. Raises BadInput naming what is missing or wrong."""
    try:
        said = Decision.model_validate_json(body)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(str(first["loc"][0]) if first["loc"] else "body", first["msg"]) from None
    check_name("by", said.by)
    if said.owner:
        check_name("owner", said.owner)
    if said.expires_at is not None:
        said.expires_at = instant("expires_at", said.expires_at.isoformat())
    return said


def only(given: Mapping[str, Any], *known: str) -> None:
    """Raise BadInput naming a parameter that is not `known`: a slip of the pen must not answer another question."""
    if strange := sorted(given.keys() - set(known)):
        raise BadInput(strange[0][:40], f"is not known here; known: {', '.join(known)}")


def instant(name: str, text: Any) -> datetime:
    """An ISO 8601 time; without a zone it is UTC."""
    if isinstance(text, datetime):
        return text
    try:
        value = datetime.fromisoformat(str(text).strip().replace(" ", "+"))
        value = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadInput(name, f"{str(text)[:40]!r} is not an ISO 8601 time") from None
    if not EARLIEST <= value <= LATEST:
        raise BadInput(name, f"must lie between {EARLIEST.year} and {LATEST.year}")
    return value


def window(from_text: Any, to_text: Any, default: Window | None) -> Window:
    """The window between two texts; what is not given comes from `default`. Raises BadInput when it is empty."""
    start = instant("from", from_text) if from_text else default.from_at if default else None
    end = instant("to", to_text) if to_text else default.to_at if default else None
    if start is None or end is None:
        reason = "the warehouse is empty, so both --from and --to must be given"
        raise BadInput("from" if start is None else "to", reason)
    if start >= end:
        raise BadInput("to", f"{end.isoformat()} is not after from ({start.isoformat()})")
    if end - start > LONGEST_WINDOW:
        raise BadInput("to", f"is more than {LONGEST_WINDOW.days} days after from")
    return Window(start, end)


def _positive(name: str, text: Any) -> int:
    try:
        value = int(str(text))
    except ValueError:
        raise BadInput(name, f"{str(text)[:40]!r} is not a whole number") from None
    if not 1 <= value <= 10**6:
        raise BadInput(name, "must be between 1 and 1,000,000")
    return value


def _zone(name: str, text: Any) -> str:
    try:
        return ZoneInfo(str(text)).key
    except (KeyError, ValueError, OSError):
        raise BadInput(name, f"{str(text)[:40]!r} is not an IANA time zone") from None


def _one_of(choices: tuple[str, ...]) -> Callable[[str, Any], str]:
    def read(name: str, text: Any) -> str:
        if text not in choices:
            raise BadInput(name, f"must be one of {', '.join(choices)}")
        return str(text)

    return read


READERS: Mapping[str, Callable[[str, Any], Any]] = {
    "from_at": instant,
    "to_at": instant,
    "at": instant,
    "by": _one_of(DIMENSIONS),
    "bucket": _one_of(BUCKETS),
    "language": _one_of(LANGUAGES),
    "price_basis": _one_of(PRICE_BASES),
    "conversion_basis": _one_of(CONVERSION_BASES),
    "timezone": _zone,
    "bucket_seconds": _positive,
    "limit_count": _positive,
    "level": _positive,
    "size": _positive,
    "seed": _positive,
}
"""How a query's parameter is read, by its name; every other one is a text of at most 4,096 bytes."""


def read(name: str, text: Any) -> Any:
    """The value of parameter `name`. Raises BadInput naming it."""
    reader = READERS.get(name)
    if reader is not None:
        return reader(name, text)
    if isinstance(text, str) and len(text.encode()) > 4096:
        raise BadInput(name, "is longer than 4096 bytes")
    return text
