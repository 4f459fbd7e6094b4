"""`gpuledger import prometheus`, run again and interrupted: what is fetched once, what is said, whose cluster it is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collector.prometheus.backfill import Backfill
from collector.prometheus.client import QueryClient
from collector.prometheus.survey import Span, survey
from gpuledger.app import backfill
from gpuledger.app.client import Client
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api, Ran
from tests.collector.prometheus.stub import Store, Stub, serving
from warehouse.store import Warehouse

UTIL = "DCGM_FI_DEV_GPU_UTIL"
ONE_CARD = {UTIL: [{"UUID": "GPU-0", "Hostname": "n0"}]}
THREE_DAYS = Span(NOW - timedelta(days=3), NOW - timedelta(minutes=1))
SHORT = Span(datetime(2026, 2, 20, tzinfo=UTC), datetime(2026, 2, 20, 1, tzinfo=UTC))


def run(api: Api, stub: Stub, span: Span, *, now: datetime = NOW, url: str = "", **more: Any) -> dict[str, Any]:
    """One run of the import, and what it answers."""
    asked = backfill.Wanted(span=span)
    with QueryClient(url or stub.url, clock=FakeClock(now), attempts=1) as server:
        what = backfill.plan(server.name, survey(server, span, ()), asked, now, **more)
        return backfill.run(Client(api.http), server, what)


def rows(api: Api, text: str) -> list[Any]:
    with api.service.warehouse.writing() as cursor:
        return cursor.execute(text).fetchall()


def test_a_relative_span_a_few_minutes_later_fetches_a_few_minutes(api: Api) -> None:
    """One card: a chunk is 46 hours, so that both of its ends lie in chunks that move with the clock."""
    later = timedelta(minutes=5)
    with serving(Stub(ONE_CARD)) as stub:
        first = run(api, stub, THREE_DAYS)
        asked = len(stub.ranges())
        again = Span(THREE_DAYS.since + later, THREE_DAYS.until + later)
        second = run(api, stub, again, now=NOW + later, url=f"{stub.url}/")
        ((start, end, step),) = stub.ranges()[asked:]
    assert first["imported"]["reading"] == 3 * 5760 - 4
    assert (second["imported"]["reading"], (end - start) // step + 1) == (20, 20)
    assert (second["chunks"] - second["chunks_had_before"], second["gaps"]) == (1, [])
    assert rows(api, "select count(*), count(distinct ts) from reading") == [(3 * 5760 + 16, 3 * 5760 + 16)]


def test_after_an_interrupt_the_same_command_goes_on(
    api: Api, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reads: list[Any] = []
    read = Backfill.read

    def interrupted(self, chunk):
        reads.append(chunk)
        if len(reads) == 2:
            raise KeyboardInterrupt
        return read(self, chunk)

    later = timedelta(minutes=5)
    with serving(Stub(ONE_CARD)) as stub:
        monkeypatch.setattr(Backfill, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(api, stub, THREE_DAYS)
        said = capsys.readouterr().err
        had = rows(api, "select count(*) from reading")[0][0]
        monkeypatch.setattr(Backfill, "read", read)
        again = Span(THREE_DAYS.since + later, THREE_DAYS.until + later)
        answer = run(api, stub, again, now=NOW + later)
    assert "Interrupted: 1 of 3 chunks are stored. The same command goes on from there." in said
    assert had > 0
    assert (answer["chunks_had_before"], answer["chunks"]) == (1, 3)
    assert answer["imported"]["reading"] == 3 * 5760 + 16 - had
    assert rows(api, "select count(*), count(distinct ts) from reading") == [(3 * 5760 + 16, 3 * 5760 + 16)]


@pytest.mark.parametrize(("young_seconds", "every"), [(130, 15), (45, 15), (100, 30), (3600, 45), (3600, 600)])
def test_the_interval_of_a_young_server(young_seconds: int, every: int) -> None:
    stub = Stub(ONE_CARD, interval_seconds=every, begins_at=SHORT.until.timestamp() - young_seconds)
    with serving(stub), QueryClient(stub.url, clock=FakeClock(NOW), attempts=1) as server:
        assert survey(server, SHORT, ()).interval_ms == 1000 * every


def pods(**labels: str) -> Store:
    """A card and a pod that asks for it, with further `labels` on what kube-state-metrics says."""
    at = SHORT.since.timestamp()
    pod = {"namespace": "ml", "pod": "train", "uid": "4f1c", **labels}
    every = [(at + 60 * minute, "1") for minute in range(60)]
    request = {**pod, "resource": "nvidia_com_gpu", "unit": "integer", "container": "c", "node": "n0"}
    return Store([
        (UTIL, ONE_CARD[UTIL][0], every),
        ("kube_pod_info", {**pod, "node": "n0"}, every),
        ("kube_pod_container_resource_requests", request, every),
    ])  # fmt: skip


NAMES = "select uid, cluster, workload_id from pod"


def test_the_cluster_is_that_of_the_series(api: Api) -> None:
    with serving(pods(cluster="c1")) as stub:
        run(api, stub, SHORT, own_cluster="other")
    assert rows(api, NAMES) == [("4f1c", "c1", "c1/ml/train")]


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({}, ("4f1c", "default", "ml/train")),
        ({"own_cluster": "c2"}, ("4f1c", "c2", "c2/ml/train")),
        ({"own_cluster": "c2", "cluster": "c3"}, ("4f1c", "c3", "c3/ml/train")),
    ],
)
def test_the_cluster_of_series_that_do_not_say_it(api: Api, more: dict[str, Any], named: tuple[str, ...]) -> None:
    with serving(pods()) as stub:
        run(api, stub, SHORT, **more)
    assert rows(api, NAMES) == [named]


def test_a_pod_that_is_of_another_cluster_already_is_said_once(api: Api, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(pods()) as stub:
        run(api, stub, SHORT, cluster="c1")
        assert "Hint" not in capsys.readouterr().err
        run(api, stub, SHORT, cluster="c1", rules=None)
        assert "Hint" not in capsys.readouterr().err
        run(api, stub, SHORT)
    said = capsys.readouterr().err
    assert said.count("Hint: pod ml/train is of cluster 'c1' in the warehouse, of 'default' here") == 1
    assert "say --cluster c1." in said


CONFIG = """global:
  scrape_interval: 15s
  scrape_protocols:
  - OpenMetricsText1.0.0
  external_labels:
    cluster: "c 1"
    prometheus_replica: a
