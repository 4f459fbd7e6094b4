"""Notices clocks that are apart: what a target or the service says that it is, against what this machine says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime

import httpx

from gpuledger.clock import Clock
from gpuledger.model import QualityEvent

SOURCE = "collector"
TOLERATED = timedelta(seconds=5)
"""The header counts whole seconds, and an answer may have been under way for some."""

REPEATED_AFTER = timedelta(minutes=10)


class ClockWatch:
    """Looks at the `Date` of answers and tells an event for each clock that is apart, at most every ten minutes."""

    def __init__(self, clock: Clock, tell: Callable[[QualityEvent], None], node: str | None = None) -> None:
        self._clock = clock
        self._tell = tell
        self._node = node or socket.gethostname()
        self._told: dict[str, datetime] = {}
        self._lock = threading.Lock()

    def look_at_target(self, response: httpx.Response) -> None:
        """An answer of a target: its clock is ahead of the agent's or behind it."""
        url = response.request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        self._look(response, "target", f"{url.host}:{port}", ("ahead of the agent", "behind the agent"))

    def look_at_service(self, response: httpx.Response) -> None:
        """An answer of the service: this node's clock is behind the service's or ahead of it."""
        self._look(response, "node", self._node, ("behind the service", "ahead of the service"))

    def _look(self, response: httpx.Response, kind: str, subject: str, words: tuple[str, str]) -> None:
        """`words` say what it means when the answer's clock is ahead of ours, and when it is behind."""
        now, said = self._clock.now(), _date(response)
        if said is None or abs(said - now) <= TOLERATED or not self._is_due(subject, now):
            return
        self._tell(
            QualityEvent(
                ts=now,
                source=SOURCE,
                subject_kind=kind,
                subject=subject,
                kind="clock_skew",
                detail=words[0] if said > now else words[1],
                count=round(abs(said - now).total_seconds()),
            )
        )

    def _is_due(self, subject: str, now: datetime) -> bool:
        with self._lock:
            told = self._told.get(subject)
            if told is not None and timedelta() <= now - told < REPEATED_AFTER:
                return False
            self._told[subject] = now
            return True


def _date(response: httpx.Response) -> datetime | None:
    """When the answer says that it was made; None where it does not say so in a readable way."""
    try:
        said = parsedate_to_datetime(response.headers["date"])
    except (KeyError, ValueError, TypeError):
        return None
    return said if said.tzinfo is not None else None
