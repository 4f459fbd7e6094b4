"""The simulator as a Kubernetes cluster with Kueue: its truth, the adapter's snapshots and the ledger agree.

The script is written into the fake kube-apiserver; the adapter reads it over HTTP every simulated half hour, and
the snapshot book stores what changed. Assets, readings and sightings come from the simulator's own telemetry; pods,
workloads, queues and node conditions come from the adapter alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import polars as pl
import pytest

from gpuledger.app.schedulers.feed import Feed
from gpuledger.app.simulated_cluster import SimulatedCluster
from gpuledger.attribution import Rules
from gpuledger.model import Window
from gpuledger.ports import SchedulerSnapshot
from gpuledger.simulate import FleetSpec, Simulation, simulate
from gpuledger.simulate.pods import PodRun, pod_runs
from gpuledger.simulate.script import Script
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Schemas, Store, serve
from schedulers.kueue.adapter import Kueue
from warehouse import Warehouse

pytestmark = pytest.mark.slow

DEFINITIONS = Path(__file__).resolve().parents[3] / "shared" / "crds" / "kueue"
TELEMETRY = ("asset", "tenant", "reading", "source_read", "holding")
EVERY = 30
"""Minutes between two snapshots."""


@dataclass
class Day:
    """One day of a simulated cluster: every snapshot that was taken, and the warehouse that they went into."""

    simulation: Simulation
    house: Warehouse
    store: Store
    snapshots: dict[int, SchedulerSnapshot] = field(default_factory=dict)

    @property
    def script(self) -> Script:
        return self.simulation.script

    @cached_property
    def runs(self) -> list[PodRun]:
        return pod_runs(self.script)

    def running(self, minute: int) -> Iterator[PodRun]:
        return (run for run in self.runs if run.start <= minute < run.end)

    @property
    def window(self) -> Window:
        return Window(self.simulation.spec.start_at, self.simulation.spec.end_at)

    def rows(self, record: str, minute: int) -> list[dict[str, Any]]:
        return self.snapshots[minute].records[record].to_pylist()


@dataclass
class Noting:
    """Reads through a reader, and keeps what it read."""

    reader: Kueue
    read: list[SchedulerSnapshot] = field(default_factory=list)
    name: str = "kueue"
    cluster: str = "default"

    def snapshot(self) -> SchedulerSnapshot:
        self.read.append(self.reader.snapshot())
        return self.read[-1]


@pytest.fixture(scope="module", params=[(8, "mixed"), (2, "mig"), (2, "timeslice")], ids=lambda param: param[1])
def day(request: pytest.FixtureRequest) -> Iterator[Day]:
    if not DEFINITIONS.is_dir():
        pytest.skip("../shared is absent: this checkout has no published schemas beside it")
    nodes, scenario = request.param
    simulation = simulate(FleetSpec(nodes=nodes, days=1, seed=3, scenario=scenario, tells_pods=True))
    clock = FakeClock(simulation.spec.start_at)
    store = Store(clock=clock)
    cluster = SimulatedCluster(simulation, store, definitions=Schemas.read(DEFINITIONS).definitions)
    with Warehouse.open(None, clock=clock) as house, serve(store) as api:
        reader = Noting(Kueue.from_options({"url": api.url}, rules=Rules(), clock=clock))
        feed = Feed(reader, house, clock, interval_seconds=EVERY * 60)
        found = Day(simulation, house, store)
        for minute in range(0, simulation.spec.end_minute + EVERY, EVERY):
            cluster.advance(clock.now())
            feed.read()
            found.snapshots[minute] = reader.read[-1]
            clock.advance(EVERY * 60)
        for number, (record, table) in enumerate(simulation.records()):
            if record in TELEMETRY:
                assert not house.ingest(record, table, f"telemetry-{number}").rejected
        assert house.build_ledger(found.window).violations == 0
        yield found


def held(day: Day) -> pl.DataFrame:
    """Hours that the ledger says workloads held, by workload and card."""
    with day.house.writing() as cursor:
        hours = pl.DataFrame(pl.from_arrow(cursor.sql("from ledger_hour").to_arrow_table()))
    owned = hours.filter(pl.col("workload_id").fill_null("") != "")
    return owned.group_by("workload_id", "gpu_uuid").agg(found=pl.col("gpu_hours").sum())


def truth(day: Day) -> pl.DataFrame:
    """Hours that the script says they held."""
    hours = pl.DataFrame(pl.from_arrow(day.simulation.pod_hours()))
    named = hours.with_columns(workload_id=pl.col("namespace") + "/" + pl.col("workload_id"))
    return named.group_by("workload_id", "gpu_uuid").agg(pl.col("gpu_hours").sum())


def _came_back(day: Day) -> set[str]:
    """Cards of nodes that came back: that they did is seen by the next snapshot, up to one interval late."""
    back = [outage for outage in day.script.outages if outage.condition == "not_ready"]
    return {day.script.fleet.cards[card].gpu_uuid for outage in back for card in outage.cards}


def test_each_workload_has_the_hours_that_it_held_on_the_cards_that_it_held(day: Day) -> None:
    both = truth(day).join(held(day), on=["workload_id", "gpu_uuid"], how="full", coalesce=True)
    both = both.with_columns(pl.col("gpu_hours", "found").fill_null(0.0))
    off = both.with_columns(missing=pl.col("gpu_hours") - pl.col("found")).filter(pl.col("missing").abs() > 1e-9)
    assert both["workload_id"].n_unique() > 60
    assert set(off["gpu_uuid"]) <= _came_back(day), off
    assert all(0 < missing <= EVERY / 60 for missing in off["missing"])
    assert len(set(off["workload_id"])) <= len(day.script.outages)


def _held_on(day: Day, minute: int) -> Counter[tuple[str, str]]:
    """By node and resource: the units that pods hold at `minute`, from the script alone."""
    found: Counter[tuple[str, str]] = Counter()
    for run in day.running(minute):
        found[day.script.fleet.hosts[run.host].name, run.resource(day.script)] += len(run.devices)
    return found


def _minutes(day: Day) -> Sequence[int]:
    return sorted(day.snapshots)


def test_what_nodes_have_given_away_is_the_scripts(day: Day) -> None:
    for minute in _minutes(day):
        rows = day.rows("node_state", minute)
        found = {(row["node"], row["resource"]): row["allocated"] for row in rows if row["allocated"]}
        assert found == dict(_held_on(day, minute)), minute


def test_what_is_free_is_what_is_whole_and_not_held(day: Day) -> None:
    """Whole cards: eight less those that are lost, set aside or held; nothing on a node that is not ready."""
    whole = [host for host in day.script.fleet.hosts if not host.hardware.is_mig]
    shared = {h.card for job in day.script.jobs for h in job.holds if h.slice_index is None and h.share < 1}
    for minute in _minutes(day):
        free = {
            row["node"]: row["free"] for row in day.rows("node_state", minute) if row["resource"] == "nvidia_com_gpu"
        }
        holders = {hold.card for job in day.script.jobs for hold in job.holds if hold.start <= minute < hold.end}
        outages = [outage for outage in day.script.outages if outage.start <= minute < outage.end]
        for host in whole:
            out = {card for outage in outages if outage.host == host.index for card in outage.cards}
            left = set(host.cards) - out - holders - shared
            expected = 0 if any(o.is_whole_host for o in outages if o.host == host.index) else len(left)
            assert free.get(host.name, 0) == expected, (minute, host.name)


def test_what_queues_use_is_the_scripts(day: Day) -> None:
    for minute in _minutes(day):
        expected: Counter[tuple[str, str]] = Counter()
        for run in day.running(minute):
            expected[run.job.team, run.resource(day.script)] += len(run.devices)
        found: Counter[tuple[str, str]] = Counter()
        for row in day.rows("queue_resource", minute):
            if row["queue"] in day.script.quotas.nominal and row["used"]:
                resource = row["resource"].replace(".", "_").replace("/", "_").replace("-", "_")
                found[row["queue"], resource] += int(row["used"])
        assert found == expected, minute


def test_what_queues_hold_in_cards_is_the_scripts(day: Day) -> None:
    """A slice and a copy are their part of a card, a card of a node with copies is a whole one."""
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in day.store.all("v1", "Node")}
    devices, hosts = day.script.fleet.devices, day.script.fleet.hosts
    for minute in _minutes(day):
        expected: dict[str, float] = dict.fromkeys(day.script.quotas.nominal, 0.0)
        for run in day.running(minute):
            slices = [devices[device].slice for device in run.devices]
            copies = int(labels[hosts[run.host].name].get("nvidia.com/gpu.replicas", 1)) if run.share < 1 else 1
            expected[run.job.team] += sum(1 / copies if one is None else one.share for one in slices)
        found = {row["queue"]: row["running_gpus"] for row in day.rows("queue_state", minute)}
        assert {team: found[team] for team in expected} == pytest.approx(expected), minute


def test_quotas_are_the_scripts(day: Day) -> None:
    rows = [row for row in day.rows("quota", 0) if row["flavor"] == "whole-cards"]
    assert {row["queue"]: row["nominal_gpus"] for row in rows if row["queue"] in day.script.quotas.nominal} == {
        team: float(int(gpus)) for team, gpus in day.script.quotas.nominal.items()
    }


def test_what_waits_is_the_scripts(day: Day) -> None:
    for minute in _minutes(day):
        waiting = {row["workload_id"].partition("/")[2]: row["from_at"] for row in day.rows("wait", minute)}
        expected = {
            job.workload_id: day.simulation.spec.instant(job.submit)
            for job in day.script.jobs
            if job.num_gpu and job.submit <= minute < (job.end if job.start is None else job.start)
        }
        assert waiting == expected, minute


def test_objects_are_what_kubernetes_takes(day: Day) -> None:
    """Kueue's are judged by their schemas when they are written."""
    for kind in ("Namespace", "Node", "Pod", "ResourceQuota"):
        items = list(day.store.all("v1", kind))
        assert items, kind
        for item in items:
            kubernetes_validate.validate(item, "1.34", strict=True)


def test_nothing_was_unreadable_and_all_was_seen(day: Day) -> None:
    assert {str(snapshot.scope) for snapshot in day.snapshots.values()} == {"complete"}
    problems = [row for minute in _minutes(day) for row in _optional(day, "quality_event", minute)]
    assert problems == []


def _optional(day: Day, record: str, minute: int) -> list[dict[str, Any]]:
    records = day.snapshots[minute].records
    return records[record].to_pylist() if record in records else []


def test_stored_waits_last_as_long_as_the_jobs_waited(day: Day) -> None:
    """A job that began is dated to the snapshot that no longer saw it wait: at most one interval late."""
    with day.house.writing() as cursor:
        rows = cursor.execute("select workload_id, from_at, until_at from wait where until_at is not null").fetchall()
    jobs = {job.workload_id: job for job in day.script.jobs}
    at, late = day.simulation.spec.instant, timedelta(minutes=EVERY)
    assert rows
    for workload_id, from_at, until_at in rows:
        job = jobs[workload_id.partition("/")[2]]
        end = job.end if job.start is None else job.start
        assert from_at == at(job.submit)
        assert at(end) <= until_at <= at(end) + late
