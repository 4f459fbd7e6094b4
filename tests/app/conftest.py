"""What the tests of the application share: rows, a service process, the command line, a simulated warehouse."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

from gpuledger.app.client import InProcessTransport
from gpuledger.app.encoding import to_arrow_stream
from gpuledger.app.http import create_app
from gpuledger.app.service import Service
from gpuledger.config import Settings
from gpuledger.model import RECORDS, to_table
from gpuledger.testing import FakeClock

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"
NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


def a_reading(number: int = 0, *, at: datetime = NOW - timedelta(hours=2), **values: Any) -> dict[str, Any]:
    """A usable reading of card `number`."""
    row = {"ts": at, "node": "n0", "gpu_uuid": f"GPU-{number}", "source": "dcgm", "interval_seconds": 15.0}
    return row | {"gpu_util_ratio": 0.5} | values


def a_table(record: str, *rows: dict[str, Any]) -> pa.Table:
    return to_table(record, [RECORDS[record].cls(**row) for row in rows])


@dataclass
class Api:
    """An application in this process, and the service behind it."""

    service: Service
    http: httpx.Client

    def put(self, record: str, table: pa.Table, batch_id: str) -> httpx.Response:
        headers = {"x-batch-id": batch_id}
        return self.http.post(f"/v1/ingest/{record}", content=to_arrow_stream(table), headers=headers)

    def count(self, table: str) -> int:
        with self.service.warehouse.writing() as cursor:
            found = cursor.execute(f'select count(*) from "{table}"').fetchone()
        assert found is not None
        return int(found[0])

    def metric(self, name: str, **labels: str) -> float:
        return self.service.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@contextlib.contextmanager
def opened_api(folder: Path, clock: FakeClock, **settings: Any) -> Iterator[Api]:
    own = Settings(warehouse=folder / "app.duckdb", report_directory=folder / "reports", **settings)
    service = Service.open(own, clock)
    try:
        with httpx.Client(transport=InProcessTransport(create_app(service)), base_url="http://warehouse") as http:
            yield Api(service, http)
    finally:
        service.close()


@pytest.fixture
def make_api(tmp_path: Path, clock: FakeClock) -> Iterator[Callable[..., Api]]:
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(opened_api(tmp_path, clock, **settings))


@pytest.fixture
def api(make_api: Callable[..., Api]) -> Api:
    return make_api()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(**extra: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("GPULEDGER_")}
    return own | {"PYTHONPATH": str(ROOT)} | extra


class Served:
    """A real service process on a warehouse file."""

    def __init__(self, warehouse: Path, **extra: str) -> None:
        self.warehouse = warehouse
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._extra = extra
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gpuledger.app", "serve", "--warehouse", str(self.warehouse)]
        with self.warehouse.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(
                [*command, "--listen", f"127.0.0.1:{self.port}"],
                stdout=log,
                stderr=log,
                env=environment(**self._extra),
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.warehouse.with_suffix(".log").read_text(encoding="utf-8")

    def wait(self, seconds: float = 40) -> None:
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up:
            assert self.process.poll() is None, self.log
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", trust_env=False).status_code == 200:
                    return
            time.sleep(0.05)
        raise AssertionError(f"not ready: {self.log}")

    def restart(self) -> None:
        self.process = self._start()
        self.wait()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    running: list[Served] = []

    def start(warehouse: Path, **extra: str) -> Served:
        running.append(Served(warehouse, **extra))
        running[-1].wait()
        return running[-1]

    yield start
    for served in running:
        if served.process.poll() is None:
            served.kill()


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_cli(*arguments: str | Path, cwd: Path | None = None, **extra: str) -> Ran:
    command = [sys.executable, "-m", "gpuledger.app", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, env=environment(**extra), cwd=cwd, timeout=120, check=False)
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture
def cli() -> Callable[..., Ran]:
    return run_cli


@pytest.fixture(scope="session")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """A warehouse with two nodes' day, made by the command line, and what the command printed."""
    folder = tmp_path_factory.mktemp("simulated")
    file = folder / "fleet.duckdb"
    options = ("--nodes", "2", "--days", "1", "--seed", "1", "--out", folder / "out", "--warehouse", file)
    return file, run_cli("simulate", *options, "--format", "json")


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("../shared is absent: this checkout has no public traces beside it")
    return SHARED
