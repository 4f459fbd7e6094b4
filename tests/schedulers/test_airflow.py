"""The records of Airflow, exactly, for what a real one cannot be made to say; both versions of its interface."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from gpuledger.attribution import Rules
from gpuledger.attribution.rules import parse
from gpuledger.errors import ConfigError, InconsistentSnapshot, NotPermitted, SchedulerUnreachable
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.airflow import Airflow
from tests.schedulers.reading import check_snapshot, rows
from tests.schedulers.worlds.airflow import fake
from tests.servers.airflow_fake import PASSWORD, FakeAirflow, task

OPENAPI = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "schedulers" / "airflow-openapi.json"
POOLS = {"gpu": 2, "any": 1, "none": 1}


@pytest.fixture
def server() -> FakeAirflow:
    return fake()


@pytest.fixture
def url(server: FakeAirflow) -> Iterator[str]:
    with server.serve() as url:
        yield url


def read(url: str, folder: Path, rules: Rules | None = None, **options: Any) -> SchedulerSnapshot:
    password = folder / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    given = {"url": url, "user": "viewer", "password_file": str(password), "gpus_per_slot": POOLS, **options}
    reader = Airflow.from_options(given, rules=rules or Rules(), clock=FakeClock())
    snapshot = reader.snapshot()
    check_snapshot(snapshot, reader)
    return snapshot


def by_task(snapshot: SchedulerSnapshot, record: str = "workload") -> dict[str, dict[str, Any]]:
    return {row["workload_id"].rpartition("r1/")[2]: row for row in rows(snapshot, record)}


def kinds(snapshot: SchedulerSnapshot) -> list[tuple[str, str, int]]:
    return [(row["kind"], row["subject"], row["count"]) for row in rows(snapshot, "quality_event")]


def test_slots_become_gpus(url: str, tmp_path: Path) -> None:
    snapshot = read(url, tmp_path)
    states = {row["queue"]: row for row in rows(snapshot, "queue_state")}
    gpu = states["gpu"]
    assert (gpu["nominal_gpus"], gpu["running_gpus"], gpu["reserved_gpus"], gpu["pending_gpus"]) == (10, 4, 4, 16)
    assert (states["any"]["nominal_gpus"], states["any"]["running_gpus"]) == (None, 3)
    assert (states["none"]["nominal_gpus"], states["none"]["pending_gpus"]) == (0, 1)
    assert "default_pool" not in states
    assert {name: row["status"] for name, row in by_task(snapshot).items()} == {
        "a0": "running", "a1": "admitted", "a2": "pending", "a3": "pending", "b0": "running", "c0": "pending",
    }  # fmt: skip


def test_causes_and_words(url: str, tmp_path: Path) -> None:
    waits = {name: (row["cause"], row["reason"]) for name, row in by_task(read(url, tmp_path), "wait").items()}
    assert waits == {
        "a1": ("scheduler", "queued"),
        "a2": ("quota", "Pool Slots Available"),
        "a3": ("exceeds_max", "Pool Slots Available"),
        "c0": ("exceeds_max", "Pool Slots Available"),
    }


def test_a_task_that_waits_for_the_executor_has_waited_since_it_was_queued(url: str, tmp_path: Path) -> None:
    waits = by_task(read(url, tmp_path), "wait")
    assert waits["a1"]["from_at"].isoformat() == "2026-03-01T22:10:00+00:00"
    assert waits["a2"]["from_at"].isoformat() == "2026-03-01T22:00:05+00:00"


def test_deferred_tasks_hold_slots_where_the_pool_says_so(server: FakeAirflow, url: str, tmp_path: Path) -> None:
    server.tasks = [task("d0", "deferred", "gpu", 2), task("d1", "deferred", "any", 4)]
    snapshot = read(url, tmp_path)
    assert {name: row["status"] for name, row in by_task(snapshot).items()} == {"d0": "running", "d1": "suspended"}
    states = {row["queue"]: row["running_gpus"] for row in rows(snapshot, "queue_state")}
    assert states == {"gpu": 4.0, "any": 0.0, "none": 0.0}


def test_many_pages_are_one_snapshot(server: FakeAirflow, url: str, tmp_path: Path) -> None:
    server.tasks = [task(f"t{number}", "running", "any") for number in range(205)]
    assert len(rows(read(url, tmp_path), "workload")) == 205
    assert server.asked.count("/api/v2/dags/~/dagRuns/~/taskInstances") == 3


def test_version_one_says_the_same_but_for_what_it_does_not_have(tmp_path: Path) -> None:
    server = fake()
    server.version = 1
    for one in server.tasks:
        del one["run_after"], one["id"], one["scheduled_when"]
    with server.serve() as url:
        snapshot = read(url, tmp_path)
    found = by_task(snapshot)
    assert {name: row["status"] for name, row in found.items()}["a2"] == "pending"
    assert found["a2"]["submitted_at"].isoformat() == "2026-03-01T22:00:01+00:00"  # its run began then
    assert found["a2"]["eligible_at"] is None
    assert found["a0"]["started_at"].isoformat() == "2026-03-01T22:10:30+00:00"


def test_tasks_that_may_not_be_read_are_unknown(server: FakeAirflow, url: str, tmp_path: Path) -> None:
    server.forbidden = {"/taskInstances"}
    snapshot = read(url, tmp_path)
    assert "workload" not in snapshot.records
    assert snapshot.scope.unlisted == {"workload", "wait", "workload_event"}
    assert str(snapshot.scope) == (
        f"partial: task instances: GET {url}/api/v2/dags/~/dagRuns/~/taskInstances: 403 Forbidden"
    )
    assert {row["queue"]: row["running_gpus"] for row in rows(snapshot, "queue_state")}["gpu"] == 4.0


def test_reasons_that_may_not_be_read_leave_the_state(server: FakeAirflow, url: str, tmp_path: Path) -> None:
    server.forbidden = {"/dependencies"}
    snapshot = read(url, tmp_path)
    assert [what for what, _ in snapshot.scope.denied] == ["task dependencies"]
    waits = by_task(snapshot, "wait")
    assert (waits["a2"]["cause"], waits["a2"]["reason"]) == ("scheduler", "scheduled")
    assert (waits["a3"]["cause"], waits["a3"]["message"]) == ("exceeds_max", "requires 6 slots of 5")


def test_at_most_so_many_reasons_are_asked_for(server: FakeAirflow, url: str, tmp_path: Path) -> None:
    read(url, tmp_path, reasons_at_most=1)
    assert sum(path.endswith("/dependencies") for path in server.asked) == 1


def test_dags_that_we_may_not_see_show_as_a_difference(server: FakeAirflow, url: str, tmp_path: Path) -> None:
    server.tasks.append(task("hidden", "running", "gpu", 1))
    server.hidden = {"hidden"}
    assert ("quota_mismatch", "gpu", 2) in kinds(read(url, tmp_path))


def test_a_pool_that_is_not_there_is_named(url: str, tmp_path: Path) -> None:
    snapshot = read(url, tmp_path, gpus_per_slot={**POOLS, "gone": 1})
    assert ("unreadable_object", "gone", 1) in kinds(snapshot)


def test_123_counts_of_several_moments_are_refused(server: FakeAirflow, url: str, tmp_path: Path) -> None:
    def change(pool: dict[str, Any]) -> dict[str, Any]:
        torn = {"slots": 64, "occupied_slots": 66, "open_slots": 0, "running_slots": 66}
        return {**pool, **torn} if pool["name"] == "gpu" else pool

    server.change_pool = change
    with pytest.raises(InconsistentSnapshot, match="pool gpu has 64 slots, 66 occupied and 0 open, 4 times"):
        read(url, tmp_path)


def test_a_change_that_all_counts_show_is_one_moment(server: FakeAirflow, url: str, tmp_path: Path) -> None:
    def move(held: FakeAirflow) -> None:
        if held.asked.count("/api/v2/pools") == 1:
            held.tasks.append(task("new", "running", "any", 1))

    server.before_pools = move
    server.tasks.remove(next(one for one in server.tasks if one["task_id"] == "b0"))
    assert {row["queue"]: row["running_gpus"] for row in rows(read(url, tmp_path), "queue_state")}["any"] == 1.0


def test_a_wrong_password_is_not_permitted_and_not_told(url: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text("wrong-and-secret", encoding="utf-8")
    with pytest.raises(NotPermitted, match=r"POST .*/auth/token: 401 for user 'viewer'") as caught:
        read(url, tmp_path, password_file=str(tmp_path / "other"))
    assert "wrong-and-secret" not in str(caught.value)


def test_what_is_no_airflow_is_unreachable(tmp_path: Path) -> None:
    server = fake()
    server.version = 9
    with server.serve() as url, pytest.raises(SchedulerUnreachable, match="404"):
        read(url, tmp_path)


def test_rules_say_whose_a_task_is(url: str, tmp_path: Path) -> None:
    rules = parse(
        {
            "tenant": [{"namespace": "airflow", "labels": {"pool": "gpu"}, "value": "research/{label:dag_id}"}],
            "stage": [{"pod": "train/*", "value": "pretraining"}],
        }
    )
    found = by_task(read(url, tmp_path, rules))
    assert (found["a0"]["tenant"], found["b0"]["tenant"]) == ("research/train", "any")
    assert found["a0"]["stage"] == "pretraining"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"gpus_per_slot": {"gpu": 0}}, "gpus_per_slot"),
        ({"gpus_per_slot": {"gpu": -1}}, "gpus_per_slot"),
        ({"user": None}, "password_file"),
        ({"url": "ftp://host"}, "url"),
        ({"url": "http://ana:hidden-word@host"}, "url"),
        ({"password_file": "/nowhere/password"}, "/nowhere/password"),
    ],
)
def test_wrong_options_are_named_without_their_secrets(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told) as caught:
        read(**{"url": "http://127.0.0.1:1", "folder": tmp_path, **options})
    assert "hidden-word" not in str(caught.value)


def test_the_fakes_answers_are_as_the_published_document_says(server: FakeAirflow, url: str, tmp_path: Path) -> None:
    if not OPENAPI.exists():
        pytest.skip("../shared is absent: this checkout has no OpenAPI document of Airflow beside it")
    schemas = json.loads(OPENAPI.read_text(encoding="utf-8"))
    pool = {"components": schemas["components"], "$ref": "#/components/schemas/PoolResponse"}
    for name in server.pools:
        jsonschema.validate(server._pool(name), pool)
    properties = schemas["components"]["schemas"]["TaskInstanceResponse"]["properties"]
    for one in server.tasks:
        assert set(one) <= set(properties)
        for name, value in one.items():
            jsonschema.validate(value, {"components": schemas["components"], **properties[name]})
