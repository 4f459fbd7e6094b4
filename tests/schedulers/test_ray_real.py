"""A real Ray: what our reader says is what Ray says itself, in `ray status` and on its metrics pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuledger.attribution import Rules
from gpuledger.clock import SystemClock
from gpuledger.errors import InconsistentSnapshot, NotPermitted
from gpuledger.ports import SchedulerSnapshot
from schedulers.ray import Ray
from tests.schedulers.reading import check_snapshot, rows
from tests.servers.ray_real import TOKEN, RealRay, ray_home, real_ray, wait_until

pytestmark = pytest.mark.slow

BUSY = """
import ray, time
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as Inside
ray.init(address="auto", log_to_driver=False)

@ray.remote
def sleep(_=None):
    time.sleep(3600)

@ray.remote
class Actor:
    def ready(self):
        return True

group = placement_group([{"GPU": 0.7}, {"GPU": 0.3}], name="fractions")
ray.get(group.ready())
tasks = [sleep.options(num_gpus=3, num_cpus=0.1).remote() for _ in range(3)]
tenths = [Actor.options(num_gpus=0.1, num_cpus=0).remote() for _ in range(5)]
inside = Actor.options(num_gpus=0.3, num_cpus=0, scheduling_strategy=Inside(group, 0)).remote()
ray.get([one.ready.remote() for one in (*tenths, inside)])
after = sleep.options(num_gpus=1, num_cpus=0).remote(tasks[0])
time.sleep(3600)
"""
"""Three tasks of 3 GPUs, five actors of 0.1, one of 0.3 in a group of 1.0; a task that waits for another."""

WAITS = """
import ray, time
ray.init(address="auto", log_to_driver=False)

@ray.remote(num_gpus=3, num_cpus=0)
def sleep():
    time.sleep(3600)

ray.get(sleep.remote())
"""

GANG = """
import ray
from ray.util.placement_group import placement_group
ray.init(address="auto", log_to_driver=False)
ray.get(placement_group([{"GPU": 8}] * 3, strategy="STRICT_SPREAD", name="too-big").ready())
"""


@pytest.fixture(scope="module")
def ray() -> Iterator[RealRay]:
    home = ray_home()
    if home is None:
        pytest.skip("no Ray 2.60 is installed: make services, or set GPULEDGER_TEST_RAY")
    with real_ray(home) as running:
        yield running


@pytest.fixture(scope="module")
def reader(ray: RealRay) -> Ray:
    path = ray.folder / "token"
    path.write_text(TOKEN, encoding="utf-8")
    return Ray.from_options({"url": ray.url, "token_file": str(path)}, rules=Rules(), clock=SystemClock())


@pytest.fixture(scope="module")
def snapshot(ray: RealRay, reader: Ray) -> SchedulerSnapshot:
    """Taken once everything runs or waits, and Ray's own status has caught up."""
    ray.drive("busy", BUSY, metadata={"tenant": "team-a", "user": "ann"})
    wait_until(lambda: _seen(reader, "running_gpus") == 9.8, "9.8 GPUs in use")
    ray.drive("waits", WAITS, metadata={"tenant": "team-b"})
    ray.drive("gang", GANG, metadata={"tenant": "team-b"})
    ray.submit("huge", "sleep 3600", entrypoint_num_gpus=9)
    wait_until(lambda: _seen(reader, "pending_gpus") == 36.0, "3 + 24 + 9 GPUs pending")
    wait_until(lambda: "'GPU': 9.0" in ray.status() and "* 3" in ray.status(), "Ray's own word for what waits")
    return reader.snapshot()


def _seen(reader: Ray, column: str) -> float | None:
    """What the queue's state says; None while Ray's own pages are of two moments, which lasts on a busy machine."""
    try:
        return float(rows(reader.snapshot(), "queue_state")[0][column])
    except InconsistentSnapshot:
        return None


def _by(snapshot: SchedulerSnapshot, record: str, column: str) -> dict[str, dict[str, Any]]:
    return {row[column]: row for row in rows(snapshot, record)}


def test_the_snapshot_is_as_the_model_says(reader: Ray, snapshot: SchedulerSnapshot) -> None:
    check_snapshot(snapshot, reader)
    assert rows(snapshot, "quality_event") == []
    assert snapshot.scope.is_complete


