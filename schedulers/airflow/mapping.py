"""From what Airflow said to records. Pure: no input or output here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.attribution.labels import Labels
from gpuledger.errors import BadInput
from gpuledger.model import Queue, QueueResource, QueueState, Quota, Wait, Workload, WorkloadEvent
from schedulers.airflow.api import Heard, Json, task_key
from schedulers.reasons import Reasons, Told, root
from schedulers.rows import INSTANT_SECONDS, SnapshotRows

NAMESPACE = "airflow"
"""What attribution rules see as the namespace of tasks; the pod is "<dag>/<run>/<task>"."""

REASONS = Reasons.of(
    (
        (r"^Exceeds Pool:", "exceeds_max"),
        (r"non-existent pool", "own_config"),
        (r"is assigned to team", "own_config"),
        (r"^Pool Slots Available:", "quota"),
        (r"^Task Instance Slots Available:|max active tasks|maximum number of tasks running", "quota"),
        (r"^Task Concurrency:|max task concurrency", "quota"),
        (r"^Trigger Rule:|^Previous Dagrun State:|mapped dependencies", "dependency"),
        (r"^(Dag Not Paused|Dagrun Running):|is paused", "held"),
        (r"^(Execution Date|Logical Date|Not In Retry Period|Ready To Reschedule):?", "held"),
        (r"^up_for_(retry|reschedule)", "held"),
        (r"^(scheduled|queued)", "scheduler"),
    )
)
"""Names of Airflow's dependencies ("name: reason") and, where it tells none, the state of the task."""

