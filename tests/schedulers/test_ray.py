from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gpuledger.attribution import Rules, load
from gpuledger.errors import BadInput, ConfigError, InconsistentSnapshot, SchedulerUnreachable
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.fakes.web import Answer, Request, serving
from schedulers.ray import Ray
from schedulers.ray.amounts import inside_group, parts, units
from schedulers.ray.told import given
from tests.schedulers.reading import check_snapshot, rows
from tests.schedulers.worlds.ray import fake
from tests.servers.ray_fake import (
    BEGIN_MS,
    GROUP,
    HEAD,
    OTHER,
    TOKEN,
    FakeRay,
    Row,
    actor,
    group,
    inside,
    job,
    node,
    task,
)

SHARED = Path(__file__).resolve().parents[3] / "shared"
BEGIN = datetime(2026, 3, 2, tzinfo=UTC)


def _read(ray: FakeRay, *, cluster: str = "default", rules: Rules | None = None, **options: Any) -> SchedulerSnapshot:
    ray.token = None
    with ray.serve() as url:
        reader = Ray.from_options({"url": url, **options}, cluster=cluster, rules=rules or Rules(), clock=FakeClock())
        snapshot = reader.snapshot()
    check_snapshot(snapshot, reader)
    return snapshot


def _only(snapshot: SchedulerSnapshot, record: str) -> dict[str, Any]:
    (row,) = rows(snapshot, record)
    return row


def _by(snapshot: SchedulerSnapshot, record: str, column: str) -> dict[str, dict[str, Any]]:
    return {row[column]: row for row in rows(snapshot, record)}


def _problems(snapshot: SchedulerSnapshot) -> list[tuple[str, str, int]]:
    return [(row["kind"], row["subject"], row["count"]) for row in rows(snapshot, "quality_event")]


def _tenths(node_gpus: float, allocations: list[float], reserved: float) -> FakeRay:
    """Allocations inside one placement group of `reserved` GPUs: of two bundles, the second with what is beyond 1."""
    held = [
        actor(f"a{index}", "02000000", 0.0, HEAD, required_resources=inside(share), placement_group_id=GROUP)
        for index, share in enumerate(allocations)
    ]
    return FakeRay(
        nodes=[node(HEAD, node_gpus, "gpu-1")],
        jobs=[job("a", "RUNNING", "02000000")],
        actors=held,
        groups=[group(GROUP, "02000000", [(1.0, HEAD), (reserved - 1.0, HEAD)])],
    )


def _check_082(snapshot: SchedulerSnapshot) -> None:
    told, state, place = (_only(snapshot, name) for name in ("queue_resource", "queue_state", "node_state"))
    assert (told["used"], told["reserved"]) == (1.0, 1.9)
    assert (state["running_gpus"], state["reserved_gpus"]) == (1.0, 0.9)
    assert (place["capacity"], place["allocated"], place["free"]) == (4.0, 1.0, 2.1)
    assert told["used"] % 1.0 == 0
    assert _only(snapshot, "pod")["gpu_count"] == 1.0
    assert _problems(snapshot) == []


def test_ten_tenths_are_one_and_reserved_is_apart() -> None:
    assert sum([0.1] * 10) != 1.0
    _check_082(_read(_tenths(4.0, [0.1] * 10, 1.9)))


def test_082_the_public_input() -> None:
    path = SHARED / "problems" / "082-ray-float-sum.json"
    if not path.exists():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    told = json.loads(path.read_text(encoding="utf-8"))
    _check_082(_read(_tenths(float(told["node_gpus"]), told["allocations"], told["reserved_in_pg"])))


def test_without_the_heads_status_what_runs_says_it() -> None:
    ray = fake()
    with_status = _read(ray)
    ray.has_status = False
    without = _read(ray)
    for record in ("node_state", "queue_state", "queue_resource", "workload", "pod"):
        assert rows(without, record) == rows(with_status, record), record


