"""What Slurm said, in one form, whichever way it was asked: plain facts that the mappings are made from.

Texts of resources (`tres_*`, `gres*`) stay as Slurm wrote them: one that cannot be understood then costs one job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

HOLDING = frozenset(
    {"RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "CONFIGURING", "RESIZING", "SIGNALING", "STAGE_OUT"}
)
"""States in which a job may have its GPUs."""

_CLOCKS = timedelta(hours=1)
"""Slurm's clock may go before ours by less than this."""

WAITING = frozenset({"PENDING", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One attempt at a job, one task of an array, or those tasks of an array that wait together (`array_tasks`).

    `job_id` is Slurm's own number, which every component of a heterogeneous job and every task that ran has for itself.
    `states` holds the state and its flags in capitals. `restarts` is None where the accounting does not tell.
    `before` is what it was until its size was changed, oldest first, and `resized_at` when that was the last time.
    """

    job_id: int
    array_job_id: int | None = None
    array_task_id: int | None = None
    array_tasks: str = ""
    name: str = ""
    user: str = ""
    account: str = ""
    partition: str = ""
    qos: str = ""
    states: frozenset[str]
    reason: str = ""
    submit_at: datetime
    eligible_at: datetime | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    restarts: int | None = 0
    nodes: str = ""
    node_count: int = 1
    priority: int = 0
    tres_req: str = ""
    tres_alloc: str = ""
    per_job: str = ""
    per_node: str = ""
    gres_by_node: tuple[tuple[str, str], ...] = ()
    summary: str = ""
    resized_at: datetime | None = None
    before: tuple[Job, ...] = ()

    @property
    def label(self) -> str:
        """As people write it: "<job>" or "<array>_<task>"."""
        if self.array_task_id is not None and self.array_job_id:
            return f"{self.array_job_id}_{self.array_task_id}"
        return str(self.job_id)

    @property
    def key(self) -> str:
        """Tells this attempt from all others: ids are used again, and requeued jobs keep theirs."""
        return f"{self.label}@{int(self.submit_at.timestamp())}.{self.restarts or 0}"

    def is_leaving(self, now: datetime) -> bool:
        """Whether it is being requeued: its nodes are cleared, and it already counts as the next attempt.

        Then it has the last attempt's submit time, the time of the requeue for its start, and no end: an attempt that
        there never is. A job that completes has an end.
        """
        if "COMPLETING" not in self.states or not self.restarts:
            return False
        begin, end = self.start_at, self.end_at
        return begin is None or end is None or not begin < end <= now + _CLOCKS

    @property
    def is_resized(self) -> bool:
        """Whether the accounting tells of it since its size was changed: that time stands for its submit time."""
        return self.start_at is not None and self.submit_at > self.start_at

    @property
    def is_waiting(self) -> bool:
        """Whether it is in the queue."""
        return bool(self.states & WAITING) and not self.is_holding

    @property
    def is_holding(self) -> bool:
        """Whether it may have its GPUs now."""
        return bool(self.states & HOLDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A node; `states` holds its state and flags in capitals ("MIXED", "DRAIN"). `busy_at`: when it last ran a job."""

    name: str
    states: frozenset[str]
    gres: str = ""
    gres_used: str = ""
    gres_drained: str = ""
    reason: str = ""
    reason_at: datetime | None = None
    busy_at: datetime | None = None
    partitions: tuple[str, ...] = ()
    cpus: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Most TRES by what it limits: "group" (all together), "user", "account", "job" (each of them)."""

    tres: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Association:
    """A node of the tree of accounts: an account, or (with `user`) a user in it."""

    account: str
    user: str = ""
    partition: str = ""
    parent: str = ""
    share: float | None = None
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Qos:
    """A quality of service: who goes before whom, and limits over all accounts."""

    name: str
    priority: int = 0
    preempts: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A set of nodes that jobs are sent to."""

    name: str
    states: frozenset[str] = frozenset()
    nodes: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Nodes set aside during a time."""

    name: str
    nodes: str
    start_at: datetime | None
    end_at: datetime | None
    flags: frozenset[str] = frozenset()
    holders: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Everything of one reading. `used` is the scheduler's own count by (account, user), or by ("qos/...", user).

    `denied` as in SnapshotScope; `places` gives (leaf, spine) by node where there is a topology.
    """

    jobs: tuple[Job, ...]
    hosts: tuple[Host, ...]
    partitions: tuple[Partition, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    associations: tuple[Association, ...] = ()
    qos: tuple[Qos, ...] = ()
    used: Mapping[tuple[str, str], Mapping[str, float]] = field(default_factory=dict)
    places: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    denied: tuple[tuple[str, str], ...] = ()
    broken: tuple[tuple[str, str], ...] = ()
    version: str = ""

    @property
    def is_accounting_read(self) -> bool:
        """Whether accounts and QOS were told; without the live counts they are counted from jobs."""
        return all(what.startswith("live") for what, _ in self.denied)