runtime:
  gogc: 75
remote_write:
- url: http://ledger:8420/api/v1/write
"""


def test_the_command_line_says_the_cost_first_and_asks_the_server_for_its_cluster(
    cli: Callable[..., Ran], tmp_path: Path
) -> None:
    stub = pods()
    stub.config = CONFIG
    options = ("--since", SHORT.since.isoformat(), "--until", SHORT.until.isoformat(), "--format", "json")
    with serving(stub):
        with QueryClient(stub.url, clock=FakeClock(NOW)) as server:
            assert server.external_labels() == {"cluster": "c 1", "prometheus_replica": "a"}
            stub.config = "global:\n  scrape_interval: 15s\nscrape_configs:\n- job_name: external_labels\n"
            assert server.external_labels() == {}
            stub.config = CONFIG
        ran = cli("import", "prometheus", "--url", stub.url, *options, "--warehouse", tmp_path / "w.duckdb")
    assert ran.code == 0, ran.err
    assert "Estimate: 183 samples of 3 series, one every 60 s, in 1 chunks and 3 requests; 0 MB, about " in ran.err
    assert ran.json["imported"]["pod"] == 1
    assert ran.json["estimate"]["seconds"] <= 1
    with Warehouse.open(tmp_path / "w.duckdb") as warehouse, warehouse.writing() as cursor:
        assert cursor.execute(NAMES).fetchall() == [("4f1c", "c 1", "c 1/ml/train")]
