"""Senders of remote write against a real service that is restarted and killed: every sample is there exactly once.

Version 1 is written by two real Prometheus servers, an HA pair; version 2 by a sender of ours. Both cut the series of a
card apart, over several shards and requests.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import pytest

from collector.dcgm.labels import SeriesReader
from collector.devices.assemble import Options, assemble
from collector.exposition import ExpositionParser, Series
from collector.samples import Samples
from collector.sources.dcgm import Target, parse
from gpuledger.clock import SystemClock
from gpuledger.config import Settings
from gpuledger.model import to_table
from gpuledger.simulate import FleetSpec, simulate
from gpuledger.simulate.live import LiveServer
from gpuledger.simulate.simulation import Simulation
from tests.app.conftest import Served, free_port, serve
from tests.remote_write.writing import V2, in_order, post, request_2
from warehouse import Warehouse
from warehouse.samples import SampleStore

__all__ = ["serve"]

NODES = 2
REPLICAS = ("a", "b")
OWN = ("seen_at", "source", "interval_seconds")
SETTINGS = {"GPULEDGER_ASSEMBLE_EVERY_SECONDS": "1", "GPULEDGER_REMOTE_WRITE_WAITING": "64"}


class Recorded(LiveServer):
    """Exporters that remember when they showed which page."""

    def __init__(self, simulation: Simulation) -> None:
        self.shown: list[tuple[str, float, bytes]] = []
        super().__init__(simulation, "127.0.0.1:0", SystemClock())

    def answer(self, path: str) -> tuple[HTTPStatus, bytes]:
        asked = time.time()
        status, page = super().answer(path)
        if status == HTTPStatus.OK:
            self.shown.append((path, asked, page))
        return status, page


class Prometheus:
    """A real server that scrapes `exporters` every second and writes to `url`."""

    def __init__(self, folder: Path, exporters: Recorded, replica: str, url: str) -> None:
        self.replica, self.folder = replica, folder / f"prometheus-{replica}"
        self.folder.mkdir()
        self._api = f"http://127.0.0.1:{free_port()}"
        config = self.folder / "prometheus.yml"
        config.write_text(_config(exporters, replica, url), encoding="utf-8")
        command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={self.folder / 'data'}"]
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--web.listen-address={self._api.removeprefix('http://')}"],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def samples(self) -> list[tuple[Series, float, int]]:
        """Every sample of the exporters that the server holds."""
        asked = {"query": '{__name__=~"DCGM_.*"}[30m]'}
        answer = httpx.get(f"{self._api}/api/v1/query", params=asked, trust_env=False, timeout=30).json()
        assert answer["status"] == "success", answer
        external = {"prometheus_replica": self.replica}
        return [
            (Series(one["metric"]["__name__"], _labels(one["metric"]) | external), float(value), round(1000 * at))
            for one in answer["data"]["result"]
            for at, value in one["values"]
        ]

    def pending(self) -> float:
        """Samples that wait to be sent, and those that the sender has not read yet, by the server's own word."""
        text = httpx.get(f"{self._api}/metrics", trust_env=False).text
        lines = [line for line in text.splitlines() if line.startswith("prometheus_remote_storage_samples_pending")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(30)


def _labels(metric: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in metric.items() if name != "__name__"}


def _config(exporters: Recorded, replica: str, url: str) -> str:
    address = exporters.url.removeprefix("http://")
    targets = "".join(
        f"""
  - job_name: {host.name}
    metrics_path: /nodes/{host.name}/metrics
    static_configs: [{{targets: ["{address}"]}}]"""
        for host in exporters.simulation.fleet.hosts
    )
    return f"""
global: {{scrape_interval: 1s, scrape_timeout: 1s, external_labels: {{prometheus_replica: {replica}}}}}
remote_write:
  - url: {url}/api/v1/write
    write_relabel_configs: [{{source_labels: [__name__], regex: "DCGM_.*|up", action: keep}}]
    queue_config:
      {{min_shards: 4, max_shards: 4, max_samples_per_send: 40, batch_send_deadline: 300ms, capacity: 400,
        min_backoff: 30ms, max_backoff: 200ms}}
scrape_configs:{targets}
"""


@contextlib.contextmanager
def _pair(folder: Path, exporters: Recorded, url: str) -> Iterator[list[Prometheus]]:
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(contextlib.closing(Prometheus(folder, exporters, replica, url))) for replica in REPLICAS
        ]


