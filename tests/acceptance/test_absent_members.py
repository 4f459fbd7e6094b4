"""Members of a job that run no process, when only Kubernetes says that they hold cards: problems 100 and 104."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.model import RECORDS
from tests.acceptance.house import AT, MINUTE, House, listed, minutes


def answer(house: House, node: str, cards: Sequence[str], hours: int, *, ok: bool, util: float | None) -> None:
    """A source that shows cards with a process only; without `util` there is none. The cards are declared."""
    assets = [RECORDS["asset"].cls(gpu_uuid=card, node=node, status="in_service", from_at=AT) for card in cards]
    house.put("asset", assets)
    times = minutes(AT, AT + hours * 60 * MINUTE)
    read = {"node": node, "source": "jobs", "interval_seconds": 60.0}
    house.put("source_read", [RECORDS["source_read"].cls(ts=at, scope="process", ok=ok, **read) for at in times])
    if util is not None:
        rows = [
            RECORDS["reading"].cls(ts=at, gpu_uuid=card, gpu_util_ratio=util, **read) for at in times for card in cards
        ]
        house.put("reading", rows)


@pytest.mark.parametrize("ok", [True, False])
def test_100_held_without_process_and_without_allocations(house: House, *, ok: bool) -> None:
    idle, busy = [f"i{i}" for i in range(8)], [f"w{i}" for i in range(8)]
    answer(house, "a", idle, 3, ok=ok, util=None)
    answer(house, "b", busy, 3, ok=True, util=0.8)
    before = AT - timedelta(hours=1)
    page = listed("hpc", "job-800", "a", gpus=8, started=before) + listed("hpc", "job-801", "b", gpus=8, started=before)
    house.list_pods(dict.fromkeys(minutes(AT, AT + 181 * MINUTE, 5 * MINUTE), page))
    by_job = house.hours("workload_id", "state", hours=3)
    state = "alloc_idle" if ok else "alloc_unknown"
    assert by_job["hpc/job-800", state] == pytest.approx(24.0)
    assert sum(by_job.values()) == pytest.approx(48.0)
    assert house.rate("gpu_util_of_held", hours=3) == pytest.approx(0.4 if ok else 0.8)
    assert house.rate("coverage", hours=3) == pytest.approx(1.0 if ok else 0.5)


@pytest.mark.parametrize("ok", [True, False])
def test_104_a_member_without_rows(house: House, *, ok: bool) -> None:
    answer(house, "n1", ["n1-0", "n1-1"], 1, ok=True, util=1.0)
    answer(house, "n2", ["n2-0", "n2-1"], 1, ok=ok, util=None)
    before = AT - timedelta(hours=1)
    gang: dict[str, Any] = {"label_training_kubeflow_org_job_name": "mn-1"}
    page = "".join(listed("hpc", f"mn-1-worker-{n}", f"n{n + 1}", gpus=2, started=before, **gang) for n in (0, 1))
    house.list_pods(dict.fromkeys(minutes(AT, AT + 61 * MINUTE, 5 * MINUTE), page))
    assert house.hours("workload_id") == {"hpc/mn-1": pytest.approx(4.0)}
    assert house.hours("node", "state")["n2", "alloc_idle" if ok else "alloc_unknown"] == pytest.approx(2.0)
    assert house.rate("gpu_util_of_held") == pytest.approx(0.5 if ok else 1.0)
    assert house.rate("coverage") == pytest.approx(1.0 if ok else 0.5)
