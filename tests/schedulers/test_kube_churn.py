"""Snapshots of a cluster that never stands still: each is of one version, so that no GPU is held twice or lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from gpuledger.attribution import Rules
from gpuledger.clock import SystemClock
from gpuledger.ports import SchedulerSnapshot
from schedulers.fakes.apiserver import Serving, Store, serve
from schedulers.fakes.apiserver.churn import Churn
from schedulers.kubernetes.family import Kubernetes
from tests.schedulers.reading import check_nodes

NODES, PODS, SNAPSHOTS = 20, 160, 6
CHANGES_PER_SECOND = 200.0


@contextmanager
def _churning() -> Iterator[tuple[Serving, Churn]]:
    store = Store()
    churn, stop = Churn(store, nodes=NODES, pods=PODS, holes=3), threading.Event()
    run = threading.Thread(target=churn.run, args=(stop,), kwargs={"changes_per_second": CHANGES_PER_SECOND})
    with serve(store, bookmark_seconds=0.1) as api:
        run.start()
        try:
            yield api, churn
        finally:
            stop.set()
            run.join()


def _check(snapshot: SchedulerSnapshot, churn: Churn) -> None:
    check_nodes(snapshot)
    states = snapshot.records["node_state"].to_pylist()
    assert len(states) == NODES
    least, most = churn.held_gpus
    held = sum(row["allocated"] for row in states)
    assert least <= held <= most, f"{held} GPUs are held at version {snapshot.version}"
    pods = [row for row in snapshot.records["pod"].to_pylist() if row["ended_at"] is None]
    assert sum(row["gpu_count"] for row in pods) == held
    assert {row["node"] for row in pods} <= {row["node"] for row in states}


def _reader(api: Serving) -> Kubernetes:
    options = {"url": api.url, "page_objects": 20}
    return Kubernetes.from_options(options, rules=Rules(), clock=SystemClock())


def test_snapshots_under_churn_are_each_of_one_version() -> None:
    with _churning() as (api, churn):
        reader = _reader(api)
        snapshots = [reader.snapshot() for _ in range(SNAPSHOTS)]
        for snapshot in snapshots:
            _check(snapshot, churn)
    versions = [int(snapshot.version) for snapshot in snapshots]
    assert versions == sorted(set(versions)), "the cluster stood still"


def test_a_watch_under_churn_tells_of_versions_that_all_kinds_have_reached() -> None:
    with _churning() as (api, churn):
        stop, told = threading.Event(), []
        for snapshot in _reader(api).watch(stop, every_seconds=0.05):
            _check(snapshot, churn)
            told.append(int(snapshot.version))
            if len(told) == SNAPSHOTS:
                stop.set()
        lists = [asked for asked in api.asked if asked.plural == "pods" and asked.verb == "list"]
    assert told == sorted(set(told)), "the cluster stood still"
    assert len(told) == SNAPSHOTS
    assert {asked.query.get("resourceVersion") for asked in lists} == {None}