@pytest.fixture
def exporters() -> Iterator[Recorded]:
    now = datetime.now(UTC)
    hour = now.replace(minute=0, second=0, microsecond=0)
    simulation = simulate(FleetSpec(nodes=NODES, days=1, seed=5, end_at=hour, interval_seconds=1))
    for host in simulation.fleet.hosts:
        simulation.node_page(host.name, now)  # the first page of a node takes seconds
    with Recorded(simulation) as live:
        yield live


def _copied(served: Served, name: str) -> Path:
    """The warehouse as a kill left it."""
    for suffix in (".duckdb", ".duckdb.wal"):
        if (source := served.warehouse.with_suffix(suffix)).exists():
            shutil.copy(source, served.warehouse.with_name(f"{name}{suffix}"))
    return served.warehouse.with_name(f"{name}.duckdb")


def _cut_rows(file: Path) -> int:
    """Cards at instants of which some series are kept and some are not."""
    with Warehouse.open(file) as house, house.reading() as cursor:
        counts = cursor.execute(
            "select count(*) from sample join series using (series_id) where gpu_uuid <> '' "
            "group by gpu_uuid, ts, source"
        ).fetchall()
    return sum(count < max(counts)[0] for (count,) in counts)


def _wait(is_done: Callable[[], bool], seconds: float = 60) -> None:
    give_up = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def _kept(served: Served) -> float:
    """Samples that the service says it has stored since it started."""
    text = httpx.get(f"{served.url}/metrics", trust_env=False).text
    found = [line for line in text.splitlines() if 'remote_write_samples_total{outcome="stored"' in line]
    return float(found[0].rsplit(" ", 1)[1]) if found else 0.0


def _expected(samples: list[tuple[Series, float, int]], source: str) -> dict[str, list[dict[str, Any]]]:
    """Rows of all samples at once."""
    reader, meanings = SeriesReader(), {}
    read = []
    for series, value, at in samples:
        key = (series.name, *series.labels.items())
        if key not in meanings:
            meanings[key] = reader.read(series)
        if (meaning := meanings[key]) is not None:
            read.append((meaning, value, at))
    made = assemble(Samples.of(read), Options(now=datetime.now(UTC), source=source, holder=reader.holder))
    return {"reading": made.readings.to_pylist(), "holding": made.holdings.to_pylist()}


def _stored(house: Warehouse, table: str, source: str) -> list[dict[str, Any]]:
    with house.reading() as cursor:
        found = cursor.sql(f'from "{table}" where source = $source', params={"source": source}).to_arrow_table()
    return list(found.to_pylist())


def _assert_shown(exporters: Recorded, stored: list[dict[str, Any]]) -> None:
    """Each row is what the exporter of its node showed first after the scrape began."""
    pages = {host.name: [] for host in exporters.simulation.fleet.hosts}  # type: dict[str, list[tuple[float, bytes]]]
    for path, asked, page in sorted(exporters.shown):
        pages[path.split("/")[2]].append((asked, page))
    instants = {(row["node"], row["ts"]) for row in stored}
    for node, ts in instants:
        later = [page for asked, page in pages[node] if asked >= ts.timestamp() - 0.003]
        candidates = [
            in_order(to_table("reading", parse(page, ts, Target()).readings).to_pylist(), *OWN) for page in later[:2]
        ]  # both replicas may have begun within these milliseconds
        assert in_order((row for row in stored if (row["node"], row["ts"]) == (node, ts)), *OWN) in candidates


def _interrupt(served: Served) -> int:
    """Kill, stop, and kill again while it is written to; gives how many rows a kill found cut apart."""
    cut = 0
    for number in range(3):
        _wait(lambda: _kept(served) > 1000)
        if number == 1:
            assert served.stop() == 0, served.log
        else:
            served.kill()
            cut += _cut_rows(_copied(served, f"copy{number}"))
        served.restart()
    _wait(lambda: _kept(served) > 1000)
    return cut


def _wait_until_kept(pair: list[Prometheus]) -> None:
    """Until the senders say that nothing waits any more."""

    def is_sent() -> bool:
        return all(server.pending() == 0 for server in pair)

    for _ in range(3):  # what a scrape has just added is seen by the sender a moment later
        _wait(is_sent)
        time.sleep(0.7)


