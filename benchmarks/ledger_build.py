"""One simulated day of 512 GPUs into the ledger, against the bare engine averaging the same readings by minute."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpuledger.model import Window
from gpuledger.simulate import FleetSpec, simulate
from warehouse import Warehouse

NODES = 64


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    simulation = simulate(FleetSpec(nodes=NODES, days=1, seed=1))
    window = Window(simulation.spec.start_at, simulation.spec.end_at)
    with Warehouse.open(None) as house:
        rows = 0
        began = time.perf_counter()
        for number, (record, table) in enumerate(simulation.records()):
            rows += house.ingest(record, table, str(number)).accepted
        print(f"generate and ingest: {rows:,} rows, {rows / (time.perf_counter() - began):,.0f} rows/s")
        with house.writing() as cursor:
            bare = (
                "create or replace temp table bare as select gpu_uuid, slice_id, date_trunc('minute', ts) as minute, "
                "avg(gpu_util_ratio) as util, avg(sm_active_ratio) as sm, "
                "avg(power_watts) as power, avg(fb_used_bytes) as fb from reading group by all"
            )
            engine = min(seconds(lambda: cursor.execute(bare)) for _ in range(3))
        build = min(seconds(lambda: house.build_ledger(window)) for _ in range(3))
    minutes = NODES * 8 * 1440
    print(f"ledger: {build:.2f} s for {minutes:,} GPU-minutes ({minutes / build:,.0f}/s)")
    print(f"bare engine, minute means alone: {engine:.2f} s; the ledger takes {build / engine:.1f} times that")


main()
