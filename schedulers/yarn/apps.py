"""Applications of YARN, what they hold and why they wait, and where their containers are."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gpuledger.attribution import Rules
from gpuledger.attribution.labels import Labels
from gpuledger.errors import BadInput
from gpuledger.model import Pod, Wait, Workload, WorkloadEvent
from schedulers.reasons import Reasons, Told
from schedulers.rows import SnapshotRows
from schedulers.yarn.answers import (
    GPU,
    GPU_RECORD,
    Json,
    amounts,
    by_partition,
    entries,
    instant,
    listed,
    number,
    total,
)
from schedulers.yarn.queues import NAMESPACE, YarnQueue, tenant_of

REASONS = Reasons.of(
    (
        (r"(queue's|user's) am resource limit exceeded", "quota"),
        (r"max-parallel-app|parallel (app|limit)", "quota"),
        (r"cluster resource is empty", "health"),
        (r"black ?listed|ignore exclusivity mode|locality is not matching|node label", "placement"),
        (r"am container is launched|scheduler has assigned a container for am", "startup"),
        (r"waiting for resources to be assigned for am", "capacity"),
        (r"not yet activated", "quota"),
        (r"^(new|new_saving|submitted)\b", "scheduler"),
    )
)
"""The capacity scheduler's own sentences: AMState and CSAMContainerLaunchDiagnosticsConstants in Hadoop's source."""

_DATED = re.compile(r"^\[[A-Z][a-z]{2} [A-Z][a-z]{2} +\d+ [\d:]+ \S+ \d{4}\] *")
"""The RM puts the time before a diagnostic, a new one at each try: it does not say since when the reason holds."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What an application holds and wants: GPUs, and the shape of a container where it was told."""

    held_gpus: float
    wanted_gpus: float
    gpus_a_container: int
    containers: int


def demand_of(app: Json) -> Demand:
    """What `app` holds and wants. Raises BadInput. Requests for a host or a rack repeat those for any place ("*")."""
    info = app.get("resourceInfo")
    held = total(by_partition(info, "resourceUsagesByPartition", "used"), GPU)
    wanted = total(by_partition(info, "resourceUsagesByPartition", "pending"), GPU)
    shapes: dict[int, int] = {}
    for asked in listed(app.get("resourceRequests")):
        gpus = int((amounts(asked.get("capability"), "capability") or {}).get(GPU, 0))
        if gpus and asked.get("resourceName", "*") == "*":
            shapes[gpus] = shapes.get(gpus, 0) + int(number(asked.get("numContainers"), "numContainers"))
    if shapes:
        gpus = max(shapes)
        more = shapes[gpus]
        wanted = wanted or float(sum(size * count for size, count in shapes.items()))
        return Demand(held, wanted, gpus, more + round(held / gpus))
    return Demand(held, wanted, math.ceil(held + wanted), 1 if held + wanted else 0)


