"""Brings a warehouse file to the newest schema: `sql/schema/NNNN_*.sql`, each applied once, in order."""

from __future__ import annotations

from datetime import datetime

import duckdb

from gpuledger.errors import WarehouseError
from warehouse.queries import SQL_ROOT


def migrate(cursor: duckdb.DuckDBPyConnection, now: datetime) -> list[str]:
    """Apply what is missing and return its names. Raises WarehouseError for a file that a newer version wrote."""
    cursor.execute(
        "create table if not exists schema_migration (name varchar primary key, applied_at timestamptz not null)"
    )
    applied = {row[0] for row in cursor.execute("select name from schema_migration").fetchall()}
    scripts = {path.stem: path for path in sorted((SQL_ROOT / "schema").glob("*.sql"))}
    if unknown := applied - scripts.keys():
        raise WarehouseError(f"this warehouse was written by a newer gpuledger (it has {', '.join(sorted(unknown))})")
    missing = [name for name in scripts if name not in applied]
    for name in missing:
        cursor.execute("begin")
        cursor.execute(scripts[name].read_text(encoding="utf-8"))
        cursor.execute("insert into schema_migration values ($name, $now)", {"name": name, "now": now})
        cursor.execute("commit")
    return missing
