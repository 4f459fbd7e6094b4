"""The history of a real Prometheus and a real VictoriaMetrics gives the readings and the ledger that were simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from collector.exposition import parse_series
from collector.prometheus.backfill import Backfill
from collector.prometheus.client import QueryClient
from collector.prometheus.promql import Matcher
from collector.prometheus.survey import Span, survey
from gpuledger.app import backfill
from gpuledger.app.client import open_warehouse
from gpuledger.clock import SystemClock
from gpuledger.config import Settings
from gpuledger.model import Window
from gpuledger.simulate import FleetSpec, Simulation, simulate
from tests.servers import history
from warehouse.store import Warehouse

pytestmark = pytest.mark.slow

HOURS = 3
BEGIN = datetime(2026, 3, 1, 8, tzinfo=UTC)
END = BEGIN + timedelta(hours=HOURS)
SPEC = FleetSpec(nodes=4, days=1, interval_seconds=60)
FLEET = Matcher("Hostname", "!~", "dead|hostile|k1")
HOSTILE = ('x"} or up{job="', "'; DROP TABLE gpu_samples; --", "a' OR '1'='1", "%_")
SIDE_MINUTES = 30


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(SPEC)


def side_lines() -> Iterator[history.Line]:
    """A node whose exporter dies after half an hour, and four cards under namespaces that are no good names."""
    for minute in range(SIDE_MINUTES):
        at = int(BEGIN.timestamp()) + 60 * minute
        yield b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-dead",Hostname="dead"} 90', at
        for number, namespace in enumerate(HOSTILE):
            escaped = namespace.replace("\\", "\\\\").replace('"', '\\"')
            labels = f'UUID="GPU-inj-{number}",Hostname="hostile",exported_namespace="{escaped}",exported_pod="p"'
            yield f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {10 * (number + 1)}".encode(), at


def pod_lines() -> Iterator[history.Line]:
    """A pod with two GPUs that is over after twenty minutes, beside one without any, as kube-state-metrics has them."""
    gpu, cpu = (f'namespace="red",pod="{pod}",uid="{pod}-uid",Hostname="k1"' for pod in ("train-0", "web-0"))
    for minute in range(SIDE_MINUTES):
        at = int(BEGIN.timestamp()) + 60 * minute
        is_over = int(minute >= 20)
        for text in (
            'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-k1",Hostname="k1"} 90',
            f'kube_pod_info{{{gpu},node="k1",created_by_kind="Job",created_by_name="train"}} 1',
            f'kube_pod_info{{{cpu},node="k1",created_by_kind="ReplicaSet",created_by_name="web"}} 1',
            f'kube_pod_container_resource_requests{{{gpu},node="k1",container="m",resource="nvidia_com_gpu"}} 2',
            f'kube_pod_container_resource_requests{{{gpu},node="k1",container="m",resource="cpu"}} 8',
            f'kube_pod_container_resource_requests{{{cpu},node="k1",container="m",resource="cpu"}} 1',
            f"kube_pod_start_time{{{gpu}}} {int(BEGIN.timestamp()) - 600}",
            f'kube_pod_status_phase{{{gpu},phase="Running"}} {1 - is_over}',
            f'kube_pod_status_phase{{{gpu},phase="Succeeded"}} {is_over}',
            f'kube_pod_status_phase{{{cpu},phase="Running"}} 1',
        ):
            yield text.encode(), at


def lines(simulation: Simulation) -> list[history.Line]:
    found = [*history.scraped(simulation, BEGIN, HOURS * 60), *pod_lines(), *side_lines()]
    assert parse_series(found[-1][0])[0].labels["exported_namespace"] == "%_"
    return found


Server = Callable[[Path, list[history.Line]], Any]


@pytest.fixture(scope="module", params=[history.prometheus, history.victoria_metrics])
def url(
    request: pytest.FixtureRequest, simulation: Simulation, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    serve: Server = request.param
    with serve(tmp_path_factory.mktemp("server"), lines(simulation)) as address:
        yield address


def load(file: Path, simulation: Simulation, *, telemetry: bool) -> Settings:
    """A warehouse with the simulator's own records: all, or all but what sources read."""
    with Warehouse.open(file) as warehouse:
        for number, (record, table) in enumerate(simulation.records()):
            if telemetry or record not in {"reading", "source_read"}:
                kept = table
                if record in {"reading", "source_read"}:
                    frame = cast("pl.DataFrame", pl.from_arrow(table))
                    kept = frame.filter(pl.col("ts").is_between(BEGIN, END, closed="left")).to_arrow()
                warehouse.ingest(record, kept.cast(table.schema), f"own-{number}")
    return Settings(warehouse=file)


def run(url: str, settings: Settings, *matchers: Matcher, **options: Any) -> dict[str, Any]:
    span = options.pop("span", Span(BEGIN, END - timedelta(seconds=1)))
    asked = backfill.Wanted(span=span, matchers=matchers, **options)
    clock = SystemClock()
    with QueryClient(url, clock=clock, requests_per_second=200) as server:
        found = survey(server, asked.span, asked.matchers)
        what = backfill.plan(server.name, found, asked, clock.now())
        with open_warehouse(settings) as client:
            return backfill.run(client, server, what)


def read(settings: Settings, text: str) -> pl.DataFrame:
    with Warehouse.open(settings.warehouse) as warehouse, warehouse.writing() as cursor:
        return cast("pl.DataFrame", pl.from_arrow(cursor.sql(text).to_arrow_table()))