def test_nodes_and_the_queue() -> None:
    snapshot = _read(fake())
    states = _by(snapshot, "node_state", "node")
    assert [(row["allocated"], row["free"]) for row in (states["gpu-1"], states["gpu-2"])] == [(6.0, 2.0), (0.3, 3.0)]
    assert {row["resource"] for row in states.values()} == {"ray_gpu"}
    nodes = _by(snapshot, "node", "node")
    assert (nodes["gpu-1"]["gpu_count"], nodes["gpu-1"]["cpu_milli"], nodes["gpu-1"]["memory_mib"]) == (8, 64_000, 8192)
    assert nodes["gpu-1"]["from_at"] == BEGIN - timedelta(hours=1)
    assert {row["node"]: row["gpu_count"] for row in rows(snapshot, "scheduler_node")} == {"gpu-1": 8, "gpu-2": 4}
    told = _only(snapshot, "queue_resource")
    assert (told["resource"], told["used"], told["reserved"], told["pending"]) == ("GPU", 6.3, 1.0, 16.0)
    assert (told["nominal"], told["limit"], told["borrowed"], told["lent"]) == (None, None, None, None)
    quota = _only(snapshot, "quota")
    assert (quota["nominal_gpus"], quota["limit_gpus"], quota["not_reported"]) == (None, None, "")


def test_workloads_pods_and_why_they_wait() -> None:
    snapshot = _read(fake())
    work = _by(snapshot, "workload", "workload_id")
    assert {name: row["status"] for name, row in work.items()} == {
        "ray/a": "running",
        "ray/b": "pending",
        "ray/c": "pending",
        "ray/04000000@1772409000": "finished",
    }
    assert (work["ray/a"]["tenant"], work["ray/a"]["user"], work["ray/c"]["tenant"]) == ("team-a", "ann", "")
    assert (work["ray/a"]["num_gpu"], work["ray/a"]["gpu_milli"], work["ray/a"]["pod_count"]) == (3, 1000, 3)
    pods = _by(snapshot, "pod", "pod")
    assert {name: row["gpu_count"] for name, row in pods.items()} == {"a@gpu-1": 6.0, "a@gpu-2": 0.3}
    assert pods["a@gpu-1"]["started_at"] == BEGIN - timedelta(seconds=400)
    waits = _by(snapshot, "wait", "workload_id")
    assert (waits["ray/b"]["cause"], waits["ray/b"]["gpus"], waits["ray/b"]["pods"]) == ("capacity", 7.0, 1)
    assert (waits["ray/c"]["cause"], waits["ray/c"]["gpus"]) == ("exceeds_max", 9.0)
    events = {(row["workload_id"], row["kind"]): row["ts"] for row in rows(snapshot, "workload_event")}
    assert events["ray/04000000@1772409000", "finished"] == BEGIN - timedelta(seconds=100)


def _waiting(*waits: Row, groups: list[Any] | None = None, cpus: float = 64.0) -> dict[str, Any]:
    """Why a job waits whose tasks are `waits`, on two nodes of which each has 2 of 4 GPUs left."""
    ray = FakeRay(
        nodes=[node(HEAD, 4.0, "gpu-1", cpus), node(OTHER, 4.0, "gpu-2", cpus)],
        jobs=[job("other", "RUNNING", "02000000"), job("mine", "RUNNING", "03000000")],
        tasks=[task("f", "02000000", 2.0, "RUNNING", HEAD), task("g", "02000000", 2.0, "RUNNING", OTHER), *waits],
        groups=groups or [],
    )
    return _only(_read(ray), "wait")


def _asking(gpus: float, state: str = "PENDING_NODE_ASSIGNMENT", **other: Any) -> Row:
    return task("w", "03000000", gpus, state, **other)


def test_the_cause_is_what_is_short() -> None:
    assert _waiting(_asking(5.0))["cause"] == "exceeds_max"
    assert _waiting(_asking(3.0))["cause"] == "fragmentation"
    assert _waiting(_asking(2.0))["cause"] == "scheduler"
    assert _waiting(_asking(2.0, label_selector={"zone": "a"}))["cause"] == "placement"
    busy = [_asking(1.0, required_resources={"GPU": 1.0, "CPU": 0.95})]
    assert _waiting(*busy, cpus=1.0)["cause"] == "cpu_mem"
    assert _waiting(_asking(1.0, "PENDING_OBJ_STORE_MEM_AVAIL"))["cause"] == "cpu_mem"
    assert _waiting(_asking(1.0, "SUBMITTED_TO_WORKER"))["cause"] == "startup"


def test_a_gang_waits_for_all_of_its_bundles() -> None:
    asked = group("ab" * 18, "03000000", [(2.0, ""), (2.0, ""), (2.0, "")], "NO_RESOURCES")
    wait = _waiting(groups=[asked])
    assert (wait["cause"], wait["reason"], wait["gpus"], wait["pods"]) == ("capacity", "NO_RESOURCES", 6.0, 3)
    assert wait["from_at"] == BEGIN - timedelta(seconds=300)
    two = group("ab" * 18, "03000000", [(2.0, ""), (2.0, "")], "NO_RESOURCES")
    assert _waiting(groups=[two])["cause"] == "fragmentation"
    never = group("ab" * 18, "03000000", [(4.0, "")] * 3, "INFEASIBLE")
    assert _waiting(groups=[never])["cause"] == "exceeds_max"


