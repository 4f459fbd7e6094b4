"""Airflow's REST interface in memory, for what a real one cannot be made to do.

It is torn between two reads, holds senseless tasks, forgets rights. Version 2 answers as the OpenAPI document and a
real 3.3.2 do, version 1 as the documents of Airflow 2 say.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from schedulers.fakes.web import Answer, Hung, Request, serving

PASSWORD = "not-to-be-told"
TOKEN = "eyJ.very-secret.token"


def task(name: str, state: str | None, pool: str, slots: Any = 1, **other: Any) -> dict[str, Any]:
    """A task instance of dag `train`, run `r1`, as Airflow 3.3.2 says it."""
    times: dict[str, str | None] = {"scheduled_when": None, "queued_when": None, "start_date": None}
    if state is not None:
        times["scheduled_when"] = "2026-03-01T22:00:05Z"
    if state in ("queued", "running", "deferred"):
        times["queued_when"] = "2026-03-01T22:10:00Z"
    if state in ("running", "deferred"):
        times["start_date"] = "2026-03-01T22:10:30Z"
    return {
        "id": f"01a22ddf-{name}", "task_id": name, "dag_id": "train", "dag_run_id": "r1", "map_index": -1,
        "run_after": "2026-03-01T22:00:00Z", "state": state, "try_number": 1, "pool": pool, "pool_slots": slots,
        "queue": "default", "priority_weight": 1, "operator": "BashOperator", "hostname": "", **times, **other,
    }  # fmt: skip


@dataclass
class FakeAirflow:
    """Pools (name: slots, includes deferred) and tasks. `version` 2 is Airflow 3's interface, 1 is Airflow 2's."""

    pools: dict[str, tuple[int, bool]]
    tasks: list[dict[str, Any]]
    version: int = 2
    is_down: bool = False
    forbidden: set[str] = field(default_factory=set)
    hidden: set[str] = field(default_factory=set)
    before_pools: Callable[[FakeAirflow], None] = lambda _: None
    change_pool: Callable[[dict[str, Any]], dict[str, Any]] = lambda pool: pool
    asked: list[str] = field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Gives the address."""
        with serving(self._answer) as url:
            yield url

    def _answer(self, request: Request) -> Answer:
        self.asked.append(request.path)
        if self.is_down:
            raise Hung
        if request.path == "/auth/token" and self.version == 2:
            good = request.body == {"username": "viewer", "password": PASSWORD}
            return Answer({"access_token": TOKEN}, 201) if good else Answer({"detail": "Invalid credentials"}, 401)
        base = f"/api/v{self.version}"
        if not request.path.startswith(base):
            return Answer({"detail": "Not Found"}, 404)
        if not self._is_known(request):
            return Answer({"detail": "Not authenticated"}, 401)
        return self._route(request.path.removeprefix(base), request)

    def _is_known(self, request: Request) -> bool:
        basic = base64.b64encode(f"viewer:{PASSWORD}".encode()).decode()
        good = f"Bearer {TOKEN}" if self.version == 2 else f"Basic {basic}"
        return request.path.endswith("/version") or request.headers.get("authorization") == good

    def _route(self, path: str, request: Request) -> Answer:
        if any(path.endswith(end) for end in self.forbidden):
            return Answer({"detail": "Forbidden"}, 403)
        if path.endswith("/dependencies"):
            return self._dependencies(path)
        routes = {
            "/version": lambda _: Answer({"version": "3.3.2"}),
            "/pools": self._pools,
            "/dags/~/dagRuns/~/taskInstances": self._tasks,
            "/dags/~/dagRuns": self._runs,
        }
        return routes.get(path, lambda _: Answer({"detail": "Not Found"}, 404))(request)

    def _pools(self, request: Request) -> Answer:
        self.before_pools(self)
        return self._page(request, "pools", [self.change_pool(self._pool(name)) for name in self.pools])

    def _tasks(self, request: Request) -> Answer:
        return self._page(request, "task_instances", [one for one in self.tasks if self._is_asked(one, request)])

    def _runs(self, request: Request) -> Answer:
        runs = [{"dag_id": "train", "dag_run_id": "r1", "state": "running", "start_date": "2026-03-01T22:00:01Z"}]
        return self._page(request, "dag_runs", runs)

    def _is_asked(self, one: dict[str, Any], request: Request) -> bool:
        states, pools = request.query.get("state", []), request.query.get("pool", [])
        if one["task_id"] in self.hidden:  # of a DAG that the user may not see
            return False
        return (not states or one["state"] in states) and (not pools or one["pool"] in pools)

    def _page(self, request: Request, name: str, rows: list[Any]) -> Answer:
        begin, limit = int(request.one("offset", "0")), min(int(request.one("limit", "50")), 100)
        return Answer({name: rows[begin : begin + limit], "total_entries": len(rows)})

    def _count(self, pool: str, *states: str) -> int:
        held = [one["pool_slots"] for one in self.tasks if one["pool"] == pool and one["state"] in states]
        return sum(slots for slots in held if isinstance(slots, int))

    def _pool(self, name: str) -> dict[str, Any]:
        slots, includes = self.pools[name]
        occupied = self._count(name, "running", "queued", *(["deferred"] if includes else []))
        return {
            "name": name, "slots": slots, "description": None, "include_deferred": includes, "team_name": None,
            "occupied_slots": occupied, "open_slots": -1 if slots == -1 else slots - occupied,
            "running_slots": self._count(name, "running"), "queued_slots": self._count(name, "queued"),
            "scheduled_slots": self._count(name, "scheduled"), "deferred_slots": self._count(name, "deferred"),
        }  # fmt: skip

    def _dependencies(self, path: str) -> Answer:
        name = path.partition("/taskInstances/")[2].partition("/")[0]
        one = next(found for found in self.tasks if found["task_id"] == name)
        left = self._pool(one["pool"])["open_slots"]
        if left == -1 or not isinstance(one["pool_slots"], int) or one["pool_slots"] <= left:
            return Answer({"dependencies": []})
        words = (
            f"Not scheduling since there are {left} open slots in pool {one['pool']} "
            f"and require {one['pool_slots']} pool slots"
        )
        return Answer({"dependencies": [{"name": "Pool Slots Available", "reason": words}]})
