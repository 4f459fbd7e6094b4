from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pyarrow as pa

from gpuledger.model import RECORDS, arrow_schema
from gpuledger.simulate import FleetSpec, hide, simulate


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return bytes(sink.getvalue())


def test_the_same_spec_gives_the_same_bytes_and_another_seed_does_not(collect) -> None:
    spec = FleetSpec(nodes=8, days=1, seed=5)
    first, second = collect(simulate(spec)), collect(simulate(spec))
    assert {name: _bytes(table) for name, table in first.items()} == {
        name: _bytes(table) for name, table in second.items()
    }
    assert _bytes(simulate(spec).truth()) == _bytes(simulate(spec).truth())
    other = collect(simulate(FleetSpec(nodes=8, days=1, seed=6)))
    assert _bytes(other["reading"]) != _bytes(first["reading"])


def test_every_record_but_what_is_asked_for_is_told_in_its_schema_with_unique_keys(small, collect) -> None:
    only_readers_tell = {"node_state", "queue_resource", "wait", "workload_event"}
    of_the_mixes = {"job_step", "job_model", "workload_phase", "checkpoint", "fault_event"}
    people_import = {"price", "conversion"}
    of_other_exporters = {"engine_reading", "link_reading"}
    others = only_readers_tell | of_the_mixes | people_import | of_other_exporters
    others |= {"holding", "pod", "quality_event"}
    assert set(small.tables) == set(RECORDS) - others
    for name, table in collect(small.simulation).items():
        assert table.schema == arrow_schema(name)
        keys = small.tables[name].select(RECORDS[name].key)
        assert keys.is_unique().all(), name


def test_readings_come_in_order_of_time_in_bounded_tables() -> None:
    simulation = simulate(FleetSpec(nodes=8, days=2, seed=3))
    last = datetime(2000, 1, 1, tzinfo=UTC)
    for name, table in simulation.records():
        assert table.num_rows <= 250_000
        if name == "reading":
            times = pl.Series(table["ts"].to_numpy())
            assert times.is_sorted()
            first = table["ts"][0].as_py()
            assert first >= last
            last = table["ts"][-1].as_py()
            assert last < simulation.spec.end_at


def test_hidden_nodes_and_cards_stay_on_the_assets_list(small, collect) -> None:
    names = [host.name for host in small.simulation.fleet.hosts[:3]]
    uuids = [small.simulation.fleet.cards[index].gpu_uuid for index in (0, 30)]
    tables = collect(hide(small.simulation, scheduler_nodes=names, cards=uuids))
    assert not set(names) & set(tables["scheduler_node"]["node"].to_pylist())
    assert tables["scheduler_node"].num_rows == 5
    assert not set(uuids) & set(tables["reading"]["gpu_uuid"].unique().to_pylist())
    assert set(uuids) <= set(tables["asset"]["gpu_uuid"].to_pylist())
    assert tables["allocation"].equals(collect(small.simulation)["allocation"])


def test_the_interval_is_the_spec_s(collect) -> None:
    tables = collect(simulate(FleetSpec(nodes=1, days=1, interval_seconds=300)))
    assert tables["source_read"].num_rows == 288
    assert set(tables["reading"]["interval_seconds"].unique().to_pylist()) == {300.0}