_STATUSES = {
    "scheduled": "pending",
    "queued": "admitted",
    "running": "running",
    "up_for_retry": "held",
    "up_for_reschedule": "held",
}
_DATED = (("eligible", "scheduled_when"), ("admitted", "queued_when"), ("started", "start_date"))


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool with GPUs. `slots` is None where there are as many as anybody wants."""

    name: str
    tenant: str
    gpus_per_slot: float
    slots: int | None
    running: int
    queued: int
    scheduled: int
    deferred: int
    holds_deferred: bool

    @property
    def held_slots(self) -> int:
        """Slots of tasks that run, or left work behind that runs elsewhere."""
        return self.running + (self.deferred if self.holds_deferred else 0)


def pools_of(told: Any, gpus_per_slot: Mapping[str, float]) -> tuple[dict[str, Pool], dict[str, str]]:
    """The pools with GPUs by name, and what is wrong with those that make no sense."""
    found: dict[str, Pool] = {}
    wrong: dict[str, str] = {}
    for one in told:
        name = str(one.get("name")) if isinstance(one, dict) else ""
        if name in gpus_per_slot:
            try:
                found[name] = _pool(one, gpus_per_slot[name])
            except BadInput as error:
                wrong[name] = str(error)
    return found, wrong


def _pool(told: Json, gpus_per_slot: float) -> Pool:
    slots = _count(told, "slots", low=-1)
    return Pool(
        name=told["name"],
        tenant=told.get("team_name") or told["name"],
        gpus_per_slot=gpus_per_slot,
        slots=None if slots == -1 else slots,
        running=_count(told, "running_slots"),
        queued=_count(told, "queued_slots"),
        scheduled=_count(told, "scheduled_slots"),
        deferred=_count(told, "deferred_slots"),
        holds_deferred=bool(told.get("include_deferred", False)),
    )


def _count(told: Json, name: str, low: int = 0) -> int:
    value = told.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise BadInput(name, f"{str(value)[:40]!r} is no number of slots")
    return value


def _instant(told: Json, name: str) -> datetime | None:
    value = told.get(name)
    if value is None:
        return None
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise BadInput(name, f"{str(value)[:40]!r} is no time") from None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def slots_by_state(tasks: Any) -> dict[tuple[str, str], int]:
    """Slots by (pool, state), as the tasks say; those that make no sense are left out."""
    found: dict[tuple[str, str], int] = {}
    for task in tasks:
        if isinstance(task, dict) and isinstance(task.get("pool_slots"), int):
            key = str(task.get("pool")), str(task.get("state"))
            found[key] = found.get(key, 0) + task["pool_slots"]
    return found


class Mapped:
    """Puts the records of one round into `rows`."""

    def __init__(self, heard: Heard, gpus_per_slot: Mapping[str, float], rules: Rules, rows: SnapshotRows) -> None:
        self._heard = heard
        self._rows = rows
        self._rules = rules
        self._pools, self._wrong = pools_of(heard.after, gpus_per_slot)
        for name in sorted(set(gpus_per_slot) - set(self._pools) - set(self._wrong)):
            self._wrong[name] = "gpus_per_slot names this pool, and Airflow has none of this name"

    def all(self) -> None:
        """Pools, tasks, and where their counts do not agree."""
        for name, wrong in sorted(self._wrong.items()):
            self._rows.problem("unreadable_object", name, wrong, subject_kind="queue")
        for pool in self._pools.values():
            self._add_pool(pool)
        if self._heard.tasks is None:
            return
        self._rows.listed("workload", "wait", "workload_event")
        for task in self._heard.tasks:
            with self._rows.sparing(str(task.get("task_id")) if isinstance(task, dict) else "task"):
                self._add_task(task)
        self._compare()

    def _add_pool(self, pool: Pool) -> None:
        rows, at, name = self._rows, self._rows.taken_at, self._rows.named(pool.name)
        limit = None if pool.slots is None else pool.slots * pool.gpus_per_slot
        slots = None if pool.slots is None else float(pool.slots)
        rows.add(
            Queue(queue=name, tenant=pool.tenant, scheduler=rows.scheduler, status="held" if slots == 0 else "open"),
            Quota(queue=name, tenant=pool.tenant, nominal_gpus=limit, limit_gpus=limit, from_at=at),
            QueueResource(
                queue=name, resource="slots", nominal=slots, limit=slots, used=float(pool.held_slots),
                reserved=float(pool.queued), pending=float(pool.scheduled), from_at=at,
            ),
            QueueState(
                ts=at, queue=name, tenant=pool.tenant, duration_seconds=INSTANT_SECONDS, nominal_gpus=limit,
                running_gpus=pool.held_slots * pool.gpus_per_slot,
                pending_gpus=pool.scheduled * pool.gpus_per_slot,
                reserved_gpus=pool.queued * pool.gpus_per_slot,
                borrowed_gpus=0.0, lent_gpus=0.0,
            ),
        )  # fmt: skip
        occupied = pool.held_slots + pool.queued
        if pool.slots is not None and occupied > pool.slots:
            detail = f"{occupied} of {pool.slots} slots are occupied"
            rows.problem("limit_not_enforced", name, detail, subject_kind="queue", count=occupied)

    def _add_task(self, task: Json) -> None:
        pool = self._pools.get(task["pool"])
        if pool is None:  # its pool makes no sense, or was made since
            return
        workload = self._workload(task, pool)
        told = self._told(task, pool) if workload.status in ("pending", "admitted", "held") else None
        if told is None:
            self._rows.add(workload)
        else:
            self._wait(task, workload, told)
        for kind, name in (("submitted", "run_after"), *_DATED):
            at = workload.submitted_at if kind == "submitted" else _instant(task, name)
            if at is not None and at <= self._rows.taken_at:
                self._rows.add(WorkloadEvent(workload_id=workload.workload_id, ts=at, kind=kind))

    def _wait(self, task: Json, workload: Workload, told: Told) -> None:
        waiting = replace(
            workload, pending_cause=told.cause, pending_reason=f"{told.reason}: {told.message}".rstrip(": ")
        )
        began = _instant(task, "queued_when" if task["state"] == "queued" else "scheduled_when")
        at = self._rows.taken_at
        self._rows.add(
            waiting,
            Wait(
                workload_id=workload.workload_id, from_at=min(began or at, at), cause=told.cause, reason=told.reason,
                message=told.message or None, gpus=workload.num_gpu * workload.gpu_milli / 1000, pods=1,
            ),
        )  # fmt: skip

    def _workload(self, task: Json, pool: Pool) -> Workload:
        key, gpus = task_key(task), _count(task, "pool_slots") * pool.gpus_per_slot
        cards = math.ceil(gpus)
        labels = Labels({name: str(task[name]) for name in ("dag_id", "task_id", "pool", "operator") if task.get(name)})
        at = self._rows.taken_at

        def ruled(name: str) -> str | None:
            return self._rules.answer(name, NAMESPACE, key, labels, at)

        return Workload(
            workload_id=self._rows.named(f"airflow/{key}"),
            name=str(task["task_id"]),
            kind=ruled("kind") or "batch",
            stage=ruled("stage") or "other",
            tenant=ruled("tenant") or pool.tenant,
            user=ruled("user"),
            queue=self._rows.named(pool.name),
            submitted_at=self._submitted(task),
            started_at=_instant(task, "start_date") if task["state"] in ("running", "deferred") else None,
            eligible_at=_instant(task, "scheduled_when"),
            pod_count=1,
            num_gpu=cards,
            gpu_milli=round(1000 * gpus / cards) if cards else 0,
            cpu_milli=0,
            memory_mib=0,
            priority=int(task.get("priority_weight") or 0),
            scheduler=self._rows.scheduler,
            namespace=NAMESPACE,
            status=self._status(task, pool),
            attempt=max(int(task.get("try_number") or 0), 0),
        )

    def _status(self, task: Json, pool: Pool) -> str:
        if task["state"] == "deferred":
            return "running" if pool.holds_deferred else "suspended"
        return _STATUSES[task["state"]]

    def _submitted(self, task: Json) -> datetime:
        for name in ("run_after", "scheduled_when", "queued_when", "start_date"):
            if at := _instant(task, name):
                return at
        run = {"start_date": self._heard.run_starts.get((task["dag_id"], task["dag_run_id"]))}
        return _instant(run, "start_date") or self._rows.taken_at

    def _told(self, task: Json, pool: Pool) -> Told:
        state, slots = task["state"], task["pool_slots"]
        told = [
            REASONS.tell(str(one.get("name", "")), str(one.get("reason", "")))
            for one in self._heard.reasons.get(task_key(task), ())
        ]
        if state == "scheduled" and pool.slots is not None and slots > pool.slots:
            words = told[0].message if told else f"requires {slots} slots of {pool.slots}"
            told.append(Told("exceeds_max", "Pool Slots Available", words))
        return root(told) or REASONS.tell(state)

    def _compare(self) -> None:
        """The pools' own counts against their tasks': tasks that we may not see, or that made no sense."""
        said = slots_by_state(self._heard.tasks)
        for pool in self._pools.values():
            own = (("running", pool.running), ("queued", pool.queued), ("scheduled", pool.scheduled))
            apart = [f"{count} {state} slots, its tasks {said.get((pool.name, state), 0)}" for state, count in own
                     if count != said.get((pool.name, state), 0)]  # fmt: skip
            if apart:
                off = sum(abs(count - said.get((pool.name, state), 0)) for state, count in own)
                self._rows.problem(
                    "quota_mismatch",
                    self._rows.named(pool.name),
                    f"the pool says {'; '.join(apart)}",
                    subject_kind="queue",
                    count=math.ceil(off * pool.gpus_per_slot),
                )
