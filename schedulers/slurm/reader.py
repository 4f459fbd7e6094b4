"""Slurm as a reader: everything as of one moment, and finished work by days."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self

from gpuledger.attribution import Rules
from gpuledger.clock import Clock
from gpuledger.model import Window
from gpuledger.ports import SchedulerSnapshot, SnapshotScope
from schedulers.options import parsed
from schedulers.rest import steady
from schedulers.rows import SnapshotRows
from schedulers.slurm.commands import Commands
from schedulers.slurm.facts import Facts, Job
from schedulers.slurm.history import RECORDS, Attempts, add_finished, days
from schedulers.slurm.holding import bounds, hold
from schedulers.slurm.jobs import JobRows
from schedulers.slurm.names import hosts
from schedulers.slurm.nodes import HostGpus, doubt, host_gpus, write_nodes
from schedulers.slurm.options import SlurmOptions
from schedulers.slurm.queues import QueueRows
from schedulers.slurm.slurmrestd import Slurmrestd
from schedulers.slurm.transport import ACCOUNTING, Broken, Transport


@dataclass(frozen=True, slots=True)
class _Taken:
    facts: Facts
    nodes: tuple[HostGpus, ...]
    doubt: str


class Slurm:
    """Reads a Slurm cluster by its commands or by slurmrestd; both give the same records."""

    name = "slurm"

    def __init__(
        self,
        options: SlurmOptions,
        *,
        cluster: str = "default",
        rules: Rules | None = None,
        clock: Clock,
        transport: Transport | None = None,
    ) -> None:
        self.cluster = cluster
        self._options = options
        self._rules = rules or Rules()
        self._clock = clock
        self._transport = transport or (
            Slurmrestd(options, clock) if options.transport == "rest" else Commands(options)
        )

    @classmethod
    def from_options(cls, options: Mapping[str, Any], *, cluster: str = "default", rules: Rules, clock: Clock) -> Self:
        """A reader with these options. Raises ConfigError naming a wrong one."""
        return cls(parsed(SlurmOptions, "slurm", options), cluster=cluster, rules=rules, clock=clock)

    def snapshot(self) -> SchedulerSnapshot:
        """Everything once. Raises InconsistentSnapshot where jobs and nodes go on to disagree."""
        taken = steady(self._take, lambda one: one.doubt, self._transport.where, self._clock)
        facts, rows = taken.facts, self._rows()
        for what, why in facts.broken:
            rows.problem("unreadable_object", what, why, subject_kind="workload")
        write_nodes(facts, taken.nodes, rows)
        maker = self._maker(rows, taken)
        jobs = [job for job in facts.jobs if not job.is_leaving(rows.taken_at)]
        QueueRows(facts=facts, rows=rows, jobs=maker).add(maker.add(jobs))
        unlisted = frozenset[str]() if facts.is_accounting_read else ACCOUNTING
        return rows.snapshot(
            facts.version, SnapshotScope(denied=facts.denied, unlisted=unlisted), also=("quality_event",)
        )

    def history(self, window: Window) -> Iterator[SchedulerSnapshot]:
        """What ran in `window` by days of UTC, oldest first. What waits still is told by `snapshot`."""
        attempts = Attempts()
        until_at = min(window.to_at, self._clock.now())
        is_counted = False
        for begin, end in days(window.from_at, until_at):
            jobs, broken = self._transport.finished(begin, end)
            if not is_counted and any(job.restarts is None or job.is_resized for job in jobs):
                back = timedelta(days=self._options.history_back_days)
                attempts.counted(self._transport.finished(window.from_at - back, window.from_at)[0])
                is_counted = True
            yield self._past(attempts.counted(jobs), broken, f"{begin:%Y-%m-%dT%H:%M:%SZ}/{end:%Y-%m-%dT%H:%M:%SZ}")

    def _past(self, jobs: Sequence[Job], broken: Broken, version: str) -> SchedulerSnapshot:
        rows = self._rows()
        for what, why in broken:
            rows.problem("unreadable_object", what, why, subject_kind="workload")
        maker = JobRows(rows=rows, rules=self._rules, hosts={}, names=self._options.pod_names)
        add_finished(jobs, maker, rows, summaries=self._options.summaries)
        return rows.snapshot(version, SnapshotScope(unlisted=RECORDS), also=sorted(RECORDS))

    def _rows(self) -> SnapshotRows:
        scheduler = self.name if self.cluster == "default" else f"{self.name}/{self.cluster}"
        return SnapshotRows(scheduler, self.cluster, self._clock.now())

    def _take(self) -> _Taken:
        facts = self._transport.facts()
        holding = [(job, hold(job)) for job in facts.jobs if job.is_holding]
        there = bounds(holding, is_whole=not facts.broken)
        nodes = tuple(host_gpus(host) for host in facts.hosts)
        told = doubt(nodes, there)
        filled = tuple(
            one if one.used is not None else replace(one, used={"gres_gpu": there.most.get(one.host.name, 0.0)})
            for one in nodes
        )
        return _Taken(facts, filled, told)

    def _maker(self, rows: SnapshotRows, taken: _Taken) -> JobRows:
        by_name = {one.host.name: one for one in taken.nodes}
        near = {
            partition.name: [by_name[name] for name in hosts(partition.nodes) if name in by_name]
            for partition in taken.facts.partitions
        }
        return JobRows(rows=rows, rules=self._rules, hosts=near, names=self._options.pod_names)