def _assert_exactly_once(house: Warehouse, held: dict[str, list[tuple[Series, float, int]]]) -> None:
    with house.reading() as cursor:
        doubled = cursor.execute("select series_id, ts from sample group by all having count(*) > 1").fetchall()
        count = cursor.execute("select count(*) from sample join series using (series_id) where name <> 'up'")
        assert (doubled, count.fetchall()) == ([], [(sum(map(len, held.values())),)])
    assert SampleStore(house, Settings(), SystemClock()).waiting() is None
    for replica in REPLICAS:
        source = f"remote_write/{replica}"
        for table, wanted in _expected(held[replica], source).items():
            assert in_order(_stored(house, table, source), "seen_at") == in_order(wanted, "seen_at")
            assert len(wanted) > 50


@pytest.mark.slow
def test_a_pair_of_prometheus_servers_loses_and_doubles_nothing(
    serve: Callable[..., Served], tmp_path: Path, exporters: Recorded
) -> None:
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is not installed on this machine")
    served = serve(tmp_path / "w.duckdb", **SETTINGS)
    with _pair(tmp_path, exporters, served.url) as pair:
        assert _interrupt(served) > 0  # a kill fell between the fragments of a row
        exporters.close()
        time.sleep(2.5)  # scrapes that are under way end, and stale markers are written
        _wait_until_kept(pair)
        held = {server.replica: server.samples() for server in pair}
    served.kill()
    served.restart()
    assert httpx.post(f"{served.url}/v1/ledger/build", trust_env=False, timeout=60).json()["violations"] == 0
    assert served.stop() == 0, served.log
    with Warehouse.open(served.warehouse) as house:
        _assert_exactly_once(house, held)
        for replica in REPLICAS:
            _assert_shown(exporters, _stored(house, "reading", f"remote_write/{replica}"))


class Sender(threading.Thread):
    """One shard: sends its requests one after the other, each again until it is answered for."""

    def __init__(self, served: Served, requests: list[bytes]) -> None:
        super().__init__(daemon=True)
        self._served, self._requests = served, requests
        self.sent = 0
        self.surprises: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=self._served.url, trust_env=False, timeout=10) as http:
            for raw in self._requests:
                while not self._is_taken(http, raw):
                    time.sleep(0.05)
                self.sent += 1

    def _is_taken(self, http: httpx.Client, raw: bytes) -> bool:
        try:
            answer = post(http, raw, V2)
        except httpx.TransportError:
            return False
        if answer.status_code == 503:
            return False
        if answer.status_code != 204 or answer.headers["X-Prometheus-Remote-Write-Samples-Written"] == "0":
            self.surprises.append(answer.text)
        return True


@pytest.mark.slow
def test_version_2_loses_and_doubles_nothing(serve: Callable[..., Served], tmp_path: Path, exporters: Recorded) -> None:
    begin = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    parser: ExpositionParser[Series] = ExpositionParser(lambda series: series)
    written, pages = [], {}
    for step in range(20):
        at = begin + timedelta(seconds=15 * step)
        for host in exporters.simulation.fleet.hosts:
            page = pages[host.name, at] = exporters.simulation.node_page(host.name, at)
            for series, value, _ in parser.parse(page).samples:
                labels = {**series.labels, "__name__": series.name, "job": "dcgm", "instance": f"{host.name}:9400"}
                written.append((labels, [(int(at.timestamp() * 1000), value)]))
    shards = [[one for one in written if hash(str(sorted(one[0].items()))) % 3 == shard] for shard in range(3)]
    served = serve(tmp_path / "w.duckdb", **SETTINGS)
    senders = [
        Sender(served, [request_2(shard[begin : begin + 60]) for begin in range(0, len(shard), 60)]) for shard in shards
    ]
    for sender in senders:
        sender.start()
    for kill in range(1, 4):
        _wait(lambda: min(sender.sent for sender in senders) >= 8 * kill)  # noqa: B023 asked before the next turn
        served.kill()
        served.restart()
    for sender in senders:
        sender.join(60)
    assert [sender.surprises for sender in senders] == [[]] * 3
    assert served.stop() == 0, served.log
    served.restart()
    httpx.post(f"{served.url}/v1/ledger/build", trust_env=False, timeout=60)
    assert served.stop() == 0
    wanted = [
        row
        for (_, at), page in pages.items()
        for row in to_table("reading", parse(page, at, Target()).readings).to_pylist()
    ]
    with Warehouse.open(served.warehouse) as house:
        assert in_order(_stored(house, "reading", "remote_write"), *OWN) == in_order(wanted, *OWN)
        with house.reading() as cursor:
            assert cursor.execute("select count(*) from sample").fetchall() == [(len(written),)]
