"""A slurmrestd on loopback that tells what a test gave it, in the old form (v0.0.38) or the new (v0.0.42)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

TOKEN = "token-not-to-be-told"
BEGUN = 1_772_409_600
"""2026-03-02T00:00:00Z."""
NO_VAL = 4_294_967_294
GPU = {"type": "gres", "name": "gpu"}


def old_job(number: int, **told: Any) -> dict[str, Any]:
    """A job that runs on n1 with two GPUs, as v0.0.38 writes it."""
    return {
        "job_id": number, "name": f"job {number}", "account": "ml", "partition": "gpu", "qos": "normal",
        "user_name": "ann", "job_state": "RUNNING", "state_reason": "None", "state_description": "",
        "array_job_id": 0, "array_task_id": None, "array_task_string": "", "submit_time": BEGUN - 3600,
        "eligible_time": BEGUN - 3600, "start_time": BEGUN - 1800, "end_time": BEGUN + 86_400, "restart_cnt": 0,
        "nodes": "n1", "node_count": 1, "priority": 7, "tres_req_str": "cpu=4,mem=8G,node=1,gres/gpu=2",
        "tres_alloc_str": "cpu=4,mem=8G,node=1,gres/gpu=2,gres/gpu:h100=2", "tres_per_node": "gres:gpu:2",
        "tres_per_job": "", "gres_detail": ["gpu:h100:2(IDX:0-1)"], "admin_comment": "",
    } | told  # fmt: skip


def waiting(number: int, reason: str, **told: Any) -> dict[str, Any]:
    """A job that waits, as v0.0.38 writes it."""
    return old_job(
        number, job_state="PENDING", state_reason=reason, nodes="", start_time=0, end_time=NO_VAL, gres_detail=[],
        tres_alloc_str="", **told,
    )  # fmt: skip


def old_node(name: str, used: int, **told: Any) -> dict[str, Any]:
    """A node of eight GPUs, as v0.0.38 writes it."""
    span = f"0-{used - 1}" if used else "N/A"
    return {
        "name": name, "state": "mixed" if used else "idle", "state_flags": [], "gres": "gpu:h100:8",
        "gres_used": f"gpu:h100:{used}(IDX:{span})", "gres_drained": "N/A", "reason": "", "reason_changed_at": 0,
        "last_busy": BEGUN - 60, "partitions": ["gpu"], "cpus": 64, "real_memory": 512_000,
    } | told  # fmt: skip


def _number(value: Any) -> Any:
    if value in (None, NO_VAL):
        return {"set": False, "infinite": value == NO_VAL, "number": 0}
    return {"set": True, "infinite": False, "number": value}


def new_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """An old job as v0.0.42 writes it: objects for numbers, lists for states."""
    numbers = ("array_job_id", "array_task_id", "submit_time", "eligible_time", "start_time", "end_time", "node_count",
               "priority")  # fmt: skip
    told = {name: _number(value) if name in numbers else value for name, value in job.items()}
    nodes = {"count": 1, "list": job["nodes"]}
    return told | {"job_state": [job["job_state"]], "job_resources": {"nodes": nodes}}


def new_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """An old node as v0.0.42 writes it: one list of states and flags."""
    times = {name: _number(node[name]) for name in ("reason_changed_at", "last_busy")}
    state = [str(node["state"]).upper(), *node["state_flags"]]
    return {name: value for name, value in node.items() if name != "state_flags"} | times | {"state": state}


@dataclass
class Slurmrestd:
    """What is served. `errors` has (status, body) by the last part of a path; `asked` what was asked, in order."""

    version: str = "v0.0.38"
    jobs: list[dict[str, Any]] = field(default_factory=list)
    nodes: list[dict[str, Any]] = field(default_factory=list)
    associations: list[dict[str, Any]] = field(default_factory=list)
    qos: list[dict[str, Any]] = field(default_factory=list)
    past: list[dict[str, Any]] = field(default_factory=list)
    tres: list[dict[str, Any]] = field(default_factory=lambda: [{"type": "cpu", "name": None}, dict(GPU)])
    errors: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    is_torn: bool = False

    def answer(self, path: str) -> tuple[int, bytes]:
        """Status and body for a path."""
        kind = path.partition("?")[0].rsplit("/", 1)[-1]
        if kind in self.errors:
            return self.errors[kind]
        if path in ("/openapi/v3", "/openapi"):
            return 200, json.dumps({"paths": {f"/slurm/{self.version}/jobs": {}, "/ping": {}}}).encode()
        if f"/{self.version}/" not in path:
            return 404, b"Unable to find requested URL"
        return 200, json.dumps({"errors": [], **self._body(path, kind)}).encode()

    def _body(self, path: str, kind: str) -> dict[str, Any]:
        is_old = self.version == "v0.0.38"
        if path.startswith("/slurmdb/"):
            listed = {"jobs": self.past, "associations": self.associations, "qos": self.qos, "tres": self.tres}[kind]
            return {kind.upper() if kind in ("qos", "tres") and is_old else kind: listed}
        if kind == "jobs":
            return {"jobs": self.jobs if is_old else [new_job(job) for job in self.jobs]}
        if kind == "nodes":
            if self.is_torn:  # a job started between the calls
                self.nodes[0] = old_node(self.nodes[0]["name"], 7)
            return {"nodes": self.nodes if is_old else [new_node(node) for node in self.nodes]}
        if kind == "partitions":
            names = ",".join(node["name"] for node in self.nodes)
            old = {"name": "gpu", "nodes": names, "state": "UP"}
            new = {"name": "gpu", "nodes": {"configured": names}, "partition": {"state": ["UP"]}}
            return {"partitions": [old if is_old else new]}
        return {kind: []}

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Its address, until the end."""
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                told.asked.append(self.path)
                told.headers.append(dict(self.headers))
                status, body = told.answer(self.path)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", body.decode())
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 the base class calls it so
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
