"""The GPUs of this node through NVML, read by a child process with a deadline.

A hung call costs one read: the child is killed and started again, and the card it hung at is left out for ten minutes,
so that one broken card does not blind the node. The same happens to a card at which the child died, or the library
became useless, twice in a row. A card that is lost or left out has no row while the node's `SourceRead` succeeded.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from collector.child_process import ChildProcess, EndedError, HungError
from collector.nvml.incidents import Incidents, left_out
from collector.nvml.places import ACTIVITY, EVENTS, INIT
from collector.nvml.pods import PodFolders
from collector.nvml.records import SOURCE, Pass, parse
from gpuledger.errors import SourceError
from gpuledger.model import QualityEvent
from gpuledger.ports import Observation, failed_read

CHILD = "collector.nvml.child"
LEAVE_OUT = timedelta(minutes=10)
_BACKOFF_SECONDS = (1.0, 60.0)
_NO_CARDS = frozenset({INIT, EVENTS, ACTIVITY})
"""Places that are no card: what is left out there is one kind of knowledge, of all cards."""


class NvmlSource:
    """Reads this node's cards. A read ends within `timeout_seconds` (and a second to kill a hung child).

    Pods whose processes are on a card are seen on it where `proc_directory` shows the node's own processes (not those
    of a container only) and `pods_directory` is where the kubelet keeps the logs of pods.
    """

    name = SOURCE

    def __init__(
        self,
        *,
        node: str | None = None,
        interval_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        pods_directory: Path | str = "/var/log/pods",
        proc_directory: Path | str = "/proc",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.interval_seconds = interval_seconds
        self.node = node or socket.gethostname()
        self._timeout_seconds = timeout_seconds
        self._environment = environment
        self._pods = PodFolders(Path(pods_directory))
        self._proc = Path(proc_directory)
        self._incidents = Incidents()
        self._child: ChildProcess | None = None
        self._abandoned: list[ChildProcess] = []
        self._left_out: dict[str, datetime] = {}
        self._suspect: str | None = None
        self._backoff_seconds = _BACKOFF_SECONDS[0]
        self._start_at: datetime | None = None
        self._last_error = ""

    @property
    def counts(self) -> dict[str, int]:
        """Devices left out because their calls hung, and hung children that the kernel has not let go."""
        left_out_devices = len(self._left_out.keys() - _NO_CARDS)
        return {"left_out_devices": left_out_devices, "hung_processes": len(self._abandoned)}

    def read(self, now: datetime) -> Observation:
        """Read once. Never raises and never hangs."""
        if self._child is None and self._start_at is not None and now < self._start_at:
            return self._failed(now, f"waiting to start again after: {self._last_error}")
        taken = Pass(now, self.node, self.interval_seconds)
        try:
            self._left_out = {place: until for place, until in self._left_out.items() if until > now}
            if self._child is None:
                self._child = ChildProcess("NVML", CHILD, str(self._proc), environment=self._environment)
            snapshot = self._child.ask(self._left_out, self._timeout_seconds)
            observation = self._observation(snapshot, taken)
        except Exception as error:  # the port promises an observation, whatever the child answers
            events = list(self._blamed(error, taken))
            self._give_up(now, str(error) if isinstance(error, SourceError) else type(error).__name__)
            return self._failed(now, self._last_error, events)
        self._backoff_seconds, self._start_at = _BACKOFF_SECONDS[0], None
        if self._suspect not in self._left_out:
            self._suspect = None
        return observation

    def close(self) -> None:
        """End the child."""
        children = [*self._abandoned, *([self._child] if self._child else [])]
        self._child, self._abandoned = None, [child for child in children if not child.kill()]

    def _observation(self, snapshot: Mapping[str, Any], taken: Pass) -> Observation:
        self._pods.renew()
        observation = replace(parse(snapshot, taken, self._pods.name), others=self._incidents.note(snapshot, taken))
        unread = [*snapshot["failed"].values(), *(place for place in self._left_out if place not in _NO_CARDS)]
        if observation.readings or not unread:
            return observation
        failed = self._failed(taken.now, f"no card could be read: {', '.join(map(str, unread))}")
        return replace(observation, reads=failed.reads)

    def _blamed(self, error: Exception, taken: Pass) -> Iterable[QualityEvent]:
        """Leave out the place at which the child hung, or at which it ended twice in a row."""
        place = error.place if isinstance(error, (HungError, EndedError)) else None
        if place is None:
            return
        is_sure = isinstance(error, HungError) or (place == self._suspect and place != INIT)
        self._suspect = place
        if is_sure:
            self._left_out[place] = taken.now + LEAVE_OUT
            yield left_out(place, str(error), taken)

    def _give_up(self, now: datetime, error: str) -> None:
        self.close()
        self._last_error = error
        self._start_at = now + timedelta(seconds=self._backoff_seconds)
        self._backoff_seconds = min(2 * self._backoff_seconds, _BACKOFF_SECONDS[1])

    def _failed(self, now: datetime, error: str, events: Iterable[QualityEvent] = ()) -> Observation:
        failed = failed_read(now, error, node=self.node, source=SOURCE, interval_seconds=self.interval_seconds)
        return replace(failed, others={"quality_event": tuple(events)})
