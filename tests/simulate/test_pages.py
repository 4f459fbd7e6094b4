from __future__ import annotations

from datetime import datetime, timedelta

import polars as pl
import pytest

from collector.sources.dcgm import Target, parse
from gpuledger.errors import BadInput, SourceError
from gpuledger.model import to_table


def _parsed(told, node: str, at: datetime) -> pl.DataFrame:
    page = told.simulation.node_page(node, at)
    observation = parse(page, at, Target(interval_seconds=told.simulation.spec.interval_seconds))
    assert observation.reads[0].ok
    assert observation.reads[0].skipped_lines == 0
    assert observation.reads[0].node == node
    return pl.DataFrame(pl.from_arrow(to_table("reading", observation.readings)))


def _told(told, node: str, at: datetime) -> pl.DataFrame:
    return told.tables["reading"].filter((pl.col("node") == node) & (pl.col("ts") == at))


@pytest.mark.parametrize("minute", [0, 777, 2000, 3 * 1440 - 1])
def test_a_collector_reads_from_the_page_what_the_back_fill_says(small, minute: int) -> None:
    at = small.simulation.spec.start_at + timedelta(minutes=minute)
    read = 0
    for host in small.simulation.fleet.hosts:
        expected = _told(small, host.name, at).sort("gpu_uuid", "slice_id")
        if expected.is_empty():
            continue
        got = _parsed(small, host.name, at).sort("gpu_uuid", "slice_id")
        assert got.columns == expected.columns
        for column in got.columns:
            assert got[column].to_list() == expected[column].to_list(), (host.name, column)
        read += got.height
    assert read > 40


def test_the_pods_on_a_page_are_those_that_hold_the_cards(small) -> None:
    at = small.simulation.spec.start_at + timedelta(minutes=1500)
    held = small.tables["allocation"].filter(
        (pl.col("started_at") <= at)
        & (pl.col("ended_at").is_null() | (pl.col("ended_at") > at))
        & pl.col("gpu_uuid").is_not_null()
    )
    seen = set()
    for host in small.simulation.fleet.hosts:
        page = small.simulation.node_page(host.name, at)
        seen |= {(sight.gpu_uuid, sight.slice_id, sight.pod) for sight in parse(page, at).holdings}
    assert seen == set(held.select("gpu_uuid", "slice_id", "pod").iter_rows())


def test_a_page_is_what_dcgm_exporter_writes(small) -> None:
    sliced = small.simulation.fleet.pool("a100-mig")[0].name
    page = small.simulation.node_page(sliced, small.simulation.spec.end_at).decode()
    lines = page.splitlines()
    assert page.endswith("\n")
    assert "# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter" in lines
    sm = [line for line in lines if line.startswith("DCGM_FI_PROF_SM_ACTIVE{")]
    assert len(sm) == 32
    assert all('GPU_I_PROFILE="' in line and 'GPU_I_ID="' in line and 'Hostname="' in line for line in sm)
    assert not [line for line in lines if line.startswith("DCGM_FI_DEV_GPU_UTIL{")]


def test_energy_never_falls_and_is_the_power_summed(small) -> None:
    card = small.tables["reading"].filter(pl.col("gpu_uuid") == small.simulation.fleet.cards[40].gpu_uuid)
    energy = card["energy_joules"].diff().drop_nulls()
    power = card["power_watts"][1:]
    steps = card["ts"].diff().drop_nulls().dt.total_seconds()
    whole = steps == 60
    assert (energy >= 0).all()
    assert (energy - power * 60).filter(whole).abs().max() < 1e-3


def test_pages_go_on_after_the_back_fill(small) -> None:
    spec = small.simulation.spec
    for hours in (0, 5, 23, 40):
        rows = _parsed(small, small.simulation.fleet.hosts[0].name, spec.end_at + timedelta(hours=hours))
        assert rows.height == 8
    last = _told(small, small.simulation.fleet.hosts[0].name, spec.end_at - timedelta(minutes=1)).sort("gpu_uuid")
    now = _parsed(small, small.simulation.fleet.hosts[0].name, spec.end_at)
    assert (now["energy_joules"] > last["energy_joules"]).all()
    assert (now["energy_joules"] - last["energy_joules"] < 60 * 700 + 1).all()


def test_a_silent_or_dark_node_has_no_page_and_a_failed_read(small) -> None:
    failed = small.tables["source_read"].filter(~pl.col("ok"))
    assert failed.height > 100
    for node, at in failed.select("node", "ts").gather([0, failed.height // 2, failed.height - 1]).iter_rows():
        with pytest.raises(SourceError):
            small.simulation.node_page(node, at)
        assert _told(small, node, at).is_empty()


def test_a_lost_card_vanishes_while_its_neighbours_stay(small) -> None:
    row = small.truth.filter(pl.col("cause") == "gpu_lost").row(0, named=True)
    node = small.tables["asset"].filter(pl.col("gpu_uuid") == row["gpu_uuid"])["node"][0]
    at = row["from_at"] + timedelta(minutes=30)
    rows = _parsed(small, node, at)
    assert rows.height == 7
    assert row["gpu_uuid"] not in set(rows["gpu_uuid"])
    reads = small.tables["source_read"].filter((pl.col("node") == node) & (pl.col("ts") == at))
    assert reads["device_count"].to_list() == [7]


def test_what_cannot_be_shown_is_refused(small) -> None:
    spec = small.simulation.spec
    with pytest.raises(BadInput, match="node"):
        small.simulation.node_page("no-such-node", spec.end_at)
    for at in (spec.start_at - timedelta(minutes=1), spec.end_at + timedelta(days=30)):
        with pytest.raises(BadInput, match="at"):
            small.simulation.node_page(small.simulation.fleet.hosts[0].name, at)


def test_readings_are_within_the_bounds_that_ingest_checks(small) -> None:
    table = small.tables["reading"]
    for column in table.columns:
        if column.endswith("_ratio"):
            values = table[column].drop_nulls()
            assert values.is_between(0, 1).all(), column
    used = table.drop_nulls("fb_used_bytes")
    assert (used["fb_used_bytes"] + used["fb_reserved_bytes"] < used["fb_total_bytes"]).all()
