"""`gpuledger simulate`: a fleet's telemetry and truth into a folder, and into a warehouse with its ledger built."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gpuledger.app.client import Client, open_warehouse
from gpuledger.app.printing import progress
from gpuledger.config import Settings
from gpuledger.model import RECORDS
from gpuledger.simulate import FleetSpec, Simulation, simulate, write
from gpuledger.simulate.training_logs import write_training_logs

ENDS = {"allocation": ("ready_at", "ended_at"), "workload": ("started_at", "ended_at")}
"""What of a record happens later than its beginning."""


def _known_by(record: str, table: pa.Table, until: datetime) -> pa.Table:
    """What could be known at `until`: nothing that begins later, and no end that is still to come."""
    if column := RECORDS[record].time_column:
        table = table.filter(pc.less_equal(table[column], until))
    for name in ENDS.get(record, ()):
        place = table.schema.get_field_index(name)
        past = pc.if_else(
            pc.less_equal(table[name], until), table[name], pa.scalar(None, table.schema.field(name).type)
        )
        table = table.set_column(place, table.schema.field(name), past)
    return table


def backfill(client: Client, simulation: Simulation, name: str, until: datetime | None = None) -> int:
    """Send all records (as known at `until`) through the ingest API; sending again changes nothing.

    The next table is made while the service stores the last one. Gives how many rows were taken in.
    """
    count, numbered = 0, enumerate(simulation.records())
    with progress() as bar, ThreadPoolExecutor(1) as ahead:
        task = bar.add_task("history", total=None)
        coming = ahead.submit(next, numbered, None)
        while (made := coming.result()) is not None:
            coming = ahead.submit(next, numbered, None)
            number, (record, whole) = made
            table = whole if until is None else _known_by(record, whole, until)
            if table.num_rows:
                count += client.ingest(record, table, f"{name}-{number}")["accepted"]
            bar.update(task, completed=count)
    return count


def simulate_into(
    out: Path, settings: Settings | None, *, nodes: int, days: int, seed: int, scenario: str
) -> dict[str, Any]:
    """Simulate, write Parquet files and training logs into `out`, and load the warehouse of `settings` if given."""
    simulation = simulate(FleetSpec(nodes=nodes, days=days, seed=seed, scenario=scenario))
    out.mkdir(parents=True, exist_ok=True)
    answer: dict[str, Any] = {"out": str(out), "rows": dict(write(simulation, out))}
    answer["training_logs"] = write_training_logs(simulation.script, out / "logs")
    if settings is None:
        return answer
    spec = simulation.spec
    with open_warehouse(settings) as client:
        answer["loaded_rows"] = backfill(client, simulation, f"simulate-{scenario}-{nodes}-{days}-{seed}")
        answer["ledger"] = client.post("/v1/ledger/build", from_=spec.start_at, to=spec.end_at)
    return answer
