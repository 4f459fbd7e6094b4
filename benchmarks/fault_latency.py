"""From an event on a card to its finding, through the real agent and a real service: median and 95th percentile.

    python benchmarks/fault_latency.py [EVENTS]

An exporter's page shows an XID on one card after another; the agent scrapes it each 15 s and ships, the service
looks each 15 s.
Clock time counts from the change of the page to the first answer of the API that holds the finding.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

LINE = 'DCGM_FI_DEV_XID_ERRORS{{gpu="{card}",UUID="GPU-{card}",modelName="NVIDIA H100 80GB HBM3",Hostname="n0"}} {code}'
CARDS = 64
BETWEEN_SECONDS = 7
SERVICE, PAGES = 18421, 18422


def main(events: int) -> None:  # noqa: PLR0915 one story, told from its beginning
    """Serve a page, run agent and service, make `events` faults, and print how long each took."""
    codes = [0] * CARDS

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = "\n".join(LINE.format(card=card, code=code) for card, code in enumerate(codes)) + "\n"
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    pages = ThreadingHTTPServer(("127.0.0.1", PAGES), Page)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{SERVICE}"
    run = [sys.executable, "-m", "gpuledger.app"]
    with tempfile.TemporaryDirectory() as folder:
        listen = ["--warehouse", f"{folder}/w.duckdb", "--listen", f"127.0.0.1:{SERVICE}"]
        collect = ["collect", "--service-url", url, "--dcgm", f"http://127.0.0.1:{PAGES}/metrics"]
        root = Path(__file__).resolve().parents[1]
        service = subprocess.Popen([*run, "serve", *listen], cwd=root)
        agent = subprocess.Popen([*run, *collect], cwd=folder, env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"})
        try:
            time.sleep(45)  # every card has shown that it is well
            begun: dict[str, float] = {}
            spent: dict[str, float] = {}
            give_up = time.monotonic() + events * BETWEEN_SECONDS + 180
            while len(spent) < events and time.monotonic() < give_up:
                made = len(begun)
                if made < events and (not begun or time.monotonic() - max(begun.values()) >= BETWEEN_SECONDS):
                    codes[made] = 79
                    begun[f"GPU-{made}/xid-79"] = time.monotonic()
                for found in httpx.get(f"{url}/v1/findings", trust_env=False, timeout=30).json()["findings"]:
                    name = found["subject_id"]
                    if name in begun:
                        spent.setdefault(name, time.monotonic() - begun[name])
                time.sleep(0.5)
        finally:
            for process in (agent, service):
                process.terminate()
                process.wait(30)
    values = sorted(spent.values())
    p95 = values[max(0, round(0.95 * len(values)) - 1)]
    print(f"{len(values)} of {events} faults: median {statistics.median(values):.1f} s, p95 {p95:.1f} s")


if __name__ == "__main__":
    main(min(CARDS, int(sys.argv[1])) if len(sys.argv) > 1 else 16)
