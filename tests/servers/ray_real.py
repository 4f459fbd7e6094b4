"""A real Ray cluster of this machine: a head with 8 GPUs and a node with 4, none of which is there, behind a token."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx

TOKEN = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
START_SECONDS = 240.0
TRIES = 3
ROOT = Path(__file__).resolve().parents[2]
_MARK = "GPULEDGER_TEST_RAY_FOLDER"


def ray_home() -> Path | None:
    """The virtual environment that Ray is installed in; None where there is none."""
    home = Path(os.environ.get("GPULEDGER_TEST_RAY") or ROOT / "var" / "ray-venv")
    return home if (home / "bin" / "ray").exists() else None


@dataclass(frozen=True)
class RealRay:
    """A running cluster."""

    url: str
    home: Path
    folder: Path
    gcs: str
    metrics_ports: tuple[int, int]
    environment: Mapping[str, str]

    def http(self) -> httpx.Client:
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30, trust_env=False
        )

    def submit(self, name: str, entrypoint: str, **more: Any) -> None:
        """Start a job; its driver is `python <file of the folder>` or any command."""
        with self.http() as client:
            body = {"entrypoint": entrypoint, "submission_id": name, **more}
            client.post("/api/jobs/", json=body).raise_for_status()

    def drive(self, name: str, source: str, **more: Any) -> None:
        """Start a job whose driver is `source`."""
        path = self.folder / f"{name}.py"
        path.write_text(source, encoding="utf-8")
        self.submit(name, f"{self.home / 'bin' / 'python'} {path}", **more)

    def status(self) -> str:
        """What `ray status -v` says."""
        command = [str(self.home / "bin" / "ray"), "status", "-v", "--address", self.gcs]
        return subprocess.run(
            command, env=dict(self.environment), capture_output=True, text=True, timeout=60, check=True
        ).stdout


def wait_until(true: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    """Return as soon as `true` says so. Raises TimeoutError naming `what`."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.2)


def _free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, out of the range that connections get theirs from."""
    found: list[int] = []
    port = 21_000 + os.getpid() % 4_000
    while len(found) < count:
        port += 1
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            found.append(port)
    return found


def _log(folder: Path) -> str:
    return "\n".join(path.read_text(encoding="utf-8", errors="replace")[-3000:] for path in folder.glob("*.log"))


@contextmanager
def real_ray(home: Path) -> Iterator[RealRay]:
    """Start a cluster, and stop every process of it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # a longer path is too long for Ray's sockets
    ports = _free_ports(7)
    gcs, url = f"127.0.0.1:{ports[0]}", f"http://127.0.0.1:{ports[1]}"
    environment = {
        **os.environ, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN,
        "PYTHONWARNINGS": "ignore", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", _MARK: str(folder),
    }  # fmt: skip
    head = [
        "--head", f"--port={ports[0]}", "--dashboard-host=127.0.0.1", f"--dashboard-port={ports[1]}",
        f"--ray-client-server-port={ports[2]}", f"--temp-dir={folder / 't'}", "--num-cpus=4", "--num-gpus=8",
        f"--dashboard-agent-listen-port={ports[3]}", f"--metrics-export-port={ports[4]}",
    ]  # fmt: skip
    worker = [
        f"--address={gcs}", "--num-cpus=2", "--num-gpus=4", f"--dashboard-agent-listen-port={ports[5]}",
        f"--metrics-export-port={ports[6]}",
    ]  # fmt: skip
    processes: list[subprocess.Popen[bytes]] = []
    ray = RealRay(url, home, folder, gcs, (ports[4], ports[6]), environment)
    try:
        _start(ray, head, 1, processes)
        _start(ray, worker, 2, processes)
        yield ray
    finally:
        _stop(processes, folder)
        shutil.rmtree(folder, ignore_errors=True)


_COMMON = ("--min-worker-port=0", "--max-worker-port=0", "--disable-usage-stats", "--object-store-memory=80000000",
           "--block")  # fmt: skip


def _start(ray: RealRay, arguments: list[str], count: int, processes: list[subprocess.Popen[bytes]]) -> None:
    """Start one node more, so that there are `count`. On a busy machine Ray gives a node up that starts too slowly."""
    for attempt in range(TRIES):
        with (ray.folder / f"{count}-{attempt}.log").open("w") as log:
            command = [str(ray.home / "bin" / "ray"), "start", *arguments, *_COMMON]
            process = subprocess.Popen(
                command, env=dict(ray.environment), stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=ray.folder,
                start_new_session=True,
            )  # fmt: skip
        processes.append(process)
        wait_until(partial(_has_settled, ray, process, count), f"node {count} of Ray")
        if process.poll() is None:
            return
    raise TimeoutError(f"node {count} of Ray does not start: {_log(ray.folder)}")


def _has_settled(ray: RealRay, process: subprocess.Popen[bytes], count: int) -> bool:
    return process.poll() is not None or _living(ray) == count


def _living(ray: RealRay) -> int:
    with ray.http() as client, suppress(httpx.HTTPError, KeyError, TypeError, ValueError):
        told = client.get("/api/v0/nodes").json()["data"]["result"]["result"]
        return sum(row["state"] == "ALIVE" for row in told)
    return 0


def _stop(processes: list[subprocess.Popen[bytes]], folder: Path) -> None:
    """TERM to what was started, then KILL to what outlived it: Ray's daemons leave their process groups."""
    for process in reversed(processes):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(15)
    for _ in range(3):
        for pid in _ours(folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    for process in processes:
        process.wait(15)


def _ours(folder: Path) -> list[int]:
    """The processes that inherited this cluster's folder in their environment."""
    mark = f"{_MARK}={folder}".encode()
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            with suppress(OSError):
                if mark in (place / "environ").read_bytes().split(b"\0"):
                    found.append(int(place.name))
    return found
