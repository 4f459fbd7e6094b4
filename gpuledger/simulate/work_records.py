"""The inventory's and the scheduler's records, as they stood at a minute of the script: the future is not known yet."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import numpy as np
import pyarrow as pa

from gpuledger.model import (
    Allocation,
    Asset,
    Condition,
    Node,
    Queue,
    Quota,
    SchedulerNode,
    ServiceLoad,
    Tenant,
    Workload,
    complete,
    to_table,
)
from gpuledger.simulate.demand import team_steps
from gpuledger.simulate.faults import SPARE_SINCE
from gpuledger.simulate.fleet import Card
from gpuledger.simulate.script import Hold, Job, Outage, Script
from gpuledger.simulate.services import SHANGHAI_OFFSET_MINUTES
from gpuledger.simulate.shapes import daylight
from gpuledger.simulate.spec import GPUS_PER_NODE
from gpuledger.simulate.teams import COHORT, DIVISIONS, SCHEDULER, TEAMS

LOAD_MINUTES = 5
KEPT_ON_REPAIR = "under_repair"
ASSET_LIFE = ("in_service", "under_repair", "in_service")


class WorkRecords:
    """Makes the tables of every record that is not a reading."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.spec = script.spec

    def _known(self, minute: int | None, now: int) -> datetime | None:
        """The instant of `minute` when it has come by `now`."""
        return None if minute is None or minute > now else self.spec.instant(minute)

    def assets(self, now: int, since: int | None = None) -> pa.Table:
        """Every card from the start of the span; a repair is a dated row between two rows in service.

        With `since`, only the rows that began or ended after it.
        """
        repairs = {c: o for o in self.script.outages if o.condition == KEPT_ON_REPAIR for c in o.cards}
        rows = []
        for card in self.script.fleet.cards:
            repair = repairs.get(card.index)
            edges = [0] if repair is None else [0, repair.start, repair.end]
            come = [edge for edge in edges if edge <= now]
            for number, edge in enumerate(come):
                until = come[number + 1] if number + 1 < len(come) else None
                if since is None or edge > since or (until or 0) > since:
                    rows.append(self._asset(card, ASSET_LIFE[number], edge, until))
        return to_table("asset", rows)

    def _asset(self, card: Card, status: str, begin: int, until: int | None) -> Asset:
        host = self.script.fleet.hosts[card.host]
        return Asset(
            gpu_uuid=card.gpu_uuid,
            node=host.name,
            slot=card.slot,
            model=host.hardware.model,
            pool=host.hardware.pool,
            status=status,
            from_at=self.spec.instant(begin),
            until_at=None if until is None else self.spec.instant(until),
        )

    def nodes(self) -> pa.Table:
        """Every host."""
        return to_table(
            "node",
            (
                Node(
                    node=host.name,
                    cluster="shanghai",
                    pool=host.hardware.pool,
                    model=host.hardware.model,
                    gpu_count=GPUS_PER_NODE,
                    cpu_milli=host.hardware.cpu_cores * 1000,
                    memory_mib=host.hardware.memory_mib,
                    leaf=host.leaf,
                    spine=host.spine,
                    from_at=self.spec.start_at,
                )
                for host in self.script.fleet.hosts
            ),
        )

    def scheduler_nodes(self) -> pa.Table:
        """Every host that the scheduler lists."""
        missing = set(self.spec.nodes_missing_from_scheduler)
        listed = [host.name for host in self.script.fleet.hosts if host.name not in missing]
        start = self.spec.start_at
        return to_table(
            "scheduler_node",
            (SchedulerNode(scheduler=SCHEDULER, node=name, gpu_count=GPUS_PER_NODE, from_at=start) for name in listed),
        )

    def tenants(self) -> pa.Table:
        """Divisions and their teams."""
        start = self.spec.start_at
        top = [Tenant(tenant=name, display_name=shown, from_at=start) for name, shown in DIVISIONS.items()]
        teams = [
            Tenant(tenant=team.name, parent=team.division, display_name=team.display_name, from_at=start)
            for team in TEAMS
        ]
        return to_table("tenant", [*top, *teams])

    def queues(self) -> pa.Table:
        """One queue a team."""
        return to_table(
            "queue",
            (Queue(queue=t.name, tenant=t.name, cohort=COHORT, scheduler=SCHEDULER) for t in TEAMS),
        )

    def quotas(self) -> pa.Table:
        """Nominal quotas; the blocked team may not borrow, or it would."""
        quotas = self.script.quotas
        return to_table(
            "quota",
            (
                Quota(
                    queue=team,
                    tenant=team,
                    nominal_gpus=nominal,
                    borrowing_limit_gpus=0.0 if team == quotas.blocked else None,
                    from_at=self.spec.start_at,
                )
                for team, nominal in quotas.nominal.items()
            ),
        )

    def workloads(self, now: int, since: int | None = None) -> pa.Table:
        """Jobs submitted by `now`; with `since`, only those that changed after it."""
        jobs = [job for job in self.script.jobs if job.submit <= now]
        if since is not None:
            jobs = [
                job for job in jobs if any(since < (at or job.submit) <= now for at in (job.submit, job.start, job.end))
            ]
        return to_table("workload", (self._workload(job, now) for job in jobs))

    def _workload(self, job: Job, now: int) -> Workload:
        return Workload(
            workload_id=job.workload_id,
            name=job.workload_id,
            kind=job.kind,
            stage=job.stage,
            tenant=job.team,
            user=job.user,
            queue=job.team,
            submitted_at=self.spec.instant(job.submit),
            started_at=self._known(job.start, now),
            ended_at=self._known(job.end, now),
            pod_count=job.pods,
            num_gpu=job.num_gpu,
            gpu_milli=job.gpu_milli,
            cpu_milli=job.cpu_milli,
            memory_mib=job.memory_mib,
            model_set=job.model_set,
            min_replicas=job.min_replicas,
            priority=job.priority,
            is_gang=job.is_gang,
        )

    def allocations(self, now: int, since: int | None = None) -> pa.Table:
        """Holds started by `now`; with `since`, only those that changed after it."""
        held = [(job, hold) for job in self.script.jobs for hold in job.holds if hold.start <= now]
        if since is not None:
            held = [(j, h) for j, h in held if any(since < at <= now for at in (h.start, h.ready, h.end))]
        return to_table("allocation", (self._allocation(job, hold, now) for job, hold in held))

    def _allocation(self, job: Job, hold: Hold, now: int) -> Allocation:
        fleet = self.script.fleet
        card = None if hold.card is None else fleet.cards[hold.card]
        piece = "" if card is None or hold.slice_index is None else card.slices[hold.slice_index].slice_id
        place = "cpu" if card is None else f"{card.slot}.{piece}"
        return Allocation(
            allocation_id=f"{hold.pod}/{hold.start + 100_000}/{place}",
            workload_id=job.workload_id,
            pod=hold.pod,
            node=fleet.hosts[hold.host].name,
            gpu_uuid=card.gpu_uuid if card else None,
            slice_id=piece,
            share=hold.share,
            cpu_milli=hold.cpu_milli,
            memory_mib=hold.memory_mib,
            started_at=self.spec.instant(hold.start),
            ready_at=self._known(hold.ready, now),
            ended_at=self._known(hold.end, now),
        )

    def conditions(self, now: int, since: int | None = None) -> pa.Table:
        """Conditions begun by `now`; repairs are told by the assets list instead."""
        begun = [o for o in self.script.outages if o.condition != KEPT_ON_REPAIR and o.start <= now]
        if since is not None:
            begun = [o for o in begun if since < o.start <= now or since < o.end <= now]
        return to_table("condition", (row for outage in begun for row in self._conditions(outage, now)))

    def _conditions(self, outage: Outage, now: int) -> Iterator[Condition]:
        fleet = self.script.fleet
        subjects = (
            [("node", fleet.hosts[outage.host].name)]
            if outage.is_whole_host
            else [("gpu", fleet.cards[card].gpu_uuid) for card in outage.cards]
        )
        begin = 0 if outage.start == SPARE_SINCE else outage.start
        for kind, subject in subjects:
            yield Condition(
                subject_kind=kind,
                subject=subject,
                condition=outage.condition,
                from_at=self.spec.instant(begin),
                until_at=self._known(outage.end, now),
                reason=outage.reason,
            )

    def queue_states(self, begin: int, end: int) -> pa.Table:
        """What each queue ran and what waited during [`begin`, `end`), one row for each constant stretch."""
        parts = []
        start_us = int(self.spec.start_at.timestamp()) * 1_000_000
        for team in TEAMS:
            steps = team_steps(self.script, team.name, begin, end)
            rows = len(steps.minutes) - 1
            times = pa.array(start_us + steps.minutes[:-1].astype(np.int64) * 60_000_000)
            columns = {
                "ts": times.cast(pa.timestamp("us", tz="UTC")),
                "queue": pa.array([team.name] * rows),
                "tenant": pa.array([team.name] * rows),
                "duration_seconds": pa.array(np.diff(steps.minutes) * 60.0),
                "nominal_gpus": pa.array([self.script.quotas.nominal.get(team.name)] * rows, pa.float64()),
                "running_gpus": pa.array(steps.running[:-1]),
                "pending_gpus": pa.array(steps.pending[:-1]),
            }
            parts.append(complete("queue_state", pa.table(columns)))
        return pa.concat_tables(parts)

    def service_loads(self, begin: int, end: int) -> pa.Table:
        """What each service was asked for in [`begin`, `end`), every five minutes."""
        rows: list[ServiceLoad] = []
        first = -(-begin // LOAD_MINUTES) * LOAD_MINUTES
        minutes = np.arange(first, end, LOAD_MINUTES)
        start = self.spec.start_at
        for number, load in enumerate(self.script.loads):
            local = (minutes + start.hour * 60 + start.minute + SHANGHAI_OFFSET_MINUTES + load.phase_minutes) % 1440
            wobble = 1 + 0.03 * np.sin(minutes / 17.0 + number)
            demand = load.peak_gpus * (1 - load.tide * (1 - daylight(local))) * wobble
            ready = np.zeros(len(minutes), dtype=int)
            for alive_from, alive_until in load.replica_starts:
                ready += (minutes >= alive_from) & (minutes < alive_until)
            rows += [
                ServiceLoad(
                    ts=self.spec.instant(int(minute)),
                    workload_id=load.workload_id,
                    duration_seconds=LOAD_MINUTES * 60.0,
                    requests_per_second=round(float(wanted * load.requests_per_gpu), 3),
                    demand_gpus=round(float(wanted), 3),
                    ready_replicas=int(count),
                )
                for minute, wanted, count in zip(minutes, demand, ready, strict=True)
            ]
        return to_table("service_load", rows)