def test_totals_agree_with_ray_status(ray: RealRay, snapshot: SchedulerSnapshot) -> None:
    text = ray.status()
    said = re.search(r"^ ([\d.]+)/([\d.]+) GPU \(([\d.]+) used of ([\d.]+) reserved", text, re.MULTILINE)
    assert said, text
    used, total, inside, reserved = (round(float(one), 4) for one in said.groups())
    state, told = rows(snapshot, "queue_state")[0], rows(snapshot, "queue_resource")[0]
    assert (used, total, inside, reserved) == (9.8, 12.0, 0.3, 1.0)
    assert state["running_gpus"] == used
    assert sum(row["capacity"] for row in rows(snapshot, "node_state")) == total
    assert told["reserved"] == reserved
    assert state["reserved_gpus"] == 0.7
    demands = re.findall(r"\{'?[^}]*'GPU': ([\d.]+)[^}]*\}(?: \* (\d+))?.*?(\d+)\+ pending", text)
    assert sum(float(gpus) * int(times or 1) * int(count) for gpus, times, count in demands) == 36.0
    assert state["pending_gpus"] == 36.0


def test_nodes_agree_with_their_metrics_pages(ray: RealRay, snapshot: SchedulerSnapshot) -> None:
    def left() -> list[float]:
        pages = [httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text for port in ray.metrics_ports]
        pattern = r'^ray_resources\{[^}]*Name="GPU"[^}]*State="AVAILABLE"[^}]*\} ([\d.]+)'
        return sorted(round(float(one), 4) for page in pages for one in re.findall(pattern, page, re.MULTILINE))

    free = sorted(row["free"] for row in rows(snapshot, "node_state"))
    assert sum(free) == 1.5
    wait_until(lambda: left() == free, f"{free} GPUs left on Ray's own pages")


def test_each_job_waits_for_its_own_reason(snapshot: SchedulerSnapshot) -> None:
    work = _by(snapshot, "workload", "workload_id")
    assert {name: (row["status"], row["pending_cause"], row["tenant"]) for name, row in work.items()} == {
        "ray/busy": ("running", None, "team-a"),
        "ray/waits": ("pending", "capacity", "team-b"),
        "ray/gang": ("pending", "exceeds_max", "team-b"),
        "ray/huge": ("pending", "exceeds_max", ""),
    }
    assert work["ray/waits"]["pending_reason"] == "PENDING_NODE_ASSIGNMENT"
    assert work["ray/gang"]["pending_reason"] == "INFEASIBLE"
    assert work["ray/huge"]["pending_reason"].startswith("PENDING_CREATION: Job has not started yet")
    assert (work["ray/gang"]["num_gpu"], work["ray/gang"]["pod_count"], work["ray/gang"]["is_gang"]) == (8, 3, True)
    waits = _by(snapshot, "wait", "workload_id")
    assert {name: row["gpus"] for name, row in waits.items()} == {"ray/waits": 3.0, "ray/gang": 24.0, "ray/huge": 9.0}


def test_what_runs_is_dated(snapshot: SchedulerSnapshot) -> None:
    busy = _by(snapshot, "workload", "workload_id")["ray/busy"]
    assert busy["submitted_at"] < busy["started_at"] <= snapshot.taken_at
    pods = [row for row in rows(snapshot, "pod") if row["workload_id"] == "ray/busy"]
    assert sum(row["gpu_count"] for row in pods) == pytest.approx(9.8, abs=1e-9)
    assert all(busy["submitted_at"] <= row["started_at"] <= snapshot.taken_at for row in pods)
    assert busy["user"] == "ann"


def test_a_stopped_job_is_cancelled(ray: RealRay, reader: Ray, snapshot: SchedulerSnapshot) -> None:
    with ray.http() as client:
        assert client.post("/api/jobs/waits/stop").json() == {"stopped": True}
    wait_until(
        lambda: _by(reader.snapshot(), "workload", "workload_id")["ray/waits"]["status"] == "cancelled", "STOPPED"
    )
    after = reader.snapshot()
    ended = _by(after, "workload", "workload_id")["ray/waits"]
    assert ended["submitted_at"] + timedelta(seconds=1) < ended["ended_at"] <= after.taken_at
    assert ("ray/waits", "cancelled") in {(row["workload_id"], row["kind"]) for row in rows(after, "workload_event")}
    assert "ray/waits" not in _by(after, "wait", "workload_id")
    assert rows(after, "queue_state")[0]["pending_gpus"] == 33.0


def test_a_wrong_token_is_refused(ray: RealRay, tmp_path: Path) -> None:
    wrong = tmp_path / "token"
    wrong.write_text("f" * 64, encoding="utf-8")
    for options in ({"token_file": str(wrong)}, {}):
        reader = Ray.from_options({"url": ray.url, **options}, rules=Rules(), clock=SystemClock())
        with pytest.raises(NotPermitted, match=re.escape(ray.url)):
            reader.snapshot()