def test_tasks_that_wait_for_each_other_wait_for_no_gpu() -> None:
    ray = fake()
    ray.tasks.append(task("later", "02000000", 4.0, "PENDING_ARGS_AVAIL"))
    assert _only(_read(ray), "queue_state")["pending_gpus"] == 16.0


def test_detached_actors_of_a_job_that_is_over_still_hold() -> None:
    ray = FakeRay(
        nodes=[node(HEAD, 8.0, "gpu-1")],
        jobs=[job("a", "SUCCEEDED", "02000000", end_time=BEGIN_MS - 1000)],
        actors=[actor("kept", "02000000", 1.0, HEAD), actor("nobodys", "09000000", 2.0, HEAD)],
    )
    work = _by(_read(ray), "workload", "workload_id")
    assert (work["ray/a"]["status"], work["ray/a"]["ended_at"]) == ("running", None)
    assert work["ray/09000000"]["status"] == "running"


def test_rules_come_before_metadata(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[[tenant]]\nlabels = { "project" = "*" }\nvalue = "p-{label:project}"\n', encoding="utf-8")
    ray = fake()
    ray.jobs[1]["metadata"]["project"] = "x"
    work = _by(_read(ray, rules=load(path)), "workload", "workload_id")
    assert [work[f"ray/{name}"]["tenant"] for name in "ab"] == ["team-a", "p-x"]
    other = _by(_read(fake(), tenant_key="user"), "workload", "workload_id")
    assert [other[f"ray/{name}"]["tenant"] for name in "ab"] == ["ann", ""]


def test_on_kubernetes_nodes_and_pods_are_kubernetes_own() -> None:
    snapshot = _read(fake(), on_kubernetes=True)
    assert not {"node", "pod", "scheduler_node"} & snapshot.records.keys()
    assert _only(snapshot, "queue_state")["running_gpus"] == 6.3


def test_nodes_of_one_name_are_told_apart_and_labels_may_name_them() -> None:
    ray = fake()
    for one in ray.nodes:
        one["node_name"] = "192.0.2.2"
    assert _by(_read(ray), "node", "node").keys() == {f"192.0.2.2/{HEAD[:8]}", f"192.0.2.2/{OTHER[:8]}"}
    for one, host in zip(ray.nodes, ("h1", "h2"), strict=True):
        one["labels"] = {"host": host, "ray.io/accelerator-type": "H100"}
    named = _by(_read(ray, node_label="host"), "node", "node")
    assert {name: row["model"] for name, row in named.items()} == {"h1": "H100", "h2": "H100"}


def test_a_cut_list_is_asked_for_in_parts() -> None:
    ray = fake()
    ray.most_rows = 4
    ray.tasks += [task(f"t{index}", "02000000", 0.1, "RUNNING", OTHER) for index in range(3)]
    ray.tasks += [task(f"u{index}", "03000000", 0.1, "RUNNING", OTHER) for index in range(3)]
    whole = _read(ray)
    assert _problems(whole) == []
    assert _only(whole, "queue_state")["running_gpus"] == 6.9
    ray.tasks += [task(f"v{index}", "03000000", 0.1, "RUNNING", OTHER) for index in range(3)]
    cut = _read(ray)
    assert ("truncated_answer", "ray", 2) in _problems(cut)
    assert {"pod", "wait"} <= cut.scope.unlisted


def test_a_status_that_lags_behind_is_told() -> None:
    ray = fake()
    ray.status_lags_gpus = 0.5
    snapshot = _read(ray)
    assert _only(snapshot, "queue_state")["running_gpus"] == 7.3
    assert _problems(snapshot) == [("quota_mismatch", "ray", 1)]


def test_a_status_that_lags_behind_is_waited_for() -> None:
    ray = fake()
    ray.status_lags_gpus = 0.5

    def renew(path: str) -> None:
        if ray.asked.count("/api/v0/tasks") == 2:
            ray.status_lags_gpus = 0.0

    ray.before = renew
    snapshot = _read(ray)
    assert _only(snapshot, "queue_state")["running_gpus"] == 6.3
    assert _problems(snapshot) == []
    assert snapshot.taken_at > BEGIN


def test_a_status_that_nobody_renews_says_nothing() -> None:
    ray = fake()
    ray.status_age_seconds = 3_600
    ray.status_lags_gpus = 1.0
    snapshot = _read(ray)
    assert _only(snapshot, "queue_state")["running_gpus"] == 6.3
    ((kind, subject, count),) = _problems(snapshot)
    assert (kind, subject) == ("stale", "ray")
    assert count >= 3_599


def test_what_moves_once_is_read_again() -> None:
    ray = fake()
    moved: list[int] = []

    def move(path: str) -> None:
        if path == "/api/v0/tasks" and not moved:
            moved.append(1)
            ray.tasks.append(task("new", "02000000", 1.0, "RUNNING", OTHER))

    ray.before = move
    assert _only(_read(ray), "queue_state")["running_gpus"] == 7.3
    assert ray.asked.count("/api/v0/tasks") == 2


def test_more_in_use_than_there_is_is_refused() -> None:
    ray = fake()
    ray.status_lags_gpus = 7.0
    with pytest.raises(InconsistentSnapshot, match="gave away more than it has"):
        _read(ray)


def test_what_is_no_dashboard_is_unreachable() -> None:
    with serving(lambda _: Answer("<html>hello</html>")) as url:
        reader = Ray.from_options({"url": url}, rules=Rules(), clock=FakeClock())
        with pytest.raises(SchedulerUnreachable, match="answers no JSON"):
            reader.snapshot()
    with serving(lambda request: Answer({"some": request.path})) as url:
        reader = Ray.from_options({"url": url}, rules=Rules(), clock=FakeClock())
        with pytest.raises(SchedulerUnreachable, match="answers no list"):
            reader.snapshot()


def test_a_token_goes_with_every_request_and_into_no_address(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN, encoding="utf-8")
    ray = fake()
    with ray.serve() as url:
        options = {"url": url, "token_file": str(path)}
        snapshot = Ray.from_options(options, rules=Rules(), clock=FakeClock()).snapshot()
    assert _only(snapshot, "queue_state")["running_gpus"] == 6.3
    with pytest.raises(ConfigError, match="url"):
        Ray.from_options({"url": "http://me:secret@head:8265"}, rules=Rules(), clock=FakeClock())


def test_amounts_are_exact() -> None:
    assert [parts(value, "x") for value in (0.1, 0.09999999999999998, 7, 1e-05)] == [1000, 1000, 70_000, 0]
    assert units(19_000) == 1.9
    for value in (True, "1", None, float("nan"), float("inf"), -0.5):
        with pytest.raises(BadInput):
            parts(value, "x")
    assert inside_group({"GPU_group_0_" + GROUP: 3000, "GPU_group_" + GROUP: 3000}) == {"GPU": 3000}
    assert inside_group({"GPU": 3000, "my_group_x": 1}) is None


def test_mangled_keys_of_placement_groups_are_known() -> None:
    mangled = GROUP.title()
    told = {"GPU": [1.9, 4.0], f"GPUGroup{mangled}": [1.0, 1.9], f"GPUGroup0{mangled}": [1.0, 1.9]}
    found = given({"loadMetricsReport": {"usageByNode": {HEAD: told}}}, "GPU")
    assert found is not None
    assert (found[HEAD].used, found[HEAD].reserved, found[HEAD].inside) == (10_000, 19_000, 10_000)
    assert given({"loadMetricsReport": {"usageByNode": {}}}, "GPU") is None


def test_answers_of_a_real_head_are_read() -> None:
    folder = SHARED / "fixtures" / "schedulers" / "ray-2.60"
    if not folder.exists():
        pytest.skip("../shared is absent: this checkout has no captured answers beside it")

    def captured(request: Request) -> Answer:
        path = folder / f"{request.path.strip('/').replace('/', '_')}.json"
        if request.path == "/api/jobs/":
            path = folder / "api_jobs_.json"
        empty = {"total": 0, "num_after_truncation": 0, "num_filtered": 0, "result": []}
        told = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"data": {"result": empty}}
        if request.path == "/api/cluster_status":
            told["data"]["clusterStatus"]["time"] = None
        return Answer(told)

    with serving(captured) as url:
        snapshot = Ray.from_options({"url": url}, rules=Rules(), clock=FakeClock()).snapshot()
    work = _only(snapshot, "workload")
    assert (work["workload_id"], work["status"], work["tenant"]) == ("ray/team-a-001", "finished", "team-a")
    assert work["ended_at"] - work["submitted_at"] == timedelta(milliseconds=45_818)
    state = _only(snapshot, "node_state")
    assert (state["capacity"], state["allocated"], state["free"]) == (8.0, 0.0, 8.0)
    assert rows(snapshot, "quality_event") == []
