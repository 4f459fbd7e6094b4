"""What to simulate: the size, the span and the seed of a fleet."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gpuledger.errors import BadInput

BLOCK_SECONDS = 14_400
"""Readings are made in blocks of four hours, so that memory does not grow with the days."""

LIVE_MINUTES = 2_880
"""How far the script goes on after `end_at`, so that live pages continue what was back-filled."""

GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """A fleet of `nodes` hosts with eight GPUs each, during `days` days that end at `end_at` (UTC, a whole hour).

    The same spec always gives the same bytes. `interval_seconds` is the time between two readings; four hours must be a
    multiple of it. `nodes_missing_from_scheduler` names hosts that the scheduler does not list, and
    `cards_hidden_from_telemetry` names GPUs (by UUID) that no exporter shows; the assets list both.

    `tells_pods` adds what an exporter and kube-state-metrics say of pods to the back-fill (records `holding` and
    `pod`). `label_flap_ratio` of the reads of a card or slice show no pod although one is there; labels of a pod that
    ended linger for up to `linger_minutes`. Both are in pages and holdings.
    Raises BadInput naming the field that is wrong.
    """

    nodes: int
    days: int
    seed: int = 1
    end_at: datetime = field(default=datetime(2026, 3, 2, tzinfo=UTC))
    interval_seconds: int = 60
    scenario: str = "mixed"
    nodes_missing_from_scheduler: tuple[str, ...] = ()
    cards_hidden_from_telemetry: tuple[str, ...] = ()
    tells_pods: bool = False
    label_flap_ratio: float = 0.0
    linger_minutes: int = 0

    def __post_init__(self) -> None:
        checks = (
            ("nodes", self.nodes >= 1, "must be at least 1"),
            ("days", self.days >= 1, "must be at least 1"),
            ("seed", self.seed >= 0, "must not be negative"),
            (
                "interval_seconds",
                self.interval_seconds > 0 and BLOCK_SECONDS % self.interval_seconds == 0,
                "must divide 14400",
            ),
            ("label_flap_ratio", 0 <= self.label_flap_ratio < 1, "must be at least 0 and less than 1"),
            ("linger_minutes", 0 <= self.linger_minutes <= 60, "must be 0 to 60"),
            ("end_at", self.end_at.tzinfo is not None, "needs a zone"),
            ("end_at", self.end_at.timestamp() % 3600 == 0, "must be a whole hour"),
        )
        for name, is_good, reason in checks:
            if not is_good:
                raise BadInput(name, reason)

    @property
    def start_at(self) -> datetime:
        """Minute 0 of the script, in UTC."""
        return self.end_at.astimezone(UTC) - timedelta(days=self.days)

    @property
    def end_minute(self) -> int:
        """The script's minute at `end_at`."""
        return self.days * 1440

    @property
    def last_minute(self) -> int:
        """The minute at which the script ends, after the live part."""
        return self.end_minute + LIVE_MINUTES

    def instant(self, minute: float) -> datetime:
        """The instant of a script's minute."""
        return self.start_at + timedelta(minutes=minute)
