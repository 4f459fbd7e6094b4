"""What every scheduler adapter must do. One joins with a line in `SCHEDULERS`: how to make it, and how to harm it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from gpuledger.errors import ApplyFailed, BadInput, SchedulerError, StaleSnapshot
from gpuledger.model import Quota, QuotaChange, arrow_schema, to_table
from gpuledger.ports import Scheduler
from gpuledger.testing import FakeClock
from schedulers.fake import FakeScheduler

QUOTAS = {"giver": 20.0, "taker": 10.0, "other": 5.0}


@dataclass(frozen=True)
class Bench:
    """A scheduler with `QUOTAS`, one write by somebody else, and a way to let the writes of one queue fail."""

    scheduler: Scheduler
    interfere: Callable[[str, float], None]
    break_writes_of: Callable[[str], None]


def _fake() -> Bench:
    begin = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [Quota(queue=q, tenant=f"team-{q}", nominal_gpus=gpus, from_at=begin) for q, gpus in QUOTAS.items()]
    scheduler = FakeScheduler.from_quotas(to_table("quota", rows), clock=FakeClock())

    def break_writes_of(queue: str) -> None:
        scheduler.fault = lambda step: "refused by the test" if step.change.queue == queue else None

    return Bench(scheduler, scheduler.set_quota, break_writes_of)


SCHEDULERS: Mapping[str, Callable[[], Bench]] = {"fake": _fake}


@pytest.fixture(params=sorted(SCHEDULERS))
def bench(request: pytest.FixtureRequest) -> Bench:
    return SCHEDULERS[request.param]()


def _change(queue: str, before: float, after: float) -> QuotaChange:
    return QuotaChange(
        queue=queue, tenant=f"team-{queue}", flavor="", nominal_gpus_before=before, nominal_gpus_after=after
    )


MOVE = (_change("taker", 10, 14), _change("giver", 20, 16))


def _quotas(scheduler: Scheduler) -> dict[str, float]:
    rows = scheduler.snapshot().records["quota"].to_pylist()
    return {row["queue"]: row["nominal_gpus"] for row in rows}


def test_reads_queues_and_quotas(bench: Bench) -> None:
    snapshot = bench.scheduler.snapshot()
    assert _quotas(bench.scheduler) == QUOTAS
    assert {row["queue"]: row["tenant"] for row in snapshot.records["queue"].to_pylist()} == {
        queue: f"team-{queue}" for queue in QUOTAS
    }
    for name, table in snapshot.records.items():
        assert table.schema == arrow_schema(name)
    assert snapshot.taken_at.tzinfo is not None


def test_plans_donors_first_from_the_version_it_read(bench: Bench) -> None:
    plan = bench.scheduler.plan(MOVE)
    assert [step.change.queue for step in plan.steps] == ["giver", "taker"]
    assert plan.version == bench.scheduler.snapshot().version
    assert plan.scheduler == bench.scheduler.name


def test_planning_and_dry_run_change_nothing(bench: Bench) -> None:
    version = bench.scheduler.snapshot().version
    plan = bench.scheduler.plan(MOVE)
    tried = bench.scheduler.dry_run(plan)
    assert tried.accepted
    assert len(tried.messages) == len(plan.steps)
    assert _quotas(bench.scheduler) == QUOTAS
    assert bench.scheduler.snapshot().version == version
    assert not bench.scheduler.verify(plan)


def test_applies_and_verifies(bench: Bench) -> None:
    plan = bench.scheduler.plan(MOVE)
    bench.scheduler.apply(plan)
    assert _quotas(bench.scheduler) == {"giver": 16, "taker": 14, "other": 5}
    assert bench.scheduler.verify(plan)


def test_refuses_a_plan_from_a_wrong_before(bench: Bench) -> None:
    with pytest.raises(StaleSnapshot, match="giver"):
        bench.scheduler.plan([_change("giver", 19, 16)])


def test_refuses_a_stale_write_and_writes_nothing(bench: Bench) -> None:
    plan = bench.scheduler.plan(MOVE)
    bench.interfere("taker", 11)
    assert not bench.scheduler.dry_run(plan).accepted
    with pytest.raises(StaleSnapshot):
        bench.scheduler.apply(plan)
    assert _quotas(bench.scheduler) == {**QUOTAS, "taker": 11}


def test_a_plan_is_applied_once(bench: Bench) -> None:
    plan = bench.scheduler.plan(MOVE)
    bench.scheduler.apply(plan)
    with pytest.raises(StaleSnapshot):
        bench.scheduler.apply(plan)


def test_a_partial_failure_is_compensated(bench: Bench) -> None:
    plan = bench.scheduler.plan(MOVE)
    bench.break_writes_of("taker")
    with pytest.raises(ApplyFailed, match="taker") as caught:
        bench.scheduler.apply(plan)
    assert caught.value.compensated == (plan.steps[0].target,)
    assert _quotas(bench.scheduler) == QUOTAS
    assert not bench.scheduler.verify(plan)


def test_a_failure_of_the_first_write_compensates_nothing(bench: Bench) -> None:
    plan = bench.scheduler.plan(MOVE)
    bench.break_writes_of("giver")
    with pytest.raises(ApplyFailed) as caught:
        bench.scheduler.apply(plan)
    assert caught.value.compensated == ()
    assert _quotas(bench.scheduler) == QUOTAS


def test_undo_restores(bench: Bench) -> None:
    plan = bench.scheduler.plan(MOVE)
    bench.scheduler.apply(plan)
    bench.scheduler.undo(plan)
    assert _quotas(bench.scheduler) == QUOTAS
    assert not bench.scheduler.verify(plan)


def test_undo_does_not_overwrite_what_somebody_changed_since(bench: Bench) -> None:
    plan = bench.scheduler.plan(MOVE)
    bench.scheduler.apply(plan)
    bench.interfere("taker", 30)
    with pytest.raises(StaleSnapshot, match="taker"):
        bench.scheduler.undo(plan)
    assert _quotas(bench.scheduler) == {"giver": 16, "taker": 30, "other": 5}


def test_refuses_what_cannot_be_a_quota(bench: Bench) -> None:
    with pytest.raises(SchedulerError, match="nobody"):
        bench.scheduler.plan([_change("nobody", 1, 2)])
    with pytest.raises(BadInput, match="less than no quota"):
        bench.scheduler.plan([_change("giver", 20, -1)])
    with pytest.raises(BadInput, match="named twice"):
        bench.scheduler.plan([_change("giver", 20, 19), _change("giver", 20, 18)])


def test_an_empty_plan_is_accepted_and_does_nothing(bench: Bench) -> None:
    plan = bench.scheduler.plan([])
    assert bench.scheduler.dry_run(plan).accepted
    bench.scheduler.apply(plan)
    assert bench.scheduler.verify(plan)
    assert _quotas(bench.scheduler) == QUOTAS
