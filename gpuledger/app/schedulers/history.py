"""Finished work that a scheduler remembers, day by day into the warehouse; its journal says which days are done."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from gpuledger.app.client import Client
from gpuledger.errors import SchedulerError
from gpuledger.model import Window, to_table
from gpuledger.ports import HistoryReader

HISTORY = ("queue", "workload", "allocation", "pod", "wait", "workload_event", "quality_event")
"""What of a history's snapshots is stored, in this order; what is dated "now" is left out."""

_STAMP = "%Y%m%dT%H%M%SZ"


def days(window: Window) -> Iterator[Window]:
    """The window cut at midnights (UTC)."""
    begin = window.from_at
    while begin < window.to_at:
        midnight = begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=1)
        yield Window(begin, min(midnight, window.to_at))
        begin = midnight


def import_history(client: Client, reader: HistoryReader, window: Window, now: datetime) -> dict[str, Any]:
    """Everything of `window` that is not there yet; gives what was taken in and which days could not be read.

    A day that has not ended (at `now`) is read again by the next run: its work still goes on.
    """
    name = reader.name if reader.cluster == "default" else f"{reader.name}/{reader.cluster}"
    rows: Counter[str] = Counter()
    rejected: list[dict[str, Any]] = []
    gaps: list[dict[str, Any]] = []
    had_before = 0
    for day in days(window):
        prefix = f"history:{name}:{day.from_at.astimezone(UTC):{_STAMP}}-{day.to_at.astimezone(UTC):{_STAMP}}:"
        if client.query("batch_list", prefix=f"{prefix}done").num_rows:
            had_before += 1
            continue
        try:
            for record, table in _tables(reader, day):
                answer = client.ingest(record, table, f"{prefix}{record}:{_digest(table)}")
                rows[record] += 0 if answer.get("duplicate") else answer["accepted"]
                rejected += answer["rejected"]
        except SchedulerError as error:
            gaps.append({"from": day.from_at, "to": day.to_at, "reason": str(error)})
            continue
        if day.to_at < now:
            client.ingest("quality_event", to_table("quality_event", []), f"{prefix}done")
    return {
        "imported": {record: count for record, count in rows.items() if count},
        "rejected_count": len(rejected),
        "rejected": rejected,
        "days_had_before": had_before,
        "gaps": gaps,
    }


def _tables(reader: HistoryReader, day: Window) -> Iterator[tuple[str, pa.Table]]:
    for snapshot in reader.history(day):
        for record in HISTORY:
            if record in snapshot.records and snapshot.records[record].num_rows:
                yield record, snapshot.records[record]


def _digest(table: pa.Table) -> str:
    """What the rows say: a batch that was begun and says something else now is another one."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()[:16]
