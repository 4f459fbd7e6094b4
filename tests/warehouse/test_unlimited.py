"""Quotas without a limit and waits that nobody told: old files learn them, and nobody judges by them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from gpuledger.model import QueueState, Quota
from gpuledger.testing import FakeClock
from tests.warehouse.test_holds import AT, at, put
from warehouse import Warehouse
from warehouse.queries import SQL_ROOT


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


def test_a_file_from_before_keeps_its_quotas_queues_workloads_and_states(tmp_path: Path) -> None:
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as old:
        old.execute("create table schema_migration (name varchar primary key, applied_at timestamptz not null)")
        for script in sorted((SQL_ROOT / "schema").glob("000[1-6]_*.sql")):
            old.execute(script.read_text(encoding="utf-8"))
            old.execute("insert into schema_migration values ($name, now())", {"name": script.stem})
        old.execute("insert into quota values ('q', 't', '', 8, null, 0, 1, 1, '2026-03-01', null)")
        old.execute("insert into queue values ('q', 't', 'c', 'k')")
        old.execute("insert into queue_state values ('2026-03-02', 'q', 't', 60, 8, 4, 2)")
        old.execute(
            "insert into workload by name select 'w' as workload_id, 'batch' as kind, 'other' as stage, 't' as tenant, "
            "'q' as queue, '2026-03-01'::timestamptz as submitted_at, 1 as pod_count, 2 as num_gpu, 1000 as gpu_milli, "
            "0 as cpu_milli, 0 as memory_mib, 0 as min_replicas, 0 as priority, false as is_gang"
        )
    with Warehouse.open(path) as house, house.reading() as cursor:
        quota = cursor.execute(
            "select nominal_gpus, lending_limit_gpus, limit_gpus, not_reported from quota"
        ).fetchall()
        assert quota == [(8.0, 0.0, None, "")]
        assert cursor.execute("select cohort, parent, status from queue").fetchall() == [("c", None, "open")]
        states = cursor.execute("select pending_gpus, borrowed_gpus from queue_state").fetchall()
        assert states == [(2.0, None)]
        work = cursor.execute("select num_gpu, scheduler, status, attempt, pending_cause from workload").fetchall()
        assert work == [(2, "", "unknown", 0, None)]


def hour(house: Warehouse) -> dict[str, Any]:
    given = {"from_at": AT, "to_at": at(60), "outage_from_ats": [], "outage_until_ats": []}
    (row,) = house.query("quota_hourly", **given).to_pylist()
    return row


def a_state(**more: Any) -> QueueState:
    return QueueState(ts=AT, queue="q", tenant="t", duration_seconds=3600, running_gpus=6, **more)


def test_an_unlimited_flavor_makes_the_whole_quota_unknown(house: Warehouse) -> None:
    limits = (("a", 4.0), ("b", None))
    put(house, "quota", [Quota(queue="q", tenant="t", flavor=f, nominal_gpus=n, from_at=at(-60)) for f, n in limits])
    put(house, "queue_state", [a_state(pending_gpus=2)])
    row = hour(house)
    assert (row["nominal_known_hours"], row["unmet_gpu_hours"], row["idle_gpu_hours"]) == (0, 0, 0)
    assert (row["demand_known_hours"], row["demand_gpu_hours"]) == (1, 8)


def test_a_limit_that_was_lifted_is_not_the_one_before(house: Warehouse) -> None:
    before = Quota(queue="q", tenant="t", nominal_gpus=4, from_at=at(-60))
    put(house, "quota", [before, Quota(queue="q", tenant="t", from_at=at(30))])
    put(house, "queue_state", [a_state(pending_gpus=0)])
    row = hour(house)
    assert (row["nominal_known_hours"], row["unmet_gpu_hours"]) == (0.5, 1)


def test_where_nobody_said_what_waits_demand_is_unknown_and_not_what_ran(house: Warehouse) -> None:
    put(house, "quota", [Quota(queue="q", tenant="t", nominal_gpus=8, from_at=at(-60))])
    put(house, "queue_state", [a_state()])
    row = hour(house)
    assert (row["demand_known_hours"], row["demand_gpu_hours"], row["max_demand_gpus"]) == (0, 0, None)
    assert (row["idle_gpu_hours"], row["idle_quota_gpu_hours"], row["pending_gpu_hours"]) == (2, 0, 0)
