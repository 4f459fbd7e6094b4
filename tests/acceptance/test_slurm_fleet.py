"""Twenty jobs run in a real Slurm; the ledger gives each attempt the GPU-hours that Slurm's own accounting does."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from gpuledger.app.schedulers.book import SnapshotBook
from gpuledger.model import Window
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from tests.acceptance.house import House, gauge
from tests.servers.slurm import PATIENCE_SECONDS, Cluster, accounts, running
from warehouse import Warehouse

pytestmark = pytest.mark.slow

NODES = ("gpu1", "gpu2", "gpu3", "gpu4")
INTERVAL_SECONDS = 2
HOLDS = re.compile(r"Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=gpu:h100:\d+\(IDX:([\d,-]+)\)")


@dataclass
class Play:
    """What was seen while the jobs ran: pages by node and time, snapshots, and what Slurm remembers."""

    began_at: datetime
    pages: dict[str, dict[datetime, str]] = field(default_factory=dict)
    snapshots: list[SchedulerSnapshot] = field(default_factory=list)
    history: list[SchedulerSnapshot] = field(default_factory=list)
    truth: dict[str, float] = field(default_factory=dict)
    ended_at: datetime = datetime(9999, 12, 31, tzinfo=UTC)


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _hosts(text: str) -> list[str]:
    match = re.fullmatch(r"gpu\[([\d,-]+)\]", text)
    return [f"gpu{number}" for number in _numbers(match[1])] if match else [text]


def _held(cluster: Cluster) -> dict[tuple[str, int], str]:
    """Whose each card is, by node and index, asked of Slurm in the test's own words."""
    found = {}
    for line in cluster.run("scontrol", "-d", "-o", "show", "job", fails=True).splitlines():
        if " JobState=RUNNING " not in line:
            continue
        task = re.match(r"JobId=(\d+) (?:ArrayJobId=(\d+) ArrayTaskId=(\d+) )?", line)
        assert task is not None
        label = f"{task[2]}_{task[3]}" if task[2] else task[1]
        for nodes, indexes in HOLDS.findall(line):
            found.update({(node, index): label for node in _hosts(nodes) for index in _numbers(indexes)})
    return found


def _page(node: str, held: Mapping[tuple[str, int], str]) -> str:
    """An exporter's page that names the job on each card that one holds."""
    page = ""
    for index in range(8):
        job = held.get((node, index))
        labels = {"gpu": index, "UUID": f"GPU-{node}-{index}", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": node}
        page += gauge("DCGM_FI_DEV_GPU_UTIL", 90 if job else 0, **labels, **({"hpc_job": job} if job else {}))
    return page


def _submit(cluster: Cluster) -> dict[str, str]:
    """Sixteen jobs, five tasks of an array among them, of both teams; those of `low` may be preempted."""
    jobs = {}
    for number in range(5):
        jobs[f"a{number}"] = cluster.submit(
            f"a{number}", f"--gres=gpu:{number + 1}", seconds=4 + number, account="team-a"
        )
    for number in range(4):
        jobs[f"b{number}"] = cluster.submit(f"b{number}", f"--gpus={2 * number + 1}", seconds=5 + number)
    jobs["pair"] = cluster.submit("pair", "-N2", "--gres=gpu:3", seconds=8)
    jobs["array"] = cluster.submit("array", "--array=0-4%2", "--gres=gpu:2", seconds=4)
    jobs["requeued"] = cluster.submit("requeued", "-w", "gpu4", "--gres=gpu:1", seconds=600)
    jobs["cancelled"] = cluster.submit("cancelled", "--gres=gpu:2", seconds=600)
    jobs["low"] = cluster.submit("low", "-q", "low", "-w", "gpu4", "--gres=gpu:4", seconds=600)
    return jobs


def _look(cluster: Cluster, play: Play) -> None:
    held = _held(cluster)
    at = datetime.now(UTC)
    for node in NODES:
        play.pages.setdefault(node, {})[at] = _page(node, held)


def _watch(cluster: Cluster, play: Play, until: Any, reader: Any) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    for turn in count():
        _look(cluster, play)
        if turn % 3 == 0:
            play.snapshots.append(reader.snapshot())
        if until():
            return
        assert time.monotonic() < end, "the jobs did not end"
        time.sleep(0.5)


def _is_idle(cluster: Cluster) -> bool:
    """Nothing runs or waits, and the accounting has every end."""
    asked = ("-a", "-n", "-P", "-X", "-D", "--starttime=now-1hour", "--format=JobID,End,State")
    return not cluster.run("squeue", "-h", "-t", "PD,R,CG", "-o", "%i") and "|Unknown|" not in cluster.run(
        "sacct", *asked
    )


def _truth(cluster: Cluster) -> dict[str, float]:
    """GPU-seconds of each attempt by "<job>@<submit>", from sacct."""
    asked = ("-a", "-n", "-P", "-X", "-D", "--starttime=now-1hour", "--format=JobID,Submit,Start,End,AllocTRES")
    found = {}
    for line in cluster.run("sacct", *asked).splitlines():
        job, submit, start, end, tres = line.split("|")
        gpus = next((int(one.removeprefix("gres/gpu=")) for one in tres.split(",") if one.startswith("gres/gpu=")), 0)
        if not gpus:
            continue
        begin, finish, told = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in (start, end, submit))
        found[f"{job}@{int(told.timestamp())}"] = gpus * (finish - begin).total_seconds()
    return found


