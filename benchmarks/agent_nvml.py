"""The agent beside nvitop-exporter, both reading eight cards of NVML's stub library once a second: CPU and memory.

    make var/nvitop-venv/.done
    python benchmarks/agent_nvml.py [SECONDS]

Both run at the same time, so that what else the machine does costs both. The agent reads, keeps on disk and sends, to a
service on this machine that takes everything; nvitop-exporter's page is fetched every 15 seconds, as Prometheus would.
Each card has one process. The stub answers at once: a driver takes longer, which costs both the same for a call.
CPU is that of a process and its children, as a share of one core. Memory is resident; pages that two processes share
count twice. nvitop-exporter is a reader only: it keeps and sends nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
EXPORTER = ROOT / "var" / "nvitop-venv" / "bin" / "nvitop-exporter"
CARDS = 8
WARM_UP_SECONDS = 20
SCRAPE_SECONDS = 15
TICKS = os.sysconf("SC_CLK_TCK")

SETTINGS = """
service_url = "{url}"
spool_directory = "{directory}/spool"
metrics_listen = ""

[nvml]
enabled = true
node = "n1"
interval_seconds = 1
timeout_seconds = 5
"""


@dataclass(frozen=True, slots=True)
class Used:
    """CPU seconds so far and resident bytes, now and at most, of one process."""

    cpu_seconds: float
    now_bytes: int
    most_bytes: int


def used(pid: int) -> Used:
    """What `pid` has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = dict(line.partition(":")[::2] for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, most = (int(status[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))
    return Used((int(fields[11]) + int(fields[12])) / TICKS, now, most)


def family(pid: int) -> list[int]:
    """`pid` and its children."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [pid, *(int(child) for task in tasks for child in task.read_text().split())]


class Taker(BaseHTTPRequestHandler):
    """A service that takes every batch."""

    rows = 0

    def do_POST(self) -> None:
        """Count the rows and answer."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        count = pa.ipc.open_stream(body).read_all().num_rows
        if self.path.endswith("/reading"):
            Taker.rows += count
        answer = {"batch_id": self.headers["X-Batch-Id"], "accepted": count, "rejected": [], "duplicate": False}
        text = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def service() -> Iterator[str]:
    """The address of a service that takes everything."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()


def stub(directory: Path, pids: list[int]) -> dict[str, str]:
    """Build the stub library with eight cards, and a process on each; the environment that makes it be used."""
    source = ROOT / "tests" / "stubs" / "nvml" / "nvml_stub.c"
    library = directory / "libnvidia-ml.so.1"
    build = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), "-Wl,-soname,libnvidia-ml.so.1", str(source)]
    subprocess.run(build, check=True)
    lines = [f"count {CARDS}", *(f"processes.{card} 1\npid.{card} {pid}" for card, pid in enumerate(pids))]
    (directory / "scenario").write_text("\n".join(lines) + "\n")
    return os.environ | {"LD_LIBRARY_PATH": str(directory), "NVML_STUB_SCENARIO": str(directory / "scenario")}


def scrape(url: str, stop: threading.Event) -> None:
    """Fetch a page now and then."""
    while not stop.wait(SCRAPE_SECONDS):
        with urllib.request.urlopen(url, timeout=10) as page:
            page.read()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


def measured(pids: dict[str, int], seconds: float) -> Iterator[str]:
    """A line for each process group."""
    groups = {name: family(pid) for name, pid in pids.items()}
    before = {name: [used(pid) for pid in group] for name, group in groups.items()}
    time.sleep(seconds)
    for name, group in groups.items():
        after = [used(pid) for pid in group]
        spent = sum(now.cpu_seconds - then.cpu_seconds for now, then in zip(after, before[name], strict=True))
        now, most = (
            sum(values) / 1e6 for values in zip(*((one.now_bytes, one.most_bytes) for one in after), strict=True)
        )
        parts = " + ".join(f"{one.now_bytes / 1e6:.0f}" for one in after)
        yield f"{name:<18}{spent / seconds:>10.2%}{now:>12.1f} MB{most:>12.1f} MB   {parts}"


@contextlib.contextmanager
def started(*command: str, **options: Any) -> Iterator[int]:
    """The id of a process that runs until the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    """Print the table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    if not EXPORTER.exists():
        sys.exit(f"{EXPORTER.relative_to(ROOT)} is missing: make {EXPORTER.parents[1].relative_to(ROOT)}/.done")
    with contextlib.ExitStack() as running:
        directory = Path(running.enter_context(tempfile.TemporaryDirectory()))
        work = [running.enter_context(started("sleep", "3600")) for _ in range(CARDS)]
        environment = stub(directory, work)
        settings = directory / "collector.toml"
        settings.write_text(SETTINGS.format(url=running.enter_context(service()), directory=directory))
        port = str(free_port())
        agent = (sys.executable, "-m", "gpuledger.app", "collect", "--config", str(settings))
        exporter = (str(EXPORTER), "--port", port, "--interval", "1")
        pids = {
            "gpuledger collect": running.enter_context(started(*agent, env=environment, cwd=ROOT)),
            "nvitop-exporter": running.enter_context(started(*exporter, env=environment)),
        }
        time.sleep(WARM_UP_SECONDS)
        stop = threading.Event()
        running.callback(stop.set)
        threading.Thread(target=scrape, args=(f"http://127.0.0.1:{port}/metrics", stop), daemon=True).start()
        rows_before = Taker.rows
        print(f"{CARDS} cards, once a second, {seconds:g} s\n")
        print(f"{'':<18}{'of a core':>10}{'resident':>13}{'at most':>15}   each process, MB")
        for line in measured(pids, seconds):
            print(line)
        print(f"\nreadings that the agent sent: {Taker.rows - rows_before}")


if __name__ == "__main__":
    main()
