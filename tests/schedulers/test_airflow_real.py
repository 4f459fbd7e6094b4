"""Airflow 3.3.2 itself: tasks hold slots of pools, wait for slots, are put off; the snapshot says what Airflow says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.clock import SystemClock
from gpuledger.ports import SchedulerSnapshot
from schedulers.airflow import Airflow
from tests.schedulers.reading import check_snapshot, rows, timeless
from tests.servers.airflow import RealAirflow, airflow, until

DAG = """
from datetime import datetime, timedelta
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

STAYS = "while kill -0 $PPID; do sleep 1; done"  # as long as Airflow: each is a session of its own

with DAG("train", schedule=None, start_date=datetime(2026, 1, 1), max_active_tasks=16):
    for number in range(4):
        BashOperator(task_id=f"two{number}", bash_command=STAYS, pool="gpu", pool_slots=2)
    BashOperator(task_id="large", bash_command="sleep 1", pool="small", pool_slots=4)
    BashOperator(task_id="free", bash_command=STAYS, pool="any", pool_slots=3)
    BashOperator(task_id="cpu", bash_command="sleep 1", pool_slots=1000)
    BashOperator(task_id="retry", bash_command="exit 1", pool="any", retries=3, retry_delay=timedelta(hours=1))
    BashOperator.partial(task_id="mapped", pool="small", pool_slots=3).expand(bash_command=["sleep 1", "sleep 2"])
"""
"""Pool `gpu` has 5 slots, so two of four tasks of two slots run; `small` has 2, so nothing in it ever does.

