"""Seconds for one snapshot of 1,250 nodes and 20,000 pods of which 1 % changed: the book, and the whole way to disk.

    python benchmarks/snapshot_book.py

The first snapshot is taken in whole; the second has 1 % of its pods gone and as many new ones, and the nodes that they
were on changed. The book must take less than 0.5 s, and everything with storing less than 1 s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuledger.app.schedulers.book import SnapshotBook
from gpuledger.app.schedulers.feed import Feed
from gpuledger.app.service import Service
from gpuledger.config import Settings
from gpuledger.model import NodeState, Pod, SchedulerNode, Workload, to_table
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
NODES, PODS, CHANGED = 1_250, 20_000, 200
BOOK_WANTED, WHOLE_WANTED = 0.5, 1.0

Given = TypeVar("Given")


def snapshot(taken_at: datetime, first: int) -> SchedulerSnapshot:
    """Pods `first` to `first` + 20,000, sixteen a node in turn; a node's count says which pods it has."""
    pods, works = [], []
    held: dict[int, int] = {}
    for number in range(first, first + PODS):
        node = number % NODES
        held[node] = held.get(node, 0) + 1 + number // PODS
        pods.append(
            Pod(
                uid=f"{number:08d}-0000-4000-8000-000000000000",
                namespace=f"team-{number % 40}",
                pod=f"train-{number}-worker-0",
                node=f"node-{node:04d}",
                workload_id=f"team-{number % 40}/train-{number}",
                gpu_count=1.0,
                resource="nvidia_com_gpu",
                phase="Running",
                labels='{"app":"train","kueue.x-k8s.io/queue-name":"a-queue"}',
                created_at=NOW - timedelta(hours=1),
                started_at=NOW - timedelta(hours=1),
                seen_at=taken_at,
            )
        )
        works.append(
            Workload(
                workload_id=f"team-{number % 40}/train-{number}",
                submitted_at=NOW - timedelta(hours=2),
                started_at=NOW - timedelta(hours=1),
                pod_count=1,
                num_gpu=1,
                gpu_milli=1000,
                cpu_milli=8000,
                memory_mib=65536,
                scheduler="kubernetes",
                namespace=f"team-{number % 40}",
                status="running",
            )
        )
    states = [
        NodeState(
            scheduler="kubernetes",
            node=f"node-{node:04d}",
            resource="nvidia_com_gpu",
            capacity=32,
            allocatable=32,
            allocated=count,
            free=max(0, 32 - count),
            from_at=taken_at,
        )
        for node, count in held.items()
    ]
    offers = [SchedulerNode(scheduler="kubernetes", node=s.node, gpu_count=32, from_at=taken_at) for s in states]
    rows: Mapping[str, Iterable[Any]] = {
        "pod": pods,
        "workload": works,
        "node_state": states,
        "scheduler_node": offers,
    }
    records = {record: to_table(record, found) for record, found in rows.items()}
    return SchedulerSnapshot(taken_at=taken_at, version=str(first), records=records)


class Replayed:
    """A reader of snapshots that were made before."""

    name, cluster = "kubernetes", "default"

    def __init__(self, *snapshots: SchedulerSnapshot) -> None:
        self._left = list(snapshots)

    def snapshot(self) -> SchedulerSnapshot:
        """The next one."""
        return self._left.pop(0)


def timed(label: str, work: Callable[[], Given]) -> tuple[float, Given]:
    """Seconds that `work` took, printed, and what it gave."""
    begun = time.perf_counter()
    found = work()
    seconds = time.perf_counter() - begun
    print(f"{label}: {seconds:.3f} s")
    return seconds, found


def main() -> int:
    """Measure; 1 when it is too slow."""
    first, second = snapshot(NOW, 0), snapshot(NOW + timedelta(seconds=30), CHANGED)
    _, (_, book) = timed("the book, all new", lambda: SnapshotBook("kubernetes", 30.0).take(first))
    book_seconds, (rows, _) = timed("the book, 1 % changed", lambda: book.take(second))
    print({record: table.num_rows for record, table in rows.items()})
    with tempfile.TemporaryDirectory() as folder:
        clock = FakeClock(NOW + timedelta(minutes=1))
        service = Service.open(Settings(warehouse=Path(folder) / "w.duckdb"), clock)
        feed = Feed(Replayed(first, second), service, clock, interval_seconds=30.0)
        timed("to disk, all new", feed.read)
        whole_seconds, _ = timed("to disk, 1 % changed", feed.read)
        service.close()
    return int(book_seconds > BOOK_WANTED or whole_seconds > WHOLE_WANTED)


if __name__ == "__main__":
    sys.exit(main())
