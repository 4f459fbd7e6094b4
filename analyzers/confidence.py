"""How sure a finding is: coverage, contradiction, sharing and age of the readings, each a factor of 0 to 1."""

from __future__ import annotations

from dataclasses import asdict, dataclass

SHARED_FACTOR = 0.5
"""A card that several pods share by time-slicing: what it does cannot be told apart (algorithms.md, section A)."""
CONTRADICTED_FACTOR = 0.5
"""A counter was set aside because utilization and power said the opposite."""
FRESH_HOURS = 1.0
STALE_HOURS = 24.0
STALE_FACTOR = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Confidence:
    """The factors. `coverage` is successful reads over expected reads."""

    coverage: float
    contradiction: float = 1.0
    sharing: float = 1.0
    age: float = 1.0

    @property
    def value(self) -> float:
        """Their product, 0 to 1."""
        return min(1.0, max(0.0, self.coverage * self.contradiction * self.sharing * self.age))

    def parts(self) -> dict[str, float]:
        """The factors by name."""
        return asdict(self)


def confidence(
    *, coverage_ratio: float | None, is_shared: bool, basis: str, silent_hours: float | None = None
) -> Confidence:
    """The confidence of a finding over observed GPU-hours.

    `silent_hours`: how long ago the last reading is that it rests on, for a finding that is still open; older than an
    hour lowers the age factor, linearly to 0.5 at a day.
    """
    age = 1.0
    if silent_hours is not None and silent_hours > FRESH_HOURS:
        part = min(1.0, (silent_hours - FRESH_HOURS) / (STALE_HOURS - FRESH_HOURS))
        age = 1.0 - part * (1.0 - STALE_FACTOR)
    return Confidence(
        coverage=min(1.0, coverage_ratio or 0.0),
        contradiction=CONTRADICTED_FACTOR if "contradicted" in basis else 1.0,
        sharing=SHARED_FACTOR if is_shared else 1.0,
        age=age,
    )
