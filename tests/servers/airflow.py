"""A real Airflow on loopback: API server, scheduler and DAG processor, with SQLite; about 50 seconds of a core."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 480
"""A ceiling: half a minute does on a machine that has nothing else to do."""
USERS = "admin:admin,viewer:viewer"


def command() -> Path:
    """The `airflow` of the tests' environment, or the test is skipped."""
    found = Path(os.environ.get("GPULEDGER_TEST_AIRFLOW") or ROOT / "var" / "airflow-venv") / "bin" / "airflow"
    if not found.exists():
        pytest.skip("no Airflow: `make services` makes its environment, $GPULEDGER_TEST_AIRFLOW names another")
    return found


@dataclass
class RealAirflow:
    """Airflow's address, its folder, and its administrator's connection."""

    url: str
    folder: Path
    admin: httpx.Client

    def password_file(self, user: str) -> Path:
        """A file that holds the password of `user`, which Airflow made up."""
        held = json.loads((self.folder / "simple_auth_manager_passwords.json.generated").read_text(encoding="utf-8"))
        path = self.folder / f"{user}.password"
        path.write_text(held[user], encoding="utf-8")
        return path

    def call(self, verb: str, path: str, body: Any = None, **query: Any) -> Any:
        """The answer of Airflow's API to its administrator."""
        answer = self.admin.request(verb, f"/api/v2{path}", json=body, params=query)
        assert answer.status_code < 400, answer.text
        return answer.json()

    def keeps(self, query: str) -> list[tuple[Any, ...]]:
        """What Airflow's own database answers; its command line says the same, half a minute later."""
        with contextlib.closing(sqlite3.connect(f"file:{self.folder / 'airflow.db'}?mode=ro", uri=True)) as database:
            return database.execute(query).fetchall()


def until(reached: Callable[[], Any], what: str, seen: Callable[[], Any] = lambda: "") -> Any:
    """What `reached` gives as soon as it is true; fails telling what was `seen` last."""
    give_up = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < give_up:
        if found := reached():
            return found
        time.sleep(0.3)
    raise AssertionError(f"never happened: {what}; seen: {seen()}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _environment(folder: Path, port: int) -> dict[str, str]:
    given = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PYTHON"))}
    return {
        **given,
        "PATH": f"{command().parent}:{os.environ['PATH']}",
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": USERS,
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),  # else each process makes up its own
        "AIRFLOW__API__SECRET_KEY": secrets.token_hex(32),
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "480",  # a task fails where a busy server takes longer
        "AIRFLOW__CORE__PARALLELISM": "4",  # a process each
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "NO_PROXY": "127.0.0.1",
    }


LAUNCHER = """
import json, os, sys
from airflow.__main__ import main

def start(name, *words):
    if pid := os.fork():
        return pid
    log = os.open(f"{sys.argv[1]}/{name}.log", os.O_CREAT | os.O_WRONLY)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = ["airflow", *words]
    sys.exit(main())

folder, server = sys.argv[1], sys.argv[2:]
if os.waitpid(start("migrate", "db", "migrate"), 0)[1]:
    sys.exit("db migrate failed")
for begun in [start("api-server", *server), start("scheduler", "scheduler", "--skip-serve-logs"),
              start("dag-processor", "dag-processor")]:
    os.waitpid(begun, 0)
"""
"""Starts all of Airflow: its modules, which cost each process seconds of a core, are loaded once."""


@contextlib.contextmanager
def _running(folder: Path, environment: Mapping[str, str], server: list[str]) -> Iterator[None]:
    python = command().with_name("python")
    with (folder / "launcher.log").open("wb") as out:
        launcher = subprocess.Popen(
            [str(python), "-c", LAUNCHER, str(folder), *server],
            env=environment, stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        yield
    finally:
        # Nothing of it is looked at again. Tasks have process groups of their own, and the launcher's session.
        for pid in _of_session(launcher.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        launcher.wait(60)


def _of_session(leader: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[3]) == leader:
                yield int(path.parent.name)


@contextlib.contextmanager
def airflow(folder: Path, dags: Mapping[str, str]) -> Iterator[RealAirflow]:
    """Runs until the end. `dags` are texts of Python files by name; the scheduler knows them when this begins."""
    port = _free_port()
    environment = _environment(folder, port)
    (folder / "dags").mkdir(parents=True)
    for name, text in dags.items():
        (folder / "dags" / f"{name}.py").write_text(text, encoding="utf-8")
    url = f"http://127.0.0.1:{port}"
    server = ["api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with _running(folder, environment, server), httpx.Client(base_url=url, trust_env=False, timeout=60) as admin:
        made = RealAirflow(url, folder, admin)
        until(lambda: _is_up(admin), "an API server", lambda: _logs(folder))
        password = made.password_file("admin").read_text(encoding="utf-8")
        token = admin.post("/auth/token", json={"username": "admin", "password": password}).json()["access_token"]
        admin.headers["Authorization"] = f"Bearer {token}"
        until(lambda: made.call("GET", "/dags")["total_entries"] == len(dags), "the DAGs are known")
        yield made


def _logs(folder: Path) -> str:
    return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-1000:]}" for path in folder.glob("*.log"))


def _is_up(admin: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return admin.get("/api/v2/version").status_code == 200
    return False
