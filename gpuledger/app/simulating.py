"""`gpuledger simulate`: a fleet's telemetry and truth into a folder, and into a warehouse with its ledger built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuledger.app.client import Client, open_warehouse
from gpuledger.app.printing import progress
from gpuledger.config import Settings
from gpuledger.simulate import FleetSpec, Simulation, simulate, write


def backfill(client: Client, simulation: Simulation, name: str) -> int:
    """Send all records through the ingest API. Gives how many rows were taken in; sending again changes nothing."""
    count = 0
    with progress() as bar:
        task = bar.add_task("back-fill", total=None)
        for number, (record, table) in enumerate(simulation.records()):
            count += client.ingest(record, table, f"{name}-{number}")["accepted"]
            bar.update(task, completed=count)
    return count


def simulate_into(out: Path, settings: Settings | None, *, nodes: int, days: int, seed: int, scenario: str) -> dict[str, Any]:
    """Simulate, write Parquet files into `out`, and load the warehouse of `settings` where one is given."""
    simulation = simulate(FleetSpec(nodes=nodes, days=days, seed=seed, scenario=scenario))
    out.mkdir(parents=True, exist_ok=True)
    answer: dict[str, Any] = {"out": str(out), "rows": dict(write(simulation, out))}
    if settings is None:
        return answer
    spec = simulation.spec
    with open_warehouse(settings) as client:
        answer["loaded_rows"] = backfill(client, simulation, f"simulate-{scenario}-{nodes}-{days}-{seed}")
        answer["ledger"] = client.post("/v1/ledger/build", from_=spec.start_at, to=spec.end_at)
    return answer
