"""From an event on a card to a finding that names its job: one pass, before any ledger; late or repeated is nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from gpuledger.app.faults import RULE, FaultWatch
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api, a_reading, a_table

JOB = {"workload_id": "job", "kind": "training", "tenant": "", "pod_count": 1, "num_gpu": 1, "gpu_milli": 1000}
LATER = {"cpu_milli": 0, "memory_mib": 0, "submitted_at": NOW - timedelta(hours=3)}


@pytest.fixture
def watched(api: Api) -> tuple[FaultWatch, list[dict[str, Any]]]:
    told: list[dict[str, Any]] = []
    return FaultWatch(api.service, told.extend), told


def _show(api: Api, name: str, code: int, *, seconds: float = 30) -> None:
    row = a_reading(0, at=NOW - timedelta(seconds=seconds), xid_code=code)
    assert api.put("reading", a_table("reading", row), name).status_code == 200


def _hold(api: Api) -> None:
    api.put("workload", a_table("workload", {**JOB, **LATER}), "workload")
    held = {"allocation_id": "a", "workload_id": "job", "pod": "p", "node": "n0", "gpu_uuid": "GPU-0", "share": 1.0}
    api.put("allocation", a_table("allocation", {**held, "started_at": NOW - timedelta(hours=2)}), "allocation")


def _found(api: Api) -> list[dict[str, Any]]:
    return [row for row in api.service.findings() if row["analyzer"] == RULE]


def test_one_pass_finds_the_fault_and_names_the_job(api: Api, watched: tuple[FaultWatch, list[dict[str, Any]]]) -> None:
    watch, told = watched
    _hold(api)
    _show(api, "before", 0, seconds=60)
    assert watch.look() == 0
    assert told == []
    _show(api, "after", 79)
    assert watch.look() == 1
    assert api.count("state_span") == 0
    (found,) = _found(api)
    assert (found["subject_id"], found["severity"], found["category"]) == ("GPU-0/xid-79", "critical", "health")
    assert [job["workload_id"] for job in found["action_params"]["jobs"]] == ["job"]
    assert [row["subject_id"] for row in told] == ["GPU-0/xid-79"]


def test_what_comes_again_or_late_changes_nothing(
    api: Api, clock: FakeClock, watched: tuple[FaultWatch, list[dict[str, Any]]]
) -> None:
    watch, _ = watched
    _hold(api)
    _show(api, "before", 0, seconds=60)
    _show(api, "after", 79)
    watch.look()
    before = [(row["finding_id"], row["window_start"]) for row in _found(api)]
    event = {"ts": NOW - timedelta(seconds=40), "node": "n0", "gpu_uuid": "GPU-0", "kind": "xid", "code": "79"}
    api.put("fault_event", a_table("fault_event", {**event, "source": "kernel", "count": 1}), "late")
    clock.advance(15)
    assert watch.look() == 0
    assert FaultWatch(api.service, lambda _: None).look() == 0  # as after a restart
    assert [(row["finding_id"], row["window_start"]) for row in _found(api)] == before


@pytest.mark.parametrize("broken", ["judging", "telling"])
def test_a_pass_that_fails_is_made_up_for_by_the_next(api: Api, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    told: list[dict[str, Any]] = []
    failing = [False]

    def fail_once() -> None:
        if failing.pop():
            raise RuntimeError(broken)
        failing.append(False)

    def announce(found: Any) -> None:
        if broken == "telling":
            fail_once()
        told.extend(found)

    analyze = api.service.analyze

    def judge(*given: Any, **more: Any) -> dict[str, Any]:
        if broken == "judging":
            fail_once()
        return analyze(*given, **more)

    monkeypatch.setattr(api.service, "analyze", judge)
    watch = FaultWatch(api.service, announce)
    _show(api, "before", 0, seconds=60)
    watch.look()
    _show(api, "after", 79)
    failing[:] = [False, True]
    with pytest.raises(RuntimeError, match=broken):
        watch.look()
    watch.look()
    assert [row["subject_id"] for row in told] == ["GPU-0/xid-79"]


def test_the_work_is_known_from_sightings_where_no_scheduler_speaks(
    api: Api, watched: tuple[FaultWatch, list[dict[str, Any]]]
) -> None:
    watch, _ = watched
    seen = {"node": "n0", "gpu_uuid": "GPU-0", "namespace": "ml", "pod": "p-0", "source": "dcgm", "share": 1.0}
    seen |= {"ts": NOW - timedelta(seconds=50), "interval_seconds": 15.0}
    api.put("holding", a_table("holding", seen), "sighting")
    _show(api, "before", 0, seconds=60)
    _show(api, "after", 79)
    watch.look()
    (found,) = _found(api)
    (job,) = found["action_params"]["jobs"]
    assert (job["workload_id"], job["told_by"]) == ("ml/p-0", "sighting")
    assert found["confidence"] == pytest.approx(0.9)


def test_the_other_rules_turn_leaves_the_faults_alone(
    make_api: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuledger.app.jobs import Jobs  # noqa: PLC0415 needs the scheduler

    api = make_api()
    _show(api, "before", 0, seconds=60)
    _show(api, "after", 79)
    jobs = Jobs(api.service)
    jobs.look_for_faults()
    asked: list[str] = []
    analyze = api.service.analyze

    def noted(rule: str, *given: Any, **more: Any) -> dict[str, Any]:
        asked.append(rule)
        return analyze(rule, *given, **more)

    monkeypatch.setattr(api.service, "analyze", noted)
    jobs.run_rules()
    assert asked
    assert RULE not in asked
    assert len(_found(api)) == 1


def test_the_figures_are_answered(api: Api) -> None:
    window = {"from": "2026-03-02T00:00:00Z", "to": "2026-03-02T12:00:00Z"}
    answer = api.http.get("/v1/health-figures", params={**window, "gpus": "1024"})
    assert answer.status_code == 200
    assert answer.json()["ettr"]["observed"]["ratio"] is None
    assert api.http.get("/v1/health-figures", params={**window, "gpus": "many"}).status_code == 400
