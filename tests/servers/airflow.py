"""A real Airflow on loopback: API server, scheduler and DAG processor, with SQLite. Starts in about half a minute."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
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
    environment: Mapping[str, str]
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

    def says(self, *words: str) -> Any:
        """What `airflow ... -o json` prints."""
        told = subprocess.run(
            [str(command()), *words, "-o", "json"], env=self.environment, capture_output=True, text=True, timeout=480,
            check=True,
        )  # fmt: skip
        return json.loads(told.stdout[told.stdout.index("[") :])


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
        "AIRFLOW__CORE__PARALLELISM": "8",  # a process each
        "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "NO_PROXY": "127.0.0.1",
    }


@contextlib.contextmanager
def _running(name: str, words: list[str], folder: Path, environment: Mapping[str, str]) -> Iterator[None]:
    with (folder / f"{name}.log").open("wb") as out:
        process = subprocess.Popen(
            [str(command()), *words], env=environment, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield
    finally:
        for strength in (signal.SIGTERM, signal.SIGKILL):  # its workers are processes of their own
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, strength)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)


@contextlib.contextmanager
def airflow(folder: Path, dags: Mapping[str, str]) -> Iterator[RealAirflow]:
    """Runs until the end. `dags` are texts of Python files by name; the scheduler knows them when this begins."""
    port = _free_port()
    environment = _environment(folder, port)
    (folder / "dags").mkdir(parents=True)
    for name, text in dags.items():
        (folder / "dags" / f"{name}.py").write_text(text, encoding="utf-8")
    subprocess.run([str(command()), "db", "migrate"], env=environment, capture_output=True, timeout=480, check=True)
    url = f"http://127.0.0.1:{port}"
    server = ["api-server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with contextlib.ExitStack() as stack:
        stack.enter_context(_running("api-server", server, folder, environment))
        admin = stack.enter_context(httpx.Client(base_url=url, trust_env=False, timeout=60))
        made = RealAirflow(url, folder, environment, admin)
        until(lambda: _is_up(admin), f"an API server: {(folder / 'api-server.log').read_text()[-2000:]}")
        password = made.password_file("admin").read_text(encoding="utf-8")
        token = admin.post("/auth/token", json={"username": "admin", "password": password}).json()["access_token"]
        admin.headers["Authorization"] = f"Bearer {token}"
        stack.enter_context(_running("scheduler", ["scheduler"], folder, environment))
        stack.enter_context(_running("dag-processor", ["dag-processor"], folder, environment))
        until(lambda: made.call("GET", "/dags")["total_entries"] == len(dags), "the DAGs are known")
        yield made


def _is_up(admin: httpx.Client) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return admin.get("/api/v2/version").status_code == 200
    return False
