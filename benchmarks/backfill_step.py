"""How verdicts shift with the step of a back-fill: one simulated day at 15 s, fetched at 15 s, 1 min and 5 min.

    python benchmarks/backfill_step.py [--nodes 4] [--hours 24]

Fills a VictoriaMetrics with what an exporter of a simulated fleet showed every 15 s (those metrics that decide states),
imports it at three steps into three warehouses that know the same jobs, builds the ledgers, and prints the GPU-hours
of each state and the part of all GPU-time that is in another state than at 15 s. Needs `victoria-metrics`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import cast

import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.prometheus.client import QueryClient
from collector.prometheus.survey import Span, survey
from gpuledger.app import backfill
from gpuledger.app.client import open_warehouse
from gpuledger.clock import SystemClock
from gpuledger.config import Settings
from gpuledger.simulate import FleetSpec, Simulation, simulate
from tests.servers import history
from warehouse.store import Warehouse

STEPS = ("15s", "60s", "5m")
TELLING = tuple(
    f"DCGM_FI_{name}{{".encode()
    for name in (
        *("DEV_GPU_UTIL", "DEV_ENC_UTIL", "DEV_DEC_UTIL", "DEV_POWER_USAGE", "DEV_FB_USED", "DEV_FB_FREE"),
        *("PROF_GR_ENGINE_ACTIVE", "PROF_SM_ACTIVE", "PROF_PIPE_TENSOR_ACTIVE", "PROF_DRAM_ACTIVE"),
    )
)
BY_MINUTE = """
with spans as (
    select gpu_uuid, state, share, epoch(from_at) as begun, epoch(until_at) as ended
    from state_span
    where hour_at < $until
),
minutes as (
    select *, unnest(range((begun // 60)::bigint, ceil(ended / 60)::bigint)) as minute from spans
)
select gpu_uuid, minute, state, sum(share * (least(ended, minute * 60 + 60) - greatest(begun, minute * 60))) / 3600 as h
from minutes
group by all
"""


def load(file: Path, simulation: Simulation) -> Settings:
    with Warehouse.open(file) as warehouse:
        for number, (record, table) in enumerate(simulation.records()):
            if record not in {"reading", "source_read"}:
                warehouse.ingest(record, table, f"own-{number}")
    return Settings(warehouse=file)


def states(url: str, settings: Settings, span: Span, step: str) -> pl.DataFrame:
    """GPU-hours by card, minute and state."""
    clock = SystemClock()
    with QueryClient(url, clock=clock, requests_per_second=200) as server:
        asked = backfill.Wanted(span=span, step=step)
        what = backfill.plan(server.name, survey(server, span, ()), asked, clock.now())
        with open_warehouse(settings) as client:
            answer = backfill.run(client, server, what)
    print(f"{step}: {answer['imported']['reading']:,} readings, gaps {answer['gaps']}", file=sys.stderr)
    with Warehouse.open(settings.warehouse) as warehouse, warehouse.writing() as cursor:
        until = span.until + timedelta(seconds=1)
        found = cursor.sql(BY_MINUTE, params={"until": until}).to_arrow_table()
        return cast("pl.DataFrame", pl.from_arrow(found))


def moved(one: pl.DataFrame, other: pl.DataFrame) -> float:
    """The part of all GPU-time that is in another state."""
    keys = ["gpu_uuid", "minute", "state"]
    both = one.join(other, on=keys, how="full", coalesce=True, suffix="_other").fill_null(0.0)
    return float((both["h"] - both["h_other"]).abs().sum()) / 2 / float(one["h"].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    simulation = simulate(FleetSpec(nodes=given.nodes, days=1, seed=given.seed, interval_seconds=15))
    begin = simulation.spec.start_at
    span = Span(begin, begin + timedelta(hours=given.hours) - timedelta(seconds=1))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        lines = history.scraped(simulation, begin, given.hours * 240)
        with history.victoria_metrics(
            folder / "server", (line for line in lines if line[0].startswith(TELLING))
        ) as url:
            found = {step: states(url, load(folder / f"{step}.duckdb", simulation), span, step) for step in STEPS}
    print(f"| state | {' | '.join(STEPS)} |\n|---|{'---|' * len(STEPS)}")
    for state in sorted({state for frame in found.values() for state in frame["state"].unique()}):
        hours = [float(frame.filter(pl.col("state") == state)["h"].sum()) for frame in found.values()]
        print(f"| `{state}` | {' | '.join(f'{value:.2f}' for value in hours)} |")
    shares = [f"{moved(found[STEPS[0]], found[step]):.2%}" for step in STEPS]
    print(f"| in another state than at {STEPS[0]} | {' | '.join(shares)} |")


if __name__ == "__main__":
    main()
