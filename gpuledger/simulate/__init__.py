"""A seeded fleet simulator: the same spec gives the same bytes.

`simulate(FleetSpec(nodes=8, days=3))` gives a `Simulation` with `records()`, `truth()`, `node_page(node, at)` and
`live_records(since, until)`; `write` puts records and truth into Parquet files, `serve` shows the pages over HTTP.
"""

from gpuledger.simulate.live import LiveServer, serve
from gpuledger.simulate.simulation import Simulation, hide, simulate, write
from gpuledger.simulate.spec import FleetSpec

__all__ = ["FleetSpec", "LiveServer", "Simulation", "hide", "serve", "simulate", "write"]
