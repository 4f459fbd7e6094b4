"""Quotas of queues above others, of users and of namespaces: each GPU of a quota counts once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.model import NodeState, Queue, QueueState, Quota, Window
from gpuledger.testing import FakeClock
from tests.warehouse.test_holds import AT, at, put
from warehouse import Warehouse

NONE: dict[str, Any] = {"outage_from_ats": [], "outage_until_ats": []}


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


def a_queue(house: Warehouse, name: str, parent: str | None, running: float | None = None, **limits: Any) -> None:
    put(house, "queue", [Queue(queue=name, tenant=name, scheduler="slurm", parent=parent)])
    put(house, "quota", [Quota(queue=name, tenant=name, from_at=at(-60), **limits)])
    if running is not None:
        state: dict[str, Any] = {"ts": at(0), "duration_seconds": 3600, "running_gpus": running, "pending_gpus": 0.0}
        put(
            house,
            "queue_state",
            [QueueState(queue=name, tenant=name, nominal_gpus=limits.get("nominal_gpus"), **state)],
        )


@pytest.fixture
def accounts(house: Warehouse) -> Warehouse:
    """64 GPUs of a department, of which its teams have 40 and 24, one of them with limits of users."""
    a_queue(house, "root", None, 0.0)
    a_queue(house, "lab", "root", 0.0, nominal_gpus=64.0, limit_gpus=64.0)
    a_queue(house, "lab/a", "lab", 32.0, nominal_gpus=40.0, limit_gpus=40.0)
    a_queue(house, "lab/b", "lab", 24.0, nominal_gpus=24.0, limit_gpus=24.0)
    a_queue(house, "lab/a/user/ann", "lab/a", limit_gpus=4.0)
    a_queue(house, "lab/a/per-job", "lab/a", limit_gpus=8.0)
    a_queue(house, "qos/high", None, limit_gpus=16.0)
    a_queue(house, "qos/normal", None)
    return house


def test_limits_of_users_and_jobs_are_no_quotas_and_hide_none(accounts: Warehouse) -> None:
    (row,) = accounts.query("unused_quota", at=at(5)).to_pylist()
    assert (row["quota_gpus"], row["used_gpus"], row["unused_quota_gpus"]) == (64, 56, 8)
    assert (row["unlimited_queue_count"], row["unreported_queue_count"]) == (1, 0)  # qos/normal


def test_a_department_whose_teams_hold_its_quota_leaves_none_of_it_idle(accounts: Warehouse) -> None:
    found = accounts.query("quota_hourly", from_at=at(0), to_at=at(60), **NONE).to_pylist()
    assert {row["queue"]: (row["nominal_gpu_hours"], row["idle_gpu_hours"]) for row in found} == {
        "lab/a": (40, 8),
        "lab/b": (24, 0),
    }


@pytest.mark.parametrize(("usable", "value"), [(63.0, [64.0]), (64.0, [])])
def test_quotas_beyond_the_cards_are_told_for_each_hour(accounts: Warehouse, usable: float, value: list[float]) -> None:
    node: dict[str, Any] = {"capacity": 64.0, "allocatable": usable, "allocated": 56.0, "free": usable - 56}
    put(accounts, "node_state", [NodeState(scheduler="slurm", node="n", resource="gres_gpu", from_at=at(-60), **node)])
    accounts.build_ledger(Window(at(0), at(120)), until_at=at(120))
    given: dict[str, Any] = {"kind": "over_promised", "from_at": at(0), "to_at": at(120), "limit_count": 9}
    found = accounts.query("quality_list", **given).to_pylist()
    assert [row["value"] for row in found] == 2 * value
    assert {(row["source"], row["subject"], row["count"]) for row in found} <= {("slurm", "slurm", 1)}
