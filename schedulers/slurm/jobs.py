"""Jobs as workloads, what of them sits on which node, why they wait, and what Slurm dates in their lives."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuledger.attribution import Labels, Rules, Subject, attribute
from gpuledger.model import Pod, Wait, Workload, WorkloadEvent
from schedulers.reasons import Told
from schedulers.rows import SnapshotRows
from schedulers.slurm.facts import Job
from schedulers.slurm.holding import Hold, hold, share_milli, tasks, wish
from schedulers.slurm.names import hosts
from schedulers.slurm.nodes import HostGpus
from schedulers.slurm.reasons import told
from schedulers.slurm.tres import tres

NAMESPACE = "slurm"

_ENDS: Mapping[str, tuple[str, str]] = {
    "COMPLETED": ("finished", "finished"),
    "PREEMPTED": ("preempted", "preempted"),
    "REQUEUED": ("cancelled", "requeued"),
    "CANCELLED": ("cancelled", "cancelled"),
    "REVOKED": ("cancelled", "cancelled"),
}
"""(status, event) of the states in which an attempt ends; all others are failures."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A job with what was worked out of it."""

    job: Job
    held: Hold
    workload: Workload
    why: Told | None
    gpus: float
    """GPUs that it has, or asks for: five on two nodes are not two times three."""

    @property
    def waiting_gpus(self) -> float:
        """GPUs that it waits for, of its own will or not."""
        return 0.0 if self.why is None else self.gpus


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRows:
    """Makes the rows of jobs. `hosts` are the nodes by partition; `names` how exporters label tasks of arrays."""

    rows: SnapshotRows
    rules: Rules
    hosts: Mapping[str, Sequence[HostGpus]]
    names: str = "task"

    def add(self, jobs: Iterable[Job]) -> list[Reading]:
        """The rows of `jobs`; one that cannot be understood costs itself."""
        self.rows.listed("workload", "pod", "wait", "workload_event")
        found = []
        for job in jobs:
            with self.rows.sparing(self.workload_id(job)):
                found.append(self._add(job))
        return found

    def workload_id(self, job: Job) -> str:
        """The job's id in records."""
        return self.rows.named(f"{NAMESPACE}/{job.key}")

    def _add(self, job: Job) -> Reading:
        held = hold(job) if job.start_at is not None or job.is_holding else Hold(0.0)
        why = self._why(job)
        workload = self._workload(job, held, why)
        if held.problem and job.start_at is not None:
            self.rows.problem(
                "unparsed_allocation", workload.workload_id, f"job {job.label}: {held.problem}", subject_kind="workload"
            )
        self.rows.add(workload, *self._pods(job, held, workload), *self._events(job, workload))
        asked = held.total or (0.0 if held.problem else wish(job).gpus)
        reading = Reading(job, held, workload, why, tasks(job)[0] * asked)
        if why is not None:
            self.rows.add(self._wait(reading, why))
        return reading

    def _why(self, job: Job) -> Told | None:
        if job.is_waiting:
            near = [host for name in job.partition.split(",") for host in self.hosts.get(name, ())]
            return told(job, wish(job), near)
        return Told("startup", "CONFIGURING") if "CONFIGURING" in job.states else None

    def _workload(self, job: Job, held: Hold, why: Told | None) -> Workload:
        count, is_cut = tasks(job)
        asked, whole = wish(job) if not held.problem or held.total is not None else None, held.total
        if is_cut:
            self.rows.problem(
                "truncated_answer", self.workload_id(job), "the list of its tasks was cut", subject_kind="workload"
            )
        nodes = max(1, job.node_count)
        gpus = whole or (asked.gpus if asked else 0.0)
        amounts = tres(job.tres_alloc or job.tres_req) if asked else {}
        labels = self._labels(job)
        whose = attribute(Subject(NAMESPACE, job.label), labels, job.submit_at, self.rules)
        now = self.rows.taken_at
        return Workload(
            workload_id=self.workload_id(job),
            name=job.name or None,
            kind=whose.kind,
            stage=whose.stage,
            tenant=self.tenant(job.account, labels, job.submit_at),
            user=self.rules.answer("user", NAMESPACE, job.label, Labels(labels), job.submit_at) or job.user or None,
            queue=self.rows.named(job.account) if job.account else "",
            submitted_at=job.submit_at,
            started_at=job.start_at,
            ended_at=_ended_at(job),
            pod_count=count * nodes,
            num_gpu=math.ceil(gpus / nodes),
            gpu_milli=share_milli(job),
            cpu_milli=round(1000 * amounts.get("cpu", 0.0) / nodes),
            memory_mib=round(amounts.get("mem", 0.0) / nodes),
            priority=job.priority,
            is_gang=nodes > 1,
            scheduler=self.rows.scheduler,
            namespace=NAMESPACE,
            status=_status(job, why),
            eligible_at=job.eligible_at if job.eligible_at and job.eligible_at <= now else None,
            attempt=job.restarts or 0,
            pending_cause=why.cause if why else None,
            pending_reason=why.reason if why else None,
        )

    def tenant(self, account: str, labels: Mapping[str, str], at: datetime) -> str:
        """Whose an account is: by the rules, else the account itself."""
        return self.rules.answer("tenant", NAMESPACE, "", Labels(labels), at) or account or NAMESPACE

    def _labels(self, job: Job) -> dict[str, str]:
        told = {"account": job.account, "partition": job.partition, "qos": job.qos, "user": job.user}
        return {name: value for name, value in {**told, "job_name": job.name}.items() if value}

    def _pods(self, job: Job, held: Hold, workload: Workload) -> Iterable[Pod]:
        if job.start_at is None:
            return
        # What nobody said for sure must not replace what was seen while the job ran: the row seen last wins.
        seen_at = job.start_at if held.is_guess else self.rows.taken_at
        label = str(job.job_id) if self.names == "raw" else job.label
        for node, mark, stay in _stays(job, held, workload.ended_at):
            yield Pod(
                uid=f"slurm/{self.rows.cluster}/{job.key}/{node}{mark}",
                cluster=self.rows.cluster,
                namespace=NAMESPACE,
                pod=label,
                node=node,
                workload_id=workload.workload_id,
                gpu_count=stay.gpus,
                resource="gres_gpu",
                phase=_phase(workload.status) if stay.end_at == workload.ended_at else "Succeeded",
                owner_kind="SlurmJob",
                owner_name=job.label,
                labels=json.dumps(self._labels(job), ensure_ascii=False, sort_keys=True),
                created_at=job.submit_at,
                started_at=stay.begin_at,
                ended_at=stay.end_at,
                seen_at=seen_at,
            )

    def _events(self, job: Job, workload: Workload) -> Iterable[WorkloadEvent]:
        first = "requeued" if job.restarts else "submitted"
        dated = [(first, job.submit_at), ("eligible", workload.eligible_at), ("started", job.start_at)]
        if workload.ended_at is not None:
            dated.append((_end(job)[1], workload.ended_at))
        for kind, at in dated:
            if at is not None and at <= self.rows.taken_at:
                word = "+".join(sorted(job.states)) if at == workload.ended_at else None
                yield WorkloadEvent(workload_id=workload.workload_id, ts=at, kind=kind, reason=word)

    def _wait(self, reading: Reading, why: Told) -> Wait:
        return Wait(
            workload_id=reading.workload.workload_id,
            from_at=self.rows.taken_at,
            cause=why.cause,
            reason=why.reason,
            message=why.message or None,
            gpus=reading.gpus,
            pods=reading.workload.pod_count,
        )


