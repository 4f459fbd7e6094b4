"""The same history by remote write, by back-fill and from the simulator's own records is the same ledger."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import cast
from zlib import crc32

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from collector.exposition import parse_series
from gpuledger.config import Settings
from gpuledger.model import Window
from gpuledger.simulate import simulate
from gpuledger.testing import FakeClock
from tests.acceptance.test_backfill import BEGIN, END, FLEET, HOURS, SPEC, load, run
from tests.app.conftest import Api, opened_api
from tests.remote_write.writing import V1, V2, Written, post, request_1, request_2
from tests.servers import history
from warehouse import Warehouse

PER_REQUEST = 2_000
SHARDS = 4


def written(lines: list[history.Line]) -> Iterator[list[Written]]:
    """Requests as four shards of a sender would cut `lines`: a series stays in its shard, shards run apart."""
    dice, labels, shards = random.Random(3), {}, [[] for _ in range(SHARDS)]  # type: ignore[var-annotated]
    for text, second in lines:
        head, _, value = text.rpartition(b" ")
        if head not in labels:
            series, _ = parse_series(head)
            labels[head] = {**series.labels, "__name__": series.name, "job": "dcgm", "instance": "x:9400"}
        shards[crc32(head) % SHARDS].append((labels[head], [(1000 * second, float(value))]))
    while any(shards):
        shard = dice.choice([one for one in shards if one])
        yield shard[:PER_REQUEST]
        del shard[:PER_REQUEST]


def ledger(file: Path) -> dict[str, pl.DataFrame]:
    with Warehouse.open(file) as warehouse, warehouse.reading() as cursor:
        return {
            table: cast(
                "pl.DataFrame",
                pl.from_arrow(
                    cursor.sql(
                        f"select * from {table} where hour_at < $to_at order by all", params={"to_at": END}
                    ).to_arrow_table()
                ),
            )
            for table in ("ledger_hour", "state_span")
        }


def write(api: Api, lines: list[history.Line]) -> None:
    for number, series in enumerate(written(lines)):
        make, kind = ((request_1, V1), (request_2, V2))[number % 2]
        assert post(api.http, make(series), kind).status_code == 204


@pytest.mark.slow
def test_remote_write_and_back_fill_give_the_ledger_that_was_simulated(tmp_path: Path) -> None:
    simulation = simulate(SPEC)
    lines = list(history.scraped(simulation, BEGIN, HOURS * 60))
    own = load(tmp_path / "own.duckdb", simulation, telemetry=True)
    with Warehouse.open(own.warehouse) as warehouse:
        assert warehouse.build_ledger(Window(BEGIN, END), until_at=END).violations == 0
    expected = ledger(own.warehouse)

    load(tmp_path / "app.duckdb", simulation, telemetry=False)
    with opened_api(tmp_path, FakeClock(END + timedelta(hours=2))) as api:
        write(api, lines)
        assert api.service.build_ledger(Window(BEGIN, END), until_at=END).violations == 0
    with history.prometheus(tmp_path / "server", lines) as url:
        filled = load(tmp_path / "filled.duckdb", simulation, telemetry=False)
        assert run(url, Settings(warehouse=filled.warehouse), FLEET)["ledger"]["violations"] == 0
    for file in (tmp_path / "app.duckdb", filled.warehouse):
        for table, found in ledger(file).items():
            assert found.height > 0
            assert_frame_equal(found, expected[table], rel_tol=1e-12)  # sums run in another order
