"""Real metrics servers on loopback, filled with history that never happened."""

from __future__ import annotations

import contextlib
import itertools
import shutil
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import httpx
import pytest

from gpuledger.errors import SourceError
from gpuledger.simulate import Simulation

Line = tuple[bytes, int]
"""(series and value as on a page, second)."""


def binary(name: str) -> str:
    """The path of a program, or the test is skipped."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def scraped(simulation: Simulation, begin: datetime, ticks: int) -> Iterator[Line]:
    """What a server that scraped every node at each of `ticks` would have stored."""
    for tick in range(ticks):
        at = begin + timedelta(seconds=tick * simulation.spec.interval_seconds)
        for host in simulation.fleet.hosts:
            with contextlib.suppress(SourceError):  # the exporter does not answer then
                for line in simulation.node_page(host.name, at).splitlines():
                    if not line.startswith(b"#"):
                        yield line, int(at.timestamp())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def _running(command: list[str], url: str, log: Path) -> Iterator[str]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        give_up = time.monotonic() + 60
        while time.monotonic() < give_up:
            assert process.poll() is None, log.read_text()
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{url}/-/ready", trust_env=False).status_code == 200:
                    break
                if httpx.get(f"{url}/health", trust_env=False).status_code == 200:
                    break
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def prometheus(folder: Path, lines: Iterable[Line]) -> Iterator[str]:
    """A Prometheus that holds `lines` (in order of time for each series); gives its address."""
    folder.mkdir(parents=True, exist_ok=True)
    text, data, config = folder / "history.txt", folder / "data", folder / "prometheus.yml"
    with text.open("wb") as out:
        out.writelines(b"%s %d\n" % line for line in lines)
        out.write(b"# EOF\n")
    command = [binary("promtool"), "tsdb", "create-blocks-from", "openmetrics", str(text), str(data)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    config.write_text("global:\n  scrape_interval: 1h\n", encoding="utf-8")
    url = f"http://127.0.0.1:{_free_port()}"
    command = [
        binary("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y", f"--web.listen-address={url.removeprefix('http://')}",
    ]  # fmt: skip
    with _running(command, url, folder / "prometheus.log"):
        yield url


@contextlib.contextmanager
def victoria_metrics(folder: Path, lines: Iterable[Line]) -> Iterator[str]:
    """A VictoriaMetrics that holds `lines`; gives its address."""
    folder.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{_free_port()}"
    command = [
        binary("victoria-metrics"), f"-storageDataPath={folder / 'data'}", "-retentionPeriod=100y",
        f"-httpListenAddr={url.removeprefix('http://')}",
    ]  # fmt: skip
    with _running(command, url, folder / "victoria.log"):
        rest = iter(lines)
        while part := list(itertools.islice(rest, 100_000)):
            body = b"".join(b"%s %d000\n" % line for line in part)
            httpx.post(f"{url}/api/v1/import/prometheus", content=body, timeout=60, trust_env=False).raise_for_status()
        httpx.get(f"{url}/internal/force_flush", timeout=60, trust_env=False).raise_for_status()
        yield url
