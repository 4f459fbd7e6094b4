"""Pods: everything that was said of one is kept, and its row follows from that, whatever the order in which it came."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import duckdb

from warehouse import queries


def fold(cursor: duckdb.DuckDBPyConnection, now: Any) -> datetime | None:
    """Take the relation `staged` (rows of `pod`, twins too) into `pod`; gives the first instant that changed."""
    for name in ("pod_said_now", "pod_now"):
        cursor.execute(queries.find(name).sql)
    row = cursor.execute(queries.find("pod_changed_at").sql, {"now": now}).fetchone()
    cursor.execute("delete from pod_said using staged where pod_said.uid = staged.uid")
    cursor.execute("insert into pod_said by name from pod_said_now")
    cursor.execute(
        "merge into pod using pod_now using (uid) when matched then update by name when not matched then insert by name"
    )
    return row[0] if row else None
