"""Every claiming rule over one day of 2,500 and of 10,000 GPUs, then over the newest hour, with 4 GB on two cores.

The day is a simulated fleet of 64 nodes, laid down many times under other names: what the rules read (ledger, activity,
work, steps, readings) is as varied as the simulation is, and as large as the fleet.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from gpuledger.app.analysing import Analysing
from gpuledger.config import Settings
from gpuledger.model import Window
from gpuledger.policy import Policy
from gpuledger.registry import RULES, resolve
from gpuledger.simulate import FleetSpec, simulate
from gpuledger.testing import FakeClock
from warehouse import Warehouse

NODES = 64
COPIES = (5, 20)
TABLES = ("state_span", "ledger_hour", "activity_hour", "workload", "allocation", "asset", "node", "job_step",
          "job_model", "workload_phase", "checkpoint", "fault_event", "condition", "workload_event",
          "reading")  # fmt: skip
NAMES = ("gpu_uuid", "node", "workload_id", "allocation_id", "pod", "subject")
"""Columns that name something of one copy of the fleet."""


def copied(house: Warehouse, copies: int) -> None:
    """Lay the fleet down `copies` times."""
    with house.writing() as cursor:
        for table in TABLES:
            columns = [row[0] for row in cursor.execute(f"describe {table}").fetchall()]
            own = ", ".join(
                f'"{name}" || \'~\' || copy as "{name}"' if name in NAMES else f'"{name}"' for name in columns
            )
            cursor.execute(
                f"insert into {table} by name select {own} from {table} cross join range(1, {copies}) r(copy)"
            )


def analysed(engine: Analysing, window: Window, *, anew: bool) -> tuple[float, dict[str, float], int]:
    """Seconds of all rules, of each, and how many findings there were."""
    each, findings = {}, 0
    for name in RULES:
        began = time.perf_counter()
        result, _ = engine.go_on(resolve("rules", name)(), window, {}, anew=anew)
        each[name] = time.perf_counter() - began
        findings += len(result.findings)
    return sum(each.values()), each, findings


def run(copies: int, folder: Path) -> tuple[int, float]:
    """One fleet: prints what each rule took; gives its GPUs and the seconds of the whole day."""
    simulation = simulate(FleetSpec(nodes=NODES, days=1, seed=1, scenario=SCENARIO))
    window = Window(simulation.spec.start_at, simulation.spec.end_at)
    clock = FakeClock(window.to_at + timedelta(minutes=2))
    with Warehouse.open(folder / f"{copies}.duckdb", Settings(memory_limit_mib=4096), clock) as house:
        for number, (record, table) in enumerate(simulation.records()):
            house.ingest(record, table, str(number))
        house.build_ledger(window)
        copied(house, copies)
        clock.advance(2 * 3600)  # the build lies behind: what is analysed from now on is not built anew
        gpus = NODES * 8 * copies
        spans = house.query("ledger_by", by="state", from_at=window.from_at, to_at=window.to_at).num_rows
        engine = Analysing(house, house, Policy(), clock)
        whole, each, findings = analysed(engine, window, anew=True)
        print(f"{gpus:,} GPUs, one day, {len(RULES)} rules, {spans} states: {whole:.1f} s, {findings:,} findings")
        for name, seconds in sorted(each.items(), key=lambda item: -item[1]):
            print(f"    {name:<22}{seconds:>8.2f} s")
        hour, _, _ = analysed(engine, window, anew=False)
        print(f"    the newest hour again: {hour:.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"    peak resident memory so far {peak:.1f} GiB")
    return gpus, whole


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        (small, short), (large, long) = (run(copies, Path(folder)) for copies in COPIES)
    print(f"{large / small:.0f} times the GPUs take {long / short:.1f} times the time")


SCENARIO = sys.argv[1] if len(sys.argv) > 1 else "mixed"
main()
