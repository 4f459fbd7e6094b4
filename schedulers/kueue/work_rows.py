"""Workloads, what is in their way, and what happened to them, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gpuledger.model import Wait, Workload, WorkloadEvent
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kueue.cards import Cards
from schedulers.kueue.events import events_of
from schedulers.kueue.jobs import Job
from schedulers.kueue.quotas import Queues
from schedulers.kueue.waiting import Judge, Standstill, State, best, eligible_at
from schedulers.reasons import Told

WAITING = ("held", "pending", "admitted")
OVER = ("finished", "failed", "cancelled")

_FIRST_AND_LAST = ("submitted", *OVER)
"""Events that a workload has once: Kueue's object is older than its pods and says how it ended."""


@dataclass(frozen=True, slots=True)
class Works:
    """Turns Workload objects into records, beside what the core made of the pods that they already have."""

    core: CoreFacts
    queues: Queues
    judge: Judge
    cards: Cards

    def add(self, jobs: Sequence[Job]) -> Mapping[str, State]:
        """Rows of all work with GPUs; the state of each object by "namespace/name"."""
        by_id: dict[str, list[Job]] = {}
        for job in jobs:
            if self.cards.are_wanted(job):
                by_id.setdefault(job.id, []).append(job)
        states = {job.subject: self.judge.state(job) for job in jobs}
        by_uid = {job.uid: job.id for job in jobs}
        for group in by_id.values():
            self._add(group, states)
        _retell(self.core, by_id, by_uid)
        return states

    def _add(self, group: Sequence[Job], states: Mapping[str, State]) -> None:
        job, state = best((job, states[job.subject]) for job in group)
        known = self.core.workloads.get(job.id)
        status = _with_pods(state.status, known)
        alive = [one for one in group if not one.now("Finished")] or [job]
        self.core.workloads[job.id] = replace(
            known or self._new(alive, job),
            queue=self.core.rows.named(job.queue) if job.queue and job.queue in self.queues.queues else "",
            status=status,
            priority=job.priority,
            is_gang=job.whose.is_gang or (known is not None and known.is_gang),
            pod_count=max(sum(_pods(one) for one in alive), known.pod_count if known else 0),
            submitted_at=min(one.created_at for one in alive),
            eligible_at=eligible_at(job, state),
            started_at=_started(job, status, known),
            ended_at=_ended(job, status, known),
            attempt=job.evictions,
        )
        self._say(group, states, status)

    def _say(self, group: Sequence[Job], states: Mapping[str, State], status: str) -> None:
        """What is in its way. Pods that wait for Kueue say less than Kueue; those that it let go say it themselves."""
        workload_id = group[0].id
        if status not in WAITING:
            self.core.unsay(workload_id, status)
            return
        waiting = [(job, state) for job in group if (state := states[job.subject]).status == status]
        if status == "admitted" and not any(state.waits for _, state in waiting):
            self._admitted(waiting[0][0], workload_id)
            return
        self.core.unsay(workload_id, status)
        for job, state in waiting:
            for wait in state.waits:
                self.core.say(self._wait(job, wait), status)

    def _admitted(self, job: Job, workload_id: str) -> None:
        """Kueue let it go: its pods tell what they wait for; pods that are not there yet are to be made."""
        told = list(self.core.waits.get(workload_id, ()))
        self.core.unsay(workload_id, "admitted")
        for wait in told:
            self.core.say(wait, "admitted")
        if not told:
            admitted = job.now("Admitted")
            placed = ", ".join(f"{place} ({pods})" for one in job.pod_sets for place, pods in one.placed)
            words = f"{admitted.message if admitted else ''} to run in {placed}".strip() if placed else ""
            reason = admitted.reason if admitted and admitted.reason else "Admitted"
            told_now = Told("startup", reason, words or (admitted.message if admitted else ""), job.subject)
            self.core.say(self._wait(job, Standstill(told_now, admitted.since if admitted else None)), "admitted")

    def _wait(self, job: Job, wait: Standstill) -> Wait:
        return Wait(
            workload_id=job.id,
            from_at=min(wait.since or self.core.rows.taken_at, self.core.rows.taken_at),
            cause=wait.told.cause,
            reason=wait.told.reason,
            message=wait.told.message or None,
            gpus=self.cards.wanted(job),
            pods=_pods(job),
        )

    def _new(self, alive: Sequence[Job], job: Job) -> Workload:
        """A workload that has no pods (yet)."""
        per_pod, gpus, milli = self.cards.shape(job)
        return Workload(
            workload_id=job.id,
            name=job.whose.name,
            kind=job.whose.kind,
            stage=job.whose.stage,
            tenant=job.whose.tenant,
            user=job.whose.user,
            submitted_at=job.created_at,
            pod_count=sum(_pods(one) for one in alive),
            num_gpu=gpus,
            gpu_milli=milli,
            cpu_milli=round(per_pod.get("cpu", 0) * 1000),
            memory_mib=round(per_pod.get("memory", 0) / 2**20),
            scheduler=self.core.rows.scheduler,
            namespace=job.namespace,
        )


def _with_pods(status: str, known: Workload | None) -> str:
    """What Kueue says, and where pods know better, what they say: they run (also on), or succeeded all already."""
    if known is None:
        return status
    runs, is_done = known.status == "running" and status in (*WAITING, *OVER), known.status == "finished"
    return known.status if runs or (is_done and status in ("admitted", "running")) else status


def _ended(job: Job, status: str, known: Workload | None) -> datetime | None:
    """When its pods did; where they are gone by now, when Kueue saw it. What goes on has not ended."""
    if status not in OVER:
        return None
    over = job.now("Finished")
    return (known.ended_at if known else None) or (over.since if over else None)


def _started(job: Job, status: str, known: Workload | None) -> datetime | None:
    """When its pods did; where they are gone by now, when they were ready, or else let go. Who waits has not begun."""
    if status in WAITING:
        return None
    if known and known.started_at:
        return known.started_at
    let_go = job.now("PodsReady") or job.now("Admitted")
    return let_go.since if let_go else None


def _pods(job: Job) -> int:
    return sum(one.pods for one in job.pod_sets)


def _retell(core: CoreFacts, by_id: Mapping[str, Sequence[Job]], by_uid: Mapping[str, str]) -> None:
    """Events as Kueue dates them, in place of what the core took from pods for its beginning and its end."""
    told = core.rows.of("workload_event")
    told[:] = [one for one in told if one.workload_id not in by_id or one.kind not in _FIRST_AND_LAST]
    for workload_id, group in by_id.items():
        workload = core.workloads[workload_id]
        core.rows.add(WorkloadEvent(workload_id=workload_id, ts=workload.submitted_at, kind="submitted"))
        if workload.status in OVER and workload.ended_at:
            ends = [over.reason for job in group if (over := job.now("Finished"))]
            core.rows.add(
                WorkloadEvent(
                    workload_id=workload_id,
                    ts=workload.ended_at,
                    kind=workload.status,
                    reason=ends[0] if ends else None,
                )
            )
    known = {(one.workload_id, one.ts, one.kind, one.pod) for one in told}
    found = [event for group in by_id.values() for event in events_of(group, by_uid, core.rows)]
    core.rows.add(*(one for one in found if (one.workload_id, one.ts, one.kind, one.pod) not in known))