Each task that runs costs seconds of a core to start: as few as can be do.
"""

pytestmark = pytest.mark.slow


def _states(server: RealAirflow) -> dict[str, str]:
    told = server.call("GET", "/dags/~/dagRuns/~/taskInstances", limit=100)["task_instances"]
    return {f"{one['task_id']}/{one['map_index']}": one["state"] for one in told}


def _settled(server: RealAirflow) -> bool:
    states = list(_states(server).items())
    two = sorted(state or "" for name, state in states if name.startswith("two"))
    rest = dict(states)
    return (
        two == ["running", "running", "scheduled", "scheduled"]
        and (rest.get("free/-1"), rest.get("cpu/-1"), rest.get("retry/-1")) == ("running", "scheduled", "up_for_retry")
        and (rest.get("mapped/0"), rest.get("mapped/1"), rest.get("large/-1")) == ("scheduled",) * 3
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealAirflow]:
    with airflow(tmp_path_factory.mktemp("airflow"), {"train": DAG}) as server:
        for name, slots in (("gpu", 5), ("any", -1), ("small", 2)):
            server.call("POST", "/pools", {"name": name, "slots": slots, "include_deferred": True})
        server.call("PATCH", "/dags/train", {"is_paused": False})
        server.call("POST", "/dags/train/dagRuns", {"logical_date": None, "dag_run_id": "r1"})
        until(lambda: _settled(server), "two of four run, the rest waits", lambda: _states(server))
        yield server


@pytest.fixture(scope="module")
def reader(server: RealAirflow) -> Airflow:
    options = {
        "url": server.url,
        "user": "viewer",
        "password_file": str(server.password_file("viewer")),
        "gpus_per_slot": {"gpu": 2, "any": 1, "small": 0.5},
    }
    return Airflow.from_options(options, rules=Rules(), clock=SystemClock())


@pytest.fixture(scope="module")
def snapshot(reader: Airflow) -> SchedulerSnapshot:
    return reader.snapshot()


def _workloads(snapshot: SchedulerSnapshot) -> dict[str, dict[str, Any]]:
    return {row["workload_id"].removeprefix("airflow/train/r1/"): row for row in rows(snapshot, "workload")}


def test_a_viewer_may_read_everything(snapshot: SchedulerSnapshot, reader: Airflow) -> None:
    assert str(snapshot.scope) == "complete"
    assert rows(snapshot, "quality_event") == []
    check_snapshot(snapshot, reader)


def test_pools_are_as_airflow_says(snapshot: SchedulerSnapshot, server: RealAirflow) -> None:
    quotas = {row["queue"]: (row["nominal_gpus"], row["limit_gpus"]) for row in rows(snapshot, "quota")}
    assert quotas == {"gpu": (10.0, 10.0), "any": (None, None), "small": (1.0, 1.0)}
    states = {
        row["queue"]: (row["running_gpus"], row["reserved_gpus"], row["pending_gpus"])
        for row in rows(snapshot, "queue_state")
    }
    assert states == {"gpu": (8.0, 0.0, 8.0), "any": (3.0, 0.0, 0.0), "small": (0.0, 0.0, 5.0)}
    told = {pool["name"]: pool for pool in server.call("GET", "/pools")["pools"]}
    for row in rows(snapshot, "queue_resource"):
        pool = told[row["queue"]]
        assert row["limit"] == (None if pool["slots"] == -1 else pool["slots"])
        assert (row["used"], row["reserved"]) == (pool["running_slots"], pool["queued_slots"])
        assert row["pending"] == pool["scheduled_slots"]


def test_pools_are_as_airflow_keeps_them(snapshot: SchedulerSnapshot, server: RealAirflow) -> None:
    told = server.keeps("SELECT pool, CAST(NULLIF(slots, -1) AS REAL) FROM slot_pool WHERE pool <> 'default_pool'")
    read = {row["queue"]: row["limit"] for row in rows(snapshot, "queue_resource")}
    assert read == dict(told)


def test_tasks_are_as_airflow_keeps_them(snapshot: SchedulerSnapshot, server: RealAirflow) -> None:
    names = {"running": "running", "pending": "scheduled", "held": "up_for_retry"}
    told = server.keeps("SELECT task_id, state, pool_slots FROM task_instance WHERE pool <> 'default_pool'")
    per_slot = {"gpu": 2, "any": 1, "small": 0.5}
    read = [
        (
            name.partition("/")[0],
            names[row["status"]],
            row["num_gpu"] * row["gpu_milli"] / 1000 / per_slot[row["queue"]],
        )
        for name, row in _workloads(snapshot).items()
    ]
    assert sorted(read) == sorted(told)


def test_who_waits_for_slots_says_so_in_airflows_words(snapshot: SchedulerSnapshot) -> None:
    found = _workloads(snapshot)
    waiting = {name: row for name, row in found.items() if name.startswith("two") and row["status"] == "pending"}
    assert len(waiting) == 2
    for row in waiting.values():
        assert row["pending_cause"] == "quota"
        assert row["pending_reason"] == (
            "Pool Slots Available: Not scheduling since there are 1 open slots in pool gpu and require 2 pool slots"
        )
        assert (row["num_gpu"], row["gpu_milli"], row["pod_count"]) == (4, 1000, 1)
        assert row["eligible_at"] is not None
        assert row["started_at"] is None
    assert found["large"]["pending_cause"] == "exceeds_max"
    assert found["mapped/0"]["pending_cause"] == found["mapped/1"]["pending_cause"] == "exceeds_max"
    assert (found["mapped/0"]["num_gpu"], found["mapped/0"]["gpu_milli"]) == (2, 750)
    assert (found["retry"]["status"], found["retry"]["pending_cause"]) == ("held", "held")
    assert found["retry"]["pending_reason"] == "up_for_retry"


def test_times_are_airflows(snapshot: SchedulerSnapshot, server: RealAirflow) -> None:
    task = server.call("GET", "/dags/train/dagRuns/r1/taskInstances/free")
    events = {row["kind"]: row["ts"] for row in rows(snapshot, "workload_event") if row["workload_id"].endswith("free")}
    fields = (("submitted", "run_after"), ("eligible", "scheduled_when"), ("admitted", "queued_when"))
    for kind, field in (*fields, ("started", "start_date")):
        assert events[kind].isoformat().replace("+00:00", "Z") == task[field]
    assert list(events) == ["submitted", "eligible", "admitted", "started"]


def test_nothing_changed_and_nothing_is_said_to_have(reader: Airflow, snapshot: SchedulerSnapshot) -> None:
    again = reader.snapshot()
    assert timeless(again) == timeless(snapshot)
    assert again.version == snapshot.version


def test_slots_taken_away_under_running_tasks_are_no_loan(reader: Airflow, server: RealAirflow) -> None:
    body = {"name": "gpu", "slots": 1, "include_deferred": True}
    server.call("PATCH", "/pools/gpu", body, update_mask="slots")
    try:
        after = reader.snapshot()
    finally:
        server.call("PATCH", "/pools/gpu", {**body, "slots": 5}, update_mask="slots")
    check_snapshot(after, reader)
    state = next(row for row in rows(after, "queue_state") if row["queue"] == "gpu")
    assert (state["nominal_gpus"], state["running_gpus"], state["borrowed_gpus"]) == (2.0, 8.0, 0.0)
    told = [(row["kind"], row["subject"], row["count"]) for row in rows(after, "quality_event")]
    assert told == [("limit_not_enforced", "gpu", 4)]
    assert {row["pending_cause"] for name, row in _workloads(after).items() if row["status"] == "pending"} == {
        "exceeds_max"
    }
