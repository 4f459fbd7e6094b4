"""Reads YARN as of one moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from gpuledger.attribution import Rules
from gpuledger.clock import Clock
from gpuledger.errors import BadInput
from gpuledger.ports import SchedulerSnapshot, SnapshotScope
from schedulers.options import parsed
from schedulers.rest import steady
from schedulers.rows import SnapshotRows
from schedulers.yarn.answers import GPU
from schedulers.yarn.api import Heard, YarnApi, YarnOptions
from schedulers.yarn.apps import Applications, demand_of
from schedulers.yarn.nodes import YarnNode, add_node, nodes_of
from schedulers.yarn.queues import YarnQueue, add_queue, leaf_gpus, queues_of, scheduler_type

_RECORDS: Mapping[str, tuple[str, ...]] = {
    "queues": ("queue", "quota", "queue_resource", "queue_state"),
    "nodes": ("node", "scheduler_node", "node_state", "condition"),
    "applications": ("workload", "wait", "workload_event", "pod"),
    "containers": ("pod",),
}
"""What is not listed whole where something was denied."""
_CAPACITY = ("capacityScheduler", "")


class Yarn:
    """A reader of YARN's ResourceManager with the capacity scheduler."""

    name = "yarn"

    def __init__(self, options: YarnOptions, *, cluster: str, rules: Rules, clock: Clock) -> None:
        self.cluster = cluster
        self._rules = rules
        self._clock = clock
        self._api = YarnApi(options)

    @classmethod
    def from_options(cls, options: Mapping[str, Any], *, cluster: str = "default", rules: Rules, clock: Clock) -> Self:
        """Make one from `options` (YarnOptions). Raises ConfigError naming a wrong one."""
        return cls(parsed(YarnOptions, cls.name, options), cluster=cluster, rules=rules, clock=clock)

    def snapshot(self) -> SchedulerSnapshot:
        """Queues, nodes and applications as of one moment: no GPU moved between two reads, or all sums agree."""
        heard = steady(self._api.hear, doubt, self._api.where, self._clock)
        whose = self.name if self.cluster == "default" else f"{self.name}/{self.cluster}"
        rows = SnapshotRows(whose, self.cluster, self._clock.now())
        denied = list(heard.denied)
        queues = self._queues(heard, rows, denied)
        nodes = self._nodes(heard, rows)
        self._applications(heard, rows, queues, nodes)
        unlisted = {record for what, _ in denied for record in _RECORDS[what]} | ({"pod"} if heard.unasked else set())
        read = {record for what in ("queues", "nodes", "applications") for record in _RECORDS[what]} - unlisted
        scope = SnapshotScope(denied=tuple(denied), unlisted=frozenset(unlisted))
        return rows.snapshot(_version(heard), scope, also=read)

    def _queues(self, heard: Heard, rows: SnapshotRows, denied: list[tuple[str, str]]) -> list[YarnQueue]:
        if heard.after is None:
            return []
        kind = scheduler_type(heard.after)
        if kind not in _CAPACITY:
            denied.append(("queues", f"{self._api.where} runs the {kind}; only the capacityScheduler's are understood"))
            return []
        wrong: dict[str, str] = {}
        queues = queues_of(heard.after, wrong)
        for path, error in wrong.items():
            rows.problem("unreadable_object", path, error, subject_kind="queue")
        for queue in queues:
            lost = queue.parent in wrong
            add_queue(queue if not lost else _orphan(queue), self._rules, rows)
        return queues

    def _nodes(self, heard: Heard, rows: SnapshotRows) -> list[YarnNode] | None:
        if heard.nodes is None:
            return None
        wrong: dict[str, str] = {}
        nodes = nodes_of(heard.nodes, wrong)
        for name, error in wrong.items():
            rows.problem("unreadable_object", name, error)
        for node in nodes:
            add_node(node, rows)
        return nodes

    def _applications(
        self, heard: Heard, rows: SnapshotRows, queues: list[YarnQueue], nodes: list[YarnNode] | None
    ) -> None:
        if heard.apps is None:
            return
        if heard.unasked:
            detail = f"{heard.unasked} applications with GPUs were not asked where: containers_at_most"
            rows.problem("truncated_answer", "containers", detail, subject_kind="workload", count=heard.unasked)
        hidden = sum(app.get("state") == "RUNNING" and not app.get("startedTime") for app in heard.apps)
        if hidden:
            detail = "applications that run do not tell since when: the right VIEW_APP is missing"
            rows.problem("not_permitted", "applications", detail, subject_kind="workload", count=hidden)
        free = sum(_free(node) for node in nodes) if nodes is not None else None
        applications = Applications(queues, self._rules, rows, free)
        for app in heard.apps:
            with rows.sparing(str(app.get("id"))):
                applications.add(app, heard.containers.get(str(app.get("id")), ()))


def _orphan(queue: YarnQueue) -> YarnQueue:
    """A queue whose parent could not be read has none that we know."""
    return replace(queue, parent=None)


def _free(node: YarnNode) -> float:
    return node.total.get(GPU, 0.0) - node.used.get(GPU, 0.0) if node.state == "RUNNING" else 0.0


def doubt(heard: Heard) -> str:
    """Why a round is not of one moment; "" where it is."""
    nodes = nodes_of(heard.nodes) if heard.nodes is not None else None
    for node in nodes or ():
        if node.used.get(GPU, 0.0) > node.total.get(GPU, 0.0):
            return f"node {node.name} gave {node.used[GPU]:g} GPUs away and has {node.total.get(GPU, 0.0):g}"
    if heard.before is None or heard.after is None or scheduler_type(heard.after) not in _CAPACITY:
        return ""
    before, after = (leaf_gpus(queues_of(told)) for told in (heard.before, heard.after))
    held = sum(used for used, _, _ in after.values())
    there = None if nodes is None else sum(node.total.get(GPU, 0.0) for node in nodes)
    if there is not None and held > there:
        return f"queues hold {held:g} GPUs and nodes have {there:g}"
    if before == after:
        return ""
    given = None if nodes is None else sum(node.used.get(GPU, 0.0) for node in nodes)
    return "" if held == given == _held(heard) else "GPUs moved between queues while the rest was read"


def _held(heard: Heard) -> float:
    found = 0.0
    for app in heard.apps or ():
        try:
            found += demand_of(app).held_gpus
        except BadInput:
            continue
    return found


def _version(heard: Heard) -> str:
    """A text that changes when anything that was read does, but times that pass."""
    passing = ("elapsedTime", "memorySeconds", "vcoreSeconds", "resourceSecondsMap", "progress", "diagnostics")
    apps = [{name: value for name, value in app.items() if name not in passing} for app in heard.apps or ()]
    nodes = [
        {name: value for name, value in node.items() if name not in ("lastHealthUpdate", "resourceUtilization")}
        for node in heard.nodes or ()
    ]
    held = json.dumps([heard.after, nodes, apps], sort_keys=True, default=str)
    return hashlib.sha256(held.encode()).hexdigest()[:16]
