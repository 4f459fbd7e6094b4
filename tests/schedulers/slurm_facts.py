"""Slurm's facts as tests write them, and a reader of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.slurm import Slurm
from schedulers.slurm.facts import Facts, Host, Job
from schedulers.slurm.options import SlurmOptions

NOW = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Told:
    """A transport that tells what a test gave it."""

    where = "told"

    def __init__(self, *jobs: Job, hosts: tuple[Host, ...] = (), **facts: Any) -> None:
        self.given = Facts(jobs=jobs, hosts=hosts, version="1", **facts)
        self.past: list[Job] = []
        self.asked: list[tuple[datetime, datetime]] = []

    def facts(self) -> Facts:
        return self.given

    def finished(self, begin: datetime, end: datetime) -> tuple[list[Job], list[tuple[str, str]]]:
        self.asked.append((begin, end))
        return [job for job in self.past if job.submit_at < end and (job.end_at or end) > begin], []


def snapshot(told_: Told, *, rules: Rules | None = None, **options: Any) -> SchedulerSnapshot:
    reader = Slurm(SlurmOptions(**options), rules=rules, clock=FakeClock(NOW), transport=told_)
    return reader.snapshot()


def job(number: int, *states: str, **facts: Any) -> Job:
    given: dict[str, Any] = {"submit_at": NOW - HOUR, "eligible_at": NOW - HOUR, "account": "ml", "partition": "gpu"}
    return Job(job_id=number, states=frozenset(states), **(given | facts))


def ran(number: int, node: str, count: int, *states: str, **facts: Any) -> Job:
    given: dict[str, Any] = {"start_at": NOW - HOUR / 2, "nodes": node, "tres_alloc": f"cpu=1,gres/gpu={count}"}
    return job(number, *(states or ("RUNNING",)), **(given | facts))


def host(name: str, used: int, *states: str, **facts: Any) -> Host:
    given: dict[str, Any] = {"gres": "gpu:h100:8", "gres_used": f"gpu:h100:{used}(IDX:N/A)", "partitions": ("gpu",)}
    return Host(name=name, states=frozenset(states or ("MIXED",)), **(given | facts))
