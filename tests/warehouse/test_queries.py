"""Every named query is what its header says, and the tables are what the records say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuledger.errors import BadInput, QueryRefused, WarehouseError
from gpuledger.model import RECORDS, arrow_schema
from warehouse import Warehouse, queries
from warehouse.schema import migrate

CATALOGUE = queries.catalogue()
READS = sorted(name for name, query in CATALOGUE.items() if query.is_read)
DUCKDB_TYPES = {
    "string": "VARCHAR",
    "int64": "BIGINT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "timestamp[us, tz=UTC]": "TIMESTAMP WITH TIME ZONE",
}
AT = datetime(2026, 3, 2, tzinfo=UTC)
VALUES: dict[str, Any] = {
    **dict.fromkeys(("from_at", "to_at", "at"), AT),
    "by": "state",
    "bucket": "day",
    "timezone": "UTC",
    "bucket_seconds": 60,
    "limit_count": 5,
    "level": 1,
    "weighting": "demand",
    "history_days": 28.0,
    "gang_nodes": 2,
    "outage_from_ats": [AT],
    "outage_until_ats": [AT],
    "normal_ratio": 0.5,
    "min_minutes": 5,
}


@pytest.fixture(scope="module")
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None) as opened:
        yield opened


def _given(query: queries.NamedQuery) -> dict[str, Any]:
    return {name: VALUES.get(name, "") for name in query.parameters}


def _type(text: str) -> str:
    return text.upper().replace("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE").replace(" ", "")


@pytest.mark.parametrize("name", READS)
def test_declared_columns_are_what_the_query_gives(house: Warehouse, name: str) -> None:
    query = CATALOGUE[name]
    with house.writing() as cursor:
        described = cursor.execute("describe " + query.sql.rstrip().rstrip(";"), _given(query)).fetchall()
    found = {row[0]: _type(row[1]) for row in described}
    assert found == {column: _type(kind) for column, kind in query.columns.items()}
    assert list(found) == list(query.columns)
    assert house.query(name, **_given(query)).column_names == list(query.columns)


@pytest.mark.parametrize("name", sorted(CATALOGUE))
def test_headers_are_complete(name: str) -> None:
    query = CATALOGUE[name]
    assert query.sentence.endswith(".")
    wanted = {"Grain", "Reads", "Units", "Ignores"} | ({"Columns", "Order"} if query.is_read else {"Writes"})
    assert wanted <= set(query.headings)
    assert all(text.strip() for text in query.headings.values())
    assert len(re.findall(r";\s*$", query.sql, re.MULTILINE)) <= 1


@pytest.mark.parametrize("name", READS)
def test_unknown_and_missing_parameters_are_refused(house: Warehouse, name: str) -> None:
    given = _given(CATALOGUE[name])
    with pytest.raises(QueryRefused, match="form_at"):
        house.query(name, **given, form_at=AT)
    for parameter in given:
        with pytest.raises(QueryRefused, match=parameter):
            house.query(name, **{other: value for other, value in given.items() if other != parameter})


def test_only_reading_queries_can_be_asked(house: Warehouse) -> None:
    for name in ("no_such_query", "forget_state_span", "ledger_hour"):
        with pytest.raises(QueryRefused, match=r"^no "):
            house.query(name)


def test_a_value_of_the_wrong_kind_names_the_query(house: Warehouse) -> None:
    with pytest.raises(BadInput, match="quota_outage_detected"):
        house.query("quota_outage_detected", from_at=AT, to_at=AT, normal_ratio="much", min_minutes=5)


BROKEN = {
    "wrong_name": "-- name: other()\n-- A.\n-- Grain: a\nselect 1;\n",
    "no_heading": "-- name: no_heading()\n-- A sentence.\n-- Grain: a\nselect 1;\n",
    "undeclared": (
        "-- name: undeclared(a)\n-- A.\n-- Grain: a\n-- Reads: a\n-- Units: a\n-- Ignores: a\n-- Columns: a bigint\n"
        "-- Order: a\nselect :a + :b as a;\n"
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_whose_header_is_wrong_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.sql"
    path.write_text(BROKEN[name], encoding="utf-8")
    with pytest.raises(QueryRefused, match=name):
        queries.load_file(path)


@pytest.mark.parametrize("record", RECORDS)
def test_tables_are_the_records_column_by_column(house: Warehouse, record: str) -> None:
    with house.writing() as cursor:
        described = cursor.execute(f'describe "{record}"').fetchall()
    assert [(row[0], row[1], row[2]) for row in described] == [
        (field.name, DUCKDB_TYPES[str(field.type)], "YES" if field.nullable else "NO") for field in arrow_schema(record)
    ]


def test_migrations_run_once_and_refuse_a_newer_file(tmp_path: Path) -> None:
    file = tmp_path / "w.duckdb"
    with Warehouse.open(file) as house, house.writing() as cursor:
        assert migrate(cursor, AT) == []
        cursor.execute("insert into schema_migration values ('9999_from_the_future', $now)", {"now": AT})
    with pytest.raises(WarehouseError, match="newer gpuledger"):
        Warehouse.open(file)
