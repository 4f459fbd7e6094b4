"""From when on a batch tells the ledger something new, and that a restart remembers it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from gpuledger.app.service import Service
from gpuledger.config import Settings
from gpuledger.model import RECORDS, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


def allocation(**changed: Any) -> Any:
    row = {"workload_id": "w", "pod": "p", "node": "n", "gpu_uuid": "g", "share": 1.0, "started_at": AT, "ready_at": AT}
    return to_table("allocation", [RECORDS["allocation"].cls(allocation_id="a", **{**row, **changed})])


def test_only_what_changed_is_told() -> None:
    with Warehouse.open(None, clock=FakeClock(AT + 10 * HOUR)) as house:
        told = [
            house.ingest("allocation", table, str(number)).earliest_at
            for number, table in enumerate(
                [
                    allocation(),
                    allocation(),
                    allocation(ended_at=AT + 3 * HOUR),
                    allocation(ended_at=AT + 2 * HOUR),
                    allocation(ended_at=AT + 2 * HOUR, share=0.5),
                ]
            )
        ]
    assert told == [AT, None, AT + 3 * HOUR, AT + 2 * HOUR, AT]


def reading(at: datetime) -> Any:
    row = {"node": "n", "gpu_uuid": "g", "source": "s", "interval_seconds": 60.0, "gpu_util_ratio": 0.5}
    return to_table("reading", [RECORDS["reading"].cls(ts=at, **row)])


def test_a_restart_remembers_what_was_not_built(tmp_path: Path) -> None:
    settings = Settings(warehouse=tmp_path / "w.duckdb")
    clock = FakeClock(AT + 10 * HOUR)
    service = Service.open(settings, clock)
    service.ingest("allocation", allocation(), "1")
    service.ingest("reading", reading(AT + 4 * HOUR), "2")
    service.build_ledger(Window(AT, AT + 5 * HOUR))
    service.close()
    clock.advance(60)
    service = Service.open(settings, clock)
    assert service.dirt.take(clock.now(), None, timedelta()) is None
    service.ingest("reading", reading(AT + HOUR), "3")
    service.close()
    service = Service.open(settings, clock)
    assert service.dirt.take(clock.now(), None, timedelta()) == AT + HOUR
    service.close()
