from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq
import pytest

from collector.importers import helios
from gpuledger.errors import BadInput, BadRecord
from gpuledger.model import arrow_schema

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "helios" / "earth_vc_minute.parquet"
START = datetime(2020, 5, 1, 0, 58)  # noqa: DTZ001 the trace's times carry no zone


def _write(folder: Path, rows: Sequence[tuple[str | None, int, int, int, int]]) -> Path:
    columns = ("vc", "minute", "total_gpu_num", "running_gpu_num", "pending_gpu_num")
    frame = pl.DataFrame(rows, schema=columns, orient="row")
    times = frame.with_columns(time=pl.lit(START) + pl.duration(minutes="minute")).drop("minute")
    pq.write_table(times.with_columns(pl.col("time").cast(pl.Datetime("us"))).to_arrow(), folder / "vc.parquet")
    return folder / "vc.parquet"


def _read(path: Path) -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame(table) for name, table in helios.read(file=path)}


def test_tables_have_the_records_schema(tmp_path: Path) -> None:
    for name, table in helios.read(file=_write(tmp_path, [("a", 0, 8, 4, 0)])):
        assert table.schema == arrow_schema(name)


def test_equal_minutes_become_one_state_cut_at_the_hour(tmp_path: Path) -> None:
    rows = [("a", minute, 8, 4, 0) for minute in range(5)] + [("a", 5, 8, 4, 2), ("a", 7, 8, 4, 2)]
    states = _read(_write(tmp_path, rows))["queue_state"]
    begin = START.replace(tzinfo=UTC)
    expected = [(0, 120.0), (2, 180.0), (5, 60.0), (7, 60.0)]
    assert states.select("ts", "duration_seconds").rows() == [(begin + timedelta(minutes=m), s) for m, s in expected]
    assert states["pending_gpus"].to_list() == [0, 0, 2, 2]


def test_order_of_minutes_changes_nothing_and_queues_stay_apart(tmp_path: Path) -> None:
    rows = [(vc, minute, 8, 4 + minute // 3, 0) for vc in ("a", "b") for minute in range(6)]
    one = _read(_write(tmp_path, rows))["queue_state"]
    other = _read(_write(tmp_path, rows[::-1]))["queue_state"]
    assert one.equals(other)
    assert one["queue"].to_list() == ["a", "a", "a", "b", "b", "b"]


def test_a_quota_lasts_until_it_changes(tmp_path: Path) -> None:
    rows = [("a", minute, 8 if minute < 3 else 16, 4, 0) for minute in range(6)]
    quotas = _read(_write(tmp_path, rows))["quota"]
    change = START.replace(tzinfo=UTC) + timedelta(minutes=3)
    assert quotas.select("nominal_gpus", "until_at").rows() == [(8.0, change), (16.0, None)]


def test_tenants_come_before_what_names_them(tmp_path: Path) -> None:
    names = [name for name, _ in helios.read(file=_write(tmp_path, [("a", 0, 8, 4, 0)]))]
    assert names == ["tenant", "queue", "quota", "queue_state"]


def test_a_bad_row_costs_only_itself(tmp_path: Path) -> None:
    rows = [("a", 0, 8, 4, 0), ("a", 1, 8, -1, 0), (None, 2, 8, 4, 0), ("a", 3, 8, 4, 0), ("a", 3, 8, 5, 0)]
    kept: list[tuple[str, Any]] = []
    with pytest.raises(BadRecord) as caught:
        kept.extend(helios.read(file=_write(tmp_path, rows)))
    assert [(row, field) for row, field, _ in caught.value.rejected] == [(2, "running_gpu_num"), (3, "vc"), (5, "time")]


def test_what_is_not_the_trace_is_named(tmp_path: Path) -> None:
    (tmp_path / "vc.parquet").write_text("not parquet")
    with pytest.raises(BadInput, match=r"vc\.parquet: cannot be read"):
        _read(tmp_path / "vc.parquet")
    pl.DataFrame({"vc": ["a"]}).write_parquet(tmp_path / "vc.parquet")
    with pytest.raises(BadInput, match=r"time: column is missing in vc\.parquet"):
        _read(tmp_path / "vc.parquet")


def test_the_trace_itself_keeps_its_sums() -> None:
    if not SHARED.is_file():
        pytest.skip("../shared is absent: this checkout has no public traces beside it")
    read = _read(SHARED)
    states = read["queue_state"]
    hours = states["duration_seconds"] / 3600
    minutes = pl.read_parquet(SHARED)
    assert (read["queue"].height, read["quota"].height) == (10, 10)
    assert states.height < 30_000
    for name, column in (("nominal", "total"), ("running", "running"), ("pending", "pending")):
        expected = minutes[f"{column}_gpu_num"].sum() / 60
        assert (states[f"{name}_gpus"] * hours).sum() == pytest.approx(expected, abs=1e-6)
