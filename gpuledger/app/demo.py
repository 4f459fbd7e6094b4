"""`gpuledger demo`: a simulated fleet, and on it every part as it runs in earnest, on this machine only.

Service, agent and dashboards are processes of their own; history goes in through the ingest API, live readings are
scraped by the agent from the simulated exporters' pages. Everything is kept below one folder.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType

import httpx
import structlog
from rich.console import Console

from gpuledger import config as settings_file
from gpuledger.app.client import Client, connect
from gpuledger.app.processes import Command, dashboard_command, own_command, start
from gpuledger.app.serve import split_listen
from gpuledger.app.simulating import backfill
from gpuledger.clock import SystemClock
from gpuledger.errors import ConfigError, GpuledgerError, ServiceUnavailable
from gpuledger.registry import RECOMMENDERS, RULES
from gpuledger.simulate import FleetSpec, Simulation, simulate
from gpuledger.simulate.live import LiveServer

log = structlog.get_logger("gpuledger.demo")

SERVICE, DASHBOARD, EXPORTERS, AGENT = "127.0.0.1:8420", "127.0.0.1:8501", "127.0.0.1:9400", "127.0.0.1:9410"
LIVE_SECONDS = 15
TOLD_BY_LOGS = ("job_step", "checkpoint")


class Demo:
    """One run of the demo in `directory`, which is emptied first."""

    def __init__(self, directory: Path, *, nodes: int, days: int, seed: int) -> None:
        self.directory = directory
        self.clock = SystemClock()
        self.console = Console()
        self.settings = settings_file.load(
            warehouse=directory / "gpuledger.duckdb",
            listen=SERVICE,
            service_url=f"http://{SERVICE}",
            report_directory=directory / "reports",
        )
        now = self.clock.now()
        end = now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
        self.spec = FleetSpec(nodes=nodes, days=days, seed=seed, end_at=end, scenario="every_vendor")
        self.logs = directory.absolute() / "logs"
        self.stop = False

    def run(self, *, is_once: bool) -> None:
        """Bring everything up, print what was found, and keep it live until Ctrl-C (or not, with `is_once`)."""
        began = time.monotonic()
        for listen in (SERVICE, DASHBOARD, EXPORTERS, AGENT):
            _check_free(listen)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._asked_to_stop)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        with ExitStack() as stack:
            self._child(stack, "service", self._service())
            dashboards = self._child(stack, "dashboards", dashboard_command(self.settings, DASHBOARD))
            simulation = simulate(self.spec)
            client = connect(self.settings.service_url, self.settings)
            self._wait(f"http://{SERVICE}/readyz")
            # What the script says of the rest of this hour is left to the live pages.
            known_until = self.clock.now()
            rows = backfill(client, simulation, f"demo-{self.spec.seed}", until=known_until)
            self.console.print(f"{rows:,} records of {self.spec.nodes} nodes and {self.spec.days} days went in")
            self._judge(client)
            exporters = stack.enter_context(LiveServer(simulation, EXPORTERS, self.clock))
            self.logs.mkdir()
            self._child(stack, "agent", self._agent(list(_sources(simulation, exporters, self.clock.now()))))
            self._wait(f"http://{DASHBOARD}/_stcore/health")
            self._announce(client, time.monotonic() - began)
            if not is_once:
                self._live(client, simulation, dashboards, known_until)

    def _asked_to_stop(self, number: int, _frame: FrameType | None) -> None:
        if self.stop:
            sys.exit(128 + number)
        self.stop = True
        raise KeyboardInterrupt

    def _service(self) -> Command:
        flags = ("--warehouse", str(self.settings.warehouse), "--listen", SERVICE)
        more = {"GPULEDGER_REPORT_DIRECTORY": str(self.settings.report_directory), "GPULEDGER_NOTIFICATIONS": "all"}
        return own_command("serve", *flags, **more)

    def _child(self, stack: ExitStack, name: str, command: Command) -> subprocess.Popen[bytes]:
        """A process whose output goes to a file, ended when the demo ends: last begun, first ended."""
        out = stack.enter_context((self.directory / f"{name}.log").open("wb"))
        process = start(command, log=out)
        stack.callback(_end, process)
        return process

    def _wait(self, url: str, seconds: float = 120) -> None:
        for _ in range(int(seconds * 4)):
            try:
                if httpx.get(url, timeout=5, trust_env=False).is_success:
                    return
            except httpx.TransportError:
                pass
            self.clock.sleep(0.25)
        raise ServiceUnavailable(f"{url} did not answer within {seconds:g} s; see the logs in {self.directory}")

    def _judge(self, client: Client) -> None:
        """Ledger, rules, recommendations and the report of the last seven days."""
        horizon = self.clock.now() - timedelta(seconds=self.settings.settle_seconds)
        span = {"from_": self.spec.start_at, "to": horizon}
        build = client.post("/v1/ledger/build", **span)
        if build["violations"]:
            raise GpuledgerError(f"the ledger does not close: {build}")
        for rule in RULES:
            client.post(f"/v1/analyze/{rule}", save="true", **span)
        for kind in RECOMMENDERS:
            client.post(f"/v1/recommend/{kind}", **span)
        html = client.post("/v1/reports/weekly", from_=max(self.spec.start_at, horizon - timedelta(days=7)), to=horizon)
        self.settings.report_directory.mkdir(parents=True, exist_ok=True)
        (self.settings.report_directory / "weekly.html").write_text(html, encoding="utf-8")

    def _agent(self, sources: Iterable[Mapping[str, str]]) -> Command:
        """The agent that reads `sources`, each its settings, and the logs of training."""
        lines = [
            f'service_url = "{self.settings.service_url}"',
            f'spool_directory = "{self.directory / "spool"}"',
            f"flush_seconds = {LIVE_SECONDS}",
            f'metrics_listen = "{AGENT}"',
            "[[source]]",
            'kind = "training_log"',
            f'path = "{self.logs}/{{workload}}.log"',
            f'state_directory = "{self.directory / "training_log"}"',
        ]
        for source in sources:
            lines += ["[[source]]", *(f'{name} = "{value}"' for name, value in source.items())]
            lines += [f"interval_seconds = {LIVE_SECONDS}"]
        config = self.directory / "collector.toml"
        config.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return own_command("collect", "--config", str(config))

    def _announce(self, client: Client, seconds: float) -> None:
        ledger = client.get("/v1/ledger", by="state")
        say = partial(self.console.print, highlight=False, markup=False, soft_wrap=True)
        say(f"\n{ledger['total_gpu_hours']:,.0f} GPU-hours, every one in one state:")
        for row in sorted(ledger["rows"], key=lambda row: -row["gpu_hours"]):
            share = row["gpu_hours"] / ledger["total_gpu_hours"]
            say(f"  {row['state']:<18}{row['gpu_hours']:>12,.0f} GPU-h {share:>7.1%}")
        say("\nThe three largest findings:")
        for finding in client.get("/v1/findings")["findings"][:3]:
            hours, cause = finding["gpu_hours_wasted"], finding["cause_code"]
            who = f"{finding['subject_id']} of {finding['tenant'] or 'nobody known'}"
            say(f"  {hours:>10,.0f} GPU-h  {finding['analyzer']} ({cause}): {who}")
        say(f"\nDashboards  http://{DASHBOARD}\nAPI         http://{SERVICE}/docs")
        say("Alerts are on for all rules (notifications = all); on a new site rules only record until reviewed.")
        say(f"Report      {self.settings.report_directory / 'weekly.html'}")
        say(f"Up after {seconds:.0f} s. Ctrl-C stops everything.")

    def _live(
        self, client: Client, simulation: Simulation, dashboards: subprocess.Popen[bytes], told: datetime
    ) -> None:
        """From `told` on, tell what a scheduler would and write what trainers log, as long as script and user last."""
        try:
            while dashboards.poll() is None and told < self.spec.end_at + timedelta(days=1):
                self.clock.sleep(LIVE_SECONDS)
                now = self.clock.now()
                if now - told >= timedelta(minutes=1):
                    self._tell(client, simulation, told, now)
                    told = now
        except KeyboardInterrupt:
            self.console.print("\nstopping")

    def _tell(self, client: Client, simulation: Simulation, since: datetime, until: datetime) -> None:
        for workload, text in simulation.live_logs(since, until):
            with (self.logs / f"{workload}.log").open("a", encoding="utf-8") as log_file:
                log_file.write(text)
        try:
            for record, table in simulation.live_records(since, until).items():
                if table.num_rows and record not in TOLD_BY_LOGS:
                    client.ingest(record, table, f"live-{record}-{until.astimezone(UTC):%Y%m%dT%H%M%S}")
        except GpuledgerError as error:
            log.warning("live_records_not_sent", error=str(error))


def _sources(simulation: Simulation, exporters: LiveServer, now: datetime) -> Iterator[Mapping[str, str]]:
    """The settings of each page: of every node its cards and its network (some name no node), and servers of models."""
    hosts = simulation.fleet.hosts
    for host, cards, network in zip(hosts, exporters.node_urls, exporters.network_urls, strict=True):
        yield {"kind": host.hardware.source, "node": host.name, "url": cards}
        yield {"kind": "node_exporter", "node": host.name, "url": network}
    if any(host.hardware.sharing == "hami" for host in hosts):
        yield {"kind": "hami", "page": "scheduler", "url": exporters.hami_scheduler_url}
    for run in simulation.servers(now):
        url = f"{exporters.url}/servers/{run.name}/metrics"
        whose = {"namespace": run.namespace, "pod": run.name, "workload_id": run.job.workload_id}
        yield {"kind": run.job.server, "url": url, **whose}


def _check_free(listen: str) -> None:
    """Raise ConfigError where somebody listens already: the demo must not talk to another service than its own."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(split_listen(listen))
        except OSError as error:
            raise ConfigError(f"the demo needs {listen}: {error.strerror}") from error


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask a child to end, and make it end where it does not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
