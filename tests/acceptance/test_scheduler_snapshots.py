"""A real service reads API servers: what changes, what ends, what a dead one costs, and what a kill leaves open."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from schedulers.fakes.apiserver import Access, Serving, Store, Subject, serve
from schedulers.kueue import Kueue
from schedulers.rights import cluster_role
from tests.app.conftest import ROOT, Served, environment
from tests.schedulers.kueue_objects import owner, pod, store
from tests.schedulers.worlds.kueue import TOKEN, things, visible

PATIENCE_SECONDS = 60.0


@pytest.fixture
def cluster() -> Iterator[tuple[Store, Serving]]:
    made = store(*things())
    visible(made, {"a": ["late", "next"]})
    access = Access({TOKEN: Subject("reader", [dict(rule) for rule in cluster_role("r", Kueue.all_rights())["rules"]])})
    with serve(made, access=access) as api:
        yield made, api


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN, encoding="utf-8")
    return path


@pytest.fixture
def service(tmp_path: Path, cluster: tuple[Store, Serving], token: Path) -> Iterator[Served]:
    listed = tmp_path / "schedulers.toml"
    listed.write_text(
        "\n".join(
            f'[[scheduler]]\nadapter = "kueue"\ncluster = "{name}"\ninterval_seconds = 1\n'
            f'[scheduler.options]\nurl = "{url}"\ntoken_file = "{token}"\ntimeout_seconds = 5\n'
            for name, url in (("default", cluster[1].url), ("dead", "http://127.0.0.1:9"))
        ),
        encoding="utf-8",
    )
    served = Served(tmp_path / "w.duckdb", GPULEDGER_SCHEDULERS_FILE=str(listed))
    try:
        served.wait()
        yield served
    finally:
        served.stop()


def ask(service: Served, name: str, **given: str) -> list[dict[str, Any]]:
    answer = httpx.get(f"{service.url}/v1/queries/{name}", params=given, trust_env=False, timeout=60)
    assert answer.status_code == 200, answer.text
    rows: list[dict[str, Any]] = answer.json()["rows"]
    return rows


def queues_now(service: Served) -> dict[str, dict[str, Any]]:
    return {row["queue"]: row for row in ask(service, "queue_usage", at=datetime.now(UTC).isoformat())}


def until(found: Callable[[], bool], service: Served) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        if found():
            return
        time.sleep(0.2)
    raise AssertionError(service.log)


def held(service: Served) -> float | None:
    queues = queues_now(service)
    return queues["a"]["running_gpus"] if "a" in queues else None


def test_a_service_knows_what_a_cluster_gives_away_and_forgets_nothing_when_it_is_killed(
    cluster: tuple[Store, Serving], service: Served
) -> None:
    made, _ = cluster
    until(lambda: held(service) == 16, service)
    queues = queues_now(service)
    assert (queues["a"]["nominal_gpus"], queues["a"]["borrowed_gpus"], queues["b"]["lent_gpus"]) == (8, 8, 8)
    (nodes,) = ask(service, "node_capacity", at=datetime.now(UTC).isoformat())
    assert (nodes["node"], nodes["capacity"], nodes["free"]) == ("n1", 32, 16)
    assert {row["workload_id"] for row in ask(service, "open_wait", scheduler="kueue")} == {
        "team-a/late",
        "team-a/next",
    }

    made.remove(pod("big-1", owner("Job", "big")))
    until(lambda: held(service) == 8, service)
    assert [row["pod"] for row in ask(service, "open_pod", scheduler="kueue")] == ["big-0"]

    service.kill()
    made.remove(pod("big-0", owner("Job", "big")))
    service.restart()
    until(lambda: not ask(service, "open_pod", scheduler="kueue"), service)
    until(lambda: held(service) == 0, service)
    (nodes,) = ask(service, "open_node_state", scheduler="kueue")
    assert nodes["free"] == 32

    checks = httpx.post(f"{service.url}/v1/check", trust_env=False, timeout=60).json()["checks"]
    read = next(check for check in checks if check["name"] == "schedulers_are_read")
    assert read["ok"] is False
    assert "kueue/dead" in read["detail"]
    assert read["detail"].endswith("kueue: complete")
    now = datetime.now(UTC)
    waits = ask(service, "waits", from_at=(now - timedelta(days=400)).isoformat(), to_at=now.isoformat())
    blamed = {row["cause"]: row["blame"] for row in waits}
    assert (blamed["quota"], blamed["priority"]) == ("quota", "capacity")


def look(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpuledger.app", "scheduler", "snapshot", "--adapter", "kueue", *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment(), cwd=ROOT, check=False
    )


def test_an_operator_sees_it_on_the_command_line(cluster: tuple[Store, Serving], token: Path) -> None:
    where = ("--option", f"url={cluster[1].url}", "--option", f"token_file={token}")
    seen = look(*where, "--format", "json")
    assert seen.returncode == 0, seen.stderr
    answer = json.loads(seen.stdout)
    assert answer["scope"] == "complete"
    queues = {row["queue"]: row for row in answer["queues"]}
    assert (queues["a"]["running_gpus"], queues["a"]["nominal_gpus"]) == (16, 8)
    waiting = {row["workload"]: row for row in answer["waiting"]}
    assert "20 more needed" in waiting["team-a/late"]["message"]
    people = look(*where)
    assert "insufficient unused quota" in " ".join(people.stdout.split())
    assert TOKEN not in people.stdout + people.stderr


def test_an_operator_is_told_why_nothing_is_seen(cluster: tuple[Store, Serving], tmp_path: Path) -> None:
    away = look("--option", "url=http://127.0.0.1:9", "--option", "timeout_seconds=2")
    assert (away.returncode, "could not see" in away.stderr) == (3, True)
    wrong = look("--option", "urll=http://127.0.0.1:9")
    assert (wrong.returncode, "urll" in wrong.stderr) == (2, True)
    stranger = tmp_path / "other"
    stranger.write_text("another", encoding="utf-8")
    refused = look("--option", f"url={cluster[1].url}", "--option", f"token_file={stranger}")
    assert refused.returncode in {3, 4}
    assert "another" not in refused.stderr
