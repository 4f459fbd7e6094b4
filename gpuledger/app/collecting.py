"""Runs the node agent until it is told to stop."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

from collector import agent, settings
from gpuledger.clock import SystemClock


def run(config: Path | None, *, service_url: str | None, dcgm: list[str], nvml: bool | None) -> None:
    """Run the agent with its file, and what the command line adds to it."""
    loaded = settings.load(
        config,
        service_url=service_url,
        dcgm=[{"url": url} for url in dcgm] or None,
        nvml=None if nvml is None else {"enabled": nvml},
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    agent.run(loaded, SystemClock(), stop)
