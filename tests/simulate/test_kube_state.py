"""The simulated kube-state-metrics: the same pods as the back-fill's, as a book of pods reads them."""

from __future__ import annotations

import urllib.request
from datetime import timedelta

import polars as pl

from collector.exposition import ExpositionParser
from collector.kube_state_metrics.book import PodBook
from gpuledger.model import to_table
from gpuledger.simulate import FleetSpec, serve, simulate
from gpuledger.simulate.pods import OBJECT_MINUTES
from gpuledger.testing import FakeClock


def samples(simulation, at):
    read = ExpositionParser(lambda series: series).parse(simulation.kube_state_page(at))
    assert read.skipped_lines == 0
    return [(series, value, at) for series, value, _ in read.samples]


def test_a_book_that_reads_every_page_knows_the_pods_of_the_back_fill(collect):
    simulation = simulate(FleetSpec(nodes=2, days=1, seed=3, scenario="mig", tells_pods=True))
    spec = simulation.spec
    told = pl.DataFrame(pl.from_arrow(collect(simulation)["pod"]))
    book, rows = PodBook(cluster="shanghai"), []
    for minute in range(0, spec.end_minute + 1, 30):
        at = spec.start_at + timedelta(minutes=minute)
        rows += book.feed(samples(simulation, at), is_whole_page=True).get("pod", [])
    known = pl.DataFrame(pl.from_arrow(to_table("pod", rows))).unique("uid", keep="last").sort("uid")
    listed = told.filter(pl.col("uid").is_in(known["uid"].to_list())).sort("uid")
    assert known.height == listed.height
    # What ended more than an hour before the first page was never listed.
    gone = told.filter(~pl.col("uid").is_in(known["uid"].to_list()))
    assert (gone["ended_at"] <= spec.start_at - timedelta(minutes=OBJECT_MINUTES)).all()
    columns = ["uid", "cluster", "namespace", "pod", "node", "gpu_count", "resource", "owner_kind", "owner_name"]
    for column in (*columns, "created_at", "started_at", "ended_at"):
        assert known[column].to_list() == listed[column].to_list(), column
    assert set(known["phase"]) == {"Running", "Succeeded"}


def test_what_nodes_offer():
    simulation = simulate(FleetSpec(nodes=2, days=1, seed=3, scenario="mig"))
    node = simulation.fleet.hosts[0].name
    offers = {
        series.labels["resource"]: value
        for series, value, _ in samples(simulation, simulation.spec.start_at)
        if series.name == "kube_node_status_allocatable" and series.labels["node"] == node
    }
    # Eight cards of five layouts: 3+2+1+1, 4+3, 7 x 1, 3 x 2, 7, 3+2+1+1, 4+3, 7 x 1.
    assert offers == {
        "nvidia_com_gpu": 0.0,
        "nvidia_com_mig_1g_10gb": 2 + 7 + 2 + 7,
        "nvidia_com_mig_2g_20gb": 1 + 3 + 1,
        "nvidia_com_mig_3g_40gb": 1 + 1 + 1 + 1,
        "nvidia_com_mig_4g_40gb": 1 + 1,
        "nvidia_com_mig_7g_80gb": 1,
        "cpu": 128.0,
        "memory": 1_032_192 * 2.0**20,
    }


def test_a_completed_pod_is_listed_for_an_hour_and_every_pod_has_one_phase():
    simulation = simulate(FleetSpec(nodes=1, days=1, seed=3, scenario="timeslice"))
    at = simulation.spec.start_at + timedelta(hours=9)
    phases: dict[str, list[str]] = {}
    for series, value, _ in samples(simulation, at):
        if series.name == "kube_pod_status_phase" and value == 1:
            phases.setdefault(series.labels["pod"], []).append(series.labels["phase"])
    runs = [run for run in simulation._telemetry.runs if run.start <= 540 < run.end + OBJECT_MINUTES]
    assert phases == {run.name: ["Running" if run.end > 540 else "Succeeded"] for run in runs}
    assert ["Succeeded"] in phases.values()


def test_the_server_shows_it():
    simulation = simulate(FleetSpec(nodes=1, days=1, scenario="mig"))
    clock = FakeClock(simulation.spec.end_at)
    with serve(simulation, "127.0.0.1:0", clock) as live:
        with urllib.request.urlopen(live.kube_state_url, timeout=10) as answer:
            assert answer.read() == simulation.kube_state_page(clock.now())
        assert live.kube_state_url == live.url + "/ksm/metrics"
