"""Recognises faults in what was sent, and keeps each under the instant with which it was first recognised.

Two ways lead here, with the same result: the service's fast pass over what was committed since its last one, and every
build of the ledger, for its hours. Late or repeated tellings extend a fault that is known; they never make it another.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import duckdb

from warehouse import queries


def build(cursor: duckdb.DuckDBPyConnection, from_at: datetime, to_at: datetime, now: datetime) -> None:
    """Recognise the faults of built hours, and forget those that their readings do not tell any more."""
    recognise(cursor, from_at, to_at, now, is_whole=True)


def recognise(
    cursor: duckdb.DuckDBPyConnection, from_at: datetime, to_at: datetime, now: datetime, *, is_whole: bool = False
) -> int:
    """Recognise faults told in [`from_at`, `to_at`). Gives how many were not known.

    `is_whole`: nothing else will come of these hours soon, so what only readings told and tell no more is forgotten.
    """
    _run(cursor, "fault_group", from_at=from_at, to_at=to_at)
    cursor.execute("begin")
    try:
        if is_whole:
            _run(cursor, "forget_faults", from_at=from_at, to_at=to_at)
        _run(cursor, "fault_extend")
        row = _run(cursor, "fault_note", noted_at=now).fetchone()
        cursor.execute("commit")
    except BaseException:
        cursor.execute("rollback")
        raise
    return int(row[0]) if row else 0


def _run(cursor: duckdb.DuckDBPyConnection, name: str, **parameters: Any) -> duckdb.DuckDBPyConnection:
    return cursor.execute(queries.find(name).sql, parameters)
