"""What the collector's tests share: pages and a service on loopback, and NVML's stub library."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from collector.sources.nvml import NvmlSource

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared"


@pytest.fixture
def now() -> datetime:
    return datetime(2026, 3, 2, 9, tzinfo=UTC)


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("../shared is absent: this checkout has no public recordings beside it")
    return SHARED


@pytest.fixture
def recordings() -> Path:
    return Path(__file__).parent / "recordings"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request, client_address):
        """Clients that hang up are part of the tests."""


@pytest.fixture
def serve() -> Iterator[Callable[[type[BaseHTTPRequestHandler]], str]]:
    running = []

    def start(handler: type[BaseHTTPRequestHandler]) -> str:
        server = _Server(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


@dataclass
class Target:
    """A page that can be changed, slowed and broken. `drip` sends it in pieces with this many seconds between."""

    url: str = ""
    page: bytes = b""
    status: int = 200
    delay: float = 0.0
    drip: float = 0.0
    cut_at: int | None = None
    requests: list[dict[str, str]] = field(default_factory=list)


@pytest.fixture
def target(serve) -> Target:
    target = Target()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target.requests.append(dict(self.headers))
            time.sleep(target.delay)
            self.send_response(target.status)
            self.send_header("Content-Length", str(len(target.page)))
            self.end_headers()
            page = target.page[: target.cut_at]
            if not target.drip:
                self.wfile.write(page)
                return
            for start in range(0, len(page), 20):
                self.wfile.write(page[start : start + 20])
                time.sleep(target.drip)

        def log_message(self, *arguments: object) -> None: ...

    target.url = f"{serve(Handler)}/metrics"
    return target


@dataclass
class Service:
    """Ingest as docs/contracts.md has it. `answer` may replace the answer: (status, body) for a batch id and record."""

    url: str = ""
    answer: Callable[[str, str], tuple[int, str] | None] | None = None
    tables: dict[str, tuple[str, pa.Table]] = field(default_factory=dict)
    posts: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def rows(self, record: str) -> int:
        return sum(table.num_rows for name, table in self.tables.values() if name == record)


@pytest.fixture
def service(serve) -> Service:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            batch_id, record = self.headers["X-Batch-Id"], self.path.removeprefix("/v1/ingest/")
            service.posts.append((self.path, dict(self.headers)))
            status, text = (service.answer and service.answer(batch_id, record)) or self.accept(batch_id, record, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        @staticmethod
        def accept(batch_id: str, record: str, body: bytes) -> tuple[int, str]:
            table = pa.ipc.open_stream(body).read_all()
            is_known = str(batch_id in service.tables).lower()
            service.tables[batch_id] = (record, table)
            return 200, (
                f'{{"batch_id": "{batch_id}", "accepted": {table.num_rows}, "rejected": [], "duplicate": {is_known}}}'
            )

        def log_message(self, *arguments: object) -> None: ...

    service.url = serve(Handler)
    return service


@pytest.fixture(scope="session")
def nvml_library(tmp_path_factory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("gcc is missing: NVML's stub cannot be built")
    directory = tmp_path_factory.mktemp("nvml")
    source = ROOT / "tests" / "stubs" / "nvml" / "nvml_stub.c"
    library = directory / "libnvidia-ml.so.1"
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, soname, source], check=True)
    return directory


@dataclass
class NvmlStub:
    """The scenario of one test: what the stub answers, and which calls it got."""

    directory: Path
    environment: dict[str, str]

    @classmethod
    def of(cls, library: Path, directory: Path) -> NvmlStub:
        """A stub of `library` whose scenario and log are in `directory`."""
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library),
            "NVML_STUB_SCENARIO": str(directory / "scenario"),
            "NVML_STUB_LOG": str(directory / "log"),
        }
        return cls(directory, environment)

    def scenario(self, *lines: str) -> None:
        # Renamed into place: the stub may read it at any moment.
        part = self.directory / "scenario.part"
        part.write_text("\n".join(lines) + "\n")
        part.rename(self.directory / "scenario")

    def calls(self, function: str, device: int) -> int:
        log = self.directory / "log"
        return log.read_text().splitlines().count(f"{function} {device}") if log.exists() else 0


@pytest.fixture
def nvml_stub(nvml_library, tmp_path) -> NvmlStub:
    stub = NvmlStub.of(nvml_library, tmp_path)
    stub.scenario()
    return stub


@pytest.fixture
def nvml_source(nvml_stub) -> Iterator[Callable[..., NvmlSource]]:
    made = []

    def make(*scenario: str, **options: Any) -> NvmlSource:
        nvml_stub.scenario(*scenario)
        nvml = NvmlSource(node="n1", environment=nvml_stub.environment, **options)
        made.append(nvml)
        return nvml

    yield make
    for nvml in made:
        nvml.close()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]
