"""What schedulers said, asked back: quotas that are unlimited or not told, promises, waits and their causes, owners."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.model import (
    Node,
    NodeState,
    Pod,
    Queue,
    QueueResource,
    QueueState,
    Quota,
    SchedulerNode,
    Wait,
    Window,
    Workload,
    WorkloadEvent,
)
from gpuledger.testing import FakeClock
from tests.warehouse.test_hold_times import assets
from tests.warehouse.test_holds import AT, at, cards, pod, put, sight
from warehouse import Warehouse

SHAPE: dict[str, Any] = {"gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


def rows(house: Warehouse, name: str, **given: Any) -> list[dict[str, Any]]:
    return house.query(name, **given).to_pylist()


def over(hours: float = 2, **more: Any) -> dict[str, Any]:
    return {"from_at": AT, "to_at": AT + timedelta(hours=hours), **more}


def a_queue(house: Warehouse, name: str, running: float | None = None, **quota: Any) -> None:
    scheduler = quota.pop("scheduler", "volcano")
    put(house, "queue", [Queue(queue=name, tenant=name, scheduler=scheduler, parent=quota.pop("parent", None))])
    pending = quota.pop("pending_gpus", 0.0)
    if quota:
        put(house, "quota", [Quota(queue=name, tenant=name, from_at=at(-60), **quota)])
    if running is not None:
        state = {"ts": at(0), "duration_seconds": 600, "running_gpus": running, "pending_gpus": pending}
        put(house, "queue_state", [QueueState(queue=name, tenant=name, **state)])


def a_node(house: Warehouse, name: str, capacity: float, allocatable: float, allocated: float, **more: Any) -> None:
    given = {"scheduler": "volcano", "resource": "nvidia_com_gpu", "from_at": at(-60), **more}
    free = given.pop("free", allocatable - allocated)
    state = NodeState(node=name, capacity=capacity, allocatable=allocatable, allocated=allocated, free=free, **given)
    put(house, "node_state", [state])


def work(name: str, **more: Any) -> Workload:
    given = {
        "submitted_at": AT,
        "pod_count": 1,
        "num_gpu": 2,
        "scheduler": "slurm",
        "queue": "q",
        "tenant": "t",
        **more,
    }
    return Workload(workload_id=name, **SHAPE, **given)


def promised(house: Warehouse) -> dict[str, Any]:
    (row,) = rows(house, "unused_quota", at=at(5))
    return row


def test_no_more_can_be_promised_than_is_free(house: Warehouse) -> None:
    """Problem 080: 32 GPUs, 4 of them unhealthy; quotas 16 + 16 + 8, used 12 + 12 + 0."""
    for number, allocated in enumerate((8, 8, 8, 0)):
        a_node(house, f"n{number}", 8, 4 if number == 3 else 8, allocated)
    for name, nominal, running in (("a", 16, 12), ("b", 16, 12), ("c", 8, 0)):
        a_queue(house, name, running, nominal_gpus=nominal)
    found = promised(house)
    assert round(found.pop("oversubscription_ratio"), 2) == 1.43
    assert found == {
        "scheduler": "volcano",
        "capacity_gpus": 32,
        "usable_gpus": 28,
        "free_gpus": 4,
        "quota_gpus": 40,
        "unlimited_queue_count": 0,
        "unreported_queue_count": 0,
        "used_gpus": 24,
        "unused_quota_gpus": 16,
        "promisable_gpus": 4,
    }


def test_a_queue_without_a_limit_adds_nothing_to_a_sum_of_quotas(house: Warehouse) -> None:
    """Problem 076: the root's quota is "unlimited", 4 + 2 are the teams': the sum is 6."""
    a_queue(house, "root", nominal_gpus=None)
    a_queue(house, "team", 6.0, nominal_gpus=4, parent="root")
    a_queue(house, "other", 0.0, nominal_gpus=2, limit_gpus=2, parent="root")
    a_queue(house, "untold", 1.0, nominal_gpus=None, not_reported="nominal_gpus")
    found = promised(house)
    assert (found["quota_gpus"], found["unused_quota_gpus"], found["unreported_queue_count"]) == (6, 2, 1)
    assert (found["free_gpus"], found["promisable_gpus"], found["oversubscription_ratio"]) == (None, None, None)
    queues = {row["queue"]: row for row in rows(house, "queue_usage", at=at(5))}
    assert [queues[name]["nominal_is"] for name in ("root", "team", "other", "untold")] == [
        "unlimited",
        "set",
        "set",
        "not_reported",
    ]
    assert (queues["team"]["unused_gpus"], queues["team"]["limit_is"]) == (0, "unlimited")
    assert queues["root"]["unused_gpus"] is None


def test_quotas_above_others_count_once_but_those_of_a_kueue_cohort_are_its_own(house: Warehouse) -> None:
    a_queue(house, "root", nominal_gpus=10)
    a_queue(house, "leaf", 1.0, nominal_gpus=10, parent="root")
    a_queue(house, "cohort", nominal_gpus=3, scheduler="kueue")
    a_queue(house, "cq", 1.0, nominal_gpus=5, parent="cohort", scheduler="kueue")
    found = {row["scheduler"]: row["quota_gpus"] for row in rows(house, "unused_quota", at=at(5))}
    assert found == {"kueue": 8, "volcano": 10}


def test_usage_over_a_window_knows_how_long_it_was_told(house: Warehouse) -> None:
    states = [
        QueueState(ts=at(0), queue="q", tenant="t", duration_seconds=1800, running_gpus=4, pending_gpus=2),
        QueueState(ts=at(30), queue="q", tenant="t", duration_seconds=900, running_gpus=8, borrowed_gpus=4),
    ]
    put(house, "queue_state", states)
    (row,) = rows(house, "queue_usage_hours", **over(1))
    assert (row["covered_hours"], row["running_gpu_hours"], row["max_running_gpus"]) == (0.75, 4.0, 8)
    assert (row["pending_gpu_hours"], row["pending_known_hours"]) == (1.0, 0.5)
    assert (row["borrowed_gpu_hours"], row["lent_gpu_hours"]) == (1.0, None)


def test_figures_of_a_scheduler_are_told_as_they_are(house: Warehouse) -> None:
    put(house, "queue", [Queue(queue="q", tenant="t", scheduler="volcano")])
    figures: dict[str, Any] = {"nominal": 1.0, "limit": 1.0, "used": 2048.0, "from_at": at(-5)}
    put(house, "queue_resource", [QueueResource(queue="q", resource="volcano.sh/vgpu-memory", **figures)])
    (row,) = rows(house, "queue_resources", at=at(0))
    assert (row["resource"], row["used"], row["limit"], row["pending"]) == ("volcano.sh/vgpu-memory", 2048, 1, None)


def test_waits_for_a_dependency_are_no_lack_of_gpus(house: Warehouse) -> None:
    """Problem 095: submitted 00:00, eligible 08:00, started 09:00; and 01:00, 03:00, 03:15."""
    day = datetime(2026, 3, 2, tzinfo=UTC)

    def hour(value: float) -> datetime:
        return day + timedelta(hours=value)

    jobs = (("701", 0, 8, 9, "dependency"), ("702", 1, 3, 3.25, "held"))
    for job, submitted, eligible, started, cause in jobs:
        times = {"submitted_at": hour(submitted), "eligible_at": hour(eligible), "started_at": hour(started)}
        put(house, "workload", [work(job, status="running", **times)])
        own = Wait(workload_id=job, from_at=hour(submitted), until_at=hour(eligible), cause=cause, gpus=2)
        real = Wait(workload_id=job, from_at=hour(eligible), until_at=hour(started), cause="capacity", gpus=2)
        put(house, "wait", [own, real])
    span = {"from_at": day, "to_at": hour(24)}
    found = {row["cause"]: row for row in rows(house, "waits", **span)}
    assert {cause: row["wait_hours"] for cause, row in found.items()} == {"dependency": 8, "held": 2, "capacity": 1.25}
    assert found["capacity"]["mean_wait_hours"] == 0.625
    assert [found[cause]["blame"] for cause in ("dependency", "held", "capacity")] == ["user", "user", "capacity"]
    assert [cause for cause, row in found.items() if row["is_bottleneck"]] == ["capacity"]
    assert found["capacity"]["gpu_hours"] == 2.5
    each = {row["workload_id"]: row for row in rows(house, "workload_waits", **span, limit_count=10)}
    assert [(each[job]["own_wait_hours"], each[job]["resource_wait_hours"]) for job in ("701", "702")] == [
        (8, 1),
        (2, 0.25),
    ]
    total = sum(row["total_wait_hours"] for row in each.values()) / 2
    assert round(total, 1) == 5.6


def test_an_open_wait_lasts_to_the_end_of_the_window_and_the_later_reason_counts(house: Warehouse) -> None:
    put(house, "workload", [work("w", status="pending")])
    waits = [
        Wait(workload_id="w", from_at=at(0), cause="quota", reason="QuotaReserved"),
        Wait(workload_id="w", from_at=at(60), cause="topology", reason="Topology"),
    ]
    put(house, "wait", waits)
    found = {
        row["cause"]: (row["wait_hours"], row["gpu_hours"], row["open_count"]) for row in rows(house, "waits", **over())
    }
    assert found == {"quota": (1, 2, 0), "topology": (1, 2, 1)}


def test_who_says_nothing_of_when_it_could_start_has_an_unknown_wait_for_resources(house: Warehouse) -> None:
    waiting = work("w", status="pending"), work("h", status="held")
    put(house, "workload", waiting)
    each = {row["workload_id"]: row for row in rows(house, "workload_waits", **over(), limit_count=10)}
    assert (each["w"]["resource_wait_hours"], each["w"]["total_wait_hours"]) == (None, 2)
    assert (each["h"]["resource_wait_hours"], each["h"]["own_wait_hours"]) == (0, 2)


def test_preemptions_say_for_whom_and_what_may_be_lost(house: Warehouse) -> None:
    put(house, "workload", [work("w", pod_count=2)])
    events = [
        WorkloadEvent(workload_id="w", ts=at(0), kind="started"),
        WorkloadEvent(workload_id="w", ts=at(30), kind="preempted", reason="InClusterQueue", beneficiary="t/vip"),
        WorkloadEvent(workload_id="x", ts=at(40), kind="evicted"),
        WorkloadEvent(workload_id="w", ts=at(41), kind="finished"),
    ]
    put(house, "workload_event", events)
    latest, first = rows(house, "preemptions", **over())
    assert (first["workload_id"], first["beneficiary"], first["ran_hours"], first["ran_gpu_hours"]) == (
        "w",
        "t/vip",
        0.5,
        2,
    )
    assert (latest["workload_id"], latest["ran_hours"], latest["gpus"]) == ("x", None, None)


def test_a_node_has_what_its_scheduler_said_last(house: Warehouse) -> None:
    put(house, "node", [Node(node="n", pool="h100", gpu_count=8, from_at=at(-60))])
    a_node(house, "n", 8, 8, 2, until_at=at(0))
    a_node(house, "n", 8, 7, 3, from_at=at(0), free=0.0, is_schedulable=False, reason="cordoned")
    before, now = (rows(house, "node_capacity", at=at(minute)) for minute in (-1, 1))
    assert [row["free"] for row in before] == [6]
    assert [(row["pool"], row["allocatable"], row["free"], row["reason"]) for row in now] == [
        ("h100", 7, 0, "cordoned")
    ]


def test_held_hours_without_a_tenant_are_listed_by_card(house: Warehouse) -> None:
    """Two cards for two hours: one is a tenant's, the other nobody's."""
    assets(house, "a", "b")
    cards(house, ["a", "b"], hours=2)
    for card in ("a", "b"):
        sight(house, card, f"p{card}", range(120))
        pod(house, f"p{card}", 0, 120, workload_id=f"w{card}", seen_at=at(120))
    put(house, "workload", [work("wa", num_gpu=1), work("wb", num_gpu=1, tenant="")])
    assert house.build_ledger(Window(AT, at(120)), until_at=at(120)).violations == 0
    (ratio,) = rows(house, "owned_ratio", **over())
    assert (ratio["held_gpu_hours"], ratio["unowned_gpu_hours"], ratio["owned_ratio"]) == (4, 2, 0.5)
    listed = rows(house, "unowned_hours", **over())
    assert [(row["gpu_uuid"], row["hour_at"], row["gpu_hours"], row["why"]) for row in listed] == [
        ("b", at(0), 1, "no_tenant"),
        ("b", at(60), 1, "no_tenant"),
    ]


def test_what_scheduler_assets_and_telemetry_say_is_compared(house: Warehouse) -> None:
    """Two cards on the list, both at work; two schedulers count three, one was given away, pods ask for four."""
    assets(house, "a", "b")
    cards(house, ["a", "b"])
    for scheduler in ("volcano", "kubernetes/default"):
        put(house, "scheduler_node", [SchedulerNode(scheduler=scheduler, node="n", gpu_count=3, from_at=at(-60))])
    a_node(house, "n", 3, 3, 1)
    asked: dict[str, Any] = {"namespace": "t", "node": "n", "gpu_count": 2.0, "resource": "nvidia_com_gpu"}
    pods = [Pod(uid=x, pod=x, phase="Running", started_at=at(0), seen_at=at(58), **asked) for x in ("p", "q")]
    put(house, "pod", pods)
    house.build_ledger(Window(AT, at(60)), until_at=at(60))
    found = {row["kind"]: row["gpu_count"] for row in rows(house, "inventory_differences")}
    assert found == {"scheduler_count": 1, "busy_while_free": 1, "over_capacity": 1}
