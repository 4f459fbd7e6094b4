"""Saved pages and assets lists."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from collector.importers import assets, exposition
from gpuledger.errors import BadInput, BadRecord
from gpuledger.registry import resolve

HEADER = "gpu_uuid,node,slot,model,pool,status,from_at,until_at\n"


def test_a_saved_page_is_what_a_scrape_would_have_given(recordings, now):
    tables = dict(resolve("importers", "exposition")(recordings / "h100_node.prom", at=now))
    events = tables.pop("quality_event").to_pylist()
    assert {name: table.num_rows for name, table in tables.items()} == {"source_read": 1, "reading": 2, "holding": 1}
    assert {event["kind"] for event in events} == {"renamed_metric"}
    assert {event["subject"] for event in events} == {"h100_node.prom"}
    first = tables["reading"].to_pylist()[0]
    assert (first["node"], first["ts"], first["interval_seconds"], first["gpu_util_ratio"]) == ("node-7", now, 60, 0.93)


def test_a_saved_page_keeps_its_own_times_and_takes_a_node(tmp_path, now):
    path = tmp_path / "page.prom"
    path.write_text('DCGM_FI_DEV_GPU_UTIL_RATIO{UUID="G",Hostname="x"} 1 1700000000000\n')
    tables = dict(exposition.read(path, node="n1", at=now))
    assert set(tables) == {"source_read", "reading"}
    for table in tables.values():
        assert table.column("node").to_pylist() == ["n1"]
        assert table.column("ts").to_pylist() == [datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)]


def test_what_is_no_page_is_refused(tmp_path, now):
    path = tmp_path / "page.html"
    path.write_text("<html>\n")
    with pytest.raises(BadInput, match=r"page\.html"):
        list(exposition.read(path, at=now))
    with pytest.raises(BadInput, match="zone"):
        list(exposition.read(path, at=now.replace(tzinfo=None)))


@pytest.fixture
def write(tmp_path):
    def write(text: str, encoding: str = "utf-8"):
        path = tmp_path / "assets.csv"
        path.write_bytes(text.encode(encoding))
        return path

    return write


def test_every_column(write):
    path = write(
        HEADER
        + "GPU-1,node-1,3,NVIDIA H100 80GB HBM3,train,in_service,2026-01-01T08:00:00+08:00,2026-02-01\n"
        + 'GPU-2,"node, 2",,,,under_repair,2026-01-01,\n'
    )
    ((name, table),) = resolve("importers", "assets")(path)
    first, second = table.to_pylist()
    assert name == "asset"
    assert first == {
        "gpu_uuid": "GPU-1", "node": "node-1", "slot": 3, "model": "H100", "pool": "train", "status": "in_service",
        "origin": "declared", "from_at": datetime(2026, 1, 1, tzinfo=UTC), "until_at": datetime(2026, 2, 1, tzinfo=UTC),
    }  # fmt: skip
    assert (second["node"], second["slot"], second["model"], second["pool"]) == ("node, 2", None, None, "default")
    assert second["until_at"] is None


def test_a_byte_order_mark_and_windows_lines_are_accepted(write):
    path = write(HEADER.replace("\n", "\r\n") + "GPU-1,节点一,,,,racked,2026-01-01,\r\n", "utf-8-sig")
    ((_, table),) = assets.read(path)
    assert table.column("node").to_pylist() == ["节点一"]


def test_columns_may_be_absent_or_stand_otherwise(write):
    ((_, table),) = assets.read(write("status,from_at,owner,node,gpu_uuid\nracked,2026-01-01,me,n,G\n\n"))
    assert table.num_rows == 1


BAD_LINES = [
    (",n,,,,racked,2026-01-01,", "gpu_uuid", "empty"),
    ("G,,,,,racked,2026-01-01,", "node", "empty"),
    ("G,n,-1,,,racked,2026-01-01,", "slot", "'-1' is no whole number"),
    ("G,n,,,,broken,2026-01-01,", "status", "'broken' is none of"),
    ("G,n,,,,racked,soon,", "from_at", "'soon' is no ISO 8601 time"),
    ("G,n,,,,racked,2026-01-01T00:00:00,", "from_at", "has no zone"),
    ("G,n,,,,racked,2026-13-01,", "from_at", "is no ISO 8601 time"),
    ("G,n,,,,racked,2026-01-02,2026-01-02", "until_at", "not after from_at"),
    ("GOOD,n,,,,in_service,2026-01-01,", "from_at", "a second line for GOOD"),
]


@pytest.mark.parametrize(("line", "column", "reason"), BAD_LINES)
def test_a_bad_line_costs_itself_and_is_named(write, line, column, reason):
    path = write(HEADER + "GOOD,n,,,,racked,2026-01-01,\n" + line + "\nLAST,n,,,,racked,2026-01-01,\n")
    tables = assets.read(path)
    assert next(tables)[1].column("gpu_uuid").to_pylist() == ["GOOD", "LAST"]
    with pytest.raises(BadRecord) as caught:
        next(tables)
    ((number, field, said),) = caught.value.rejected
    assert (number, field) == (3, f"line 3, {column}")
    assert reason in said


def test_a_line_of_another_length_is_named(write):
    with pytest.raises(BadRecord, match="line 2: has 2 cells, the header has 8"):
        list(assets.read(write(HEADER + "G,n\n")))


def test_a_cell_beyond_the_limit_is_named(write):
    with pytest.raises(BadRecord, match="line 2"):
        list(assets.read(write(HEADER + f'G,"{"x" * 200_000}",,,,racked,2026-01-01,\n')))


def test_a_file_without_its_columns_gives_nothing(write, tmp_path):
    with pytest.raises(BadInput, match="line 1: no column gpu_uuid, from_at; found: node, status"):
        next(assets.read(write("node,status\nn,racked\n")))
    with pytest.raises(BadInput, match="found: nothing"):
        next(assets.read(write("")))
    with pytest.raises(BadInput, match="cannot be read"):
        next(assets.read(tmp_path / "none.csv"))


def test_times_are_kept_as_instants(write):
    ((_, table),) = assets.read(write(HEADER + "G,n,,,,racked,2026-01-01T00:00:00+08:00,\n"))
    east = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=8)))
    assert table.column("from_at").to_pylist() == [east.astimezone(UTC)]
