from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from gpuledger.errors import SchedulerError
from gpuledger.model import Quota, QuotaChange, to_table
from gpuledger.testing import FakeClock
from schedulers.fake import FakeScheduler

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)


def _quota(flavor: str, gpus: float, days: int = 0) -> Quota:
    return Quota(queue="q", tenant="t", flavor=flavor, nominal_gpus=gpus, from_at=BEGIN + timedelta(days=days))


def test_flavors_are_apart_and_the_latest_record_counts() -> None:
    table = to_table("quota", [_quota("h100", 9, days=1), _quota("h100", 8), _quota("l40s", 2)])
    scheduler = FakeScheduler.from_quotas(table, clock=FakeClock())
    assert (scheduler.quota("q", "h100"), scheduler.quota("q", "l40s")) == (9, 2)
    with pytest.raises(SchedulerError, match="queue/q"):
        scheduler.quota("q")


def test_remembers_its_writes_in_order() -> None:
    scheduler = FakeScheduler({("a", ""): 4, ("b", ""): 4}, {"a": "t", "b": "t"}, clock=FakeClock())
    changes = [
        QuotaChange(queue=queue, tenant="t", flavor="", nominal_gpus_before=4, nominal_gpus_after=after)
        for queue, after in (("a", 5.0), ("b", 3.0))
    ]
    plan = scheduler.plan(changes)
    scheduler.apply(plan)
    scheduler.undo(plan)
    assert scheduler.written == ["queue/b", "queue/a", "queue/a", "queue/b"]
    assert scheduler.version == "5"