class Applications:
    """Puts applications and containers into `rows`. `free_gpus` are free in the whole cluster; None: not known."""

    def __init__(
        self, queues: Sequence[YarnQueue], rules: Rules, rows: SnapshotRows, free_gpus: float | None = None
    ) -> None:
        self._rows = rows
        self._rules = rules
        self._free_gpus = free_gpus
        self._paths = {queue.path: queue for queue in queues}
        self._leaves: dict[str, list[str]] = {}
        for queue in queues:
            self._leaves.setdefault(queue.path.rpartition(".")[2], []).append(queue.path)

    def add(self, app: Json, containers: Sequence[Json]) -> None:
        """The records of one application. Raises BadInput for one that makes no sense."""
        name, state, demand = str(app["id"]), str(app.get("state")), demand_of(app)
        workload = self._workload(app, demand, containers)
        told = self._told(app, state, demand, workload.queue)
        if told is not None:
            words = f"{told.reason}: {told.message}".rstrip(": ")
            workload = replace(workload, pending_cause=told.cause, pending_reason=words)
            self._rows.add(
                Wait(
                    workload_id=workload.workload_id, from_at=self._rows.taken_at, cause=told.cause,
                    reason=told.reason, message=told.message or None, gpus=demand.wanted_gpus or None,
                )
            )  # fmt: skip
        self._rows.add(workload)
        for kind, field in (("submitted", "startedTime"), ("started", "launchTime")):
            at = instant(app.get(field))
            if at is not None and at <= self._rows.taken_at:
                self._rows.add(WorkloadEvent(workload_id=workload.workload_id, ts=at, kind=kind))
        for one in containers:
            with self._rows.sparing(str(one.get("containerId") or name)):
                self._add_container(one, workload)

    def _told(self, app: Json, state: str, demand: Demand, queue: str) -> Told | None:
        """Why it waits; None where it does not."""
        words = _DATED.sub("", str(app.get("diagnostics") or "")).strip()
        if state != "RUNNING":
            return REASONS.tell(state, words)
        if demand.held_gpus or not demand.wanted_gpus:
            return None
        told = REASONS.tell(state, words or f"pending {demand.wanted_gpus:g} {GPU}, used 0")
        return told if told.cause != "unknown" else replace(told, cause=self._cause(demand, queue))

    def _cause(self, demand: Demand, name: str) -> str:
        """What the numbers say where the scheduler has no words: its master runs, and not one GPU was given."""
        queue = next((one for path, one in self._paths.items() if self._rows.named(path) == name), None)
        if queue is not None and queue.most:
            most = total(queue.most, GPU)
            if demand.gpus_a_container > most:
                return "exceeds_max"
            if total(queue.used, GPU) + demand.gpus_a_container > most:
                return "quota"
        if self._free_gpus is None:
            return "unknown"
        return "capacity" if self._free_gpus < demand.gpus_a_container else "fragmentation"

    def _path(self, told: str) -> str:
        """The queue that `told` means: a path, or the name of the only leaf that is called so."""
        if told in self._paths or not self._paths:
            return told
        found = self._leaves.get(told, [])
        if len(found) != 1:
            raise BadInput("queue", f"{told!r} names {len(found)} queues")
        return found[0]

    def _workload(self, app: Json, demand: Demand, containers: Sequence[Json]) -> Workload:
        path, at = self._path(str(app.get("queue") or "")), self._rows.taken_at
        names = ("applicationType", "applicationTags", "queue", "user", "name")
        labels = Labels({**{name: str(app[name]) for name in names if app.get(name)}, "queue": path})

        def ruled(name: str) -> str | None:
            return self._rules.answer(name, NAMESPACE, str(app["id"]), labels, at)

        shape = _shape(containers) or (demand.gpus_a_container, demand.containers)
        return Workload(
            workload_id=self._rows.named(f"yarn/{app['id']}"),
            name=str(app["name"]) if app.get("name") else None,
            kind=ruled("kind") or "batch",
            stage=ruled("stage") or "other",
            tenant=ruled("tenant") or tenant_of(path, self._rules, self._rows),
            user=ruled("user") or (str(app["user"]) if app.get("user") else None),
            queue=self._rows.named(path),
            submitted_at=instant(app.get("startedTime")) or at,
            started_at=_started(app),
            pod_count=shape[1],
            num_gpu=shape[0],
            gpu_milli=1000 if shape[0] else 0,
            cpu_milli=0,
            memory_mib=0,
            priority=int(app.get("priority") or 0),
            scheduler=self._rows.scheduler,
            namespace=NAMESPACE,
            status=self._status(app, demand),
        )

    def _status(self, app: Json, demand: Demand) -> str:
        if app.get("state") != "RUNNING":
            return "pending"
        return "running" if demand.held_gpus or not demand.wanted_gpus else "admitted"

    def _add_container(self, told: Json, workload: Workload) -> None:
        held = entries(told.get("allocatedResources"), "allocatedResources")
        if not held.get(GPU) or told.get("containerState") == "COMPLETE":
            return
        name = str(told["containerId"])
        node = str(told.get("nodeId") or told.get("assignedNodeId") or "").rpartition(":")[0]
        self._rows.add(
            Pod(
                uid=self._rows.named(name),
                cluster=self._rows.cluster,
                namespace=NAMESPACE,
                pod=name,
                node=node or None,
                workload_id=workload.workload_id,
                gpu_count=held[GPU],
                resource=GPU_RECORD,
                phase=str(told.get("containerState") or "") or None,
                owner_kind="Application",
                owner_name=workload.workload_id.rpartition("/")[2],
                created_at=instant(told.get("startedTime")),
                started_at=instant(told.get("startedTime")),
                seen_at=self._rows.taken_at,
            )
        )


def _started(app: Json) -> datetime | None:
    return instant(app.get("launchTime")) if app.get("state") == "RUNNING" else None


def _shape(containers: Sequence[Json]) -> tuple[int, int] | None:
    """GPUs a container, and how many containers have as many; None where no container was told."""
    sizes: dict[int, int] = {}
    for one in containers:
        try:
            held: Mapping[str, float] = entries(one.get("allocatedResources"), "allocatedResources")
        except BadInput:
            continue
        if gpus := int(held.get(GPU, 0)):
            sizes[gpus] = sizes.get(gpus, 0) + 1
    return max(sizes.items()) if sizes else None
