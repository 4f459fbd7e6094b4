from __future__ import annotations

import urllib.error
import urllib.request
from datetime import timedelta

import polars as pl
import pyarrow.parquet as pq
import pytest

from gpuledger.errors import BadInput, ConfigError
from gpuledger.simulate import FleetSpec, serve, simulate, write
from gpuledger.testing import FakeClock


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def test_the_server_shows_each_node_at_the_clock_s_time(small) -> None:
    clock = FakeClock(small.simulation.spec.end_at)
    with serve(small.simulation, "127.0.0.1:0", clock) as live:
        listed = _get(live.url + "/").decode().split()
        assert [live.url + path for path in listed] == live.node_urls
        node = small.simulation.fleet.hosts[2].name
        first = _get(live.node_urls[2])
        assert first == small.simulation.node_page(node, clock.now())
        clock.advance(600)
        assert _get(live.node_urls[2]) != first


def test_the_server_says_404_and_503(small) -> None:
    clock = FakeClock(small.simulation.spec.end_at + timedelta(days=90))
    with serve(small.simulation, "127.0.0.1:0", clock) as live:
        with pytest.raises(urllib.error.HTTPError) as missing:
            _get(live.url + "/nodes/none/metrics")
        assert missing.value.code == 404
        missing.value.close()
        with pytest.raises(urllib.error.HTTPError) as ended:
            _get(live.node_urls[0])
        assert ended.value.code == 503
        ended.value.close()


def test_a_server_needs_host_and_port(small) -> None:
    with pytest.raises(ConfigError):
        serve(small.simulation, "9400", FakeClock())


def _merge(frames: list[pl.DataFrame], key: list[str]) -> pl.DataFrame:
    return pl.concat(frames).unique(key, keep="last", maintain_order=True).sort(key)


@pytest.mark.parametrize("record", ["workload", "allocation", "condition", "asset"])
def test_back_fill_and_live_records_together_are_the_longer_back_fill(record: str, collect) -> None:
    """Posting an hour at a time gives, at the end, the state that a back-fill made then would give."""
    simulation = simulate(FleetSpec(nodes=8, days=2, seed=4))
    key = {
        "workload": ["workload_id"],
        "allocation": ["allocation_id"],
        "condition": ["subject", "condition", "from_at"],
        "asset": ["gpu_uuid", "from_at"],
    }[record]
    end = simulation.spec.end_at
    frames = [pl.DataFrame(pl.from_arrow(collect(simulation)[record]))]
    for hour in range(24):
        news = simulation.live_records(end + timedelta(hours=hour), end + timedelta(hours=hour + 1))
        frames.append(pl.DataFrame(pl.from_arrow(news[record])))
    work, minute = simulation._work, simulation.spec.end_minute + 1440
    whole = {
        "workload": work.workloads,
        "allocation": work.allocations,
        "condition": work.conditions,
        "asset": work.assets,
    }[record](minute)
    assert _merge(frames, key).equals(pl.DataFrame(pl.from_arrow(whole)).sort(key))


def test_the_future_is_not_known(small) -> None:
    end = small.simulation.spec.end_at
    for name, columns in (
        ("workload", ("submitted_at", "started_at", "ended_at")),
        ("allocation", ("started_at", "ready_at", "ended_at")),
        ("condition", ("from_at", "until_at")),
    ):
        for column in columns:
            assert small.tables[name][column].max() <= end, (name, column)


def test_live_queue_states_follow_without_gap_or_overlap(small) -> None:
    end = small.simulation.spec.end_at
    parts = [
        pl.DataFrame(pl.from_arrow(small.simulation.live_records(begin, begin + timedelta(minutes=7))["queue_state"]))
        for begin in (end, end + timedelta(minutes=7))
    ]
    for _, rows in pl.concat([small.tables["queue_state"], *parts]).sort("queue", "ts").group_by("queue"):
        lengths = rows["ts"].diff().drop_nulls().dt.total_seconds()
        assert (lengths == rows["duration_seconds"][:-1]).all()


def test_live_records_need_a_stretch(small) -> None:
    end = small.simulation.spec.end_at
    with pytest.raises(BadInput, match="until"):
        small.simulation.live_records(end, end)


def test_services_follow_the_day(small) -> None:
    load = small.tables["service_load"].with_columns(hour=pl.col("ts").dt.convert_time_zone("Asia/Shanghai").dt.hour())
    tidal = load.filter(~pl.col("workload_id").str.contains("steady"))
    night = tidal.filter(pl.col("hour").is_between(2, 4))["demand_gpus"].mean()
    day = tidal.filter(pl.col("hour").is_between(14, 17))["demand_gpus"].mean()
    assert night < 0.35 * day
    assert (load["ready_replicas"] >= 0).all()


def test_write_puts_every_record_and_the_truth_into_a_folder(tmp_path) -> None:
    simulation = simulate(FleetSpec(nodes=2, days=1))
    rows = write(simulation, tmp_path / "out")
    for name, count in rows.items():
        assert pq.read_metadata(tmp_path / "out" / f"{name}.parquet").num_rows == count
    assert rows["reading"] == 2 * 8 * 1440 - _unread(simulation, tmp_path)
    assert rows["truth"] == simulation.truth().num_rows


def _unread(simulation, tmp_path) -> int:
    reads = pl.read_parquet(tmp_path / "out" / "source_read.parquet")
    return 8 * reads.filter(~pl.col("ok")).height


def test_a_busy_fleet_is_held_whole_and_works_all_the_time(tell) -> None:
    told = tell(8, 1, 2, "busy")
    assert set(told.truth["kind"]) == {"lookalike"}
    held = told.tables["allocation"].group_by("gpu_uuid").agg(pl.col("share").sum())
    assert held.height == 64
    assert held["share"].to_list() == pytest.approx([1.0] * 64)
    active = told.tables["reading"].drop_nulls("sm_active_ratio")
    assert active["sm_active_ratio"].min() > 0.45
    assert told.tables["queue_state"]["pending_gpus"].max() == 0
