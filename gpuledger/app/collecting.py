"""Runs the node agent until it is told to stop, and shows what a node has to read."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import httpx

from collector import agent, discovery, settings
from collector.lean import arrow_without_pandas
from gpuledger.clock import SystemClock


def run(
    config: Path | None, *, service_url: str | None, dcgm: list[str], nvml: bool | None, discover: bool | None = None
) -> None:
    """Run the agent with its file, and what the command line adds to it."""
    arrow_without_pandas()
    loaded = settings.load(
        config,
        service_url=service_url,
        dcgm=[{"url": url} for url in dcgm] or None,
        nvml=None if nvml is None else {"enabled": nvml},
        discover=discover,
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    agent.run(loaded, SystemClock(), stop)


def found(places: discovery.Places, service_url: str) -> tuple[str, bool]:
    """A settings file for what this node has, and whether there is anything to read."""
    # Targets are this cluster's own addresses: a proxy from the environment is for the way out, not for them.
    with httpx.Client(trust_env=False) as client:
        probes = discovery.discover(places, client, SystemClock().now())
    return discovery.to_toml(probes, service_url=service_url, node=places.node), any(probe.works for probe in probes)
