"""Airflow's REST interface: version 2 of Airflow 3, version 1 of Airflow 2. Nothing here knows what a GPU is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import Field, model_validator

from gpuledger.errors import NotPermitted, SchedulerUnreachable
from schedulers.rest import Query, Rest, RestOptions, secret

STATES = ("scheduled", "queued", "running", "deferred", "up_for_retry", "up_for_reschedule")
"""The states of tasks that hold a slot, wait for one, or come back to wait. Those before it wait for other tasks."""
PAGE = 100
"""As many as Airflow gives at once where nobody configured more."""

Json = Mapping[str, Any]
Read = TypeVar("Read")


class AirflowOptions(RestOptions):
    """Options of the adapter `airflow`. A user with the role Viewer is enough."""

    user: str | None = Field(None, description="Who reads; needs `password_file`.")
    password_file: Path | None = Field(None, description="File that holds the password.")
    gpus_per_slot: Mapping[str, float] = Field(
        description="By pool: how many GPUs one of its slots stands for. Pools that are not here hold none."
    )
    reasons_at_most: int = Field(200, ge=0, le=10_000, description="Of how many waiting tasks to ask why, each read.")

    @model_validator(mode="after")
    def _checked(self) -> AirflowOptions:
        if bool(self.user) != bool(self.password_file):
            raise ValueError("user and password_file belong together")
        if self.user and self.token_file:
            raise ValueError("user and token_file exclude each other")
        for pool, gpus in self.gpus_per_slot.items():
            if not 0 < gpus <= 1024:
                raise ValueError(f"gpus_per_slot of {pool!r} is not between 0 and 1024")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What Airflow said in one round: pools before and after their tasks, tasks, and why some of them wait.

    `tasks` is None where they may not be read; `denied` says what was refused. `reasons` has the unmet dependencies
    by `task_key`. `run_starts` are the starts of runs by (dag, run), where tasks do not say when they were wanted.
    """

    before: Sequence[Json]
    after: Sequence[Json]
    tasks: Sequence[Json] | None
    reasons: Mapping[str, Sequence[Json]]
    run_starts: Mapping[tuple[str, str], str]
    denied: tuple[tuple[str, str], ...] = ()


def task_key(task: Json) -> str:
    """dag/run/task, and /index of a mapped one."""
    index = task.get("map_index", -1)
    end = "" if index in (-1, None) else f"/{index}"
    return f"{task['dag_id']}/{task['dag_run_id']}/{task['task_id']}{end}"


class AirflowApi:
    """Reads what `Heard` holds. The version is found out, and a token fetched, at the begin of each round."""

    def __init__(self, options: AirflowOptions) -> None:
        self._options = options
        self._rest = Rest(options, "airflow")
        self._base = "/api/v2"

    @property
    def where(self) -> str:
        """The address, as errors name it."""
        return self._options.url

    def hear(self) -> Heard:
        """One round of reading. Raises SchedulerUnreachable, or NotPermitted where pools may not be read."""
        with self._rest.connected():
            return self._round()

    def _round(self) -> Heard:
        self._enter()
        denied: list[tuple[str, str]] = []
        before = self._pages("/pools", "pools")
        tasks = self._allowed("task instances", denied, self._tasks)
        after = self._pages("/pools", "pools")
        reasons = self._reasons_if_any(tasks or (), denied)
        starts = self._allowed("dag runs", denied, self._run_starts) if self._base == "/api/v1" else {}
        return Heard(
            before=before, after=after, tasks=tasks, reasons=reasons, run_starts=starts or {},
            denied=tuple(denied),
        )  # fmt: skip

    def _enter(self) -> None:
        if self._options.user is None or self._options.password_file is None:
            is_two = self._rest.send("GET", "/api/v2/version").status_code in (404, 405)
            self._base = "/api/v1" if is_two else "/api/v2"
            return
        password = secret(self._options.password_file, "airflow")
        answer = self._rest.send("POST", "/auth/token", body={"username": self._options.user, "password": password})
        if answer.status_code in (404, 405):
            self._base, self._rest.auth = "/api/v1", httpx.BasicAuth(self._options.user, password)
            return
        if answer.status_code in (401, 403):
            place = self._rest.where("/auth/token")
            raise NotPermitted(f"POST {place}: {answer.status_code} for user {self._options.user!r}")
        self._base, self._rest.bearer = "/api/v2", str(self._rest.json(answer, "/auth/token")["access_token"])

    def _allowed(self, what: str, denied: list[tuple[str, str]], read: Callable[[], Read]) -> Read | None:
        try:
            return read()
        except NotPermitted as error:
            denied.append((what, str(error)))
            return None

    def _reasons_if_any(self, tasks: Sequence[Json], denied: list[tuple[str, str]]) -> Mapping[str, Sequence[Json]]:
        """A wait without its reason is still a wait: that Airflow cannot say why loses nothing else."""
        try:
            return self._allowed("task dependencies", denied, lambda: self._reasons(tasks)) or {}
        except SchedulerUnreachable as error:
            denied.append(("task dependencies", str(error)))
            return {}

    def _tasks(self) -> Sequence[Json]:
        query: dict[str, str | int | list[str]] = {
            "state": list(STATES),
            "pool": sorted(self._options.gpus_per_slot),
            "order_by": "id",
        }
        if self._base == "/api/v1":
            del query["order_by"]  # it has no order to choose; its own is a fixed one
        return self._pages("/dags/~/dagRuns/~/taskInstances", "task_instances", query)

    def _run_starts(self) -> Mapping[tuple[str, str], str]:
        runs = self._pages("/dags/~/dagRuns", "dag_runs", {"state": ["running"]})
        return {(run["dag_id"], run["dag_run_id"]): run["start_date"] for run in runs if run.get("start_date")}

    def _reasons(self, tasks: Sequence[Json]) -> Mapping[str, Sequence[Json]]:
        found = {}
        for task in [one for one in tasks if one.get("state") == "scheduled"][: self._options.reasons_at_most]:
            parts = [quote(str(task[name]), safe="") for name in ("dag_id", "dag_run_id", "task_id")]
            index = task.get("map_index", -1)
            mapped = "" if index in (-1, None) else f"/{int(index)}"
            path = "{}/dags/{}/dagRuns/{}/taskInstances/{}{}/dependencies".format(self._base, *parts, mapped)
            if told := self._rest.find(path):
                found[task_key(task)] = told.get("dependencies") or ()
        return found

    def _pages(self, path: str, name: str, query: Query | None = None) -> list[Json]:
        found: list[Json] = []
        while True:
            page = self._rest.get(f"{self._base}{path}", {**(query or {}), "limit": PAGE, "offset": len(found)})
            rows = page.get(name) if isinstance(page, dict) else None
            if not isinstance(rows, list):
                raise SchedulerUnreachable(f"{self._rest.where(self._base + path)}: answers no list of {name}")
            found += rows
            if not rows or len(found) >= int(page.get("total_entries") or 0):
                return found
