"""Fleets under MIG and time-slicing: what the script says, what pages show, and what the back-fill tells."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import polars as pl
import pytest

from collector.sources.dcgm import Target, parse
from gpuledger.errors import BadInput
from gpuledger.model import RECORDS, arrow_schema, slice_share, to_table
from gpuledger.simulate import FleetSpec, Simulation, simulate
from gpuledger.simulate.fleet import MIG_LAYOUTS, build_fleet


def told(collect, **options) -> tuple[Simulation, dict[str, pl.DataFrame]]:
    simulation = simulate(FleetSpec(**{"nodes": 2, "days": 1, "seed": 3, "tells_pods": True, **options}))
    tables = collect(simulation)
    for name, table in tables.items():
        assert table.schema == arrow_schema(name)
        assert pl.DataFrame(pl.from_arrow(table)).select(RECORDS[name].key).is_unique().all(), name
    return simulation, {name: pl.DataFrame(pl.from_arrow(table)) for name, table in tables.items()}


@pytest.fixture(scope="module", params=["mig", "timeslice"])
def plain(request, collect):
    return told(collect, scenario=request.param)


@pytest.fixture(scope="module", params=["mig", "timeslice"])
def faulty(request, collect):
    return told(collect, scenario=request.param, label_flap_ratio=0.1, linger_minutes=30)


@pytest.mark.parametrize("layout", MIG_LAYOUTS, ids=lambda layout: "+".join(part.profile[:2] for part in layout))
def test_a_layout_fits_its_card(layout):
    assert sum(part.share for part in layout) <= 1 + 1e-9
    assert sum(part.fb_total_mib for part in layout) < 81_559
    assert len({part.slice_id for part in layout}) == len(layout)
    for part in layout:
        assert part.share == slice_share("A100", part.profile) == slice_share("H100", part.profile)


def test_every_node_is_cut_in_every_layout():
    fleet = build_fleet(FleetSpec(nodes=4, days=1, scenario="mig"))
    assert [host.hardware.model for host in fleet.hosts] == ["A100", "A100", "H100", "H100"]
    assert Counter(card.slices for card in fleet.cards) == dict(zip(MIG_LAYOUTS, [7, 7, 6, 6, 6], strict=True))


def test_some_slices_stay_empty_and_no_two_pods_meet_on_one(collect):
    simulation, tables = told(collect, scenario="mig")
    held = tables["allocation"].sort("gpu_uuid", "slice_id", "started_at")
    assert (held["slice_id"] != "").all()
    following = held.with_columns(next=pl.col("started_at").shift(-1).over("gpu_uuid", "slice_id"))
    assert following.filter(pl.col("ended_at") > pl.col("next")).height == 0
    assert following.filter(pl.col("ended_at") == pl.col("next")).height > 5
    slices = sum(len(card.slices) for card in simulation.fleet.cards)
    used = held.select("gpu_uuid", "slice_id").n_unique()
    assert 0.7 * slices < used < slices


def test_two_to_four_pods_share_a_card_and_one_is_always_there(collect):
    simulation, tables = told(collect, scenario="timeslice")
    holdings = tables["holding"].with_columns(pods=pl.len().over("gpu_uuid", "ts"))
    assert set(holdings["pods"]) == {1, 2, 3, 4}
    assert (holdings["share"] * holdings["pods"]).to_list() == pytest.approx([1.0] * holdings.height)
    read = tables["source_read"].filter("ok").height
    assert holdings.select("gpu_uuid", "ts").n_unique() == read * 8
    assert simulation.pod_hours()["gpu_hours"].to_numpy().sum() == pytest.approx(16 * 24)


def test_a_page_shows_slots_as_the_exporter_writes_them(collect):
    simulation, tables = told(collect, scenario="timeslice")
    at = simulation.spec.start_at + timedelta(hours=12)
    seen = tables["holding"].filter((pl.col("ts") == at) & (pl.col("pod").len().over("gpu_uuid") > 1)).sort("gpu_uuid")
    card = seen.filter(pl.len().over("gpu_uuid") > 1).row(0, named=True)
    page = simulation.node_page(card["node"], at).decode()
    power = [line for line in page.splitlines() if card["gpu_uuid"] in line and "POWER_USAGE" in line]
    pods = seen.filter(pl.col("gpu_uuid") == card["gpu_uuid"])["pod"].to_list()
    assert len({line.rpartition(" ")[2] for line in power}) == 1
    assert "pod=" not in power[0]
    assert [line.partition('vgpu="')[2][0] for line in power[1:]] == [str(n) for n in range(len(pods))]
    assert sorted(line.partition('pod="')[2].partition('"')[0] for line in power[1:]) == sorted(pods)


def test_pages_say_what_the_back_fill_says(plain, faulty):
    for simulation, tables in (plain, faulty):
        for hours in (0, 7, 13):
            at = simulation.spec.start_at + timedelta(hours=hours)
            for host in simulation.fleet.hosts:
                seen = parse(simulation.node_page(host.name, at), at, Target(interval_seconds=60))
                for name, rows in (("reading", seen.readings), ("holding", seen.holdings)):
                    expected = tables[name].filter((pl.col("node") == host.name) & (pl.col("ts") == at))
                    order = ["gpu_uuid", "slice_id", *(["pod"] if name == "holding" else [])]
                    got = pl.DataFrame(pl.from_arrow(to_table(name, rows)))
                    columns = [c for c in expected.columns if c != "quality_flags"]
                    assert got.select(columns).sort(order).equals(expected.select(columns).sort(order)), (name, at)


def test_labels_flap_for_the_ratio_that_was_asked(faulty, collect):
    simulation, tables = faulty
    steady, without = told(collect, scenario=simulation.spec.scenario, linger_minutes=30)
    assert steady.script.jobs == simulation.script.jobs
    shown = tables["holding"].select("gpu_uuid", "slice_id", "ts").n_unique()
    whole = without["holding"].select("gpu_uuid", "slice_id", "ts").n_unique()
    assert 1 - shown / whole == pytest.approx(0.1, abs=0.01)
    assert tables["reading"].drop("quality_flags").equals(without["reading"].drop("quality_flags"))


def test_labels_linger_up_to_thirty_minutes_and_no_longer(faulty):
    _, tables = faulty
    last = tables["holding"].group_by("pod").agg(pl.col("ts").max().alias("last"))
    ended = tables["pod"].filter(pl.col("phase") == "Succeeded").join(last, on="pod")
    over = (ended["last"] - ended["ended_at"]).dt.total_minutes()
    assert over.max() in (28, 29)
    assert over.filter(over >= 0).len() > 0.8 * len(over)


def test_pods_of_the_back_fill_are_the_allocations_pods(plain):
    simulation, tables = plain
    pods, held = tables["pod"], tables["allocation"].filter(pl.col("gpu_uuid").is_not_null())
    assert set(pods["pod"]) == set(held["pod"])
    both = pods.join(held, on="pod")
    assert both.height == held.height
    assert both["started_at"].equals(both["started_at_right"])
    assert both["ended_at"].equals(both["ended_at_right"])
    assert (both["workload_id"] == both["workload_id_right"]).all()
    assert set(pods["phase"]) == {"Running", "Succeeded"}
    assert (pods["seen_at"] <= simulation.spec.end_at).all()
    wanted = "nvidia_com_mig_" if simulation.spec.scenario == "mig" else "nvidia_com_gpu_shared"
    assert all(name.startswith(wanted) for name in pods["resource"])


def test_a_mixed_fleet_tells_its_pods_too(collect):
    _, tables = told(collect, nodes=8, scenario="mixed")
    assert {"reading", "holding", "pod", "workload", "allocation"} <= set(tables)
    assert {"nvidia_com_gpu", "nvidia_com_gpu_shared", "nvidia_com_mig_1g_10gb"} <= set(tables["pod"]["resource"])
    assert tables["pod"]["gpu_count"].max() == 8


@pytest.mark.parametrize(
    ("field", "value"), [("label_flap_ratio", 1.0), ("label_flap_ratio", -0.1), ("linger_minutes", 61)]
)
def test_faults_have_bounds(field, value):
    with pytest.raises(BadInput) as refused:
        FleetSpec(nodes=1, days=1, **{field: value})
    assert refused.value.field == field
