"""The AMD cards of this node through the Python module amdsmi, read by a child process with a deadline.

A hung call costs one read: the child is killed and started again, and the card it hung at is left out for ten minutes.
The module comes with ROCm and belongs to its release, so that it is no dependency of ours: where it is not there, each
read fails and says so.
"""

from __future__ import annotations

import dataclasses
import socket
from collections.abc import Mapping
from datetime import datetime, timedelta

from collector.amdsmi.records import SOURCE, Pass, parse
from collector.amdsmi.session import INIT
from collector.child_process import ChildProcess, EndedError, HungError
from gpuledger.errors import SourceError
from gpuledger.model import QualityFlag, Reading
from gpuledger.ports import Observation, failed_read

CHILD = "collector.amdsmi.child"
LEAVE_OUT = timedelta(minutes=10)
RESET_BELOW = 0.5
_BACKOFF_SECONDS = (1.0, 60.0)


class AmdsmiSource:
    """Reads this node's AMD cards. A read ends within `timeout_seconds` (and a second to kill a hung child)."""

    name = SOURCE

    def __init__(
        self,
        *,
        node: str | None = None,
        interval_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.interval_seconds = interval_seconds
        self.node = node or socket.gethostname()
        self._timeout_seconds = timeout_seconds
        self._environment = environment
        self._child: ChildProcess | None = None
        self._abandoned: list[ChildProcess] = []
        self._left_out: dict[str, datetime] = {}
        self._energy: dict[str, float] = {}
        self._backoff_seconds = _BACKOFF_SECONDS[0]
        self._start_at: datetime | None = None
        self._last_error = ""

    @property
    def counts(self) -> dict[str, int]:
        """Devices left out because their calls hung, and hung children that the kernel has not let go."""
        return {"left_out_devices": len(self._left_out), "hung_processes": len(self._abandoned)}

    def read(self, now: datetime) -> Observation:
        """Read once. Never raises and never hangs."""
        if self._child is None and self._start_at is not None and now < self._start_at:
            return self._failed(now, f"waiting to start again after: {self._last_error}")
        self._left_out = {place: until for place, until in self._left_out.items() if until > now}
        try:
            if self._child is None:
                self._child = ChildProcess("amdsmi", CHILD, environment=self._environment)
            snapshot = self._child.ask(self._left_out, self._timeout_seconds)
            observation = parse(snapshot, Pass(now, self.node, self.interval_seconds))
        except Exception as error:  # the port promises an observation, whatever the child answers
            self._blame(error, now)
            self._give_up(now, str(error) if isinstance(error, SourceError) else type(error).__name__)
            return self._failed(now, self._last_error)
        self._backoff_seconds, self._start_at = _BACKOFF_SECONDS[0], None
        if self._left_out and not observation.readings:
            return self._failed(now, f"no card could be read: {', '.join(sorted(self._left_out))}")
        return dataclasses.replace(observation, readings=tuple(map(self._with_energy, observation.readings)))

    def close(self) -> None:
        """End the child."""
        children = [*self._abandoned, *([self._child] if self._child else [])]
        self._child, self._abandoned = None, [child for child in children if not child.kill()]

    def _with_energy(self, reading: Reading) -> Reading:
        """`reading` without an energy that went back a little: the counter does, and that is no reset."""
        if reading.energy_joules is None:
            return reading
        before = self._energy.get(reading.gpu_uuid, 0.0)
        if RESET_BELOW * before < reading.energy_joules < before:
            flags = reading.quality_flags | QualityFlag.VALUE_REJECTED
            invalid = reading.invalid_count + 1
            return dataclasses.replace(reading, energy_joules=None, invalid_count=invalid, quality_flags=flags)
        self._energy[reading.gpu_uuid] = reading.energy_joules
        return reading

    def _blame(self, error: Exception, now: datetime) -> None:
        """Leave out the card at which the child hung or died."""
        place = error.place if isinstance(error, (HungError, EndedError)) else None
        if place is not None and place != INIT:
            self._left_out[place] = now + LEAVE_OUT

    def _give_up(self, now: datetime, error: str) -> None:
        self.close()
        self._last_error = error
        self._start_at = now + timedelta(seconds=self._backoff_seconds)
        self._backoff_seconds = min(2 * self._backoff_seconds, _BACKOFF_SECONDS[1])

    def _failed(self, now: datetime, error: str) -> Observation:
        return failed_read(now, error, node=self.node, source=SOURCE, interval_seconds=self.interval_seconds)
