"""Doubles for tests, ours and those of plug-in authors."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FakeClock:
    """A clock that moves only when told to, or when somebody sleeps on it."""

    def __init__(self, start: datetime = datetime(2026, 3, 2, tzinfo=UTC)) -> None:
        self.instant = start
        self.slept: list[float] = []

    def now(self) -> datetime:
        """The instant that was set."""
        return self.instant

    def sleep(self, seconds: float) -> None:
        """Move on by `seconds` at once and remember it."""
        self.slept.append(seconds)
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Move on by `seconds`."""
        self.instant += timedelta(seconds=seconds)
