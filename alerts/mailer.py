"""From findings to channels: what is worth telling goes into the outbox, what is due in the outbox goes out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Protocol

from alerts.dispatch import Pending, dispatch
from alerts.heartbeat import beat
from alerts.messages import finding_message, from_json, to_json
from gpuledger.clock import Clock
from gpuledger.ports import Channel


class Outbox(Protocol):
    """Where messages wait durably; the state store is one."""

    def enqueue(self, channel: str, key: str, message: Mapping[str, Any], now: datetime) -> bool:
        """Store a message once for each channel and key; gives whether it is new."""
        ...

    def due_messages(self, now: datetime, limit: int = 100) -> list[tuple[int, str, dict[str, Any], int]]:
        """(entry, channel, message, attempts so far) of what is due."""
        ...

    def settle_message(
        self, entry_id: int, status: str, *, detail: str, now: datetime, retry_in: timedelta | None = None
    ) -> None:
        """Record an attempt."""
        ...


class Gate(Protocol):
    """Says whether anybody may be told of a finding."""

    def __call__(self, finding: Mapping[str, Any]) -> str:
        """Why nobody may; empty where somebody may."""
        ...


def _open_to_all(finding: Mapping[str, Any]) -> str:  # noqa: ARG001 a gate's signature
    return ""


class Mailer:
    """Announces findings and delivers the outbox. Without a channel it does nothing, and nothing piles up.

    `gate` makes the gate of one pass; `on_silence` hears (rule, reason) once for each finding that it holds back.
    """

    def __init__(  # noqa: PLR0913 what it is wired to
        self,
        outbox: Outbox,
        channels: Mapping[str, Channel],
        clock: Clock,
        *,
        heartbeat: Channel | None = None,
        gate: Callable[[], Gate] = lambda: _open_to_all,
        on_silence: Callable[[str, str], object] = lambda rule, reason: None,  # noqa: ARG005 nobody listens
        minimum_gpu_hours: float = 0.0,
        timezone: str = "UTC",
    ) -> None:
        self._outbox = outbox
        self._channels = channels
        self._clock = clock
        self._heartbeat = heartbeat
        self._gate = gate
        self._on_silence = on_silence
        self._silent: set[tuple[str, str]] = set()
        self._minimum_gpu_hours = minimum_gpu_hours
        self._timezone = timezone

    def announce(self, findings: Iterable[Mapping[str, Any]]) -> int:
        """Put findings that cost enough and pass the gate into the outbox of every channel, each once.

        A critical health finding is urgent whatever it has cost so far. Gives how many messages are new.
        """
        now, count = self._clock.now(), 0
        worth = [finding for finding in findings if self._is_worth_telling(finding)]
        gate = self._gate() if worth else _open_to_all
        for finding in worth:
            if reason := gate(finding):
                self._hold_back(finding, reason)
                continue
            message = finding_message(finding, now, timezone=self._timezone)
            for name in self._channels:
                count += self._outbox.enqueue(name, message.key, to_json(message), now)
        return count

    def _is_worth_telling(self, finding: Mapping[str, Any]) -> bool:
        if finding.get("category") != "health":
            return bool(finding["gpu_hours_wasted"] >= self._minimum_gpu_hours)
        return finding.get("severity") == "critical" or finding["gpu_hours_lost"] >= self._minimum_gpu_hours

    def _hold_back(self, finding: Mapping[str, Any], reason: str) -> None:
        key = finding["finding_id"], reason
        if key not in self._silent:
            self._silent.add(key)
            self._on_silence(finding["analyzer"], reason)

    def deliver(self) -> None:
        """Send what is due, channel by channel; one that is down does not delay the others."""
        due = self._outbox.due_messages(self._clock.now())
        for name, channel in self._channels.items():
            pending = [
                Pending(entry, from_json(message), attempts) for entry, of, message, attempts in due if of == name
            ]
            if pending:
                dispatch(pending, channel, self._settle, self._clock)

    def beat(self) -> None:
        """Send one heartbeat where a heartbeat channel is set."""
        if self._heartbeat is not None:
            beat(self._heartbeat, self._clock)

    def _settle(self, entry_id: int, status: str, *, detail: str, retry_in: timedelta | None = None) -> None:
        self._outbox.settle_message(entry_id, status, detail=detail, now=self._clock.now(), retry_in=retry_in)