@dataclass(frozen=True, slots=True)
class _Stay:
    """A time in which a job had so many GPUs of a node."""

    gpus: float | None
    begin_at: datetime | None
    end_at: datetime | None


def _stays(job: Job, held: Hold, ended_at: datetime | None) -> Iterable[tuple[str, str, _Stay]]:
    """(node, mark, stay): one of each node, but for jobs whose size changed. The mark tells earlier ones apart."""
    found: dict[str, list[_Stay]] = {}
    for part, had, end_at in (*((one, hold(one), one.end_at) for one in job.before), (job, held, ended_at)):
        begin_at = part.resized_at or part.start_at
        for node in had.by_node or dict.fromkeys(hosts(part.nodes)):
            stays, gpus = found.setdefault(node, []), had.by_node.get(node)
            if stays and stays[-1].gpus == gpus and stays[-1].end_at == begin_at:
                begin_at_node = stays.pop().begin_at
            else:
                begin_at_node = begin_at
            stays.append(_Stay(gpus, begin_at_node, end_at))
    for node, stays in found.items():
        for number, stay in enumerate(stays, start=1):
            yield node, f"/{number}" if number < len(stays) else "", stay


def _ended_at(job: Job) -> datetime | None:
    """When it ended; while it waits or holds its GPUs Slurm shows when it will have to."""
    return None if job.is_waiting or job.is_holding else job.end_at


def _end(job: Job) -> tuple[str, str]:
    return next((_ENDS[state] for state in _ENDS if state in job.states), ("failed", "failed"))


def _status(job: Job, why: Told | None) -> str:
    if why is not None:
        if why.cause in ("held", "dependency"):
            return "held"
        return "pending" if job.is_waiting else "admitted"
    if job.is_holding:
        return "suspended" if job.states & {"SUSPENDED", "STOPPED"} else "running"
    return _end(job)[0]


def _phase(status: str) -> str:
    return {"finished": "Succeeded", "failed": "Failed", "cancelled": "Failed", "preempted": "Failed"}.get(
        status, "Running"
    )
