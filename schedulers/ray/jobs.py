"""The rows of one job: workload, why it waits, what it holds on each node, what happened to it. Pure."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuledger.attribution import Rules, Subject, attribute
from gpuledger.model import Pod, Wait, Workload, WorkloadEvent
from schedulers.ray.amounts import PER_UNIT, units
from schedulers.ray.told import Job
from schedulers.ray.units import Unit
from schedulers.ray.waiting import NOT_YET, REASONS, Room, told
from schedulers.reasons import Told, root
from schedulers.rows import SnapshotRows

NAMESPACE = "ray"
QUEUE = "ray"
STATUSES = {
    "PENDING": "pending",
    "RUNNING": "running",
    "STOPPED": "cancelled",
    "SUCCEEDED": "finished",
    "FAILED": "failed",
}
ENDS = {"STOPPED": "cancelled", "SUCCEEDED": "finished", "FAILED": "failed"}


@dataclass(frozen=True, slots=True)
class Choices:
    """What the operator chose: see `RayOptions`."""

    resource: str = "GPU"
    tenant_key: str = "tenant"
    node_label: str | None = None
    is_on_kubernetes: bool = False
    rules: Rules = field(default_factory=Rules)

    @property
    def counted(self) -> str:
        """The resource as records of nodes and pods spell it."""
        return f"ray_{self.resource.lower()}"


@dataclass(slots=True)
class JobRows:
    """The rows of one job. `starts` are those of drivers, by job id."""

    rows: SnapshotRows
    choices: Choices
    job: Job
    work: Sequence[Unit]
    has_group: bool
    starts: Mapping[str, datetime]

    @property
    def workload_id(self) -> str:
        return self.rows.named(f"{NAMESPACE}/{self.job.key}")

    def _gpus(self, unit: Unit) -> int:
        return unit.demand.get(self.choices.resource, 0)

    @property
    def _held(self) -> list[Unit]:
        return [unit for unit in self.work if unit.holds and self._gpus(unit)]

    @property
    def _wanting(self) -> list[Unit]:
        """What waits for GPUs of the cluster: not for those of its own placement group, or for other tasks."""
        waits = [unit for unit in self.work if not unit.holds and not unit.is_inside and unit.state not in NOT_YET]
        return [unit for unit in waits if self._gpus(unit)]

    @property
    def wanted_parts(self) -> int:
        """What waits, in ten-thousandths of a GPU."""
        return sum(map(self._gpus, self._wanting))

    def add(self, room: Room, node_names: Mapping[str, str]) -> None:
        """Workload, wait, pods and events."""
        wait = self._wait(room)
        status = "running" if self._held else "pending" if wait else STATUSES.get(self.job.status, "unknown")
        workload = self._workload(status, wait)
        self.rows.add(workload)
        if wait:
            self.rows.add(wait)
        if not self.choices.is_on_kubernetes:
            self._add_pods(node_names)
        self._add_events(workload)

    def _wait(self, room: Room) -> Wait | None:
        if self._held or not (self._wanting or self.job.status == "PENDING"):
            return None
        message = self.job.message if self.job.status == "PENDING" else ""
        blocked = self._wanting or [unit for unit in self.work if not unit.holds]
        reasons: list[tuple[Told, datetime | None]] = [(told(unit, room, message), unit.since) for unit in blocked]
        if not reasons:
            reasons = [(REASONS.tell(self.job.status, message), None)]
        chosen = root([reason for reason, _ in reasons])
        reason, since = next(pair for pair in reasons if pair[0] is chosen)
        return Wait(
            workload_id=self.workload_id,
            from_at=min(since or self.job.submitted_at, self.rows.taken_at),
            cause=reason.cause,
            reason=reason.reason,
            message=reason.message or None,
            gpus=units(self.wanted_parts),
            pods=len(blocked) or None,
        )

    def _workload(self, status: str, wait: Wait | None) -> Workload:
        whose = attribute(Subject(NAMESPACE, self.job.key), self.job.metadata, self.rows.taken_at, self.choices.rules)
        tenant = whose.tenant if whose.tenant != NAMESPACE else self.job.metadata.get(self.choices.tenant_key, "")
        shape = max((*self._held, *self._wanting), key=self._gpus, default=None)
        is_over = status in ENDS.values()
        return Workload(
            workload_id=self.workload_id,
            name=self.job.key,
            kind=whose.kind,
            stage=whose.stage,
            tenant=tenant,
            user=whose.user,
            queue=self.rows.named(QUEUE),
            submitted_at=self.job.submitted_at,
            started_at=None if wait else self._started_at(),
            ended_at=self.job.ended_at if is_over else None,
            pod_count=len(self._held) + len(self._wanting) or 1,
            is_gang=self.has_group or any(unit.together for unit in self.work),
            scheduler=self.rows.scheduler,
            namespace=NAMESPACE,
            status=status,
            eligible_at=self.job.submitted_at,
            pending_cause=wait.cause if wait else None,
            pending_reason=": ".join(text for text in (wait.reason, wait.message) if text) if wait else None,
            **self._shape(shape),
        )

    def _shape(self, unit: Unit | None) -> dict[str, Any]:
        """GPUs, CPU and memory of the largest of its parts: a job of Ray has no one shape."""
        demand = unit.demand if unit else {}
        gpus = demand.get(self.choices.resource, 0)
        return {
            "num_gpu": max(1, gpus // PER_UNIT) if gpus else 0,
            "gpu_milli": 1000 if gpus >= PER_UNIT else gpus * 1000 // PER_UNIT,
            "cpu_milli": demand.get("CPU", 0) * 1000 // PER_UNIT,
            "memory_mib": demand.get("memory", 0) // PER_UNIT // 2**20,
        }

    def _started_at(self) -> datetime | None:
        """When its driver's process began, or that of the actor that runs its entrypoint."""
        supervisor = [unit.started_at for unit in self.work if unit.owner == self.job.key and unit.started_at]
        begun = self.starts.get(self.job.driver_id or "") or min(supervisor, default=None)
        return max(begun, self.job.submitted_at) if begun else None

    def _add_pods(self, node_names: Mapping[str, str]) -> None:
        by_node: dict[str, list[Unit]] = defaultdict(list)
        for unit in self._held:
            if unit.node_id and unit.node_id in node_names:
                by_node[unit.node_id].append(unit)
        for node_id, held in sorted(by_node.items()):
            starts = [unit.started_at for unit in held if unit.started_at]
            self.rows.add(
                Pod(
                    uid=f"ray/{self.rows.cluster}/{self.job.key}/{node_id}",
                    cluster=self.rows.cluster,
                    namespace=NAMESPACE,
                    pod=f"{self.job.key}@{node_names[node_id]}",
                    node=node_names[node_id],
                    workload_id=self.workload_id,
                    gpu_count=units(sum(map(self._gpus, held))),
                    resource=self.choices.counted,
                    phase="Running",
                    labels=json.dumps(self.job.metadata, ensure_ascii=False, sort_keys=True),
                    created_at=self.job.submitted_at,
                    started_at=min(starts, default=None),
                    seen_at=self.rows.taken_at,
                )
            )

    def _add_events(self, workload: Workload) -> None:
        dated = [("submitted", workload.submitted_at), ("started", workload.started_at)]
        if self.job.status in ENDS:
            dated.append((ENDS[self.job.status], self.job.ended_at))
        for kind, at in dated:
            if at:
                reason = self.job.message if kind in ENDS.values() else None
                self.rows.add(WorkloadEvent(workload_id=self.workload_id, ts=at, kind=kind, reason=reason or None))
