"""What the analyzers' tests share: a warehouse in memory and short ways to fill it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuledger.model import RECORDS, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("../shared is absent: this checkout has no public traces beside it")
    return SHARED


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 6, 1, tzinfo=UTC))


@pytest.fixture
def house(clock: FakeClock) -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=clock) as opened:
        yield opened


@pytest.fixture
def put(house: Warehouse) -> Callable[..., None]:
    """Ingest rows of one record, given as keyword sets; a refused row fails the test."""
    numbers = itertools.count()

    def put_rows(record: str, *rows: dict[str, Any]) -> None:
        table = to_table(record, [RECORDS[record].cls(**row) for row in rows])
        result = house.ingest(record, table, f"{record}-{next(numbers)}")
        assert not result.rejected, result.rejected

    return put_rows


@pytest.fixture
def put_node(put: Callable[..., None]) -> Callable[..., None]:
    """One node with the given free thousandths a GPU and free CPU, its model, and where it sits."""

    def put_one(
        node: str, free: list[int], *, cpu_free: int = 10**6, model: str | None = None, at: datetime, **where: Any
    ) -> None:
        begin = at - timedelta(days=1)
        put(
            "node",
            {"node": node, "gpu_count": len(free), "cpu_milli": cpu_free, "model": model, "from_at": begin, **where},
        )
        cards = [
            {
                "gpu_uuid": f"{node}/gpu{i}",
                "node": node,
                "slot": i,
                "model": model,
                "status": "in_service",
                "from_at": begin,
            }
            for i in range(len(free))
        ]
        put("asset", *cards)
        held = [
            {
                "allocation_id": f"{node}/{i}",
                "workload_id": "w",
                "pod": "p",
                "node": node,
                "gpu_uuid": f"{node}/gpu{i}",
                "share": (1000 - milli) / 1000,
                "started_at": begin,
            }
            for i, milli in enumerate(free)
            if milli < 1000
        ]
        if held:
            put("allocation", *held)

    return put_one


@pytest.fixture
def put_classes(put: Callable[..., None]) -> Callable[..., None]:
    """Request shapes as (cpu_milli, gpu_milli, num_gpu, model_set, pods), all submitted an hour before `at`."""

    def put_all(classes: list[tuple[int, int, int, str | None, int]], *, at: datetime) -> None:
        rows = [
            {
                "workload_id": f"class-{i}",
                "submitted_at": at - timedelta(hours=1),
                "started_at": at - timedelta(hours=1),
                "pod_count": pods,
                "num_gpu": num_gpu,
                "gpu_milli": gpu_milli,
                "cpu_milli": cpu_milli,
                "memory_mib": 0,
                "model_set": models,
            }
            for i, (cpu_milli, gpu_milli, num_gpu, models, pods) in enumerate(classes)
        ]
        put("workload", *rows)

    return put_all
