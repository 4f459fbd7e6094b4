"""A fleet whose progress stands in logs alone: a hang that reads 100 % is stalled, and the ledger closes."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl
import pytest

from collector.sources.training_log import TrainingLogSource
from gpuledger.model import Window, to_table
from gpuledger.simulate import FleetSpec, Simulation, simulate
from gpuledger.simulate.training_logs import write_training_logs
from warehouse import Warehouse
from warehouse.ledger import AUDITS

pytestmark = pytest.mark.slow

IN_LOGS = {"job_step", "checkpoint"}


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(FleetSpec(nodes=4, days=1, seed=9, scenario="training"))


@pytest.fixture(scope="module")
def window(simulation) -> Window:
    return Window(simulation.spec.start_at, simulation.spec.end_at)


@pytest.fixture(scope="module")
def frozen(simulation) -> pl.DataFrame:
    """What is hung at so much power that only its steps tell."""
    truth = pl.DataFrame(pl.from_arrow(simulation.truth()))
    return truth.filter((pl.col("rule") == "stalled_allocation") & (pl.col("cause") == "no_progress"))


@pytest.fixture(scope="module")
def house(simulation, window, tmp_path_factory) -> Iterator[Warehouse]:
    folder = tmp_path_factory.mktemp("fleet")
    write_training_logs(simulation.script, folder / "logs")
    source = TrainingLogSource(
        f"{folder}/logs/{{workload}}.log", state_directory=folder / "state", first_bytes=2**30, max_bytes=2**30
    )
    told = source.read(window.to_at).others
    with Warehouse.open(None) as opened:
        for number, (record, table) in enumerate(simulation.records()):
            if record not in IN_LOGS:
                assert not opened.ingest(record, table, f"{record}-{number}").rejected
        for record in IN_LOGS:
            assert not opened.ingest(record, to_table(record, told[record]), f"{record}-log").rejected
        assert opened.build_ledger(window).violations == 0
        yield opened


def test_it_closes(simulation, house, window) -> None:
    for name in AUDITS:
        assert house.query(name, from_at=window.from_at, to_at=window.to_at).num_rows == 0, name
    rows = house.query("ledger_by", by="state", from_at=window.from_at, to_at=window.to_at).to_pylist()
    assert sum(row["gpu_hours"] for row in rows) == pytest.approx(len(simulation.fleet.cards) * 24, abs=1e-9)


def test_a_hang_that_reads_100_percent_is_stalled_on_every_card(house, frozen) -> None:
    assert frozen["gpu_hours"].sum() > 0
    with house.reading() as cursor:
        spans = pl.DataFrame(pl.from_arrow(cursor.sql("from state_span").to_arrow_table()))
    hung = frozen.select("subject_id", "gpu_uuid", pl.col("from_at", "until_at").name.prefix("hung_"))
    during = spans.join(
        hung, left_on=["workload_id", "gpu_uuid"], right_on=["subject_id", "gpu_uuid"], coalesce=True
    ).filter((pl.col("from_at") < pl.col("hung_until_at")) & (pl.col("until_at") > pl.col("hung_from_at")))
    assert during.height
    assert during.filter(pl.col("gpu_util_ratio") < 0.9).is_empty()
    found = spans.filter(pl.col("workload_id").is_in(hung["subject_id"].unique().implode()))
    hours = dict(found.group_by("state").agg(pl.col("gpu_hours").sum()).iter_rows())
    assert hours["alloc_stalled"] == pytest.approx(frozen["gpu_hours"].sum(), abs=1e-6)
