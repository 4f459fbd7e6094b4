"""When each source is due: its own interval, starts spread over it, missed turns skipped instead of caught up."""

from __future__ import annotations

from collections.abc import Sequence


class Schedule:
    """Due times in seconds of a monotonic clock. Sources are numbered as their intervals are given."""

    def __init__(self, intervals: Sequence[float], start: float) -> None:
        self._intervals = tuple(intervals)
        count = len(self._intervals)
        self._due = [start + interval * position / count for position, interval in enumerate(self._intervals)]

    @property
    def next_at(self) -> float:
        """The earliest due time."""
        return min(self._due)

    def take_due(self, now: float) -> list[int]:
        """The sources due at `now`, each once however late it is; their next turns keep to their own grid."""
        due = [number for number, at in enumerate(self._due) if at <= now]
        for number in due:
            interval = self._intervals[number]
            turns = int((now - self._due[number]) // interval) + 1
            self._due[number] += turns * interval
        return due
