"""A half-open span of time in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True, slots=True)
class Window:
    """[`from_at`, `to_at`) in UTC. Raises ValueError when naive or empty."""

    from_at: datetime
    to_at: datetime

    def __post_init__(self) -> None:
        if self.from_at.tzinfo is None or self.to_at.tzinfo is None:
            raise ValueError("a window needs times with a zone")
        if self.from_at >= self.to_at:
            raise ValueError(f"a window must end after it starts: {self.from_at} .. {self.to_at}")

    @property
    def hours(self) -> float:
        """Length in hours."""
        return (self.to_at - self.from_at).total_seconds() / 3600

    def days(self) -> list[Window]:
        """The window cut at UTC midnights."""
        parts, start = [], self.from_at.astimezone(UTC)
        while start < self.to_at:
            midnight = start.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
            end = min(midnight, self.to_at)
            parts.append(Window(start, end))
            start = end
        return parts

    def whole_hours(self) -> Window:
        """The smallest window of whole hours that contains this one."""
        start = self.from_at.replace(minute=0, second=0, microsecond=0)
        end = self.to_at.replace(minute=0, second=0, microsecond=0)
        return Window(start, end if end == self.to_at else end + timedelta(hours=1))
