"""Whether a workload waits, runs or is over, and what is in its way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from schedulers.kubernetes.pods import Object
from schedulers.kubernetes.times import instant
from schedulers.kueue.conditions import Condition
from schedulers.kueue.jobs import Job
from schedulers.kueue.quotas import Queues
from schedulers.kueue.reasons import told_by
from schedulers.reasons import Told

STOPPED = ("held", "draining")

_ENDS = {"Failed": "failed", "OutOfSync": "cancelled"}

_CHECKS = {
    "kueue.x-k8s.io/provisioning-request": "capacity",
    "kueue.x-k8s.io/multikueue": "capacity",
}
"""What a check that is not ready yet waits for, by its controller: nodes to be made, another cluster with room."""


@dataclass(frozen=True, slots=True)
class Standstill:
    """One thing in a workload's way, since when it is (None: not told), and what is told beside it."""

    told: Told
    since: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What a workload does, in the records' words, and everything that is in its way while it waits."""

    status: str
    waits: tuple[Standstill, ...] = ()


@dataclass(frozen=True, slots=True)
class Judge:
    """Says the state of workloads, as one moment has it.

    `controllers` are those of admission checks by name; `positions` places in the ClusterQueue by "namespace/name",
    where the visibility API told them.
    """

    queues: Queues
    controllers: Mapping[str, str]
    positions: Mapping[str, int]

    def state(self, job: Job) -> State:
        """What `job` does, by its conditions alone; whether admitted pods run is for pods to say."""
        if over := job.now("Finished"):
            return State(status=_ENDS.get(over.reason, "finished"))
        if not job.is_active:
            return State(status="held", waits=(self._inactive(job),))
        reserved, evicted = job.now("QuotaReserved"), job.now("Evicted")
        if reserved and evicted:
            return State(status="preempted" if evicted.reason == "Preempted" else "suspended")
        if reserved:
            return self._reserved(job, reserved)
        waits = tuple(self._unreserved(job))
        is_held = any(wait.told.cause == "held" for wait in waits)
        return State(status="held" if is_held else "pending", waits=waits)

    def _inactive(self, job: Job) -> Standstill:
        evicted, quota = job.now("Evicted"), job.conditions.get("QuotaReserved")
        words = evicted if evicted and evicted.reason.startswith("Deactivated") else quota
        reason = words.reason if words and words.reason.startswith("Deactivated") else "Deactivated"
        message = words.message if words and words.reason == reason else "spec.active is false"
        return Standstill(Told("held", reason, message, job.subject), words.since if words else None)

    def _reserved(self, job: Job, reserved: Condition) -> State:
        ready = job.now("PodsReady")
        if job.now("Admitted"):
            return State(status="running" if ready else "admitted")
        return State(status="admitted", waits=tuple(self._checks(job, reserved)))

    def _checks(self, job: Job, reserved: Condition) -> list[Standstill]:
        """Quota is reserved: what it still waits for before it is admitted."""
        admitted = job.conditions.get("Admitted")
        reason, message = (admitted.reason, admitted.message) if admitted else ("", "")
        waits = [
            Standstill(self._check(check, job), instant(check.get("lastTransitionTime"), "lastTransitionTime"))
            for check in job.checks
            if check["state"] != "Ready"
        ]
        told = told_by(reason, message, job.subject)
        if told.cause == "topology":
            waits.append(Standstill(told, reserved.since))
        words = message or "quota is reserved, not admitted yet"
        return waits or [Standstill(Told("scheduler", reason or "QuotaReserved", words, job.subject), reserved.since)]

    def _check(self, check: Object, job: Job) -> Told:
        cause = _CHECKS.get(self.controllers.get(check["name"], ""), "scheduler")
        words = ": ".join(text for text in (f"{check['name']} is {check['state']}", check.get("message")) if text)
        return Told(cause, "UnsatisfiedAdmissionChecks", words, job.subject)

    def _unreserved(self, job: Job) -> Iterator[Standstill]:
        quota = job.conditions.get("QuotaReserved")
        since = quota.since if quota else _waiting_since(job)
        told = told_by(quota.reason, quota.message, job.subject) if quota else None
        blocked = [Standstill(one, since) for one in self._doors(job)]
        yield from blocked
        if told and told.cause != "scheduler":
            yield Standstill(told, since)
        elif not blocked:
            yield Standstill(self._in_line(job, told), since)

    def _in_line(self, job: Job, told: Told | None) -> Told:
        """Kueue has nothing to say of it (yet): it waits for its turn, or for Kueue."""
        place = self.positions.get(job.subject, 0)
        reason, message = (told.reason, told.message) if told else ("PendingEvaluation", "")
        if job.retry_at:
            message = f"{message} to be tried again at {job.retry_at}".strip()
        if place and not told:
            message = f"place {place + 1} in {job.queue}"
        return Told("priority" if place else "scheduler", reason, message, job.subject)

    def _doors(self, job: Job) -> Iterator[Told]:
        """What is wrong with the queues that it must pass."""
        door = self.queues.local.get(job.local)
        if door and door.status in STOPPED:
            yield Told("held", "Suspended", f"LocalQueue {job.local} is {door.status}", job.subject)
        queue = self.queues.queues.get(job.queue or "")
        if queue and queue.status in STOPPED:
            yield Told("held", "Suspended", f"ClusterQueue {queue.name} is {queue.status}", job.subject)


def _waiting_since(job: Job) -> datetime:
    """When it last began to wait: when it was made, or sent back to its queue. Spans in which it ran are none."""
    again = [condition.since for kind in ("Requeued", "Evicted") if (condition := job.now(kind)) and condition.since]
    return max((at for at in (*again, job.created_at)), default=job.created_at)


def eligible_at(job: Job, state: State) -> datetime | None:
    """Since when nothing but Kueue was in its way, this time: what it ran before does not count as waiting."""
    return None if state.status == "held" else _waiting_since(job)


def best(states: Iterable[tuple[Job, State]]) -> tuple[Job, State]:
    """Of several objects for one workload (pods of a Deployment, slices of an elastic job) the one most alive."""
    order = ("running", "admitted", "preempted", "suspended", "pending", "held", "finished", "failed", "cancelled")
    return min(states, key=lambda one: (order.index(one[1].status), -one[0].created_at.timestamp(), one[0].name))