def test_readings_and_ledger_are_those_that_were_simulated(url: str, simulation: Simulation, tmp_path: Path) -> None:
    own = load(tmp_path / "own.duckdb", simulation, telemetry=True)
    ours = load(tmp_path / "ours.duckdb", simulation, telemetry=False)
    with Warehouse.open(own.warehouse) as warehouse:
        assert warehouse.build_ledger(Window(BEGIN, END), until_at=END).violations == 0
    answer = run(url, ours, FLEET)
    assert (answer["gaps"], answer["rejected_count"], answer["ledger"]["violations"]) == ([], 0, 0)

    readings = "select * exclude (source, seen_at) from reading order by gpu_uuid, slice_id, ts"
    expected, found = read(own, readings), read(ours, readings)
    assert found.height > HOURS * 60 * 8
    assert found.equals(expected)
    reads = "select ts, node, device_count from source_read where ok and device_count > 0 order by node, ts"
    assert read(ours, reads).equals(read(own, reads))

    for table in ("ledger_hour", "state_span"):
        text = f"select * from {table} where hour_at < '{END.isoformat()}' order by all"
        expected, found = read(own, text), read(ours, text)
        assert found.height > 0
        assert_frame_equal(found, expected, rel_tol=1e-12)  # sums run in another order


def test_means_are_those_of_the_samples(url: str, simulation: Simulation) -> None:
    """Five-minute steps: activity is the mean of five samples, counters and codes are the last, all at the begin.

    Also in steps in which a card changes hands, and its samples are in two series.
    """
    means = ("gpu_util_ratio", "mem_copy_util_ratio", "power_watts", "gpu_temp_celsius", "pcie_rx_bytes_per_second")
    lasts = ("energy_joules",)
    keys = ("ts", "gpu_uuid", "slice_id")
    step = pl.col("ts").dt.truncate("5m")
    expected = (
        own_records(simulation, "reading")
        .filter(pl.col("ts").is_between(BEGIN, END, closed="left"))
        .sort("ts")
        .group_by(step, "gpu_uuid", "slice_id")
        .agg(*(pl.col(name).mean() for name in means), *(pl.col(name).drop_nulls().last() for name in lasts))
    )
    found = fetched(url, FLEET, "5m")["reading"].select(*keys, *means, *lasts)
    assert found.select(keys).sort(keys).equals(expected.select(keys).sort(keys))
    assert_frame_equal(found.sort(keys), expected.sort(keys), rel_tol=1e-9)


def own_records(simulation: Simulation, name: str) -> pl.DataFrame:
    """All rows of one record, as the simulator has them."""
    return pl.concat(
        [cast("pl.DataFrame", pl.from_arrow(table)) for record, table in simulation.records() if record == name]
    )


def fetched(url: str, matcher: Matcher, step: str = "auto") -> Mapping[str, pl.DataFrame]:
    """The records of the whole span, without a warehouse."""
    asked = backfill.Wanted(span=Span(BEGIN, END - timedelta(seconds=1)), matchers=[matcher], step=step)
    clock = SystemClock()
    with QueryClient(url, clock=clock, requests_per_second=200) as server:
        what = backfill.plan(server.name, survey(server, asked.span, asked.matchers), asked, clock.now())
        source = Backfill(server, what.request)
        return {name: cast("pl.DataFrame", pl.from_arrow(table)) for c in what.chunks for name, table in source.read(c)}


@pytest.mark.parametrize("step", ["60s", "2m", "5m"])
def test_a_dead_exporter_does_not_look_alive(url: str, step: str) -> None:
    """Its last sample has no stale marker: an instant selector would show it for five minutes more."""
    found = fetched(url, Matcher("Hostname", "=", "dead"), step)["reading"].sort("ts")
    seconds = found["interval_seconds"][0]
    assert found["ts"].to_list() == [
        BEGIN + timedelta(seconds=seconds * number) for number in range(int(SIDE_MINUTES * 60 // seconds))
    ]


@pytest.mark.parametrize("number", range(len(HOSTILE)))
def test_a_hostile_namespace_selects_itself_alone(url: str, number: int) -> None:
    """Problem 163, at a real server."""
    found = fetched(url, Matcher("exported_namespace", "=", HOSTILE[number]))
    cards = found["reading"].select("gpu_uuid", "gpu_util_ratio").unique()
    assert cards.rows() == [(f"GPU-inj-{number}", (number + 1) / 10)]
    assert found["holding"].select("namespace", "pod").unique().rows() == [(HOSTILE[number], "p")]


def test_pods_with_gpus_come_with_the_history(url: str) -> None:
    pods = fetched(url, Matcher("Hostname", "=", "k1"))["pod"].to_dicts()
    (pod,) = pods
    assert (pod["uid"], pod["gpu_count"], pod["resource"], pod["node"]) == ("train-0-uid", 2.0, "nvidia_com_gpu", "k1")
    assert (pod["owner_kind"], pod["owner_name"], pod["phase"]) == ("Job", "train", "Succeeded")
    assert pod["started_at"] == BEGIN - timedelta(minutes=10)
    assert pod["ended_at"] == BEGIN + timedelta(minutes=20)
    assert pod["seen_at"] == BEGIN + timedelta(minutes=SIDE_MINUTES - 1)
