"""Finished work from Slurm's accounting: attempts, where they ran, and how long each waited for what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from gpuledger.model import Wait
from schedulers.rows import SnapshotRows
from schedulers.slurm.facts import Job
from schedulers.slurm.jobs import JobRows, Reading
from schedulers.slurm.reasons import REASONS
from schedulers.slurm.summary import fault

RECORDS = frozenset({"workload", "pod", "wait", "workload_event"})


def days(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """[`begin`, `end`) cut at midnights of UTC, so that one read again gives the same pieces."""
    while begin < end:
        midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        yield begin, min(midnight, end)
        begin = midnight


@dataclass(slots=True)
class Attempts:
    """Counts attempts at the same job where the accounting does not: requeued, a job keeps its id and its owner.

    An id that comes again for another user, account or name is another job. One attempt may be told many times.
    """

    _begun: dict[tuple[int, str, str, str], set[datetime]] = field(default_factory=dict)
    _parts: dict[tuple[int, datetime], dict[datetime, Job]] = field(default_factory=dict)

    def counted(self, jobs: Iterable[Job]) -> list[Job]:
        """`jobs` with `restarts`, each once, oldest first; remembers them for later ones."""
        ordered = [self._resized(job) for job in sorted(jobs, key=lambda one: (one.submit_at, one.job_id))]
        for job in ordered:
            self._begun.setdefault(self._key(job), set()).add(job.submit_at)
        counts = [job if job.restarts is not None else replace(job, restarts=self._count(job)) for job in ordered]
        return [_closed(job) for job in {job.key: job for job in counts}.values()]

    def _resized(self, job: Job) -> Job:
        """The accounting begins another row where a job's size changes, with that time for its submit time."""
        if job.start_at is None:
            return job
        place = (job.job_id, job.start_at)
        parts = self._parts.get(place, {})
        before = tuple(part for submit_at, part in sorted(parts.items()) if submit_at < job.submit_at)
        row_at = job.submit_at
        if before:
            job = replace(job, submit_at=before[0].submit_at, eligible_at=before[0].eligible_at, resized_at=row_at)
        if "RESIZING" in job.states:
            self._parts.setdefault(place, {})[row_at] = job
        return replace(job, before=before)

    def _count(self, job: Job) -> int:
        return sum(begun_at < job.submit_at for begun_at in self._begun[self._key(job)])

    def _key(self, job: Job) -> tuple[int, str, str, str]:
        return job.job_id, job.user, job.account, job.name


def _closed(job: Job) -> Job:
    """A row that ended as its job was resized ended, whether or not the next one is told."""
    if "RESIZING" not in job.states or job.end_at is None:
        return job
    return replace(job, states=job.states - {"RESIZING"} | {"COMPLETED"})


def add_finished(jobs: Sequence[Job], maker: JobRows, rows: SnapshotRows, *, summaries: bool) -> None:
    """The rows of attempts that started or ended; those that wait still are told by what Slurm knows now."""
    for reading in maker.add(job for job in jobs if not job.is_waiting):
        rows.add(*waits(reading))
        job = reading.job
        is_over = reading.workload.ended_at is not None and job.start_at is not None
        if is_over and reading.held.total != 0 and (job.summary or summaries) and (why := fault(job.summary)):
            rows.problem(
                "unreadable_object", reading.workload.workload_id, f"job {job.label}: {why}", subject_kind="workload"
            )


def waits(reading: Reading) -> list[Wait]:
    """The time before it was eligible (its own will: a hold, a begin time, another job), and that for GPUs after it.

    The accounting keeps one reason, the last: it says why the first part was, where it can be that; else the second.
    """
    job, workload = reading.job, reading.workload
    over_at = job.start_at or workload.ended_at
    if over_at is None:
        return []
    said = REASONS.tell(job.reason or "None")
    own = said.cause if said.cause in ("held", "dependency") else "held"
    if job.restarts and job.reason == "BeginTime":
        own = "scheduler"  # Slurm's own pause after a requeue
    other = "unknown" if said.cause in ("held", "dependency", "scheduler") else said.cause
    eligible_at = min(job.eligible_at or over_at, over_at)
    parts = [(job.submit_at, eligible_at, own), (max(eligible_at, job.submit_at), over_at, other)]
    return [
        Wait(
            workload_id=workload.workload_id,
            from_at=begin,
            until_at=end,
            cause=cause,
            reason=said.reason if cause in (said.cause, "scheduler") else "",
            gpus=reading.gpus,
            pods=workload.pod_count,
        )
        for begin, end, cause in parts
        if end > begin
    ]
