"""The agent as a whole: sources side by side, rows to the service, and what it says about itself."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import httpx
import pytest
import structlog

from collector.agent import Agent, run
from collector.building import build_sources
from collector.metrics import AgentMetrics
from collector.schedule import Schedule
from collector.settings import CollectorSettings
from collector.sources.nvml import NvmlSource
from collector.spool import Spool
from gpuledger.clock import SystemClock
from gpuledger.errors import ConfigError
from gpuledger.model import Reading, SourceRead
from gpuledger.ports import Observation


class FakeSource:
    """A source whose every read may be slow, fail or raise."""

    def __init__(self, name: str, interval_seconds: float = 0.05, act: Callable[[], object] = lambda: None) -> None:
        self.name = name
        self.interval_seconds = interval_seconds
        self.ok = True
        self.act = act
        self.reads = 0

    def read(self, now: datetime) -> Observation:
        self.reads += 1
        self.act()
        read = SourceRead(
            ts=now, node=self.name, source="fake", scope="device", ok=self.ok, interval_seconds=15, skipped_lines=2,
            error=None if self.ok else "down",
        )  # fmt: skip
        reading = Reading(ts=now, node=self.name, gpu_uuid="G", source="fake", interval_seconds=15, invalid_count=3)
        return Observation(reads=(read,), readings=(reading,) if self.ok else ())


@pytest.fixture
def spool(tmp_path):
    spool = Spool(tmp_path / "spool", 10**7)
    yield spool
    spool.close()


@contextmanager
def running(agent: Agent):
    stop = threading.Event()
    thread = threading.Thread(target=agent.run, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
        assert not thread.is_alive()


def wait_until(condition, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def make(sources, spool, flush_seconds: float = 60) -> tuple[Agent, AgentMetrics]:
    metrics = AgentMetrics()
    return Agent(sources, clock=SystemClock(), spool=spool, metrics=metrics, flush_seconds=flush_seconds), metrics


def value_of(metrics: AgentMetrics, name: str, labels: dict[str, str]) -> float:
    value = metrics.registry.get_sample_value(f"gpuledger_collector_{name}", labels)
    assert value is not None, (name, labels)
    return value


def test_many_sources_make_one_batch_for_each_record(spool):
    sources = [FakeSource(f"s{number}", 60) for number in range(8)]
    for source in sources:
        source.interval_seconds = 0.4
    agent, _ = make(sources, spool)
    with running(agent):
        wait_until(lambda: all(source.reads for source in sources))
        agent.flush()
    records = [batch.record for batch in spool._batches.values()]
    assert records[:2] == ["source_read", "reading"]
    assert sum(batch.rows for batch in spool._batches.values() if batch.record == "source_read") == sum(
        source.reads for source in sources
    )


def test_a_hung_source_delays_nobody_and_its_missed_turns_are_counted(spool):
    release = threading.Event()
    hung, quick = FakeSource("hung", act=lambda: release.wait(10)), FakeSource("quick")
    agent, metrics = make([hung, quick], spool)
    with running(agent):
        wait_until(lambda: quick.reads >= 10)
        release.set()
    assert hung.reads <= 2
    overruns = value_of(metrics, "overruns_total", {"source": "hung"})
    assert overruns >= 5
    assert sum(batch.rows for batch in spool._batches.values() if batch.record == "quality_event") == overruns


def test_a_source_that_raises_costs_its_own_turn(spool):
    def fail() -> None:
        raise RuntimeError("a plug-in's mistake")

    bad, good = FakeSource("bad", act=fail), FakeSource("good")
    agent, metrics = make([bad, good], spool)
    with structlog.testing.capture_logs() as logs, running(agent):
        wait_until(lambda: bad.reads >= 3 and good.reads >= 3)
    labels = {"source": "bad", "outcome": "failed"}
    assert value_of(metrics, "reads_total", labels) >= 3
    assert any(log["event"] == "a source raised" for log in logs)


def test_failing_is_said_once_and_so_is_coming_back(spool):
    source = FakeSource("s")
    source.ok = False
    agent, metrics = make([source], spool)
    with structlog.testing.capture_logs() as logs, running(agent):
        wait_until(lambda: source.reads >= 4)
        source.ok = True
        before = source.reads
        wait_until(lambda: source.reads >= before + 3)
    assert [log["event"] for log in logs] == ["source fails", "source is back"]
    assert value_of(metrics, "last_success_timestamp_seconds", {"source": "s"}) > 1.7e9
    assert value_of(metrics, "invalid_values_total", {"source": "s"}) % 3 == 0
    assert value_of(metrics, "rows_total", {"record": "source_read"}) == source.reads


def test_rows_that_fit_no_batch_cost_their_record_only(spool, now, monkeypatch):
    source = FakeSource("s", 60)
    number: Any = 7
    wrong = Reading(ts=now, node="n", gpu_uuid=number, source="fake", interval_seconds=15)
    right = SourceRead(ts=now, node="n", source="fake", scope="device", ok=True, interval_seconds=15)
    monkeypatch.setattr(source, "read", lambda _: Observation(reads=(right,), readings=(wrong,)))
    agent, metrics = make([source], spool)
    with structlog.testing.capture_logs() as logs, running(agent):
        time.sleep(0.1)
    assert [batch.record for batch in spool._batches.values()] == ["source_read"]
    assert value_of(metrics, "unbatched_rows_total", {"record": "reading"}) == 1
    assert logs[0]["event"] == "rows could not be batched"


def test_rows_that_fit_no_batch_leave_those_of_other_sources(spool, now):
    wrong: Any = FakeSource("wrong", 60)
    wrong.name = 7  # which is the node of its rows too
    agent, metrics = make([FakeSource("right", 60)], spool)
    for source in (FakeSource("right", 60), wrong, FakeSource("also", 60)):
        agent._buffer.add(source.read(now))
    agent.flush()
    assert [(batch.record, batch.rows) for batch in spool._batches.values()] == [("source_read", 2), ("reading", 2)]
    assert value_of(metrics, "unbatched_rows_total", {"record": "reading"}) == 1
    assert value_of(metrics, "unbatched_rows_total", {"record": "source_read"}) == 1


def test_schedule_spreads_starts_and_skips_what_was_missed():
    schedule = Schedule([10, 10], start=0)
    assert schedule.take_due(0) == [0]
    assert schedule.next_at == 5
    assert schedule.take_due(5) == [1]
    assert schedule.take_due(9.9) == []
    assert schedule.take_due(47) == [0, 1]
    assert schedule.next_at == 50
    assert (schedule.take_due(50), schedule.next_at) == ([0], 55)


PAGE = b'DCGM_FI_DEV_GPU_UTIL{UUID="GPU-%d",Hostname="n1",namespace="team",pod="p"} 50\n'


def settings(tmp_path, service_url: str, *urls: str, **options) -> CollectorSettings:
    dcgm = [{"url": url, "interval_seconds": 1, "timeout_seconds": 1} for url in urls]
    defaults: dict[str, Any] = {"metrics_listen": "", "flush_seconds": 0.1}
    return CollectorSettings(
        service_url=service_url, spool_directory=tmp_path / "spool", dcgm=dcgm, **defaults | options
    )


@contextmanager
def agent_of(given: CollectorSettings):
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(given, SystemClock(), stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def test_a_page_travels_to_the_service(tmp_path, target, service, free_port):
    target.page = PAGE % 1
    given = settings(tmp_path, service.url, target.url, metrics_listen=f"127.0.0.1:{free_port}")
    with agent_of(given):
        wait_until(lambda: service.rows("holding"))
        connection = http.client.HTTPConnection("127.0.0.1", free_port, timeout=5)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
    (reading,) = next(table for name, table in service.tables.values() if name == "reading").to_pylist()
    assert (reading["node"], reading["gpu_uuid"], reading["gpu_util_ratio"]) == ("n1", "GPU-1", 0.5)
    assert reading["power_watts"] is None
    assert 'gpuledger_collector_reads_total{outcome="ok"' in text
    assert "gpuledger_collector_spool_bytes" in text
    assert 'kind="dropped_labels"' in text


def test_a_target_that_is_down_is_told_to_the_service(tmp_path, service, free_port):
    given = settings(tmp_path, service.url, f"http://127.0.0.1:{free_port}/metrics")
    with structlog.testing.capture_logs(), agent_of(given):
        wait_until(lambda: service.rows("source_read"))
    (read,) = next(table for name, table in service.tables.values() if name == "source_read").to_pylist()
    assert (read["ok"], read["error"]) == (False, "not reachable: connection refused")


def test_what_was_read_while_the_service_was_away_arrives_after_a_restart(tmp_path, target, service):
    target.page = PAGE % 1
    service.answer = lambda *_: (503, "")
    given = settings(tmp_path, service.url, target.url)
    with structlog.testing.capture_logs():
        with agent_of(given):
            wait_until(lambda: list((tmp_path / "spool").glob("*-reading-*.arrow")))
        assert service.tables == {}
        waiting = {path.name for path in (tmp_path / "spool").glob("*.arrow")}
        service.answer = None
        with agent_of(given):
            wait_until(lambda: not list((tmp_path / "spool").glob("*.arrow")))
    assert {name.split("-")[-1].removesuffix(".arrow") for name in waiting} <= set(service.tables)


def test_stopping_ships_what_was_read(tmp_path, target, service):
    target.page = PAGE % 1
    with agent_of(settings(tmp_path, service.url, target.url, flush_seconds=3600)):
        wait_until(lambda: target.requests)
    assert service.rows("reading") >= 1
    assert list((tmp_path / "spool").glob("*.arrow")) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"urls": []}, "nothing to read"),
        ({"urls": ["http://a/m", "http://a:80/m"]}, "more than once: dcgm:a:80/m"),
        ({"urls": ["http://a/m"], "metrics_listen": "nowhere"}, "metrics_listen"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_read(tmp_path, options, message):
    urls = options.pop("urls")
    with pytest.raises(ConfigError, match=message):
        run(settings(tmp_path, "http://127.0.0.1:1", *urls, **options), SystemClock(), threading.Event())


def test_nvml_is_a_source_where_it_is_wanted(tmp_path):
    given = settings(tmp_path, "http://127.0.0.1:1", nvml={"enabled": True, "node": "n1", "interval_seconds": 30})
    with httpx.Client() as client:
        (source,) = build_sources(given, client=client)
    assert isinstance(source, NvmlSource)
    assert (source.name, source.node, source.interval_seconds) == ("nvml", "n1", 30)
