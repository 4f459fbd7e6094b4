"""The fast way from a fault to those who must know: no ledger, no hour's end, only what was committed since last time.

Each pass looks at the readings, drivers' events and conditions that came, recognises faults in them, and where one is
new (or the rule's turn has come) runs the rule `hardware_fault` over the trailing window and hands on what it found.
A pass that sees the same again changes nothing, so a restart looks back an hour and loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import structlog

from gpuledger.app.service import Service
from gpuledger.model import Window

log = structlog.get_logger("gpuledger.faults")

RULE = "hardware_fault"
"""The rule that runs here, and not with the others: its window ends now, theirs with the ledger."""

LOOKED_BACK = timedelta(hours=1)
"""How far back a start looks for what was committed while nobody looked."""

OLDEST = timedelta(hours=24)
"""Readings that came later than this are left to the next build of the ledger: no hurry makes them news."""

TELL_WITHIN = timedelta(hours=24)
"""A fault that ended longer ago is recorded and told to nobody: it is history, as after a back-fill."""


class FaultWatch:
    """One pass after the other over what was committed."""

    def __init__(self, service: Service, announce: Callable[[Sequence[dict[str, Any]]], object]) -> None:
        self._service = service
        self._announce = announce
        self._seen_at: datetime = service.clock.now() - LOOKED_BACK
        self._ran_at: datetime | None = None

    def look(self) -> int:
        """Look once. Gives how many faults were not known before."""
        service, now = self._service, self._service.clock.now()
        news = service.query("fault_news", committed_after_at=self._seen_at).to_pylist()[0]
        fresh = 0
        if news["from_at"] is not None:
            ahead = timedelta(seconds=service.settings.future_tolerance_seconds, microseconds=1)
            from_at = max(news["from_at"], now - OLDEST)
            fresh = service.warehouse.recognise_faults(Window(from_at, max(now, from_at) + ahead))
            self._seen_at = news["committed_at"]
            if fresh:  # kept until it was judged and told: a pass that fails is made up for by the next
                self._ran_at = None
        if self._is_due(now):
            self._judge(now)
        return fresh

    def _is_due(self, now: datetime) -> bool:
        turn = timedelta(seconds=self._service.settings.rules_every_seconds)
        return self._ran_at is None or now - self._ran_at >= turn

    def _judge(self, now: datetime) -> None:
        service = self._service
        back = now - timedelta(days=service.settings.rules_window_days)
        ahead = timedelta(seconds=service.settings.future_tolerance_seconds)
        window = Window(back - timedelta(days=back.weekday()), now)
        told = service.query("fault_list", from_at=now, to_at=now + ahead).column("ts").to_pylist()
        if told:  # a clock that runs ahead of ours is no reason to wait
            window = Window(window.from_at, max(told) + timedelta(microseconds=1))
        result = service.analyze(RULE, window, {}, save=True, anew=False)
        recent = [found for found in result["findings"] if found["window_end"] >= now - TELL_WITHIN]
        self._announce(recent)
        self._ran_at = now
