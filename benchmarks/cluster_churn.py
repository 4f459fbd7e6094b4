"""How long the Kubernetes adapter takes for a consistent snapshot of a cluster that does not stand still.

    python benchmarks/cluster_churn.py [--nodes 1250] [--pods 20000] [--rate 1000] [--seconds 60]

Three processes: the fake API server with its churn, the adapter, and for comparison a bare HTTP client that does
nothing but download the same lists, page by page, at one version. Both clients run one after the other against the
same server, each for the given time. The adapter's snapshots are checked: no node gives away more GPUs than it has,
and in sum exactly as many are held as the churn ever holds.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuledger.attribution import Rules
from gpuledger.clock import SystemClock
from gpuledger.errors import SchedulerError
from gpuledger.ports import SchedulerSnapshot
from schedulers.fakes.apiserver import Store, serve
from schedulers.fakes.apiserver.churn import GPUS_PER_NODE, Churn
from schedulers.kubernetes.family import Kubernetes

LISTS = ("/api/v1/nodes", "/api/v1/pods", "/api/v1/resourcequotas", "/apis/scheduling.k8s.io/v1/priorityclasses")
PAGE = 500


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def read_with_adapter(url: str, seconds: float, held: tuple[int, int]) -> dict[str, Any]:
    reader = Kubernetes.from_options({"url": url, "page_objects": PAGE}, rules=Rules(), clock=SystemClock())
    wrong: list[str] = []
    refused: list[str] = []

    def once() -> None:
        try:
            wrong.extend(faults(reader.snapshot(), held))
        except SchedulerError as error:
            refused.append(str(error))

    return {**repeat(once, seconds), "refused": refused, "wrong": wrong}


def faults(snapshot: SchedulerSnapshot, held: tuple[int, int]) -> list[str]:
    states = pl.DataFrame(pl.from_arrow(snapshot.records["node_state"]))
    total = states["allocated"].sum()
    over = states.filter(pl.col("allocated") > GPUS_PER_NODE)["node"].to_list()
    found = [f"{node} gives away more than it has" for node in over]
    return found if held[0] <= total <= held[1] else [*found, f"{total} GPUs are held, not {held[0]} to {held[1]}"]


def read_bare(url: str, seconds: float) -> dict[str, Any]:
    with httpx.Client(base_url=url, timeout=60) as http:
        return repeat(lambda: download(http), seconds)


def download(http: httpx.Client) -> None:
    version = ""
    for path in LISTS:
        token = ""
        while True:
            exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"} if version and not token else {}
            answer = http.get(path, params={"limit": PAGE, **exact, **({"continue": token} if token else {})})
            answer.raise_for_status()
            beginning = answer.content.partition(b',"items":')[0]
            metadata = json.loads(beginning + b"}")["metadata"]
            version, token = metadata["resourceVersion"], metadata.get("continue", "")
            if not token:
                break


def repeat(once: Callable[[], None], seconds: float) -> dict[str, Any]:
    times, end = [], time.monotonic() + seconds
    used = time.process_time()
    while time.monotonic() < end:
        begin = time.monotonic()
        once()
        times.append(time.monotonic() - begin)
    return {
        "snapshots": len(times),
        "median_seconds": round(statistics.median(times), 3),
        "worst_seconds": round(max(times), 3),
        "cpu_seconds_each": round((time.process_time() - used) / len(times), 3),
        "peak_mib": round(peak_mib()),
    }


def child(kind: str, url: str, seconds: float, held: tuple[int, int]) -> dict[str, Any]:
    command = [sys.executable, __file__, f"--{kind}", url, "--seconds", str(seconds), "--held", *map(str, held)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(answer.stdout.strip().splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1_250)
    parser.add_argument("--pods", type=int, default=20_000)
    parser.add_argument("--rate", type=float, default=1_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--adapter")
    parser.add_argument("--bare")
    parser.add_argument("--held", type=int, nargs=2, default=(0, 0))
    options = parser.parse_args()
    if options.adapter:
        print(json.dumps(read_with_adapter(options.adapter, options.seconds, tuple(options.held))))
    elif options.bare:
        print(json.dumps(read_bare(options.bare, options.seconds)))
    else:
        run(options)


def run(options: argparse.Namespace) -> None:
    sys.setswitchinterval(0.001)  # the server must not wait long for the thread that changes things
    store = Store()
    churn = Churn(store, nodes=options.nodes, pods=options.pods)
    stop = Event()
    with serve(store) as api:
        thread = Thread(target=churn.run, args=(stop,), kwargs={"changes_per_second": options.rate}, daemon=True)
        thread.start()
        for kind in ("bare", "adapter"):
            begin, first = time.monotonic(), churn.changes
            found = child(kind, api.url, options.seconds, churn.held_gpus)
            rate = (churn.changes - first) / (time.monotonic() - begin)
            print(json.dumps({"reader": kind, "changes_per_second": round(rate), **found}), flush=True)
        stop.set()
        thread.join()
    print(json.dumps({"server_peak_mib": round(peak_mib()), "versions": store.version}))


if __name__ == "__main__":
    main()
