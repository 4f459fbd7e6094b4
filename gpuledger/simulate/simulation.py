"""A simulated fleet: records for back-fill, the truth behind them, pages and records for later."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gpuledger.errors import BadInput
from gpuledger.simulate import truth as truths
from gpuledger.simulate.exporter_pages import engines
from gpuledger.simulate.fleet import Fleet
from gpuledger.simulate.kube_state import kube_state_page
from gpuledger.simulate.pages import PageMaker
from gpuledger.simulate.pods import PodRun, held_hours, pod_records
from gpuledger.simulate.progress_records import progress_tables
from gpuledger.simulate.reading_tables import ReadingTables
from gpuledger.simulate.scenario import write_script
from gpuledger.simulate.script import Script
from gpuledger.simulate.sightings import SightingTables
from gpuledger.simulate.spec import BLOCK_SECONDS, FleetSpec
from gpuledger.simulate.telemetry import Telemetry
from gpuledger.simulate.training_logs import training_logs
from gpuledger.simulate.work_records import WorkRecords

ROWS_PER_TABLE = 200_000


class Simulation:
    """One fleet with its whole script."""

    def __init__(self, spec: FleetSpec, script: Script | None = None) -> None:
        self.spec = spec
        self.script = script or write_script(spec)
        self._work = WorkRecords(self.script)
        self._telemetry = Telemetry(self.script)
        self._pages = PageMaker(self.script, self._telemetry)

    @property
    def fleet(self) -> Fleet:
        """Hosts and cards."""
        return self.script.fleet

    def records(self) -> Iterator[tuple[str, pa.Table]]:
        """(record name, table) for everything up to `end_at`: inventory and work first, then readings in order of time.

        A table of readings has at most `ROWS_PER_TABLE` rows and the rows of different hosts mixed.
        """
        end, work = self.spec.end_minute, self._work
        yield "node", work.nodes()
        yield "asset", work.assets(end)
        yield "scheduler_node", work.scheduler_nodes()
        yield "tenant", work.tenants()
        yield "queue", work.queues()
        yield "quota", work.quotas()
        yield "workload", work.workloads(end)
        yield "allocation", work.allocations(end)
        if self.spec.tells_pods:
            yield "pod", pod_records(self.script, self._telemetry.runs, end)
        yield "condition", work.conditions(end)
        yield "queue_state", work.queue_states(0, end)
        yield "service_load", work.service_loads(0, end)
        yield from progress_tables(self.script, 0, end)
        yield from self._telemetry_records()

    def _telemetry_records(self) -> Iterator[tuple[str, pa.Table]]:
        tables = ReadingTables(self.script)
        hosts = range(len(self.fleet.hosts))
        energy = self._pages.first_energy(hosts)
        held: dict[str, list[pa.Table]] = {"reading": [], "source_read": []}
        sightings = SightingTables(self.script, self._telemetry.runs) if self.spec.tells_pods else None
        for number in range(self.spec.end_minute * 60 // BLOCK_SECONDS):
            block = self._telemetry.block(number, hosts, energy)
            energy = block.values["energy_mj"][-1]
            held["reading"].append(tables.readings(block))
            held["source_read"].append(tables.reads(block))
            if sightings is not None:
                held.setdefault("holding", []).append(sightings.holdings(block))
            for name, parts in held.items():
                if sum(part.num_rows for part in parts) >= ROWS_PER_TABLE // 2:
                    yield from _cut(name, parts)
                    held[name] = []
        for name, parts in held.items():
            if parts:
                yield from _cut(name, parts)

    def truth(self) -> pa.Table:
        """What was planted; schema and meaning in `gpuledger.simulate.truth`."""
        return truths.truth(self.script)

    def node_page(self, node: str, at: datetime) -> bytes:
        """What the exporter of `node` shows at `at`.

        Raises BadInput for an unknown node or an instant outside the script, SourceError when it does not answer then.
        """
        return self._pages.page(node, self._second(at))

    def network_page(self, node: str, at: datetime) -> bytes:
        """What node_exporter of `node` shows of its network adapters at `at`. Raises like `node_page`."""
        return self._pages.network_page(node, self._second(at))

    def servers(self, at: datetime) -> Sequence[PodRun]:
        """The pods whose servers of models show a page at `at`. Raises BadInput for an instant outside the script."""
        second = self._second(at)
        return [run for run in self._telemetry.runs if run.job.server and run.start * 60 <= second < run.end * 60]

    def server_page(self, pod: str, at: datetime) -> bytes:
        """What the server in `pod` shows at `at`. Raises BadInput where no such server runs then."""
        run = next((run for run in self.servers(at) if run.name == pod), None)
        if run is None:
            raise BadInput("pod", "no server runs there")
        return engines.SERVERS[run.job.server](engines.served(run, self._second(at)))

    def hami_scheduler_page(self, at: datetime) -> bytes:
        """What HAMi's scheduler shows at `at`. Raises BadInput for an instant outside the script."""
        return self._pages.hami_scheduler_page(self._second(at))

    def pod_hours(self) -> pa.Table:
        """What each pod held of each card and slice in the span, in GPU-hours, whoever reports it.

        A card that pods share in time is divided equally among those that are there; HAMi gives each its part.
        """
        return held_hours(self.script, self._telemetry.runs, 0, self.spec.end_minute)

    def kube_state_page(self, at: datetime) -> bytes:
        """What kube-state-metrics shows at `at`. Raises BadInput for an instant outside the script."""
        return kube_state_page(self.script, self._telemetry.runs, self._second(at))

    def live_records(self, since: datetime, until: datetime) -> Mapping[str, pa.Table]:
        """What a scheduler adapter would report at `until`: what changed after `since`, and the load in between."""
        begin, end = self._second(since) // 60, self._second(until) // 60
        if begin >= end:
            raise BadInput("until", "must be at least a minute after since")
        work, runs = self._work, self._telemetry.runs
        pods = {"pod": pod_records(self.script, runs, end, begin)} if self.spec.tells_pods else {}
        return {
            **pods,
            "asset": work.assets(end, begin),
            "workload": work.workloads(end, begin),
            "allocation": work.allocations(end, begin),
            "condition": work.conditions(end, begin),
            "queue_state": work.queue_states(begin, end),
            "service_load": work.service_loads(begin, end),
            **dict(progress_tables(self.script, begin, end)),
        }

    def live_logs(self, since: datetime, until: datetime) -> Iterator[tuple[str, str]]:
        """(workload, text) that trainers wrote into their logs in between."""
        return training_logs(self.script, self._second(since) // 60, self._second(until) // 60)

    def _second(self, at: datetime) -> int:
        second = int((at - self.spec.start_at).total_seconds())
        if not 0 <= second < self.spec.last_minute * 60:
            raise BadInput(
                "at", f"outside the script, which runs from {self.spec.start_at} for {self.spec.last_minute} min"
            )
        return second


def _cut(name: str, parts: list[pa.Table]) -> Iterator[tuple[str, pa.Table]]:
    whole = pa.concat_tables(parts)
    for offset in range(0, whole.num_rows, ROWS_PER_TABLE):
        yield name, whole.slice(offset, ROWS_PER_TABLE)


def simulate(spec: FleetSpec) -> Simulation:
    """The fleet of `spec`, the same for the same spec. Raises BadInput when its scenario is unknown."""
    return Simulation(spec)


def hide(simulation: Simulation, *, scheduler_nodes: Sequence[str] = (), cards: Sequence[str] = ()) -> Simulation:
    """The same fleet, with `scheduler_nodes` unknown to the scheduler and `cards` (UUIDs) shown by no exporter."""
    return Simulation(
        replace(
            simulation.spec,
            nodes_missing_from_scheduler=tuple(scheduler_nodes),
            cards_hidden_from_telemetry=tuple(cards),
        )
    )


def write(simulation: Simulation, out_dir: Path) -> Mapping[str, int]:
    """Write one Parquet file for each record and truth.parquet into `out_dir`; gives the rows of each."""
    out_dir.mkdir(parents=True, exist_ok=True)
    rows: dict[str, int] = {}
    writers: dict[str, pq.ParquetWriter] = {}
    try:
        for name, table in simulation.records():
            if name not in writers:
                writers[name] = pq.ParquetWriter(out_dir / f"{name}.parquet", table.schema, compression="zstd")
            writers[name].write_table(table)
            rows[name] = rows.get(name, 0) + table.num_rows
    finally:
        for writer in writers.values():
            writer.close()
    planted = simulation.truth()
    pq.write_table(planted, out_dir / "truth.parquet", compression="zstd")
    return {**rows, "truth": planted.num_rows}