@pytest.fixture(scope="module")
def play() -> Iterator[Play]:
    with running() as cluster:
        accounts(cluster)
        play = Play(datetime.now(UTC))
        reader = cluster.reader(cluster.command_options)
        _watch(cluster, play, lambda: True, reader)
        jobs = _submit(cluster)
        _watch(cluster, play, lambda: cluster.state(jobs["low"]).startswith("RUNNING"), reader)
        _watch(cluster, play, lambda: cluster.state(jobs["requeued"]).startswith("RUNNING"), reader)
        cluster.run("scontrol", "requeue", jobs["requeued"])
        high = cluster.submit("high", "-q", "high", "-w", "gpu4", "--gres=gpu:8", seconds=5)
        _watch(cluster, play, lambda: cluster.state(high).startswith("COMPLETED"), reader)
        cluster.run("scancel", jobs["cancelled"], jobs["low"], jobs["requeued"])
        _watch(cluster, play, lambda: _is_idle(cluster), reader)
        play.truth = _truth(cluster)
        play.ended_at = datetime.now(UTC)
        play.history = list(reader.history(Window(play.began_at, play.ended_at + timedelta(seconds=1))))
        yield play


@pytest.fixture(scope="module")
def hours(play: Play) -> Iterator[dict[tuple[str, str, str], float]]:
    """GPU-seconds by workload, tenant and state, after all that was seen is in the warehouse."""
    with Warehouse.open(None, clock=FakeClock(play.ended_at + timedelta(days=1))) as warehouse:
        house = House(warehouse)
        for pages in play.pages.values():
            house.scrape(pages, interval_seconds=INTERVAL_SECONDS)
        book = SnapshotBook("slurm", 60.0)
        batch = count()
        for snapshot in play.snapshots:
            found, book = book.take(snapshot)
            for record, table in found.items():
                assert not warehouse.ingest(record, table, f"snapshot-{next(batch)}").rejected
        for chunk in play.history:
            for record, table in chunk.records.items():
                assert not warehouse.ingest(record, table, f"history-{next(batch)}").rejected
        begin = play.began_at.replace(minute=0, second=0, microsecond=0)
        whole = -((begin - play.ended_at) // timedelta(hours=1))
        told = house.hours("workload_id", "tenant", "state", hours=whole, begin=begin)
        yield {key: value * 3600 for key, value in told.items()}


def test_the_script_ran_as_it_was_meant_to(play: Play) -> None:
    statuses = {row["status"] for chunk in play.history for row in chunk.records["workload"].to_pylist()}
    assert {"finished", "preempted", "cancelled"} <= statuses
    assert len(play.truth) >= 18


def test_every_attempt_has_the_hours_that_slurm_accounts(
    play: Play, hours: dict[tuple[str | None, str | None, str], float]
) -> None:
    found: dict[str, float] = {}
    for (workload, _, _), seconds in hours.items():
        if workload:
            attempt = workload.removeprefix("slurm/").rsplit(".", 1)[0]
            found[attempt] = found.get(attempt, 0.0) + seconds
    expected = {attempt: seconds for attempt, seconds in play.truth.items() if seconds}
    assert found == pytest.approx(expected, abs=1e-3)


def test_held_hours_have_an_owner(play: Play, hours: dict[tuple[str | None, str | None, str], float]) -> None:
    held = {key: seconds for key, seconds in hours.items() if key[2].startswith("alloc")}
    owned = sum(seconds for (_, tenant, _), seconds in held.items() if tenant in ("team-a", "team-b"))
    assert owned / sum(held.values()) >= 0.99
    by_tenant = {tenant: 0.0 for _, tenant, _ in held}
    for (_, tenant, _), seconds in held.items():
        by_tenant[tenant] += seconds
    assert by_tenant["team-a"] > 0
    assert by_tenant["team-b"] > by_tenant["team-a"]
