"""A Ray dashboard in memory, as a real 2.60 answered, for what a real one cannot do: be torn between two reads, stop
renewing its status, hold senseless actors. Its sums are of floats, with their errors, as Ray's are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from schedulers.fakes.web import Answer, Hung, Request, serving

TOKEN = "ray-token-not-to-be-told"
HEAD = "1a95cf309b695dfb8b3052c2453beb0483b7a90abf4eb628b6768964"
OTHER = "d13dfe74b9c0058a2b94516b68ec2ec58c0eec4a86f1de91a7ec127c"
GROUP = "eb058c2d6f393fe3899955b8e73e02000000"
BEGIN_MS = 1_772_409_600_000
"""2026-03-02 00:00 UTC."""

Row = dict[str, Any]


def node(node_id: str, gpus: float, name: str, cpus: float = 64.0, **other: Any) -> Row:
    return {
        "node_id": node_id, "node_ip": "192.0.2.2", "is_head_node": node_id == HEAD, "state": "ALIVE",
        "state_message": None, "node_name": name, "labels": {"ray.io/node-id": node_id},
        "resources_total": {"CPU": cpus, "GPU": gpus, "memory": 8.0 * 2**30, f"node:{name}": 1.0},
        "start_time_ms": BEGIN_MS - 3_600_000, "end_time_ms": 0, **other,
    }  # fmt: skip


def job(submission: str | None, status: str, driver: str | None = None, **other: Any) -> Row:
    return {
        "type": "SUBMISSION" if submission else "DRIVER", "job_id": driver, "submission_id": submission,
        "driver_info": None, "status": status, "entrypoint": "python t.py", "message": f"Job is {status}.",
        "start_time": BEGIN_MS - 600_000, "end_time": None, "metadata": {}, **other,
    }  # fmt: skip


def actor(key: str, job_id: str, gpus: Any, node_id: str | None = None, **other: Any) -> Row:
    return {
        "actor_id": f"{key}-{job_id}", "class_name": "A", "state": "ALIVE" if node_id else "PENDING_CREATION",
        "job_id": job_id, "name": "", "node_id": node_id, "pid": 100, "required_resources": {"GPU": gpus},
        "placement_group_id": None, "label_selector": {}, **other,
    }  # fmt: skip


def inside(gpus: float, group: str = GROUP, bundle: int = 0) -> Row:
    """What something asks for that runs in a bundle of a placement group."""
    return {
        f"GPU_group_{bundle}_{group}": gpus, f"GPU_group_{group}": gpus,
        f"bundle_group_{bundle}_{group}": 0.001, f"bundle_group_{group}": 0.001,
    }  # fmt: skip


def task(name: str, job_id: str, gpus: Any, state: str, node_id: str | None = None, **other: Any) -> Row:
    return {
        "task_id": f"{name}-{job_id}", "attempt_number": 0, "name": name, "state": state, "job_id": job_id,
        "actor_id": None, "type": "NORMAL_TASK", "node_id": node_id, "required_resources": {"CPU": 0.1, "GPU": gpus},
        "placement_group_id": None, "label_selector": {}, "creation_time_ms": BEGIN_MS - 500_000.0,
        "events": [{"state": state, "created_ms": BEGIN_MS - 400_000.0}],
        "start_time_ms": BEGIN_MS - 400_000.0 if node_id else None, "end_time_ms": None, **other,
    }  # fmt: skip


def group(name: str, job_id: str, bundles: list[tuple[float, str]], scheduling: str = "FINISHED", **other: Any) -> Row:
    """A placement group; a bundle without a node has no place."""
    told = [
        {
            "bundle_id": {"placement_group_id": name, "bundle_index": index},
            "unit_resources": {"GPU": gpus}, "node_id": node_id, "label_selector": {},
        }
        for index, (gpus, node_id) in enumerate(bundles)
    ]  # fmt: skip
    is_placed = all(node_id for _, node_id in bundles)
    return {
        "placement_group_id": name, "name": "pg", "creator_job_id": job_id,
        "state": "CREATED" if is_placed else "PENDING", "bundles": told,
        "stats": {
            "creation_request_received_ns": str((BEGIN_MS - 300_000) * 1_000_000), "scheduling_state": scheduling,
        }, **other,
    }  # fmt: skip


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.title() for part in others)


@dataclass
class FakeRay:
    """`most_rows` of a list are given at once. `before` is called ahead of each answer with its path."""

    nodes: list[Row]
    jobs: list[Row] = field(default_factory=list)
    actors: list[Row] = field(default_factory=list)
    tasks: list[Row] = field(default_factory=list)
    groups: list[Row] = field(default_factory=list)
    workers: list[Row] = field(default_factory=list)
    token: str | None = None
    most_rows: int = 10_000
    is_down: bool = False
    has_status: bool = True
    status_age_seconds: float = 2.0
    status_lags_gpus: float = 0.0
    before: Callable[[str], None] = lambda _: None
    asked: list[str] = field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Gives the address."""
        with serving(self._answer) as url:
            yield url

    def _answer(self, request: Request) -> Answer:
        if self.is_down:
            raise Hung
        if self.token and request.headers.get("authorization") != f"Bearer {self.token}":
            return Answer("Forbidden: Invalid authentication token", 403)
        self.before(request.path)
        self.asked.append(request.path)
        if request.path == "/api/jobs/":
            return Answer(self.jobs)
        if request.path == "/api/cluster_status":
            return Answer({"result": True, "msg": "Got cluster status.", "data": {"clusterStatus": self._status()}})
        kinds = {
            "nodes": self.nodes, "actors": self.actors, "tasks": self.tasks, "placement_groups": self.groups,
            "workers": self.workers,
        }  # fmt: skip
        kind = request.path.removeprefix("/api/v0/")
        return self._list(kinds[kind], request) if kind in kinds else Answer("404: Not Found", 404)

    def _list(self, rows: list[Row], request: Request) -> Answer:
        filters = zip(
            request.query.get("filter_keys", []),
            request.query.get("filter_predicates", []),
            request.query.get("filter_values", []),
            strict=True,
        )
        for column, predicate, value in filters:
            rows = [row for row in rows if (str(row.get(column)) == value) == (predicate == "=")]
        given = rows[: min(self.most_rows, int(request.one("limit", "100")))]
        counts = {"total": len(rows), "num_after_truncation": len(rows), "num_filtered": len(rows)}
        result = {**counts, "result": given, "partial_failure_warning": "", "warnings": None}
        return Answer({"result": True, "msg": "", "data": {"result": result}})

    def _status(self) -> Row | None:
        if not self.has_status:
            return None
        usage = {row["node_id"]: self._usage(row) for row in self.nodes if row["state"] == "ALIVE"}
        return {
            "time": time.time() - self.status_age_seconds,
            "autoscalerReport": {"activeNodes": {_camel(f"node_{row['node_id']}"): 1 for row in self.nodes}},
            "loadMetricsReport": {"usageByNode": usage},
        }

    def _usage(self, row: Row) -> Row:
        here = row["node_id"]
        used: Row = dict.fromkeys(row["resources_total"], 0.0)
        total: Row = dict(row["resources_total"])
        used["GPU"] += self.status_lags_gpus
        for group_id, index, gpus in self._placed(here):
            used["GPU"] += gpus
            for key in (f"GPU_group_{index}_{group_id}", f"GPU_group_{group_id}"):
                total[key] = total.get(key, 0.0) + gpus
                used.setdefault(key, 0.0)
        running = [one for one in self.tasks if one["node_id"] and one["state"].startswith("RUNNING")]
        for one in (*self.actors, *running):
            if one["node_id"] == here and isinstance(one["required_resources"], dict):
                for key, amount in one["required_resources"].items():
                    if key in used and isinstance(amount, float):
                        used[key] += amount
        return {_camel(key): [used[key], total[key]] for key in total}

    def _placed(self, here: str) -> Iterator[tuple[str, int, float]]:
        for one in self.groups:
            for index, bundle in enumerate(one["bundles"]):
                if bundle["node_id"] == here:
                    yield one["placement_group_id"], index, bundle["unit_resources"]["GPU"]
