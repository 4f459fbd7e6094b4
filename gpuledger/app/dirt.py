"""What came in since the ledger was last built over its time: how closed hours come to be rebuilt."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta


class Dirt:
    """The earliest instant for which readings came since the ledger was built over it, and when late ones last came.

    Readings are late when they are older than `lateness`; live ones never end, so waiting for quiet leaves them out.
    """

    def __init__(self, lateness: timedelta) -> None:
        self._lock = threading.Lock()
        self._lateness = lateness
        self._from_at: datetime | None = None
        self._late_at: datetime | None = None

    def add(self, from_at: datetime, now: datetime) -> None:
        """Readings from `from_at` on came at `now`."""
        with self._lock:
            self._from_at = min(from_at, self._from_at or from_at)
            if from_at < now - self._lateness:
                self._late_at = now

    def settle(self, from_at: datetime) -> None:
        """A build from `from_at` on begins: what is dirty after it needs no other."""
        with self._lock:
            if self._from_at is not None and self._from_at >= from_at:
                self._from_at = None

    def take(self, now: datetime, open_from_at: datetime | None, quiet: timedelta) -> datetime | None:
        """The earliest dirty instant, then forgotten; None while a back-fill of closed hours is still coming in."""
        with self._lock:
            if self._from_at is None:
                return None
            is_closed = open_from_at is None or self._from_at < open_from_at
            if is_closed and self._late_at is not None and now - self._late_at < quiet:
                return None
            taken, self._from_at = self._from_at, None
            return taken

    def put_back(self, from_at: datetime) -> None:
        """What was taken could not be built."""
        with self._lock:
            self._from_at = min(from_at, self._from_at or from_at)
