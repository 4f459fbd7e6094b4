"""Records with telemetry missing: whole gaps of exporters, and single rows, as they get lost between a card and us."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpuledger.simulate.simulation import Simulation

GAP_MINUTES = 120
GAPS_PART = 0.75
"""Part of what is lost that goes in whole gaps; the rest are rows here and there."""
THINNED = ("reading", "source_read")


def thin(simulation: Simulation, ratio: float, seed: int) -> Iterator[tuple[str, pa.Table]]:
    """The records of `simulation` without about `ratio` of its telemetry.

    In a gap of two hours a host's exporter answers nobody: neither readings nor reads that worked. A single row that is
    lost was read, and did not arrive.
    """
    rng = np.random.default_rng([seed, 6])
    spec = simulation.spec
    names = [host.name for host in simulation.fleet.hosts]
    gaps = rng.random((len(names), spec.end_minute // GAP_MINUTES)) < ratio * GAPS_PART
    single = ratio * (1 - GAPS_PART) / (1 - ratio * GAPS_PART)
    start = pa.scalar(int(spec.start_at.timestamp()) * 1_000_000)
    for record, table in _whole(simulation.records()):
        if record not in THINNED:
            yield record, table
            continue
        host = pc.index_in(table["node"], pa.array(names)).to_numpy()
        minute = pc.subtract(table["ts"].cast(pa.int64()), start).to_numpy() // 60_000_000
        is_gap = gaps[host, minute // GAP_MINUTES]
        if record == "source_read":
            yield record, _unread(table, is_gap)
            continue
        is_lost = is_gap | (rng.random(table.num_rows) < single)
        yield record, table.filter(pa.array(~is_lost))


def _whole(records: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    for record, table in records:
        yield record, table.combine_chunks()


def _unread(table: pa.Table, is_gap: np.ndarray) -> pa.Table:
    """`table` with the reads of gaps as failed ones."""
    gap = pa.array(is_gap)
    for name, value in (("ok", False), ("device_count", None), ("error", "not reachable")):
        place = table.schema.get_field_index(name)
        field = table.schema.field(name)
        table = table.set_column(place, field, pc.if_else(gap, pa.scalar(value, field.type), table[name]))
    return table
