from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from analyzers.options import option, read_options
from gpuledger.errors import BadInput


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    hours: float = option(1.0, unit="hours", low=0.0)
    count: int = option(2, unit="count", low=1)
    limit: float | None = option(None, unit="GPUs")
    at: datetime | None = option(None, unit="instant")  # noqa: RUF009 a field, as the others
    mode: str = option("a", unit="name", choices=("a", "b"))
    is_on: bool = option(False, unit="yes or no")  # noqa: FBT003 the default


def test_defaults_and_texts_of_a_url() -> None:
    assert read_options(Chosen, {}) == Chosen()
    texts = {"hours": "1.5", "count": "3", "limit": "", "at": "2026-03-02T00:00:00Z", "mode": "b", "is_on": "true"}
    at = datetime(2026, 3, 2, tzinfo=UTC)
    assert read_options(Chosen, texts) == Chosen(hours=1.5, count=3, at=at, mode="b", is_on=True)


def test_a_time_without_a_zone_is_utc() -> None:
    assert read_options(Chosen, {"at": "2026-03-02"}).at == datetime(2026, 3, 2, tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hours": "soon"}, "hours: 'soon' is not a number"),
        ({"hours": "nan"}, "hours: 'nan' is below 0 hours"),
        ({"hours": -1}, "hours: -1 is below 0 hours"),
        ({"hours": None}, "hours: must have a value"),
        ({"count": 1.5}, "count: 1.5 is not a whole number"),
        ({"count": "inf"}, "count: 'inf' is not a whole number"),
        ({"mode": "c"}, "mode: 'c' is not one of a, b"),
        ({"is_on": "maybe"}, "is_on: 'maybe' is not true or false"),
        ({"at": "yesterday"}, "at: 'yesterday' is not a time"),
        ({"colour": 1}, "colour: no such option; known: hours, count"),
    ],
)
def test_what_is_not_usable_is_named(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        read_options(Chosen, given)
    assert str(caught.value).startswith(message)
