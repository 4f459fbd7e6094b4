"""A snapshot for people and scripts: what there is and is free, what queues may use and use, what waits and why."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuledger.ports import SchedulerSnapshot

UNLIMITED, NOT_REPORTED, NO_QUOTA = "unlimited", "not reported", "no quota"

ROWS_SHOWN = 50
"""How many rows of a table a person is shown; JSON has all."""

PIPED_WIDTH = 200
"""Columns of text where nobody's terminal says how wide it is."""

_Rows = Sequence[Sequence[str]]

WAITING = ("held", "pending", "admitted")


def _rows(snapshot: SchedulerSnapshot, record: str) -> list[dict[str, Any]]:
    table = snapshot.records.get(record)
    return table.to_pylist() if table is not None else []


def shown(snapshot: SchedulerSnapshot) -> dict[str, Any]:
    """The snapshot as plain values. A limit that is None has a word beside it that says what that means."""
    return {
        "taken_at": snapshot.taken_at,
        "version": snapshot.version,
        "scope": str(snapshot.scope),
        "records": {record: table.num_rows for record, table in snapshot.records.items()},
        "not_whole": sorted(snapshot.scope.unlisted),
        "capacity": _capacity(_rows(snapshot, "node_state")),
        "queues": _queues(snapshot),
        "waiting": _waiting(snapshot),
        "problems": [
            {key: row[key] for key in ("kind", "subject", "detail", "count")}
            for row in _rows(snapshot, "quality_event")
        ],
    }


def _capacity(states: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Sums over nodes of each resource; `out_of_use` is of nodes that are not ready or take no work."""
    found: dict[str, dict[str, Any]] = {}
    for row in states:
        sums = found.setdefault(
            row["resource"],
            {"nodes": 0, "capacity": 0.0, "usable": 0.0, "allocated": 0.0, "free": 0.0, "nodes_out_of_use": 0},
        )
        usable = row["capacity"] if row["allocatable"] is None else row["allocatable"]
        is_out = not (row["is_ready"] and row["is_schedulable"])
        sums["nodes"] += 1
        sums["capacity"] += row["capacity"]
        sums["usable"] += usable
        sums["allocated"] += row["allocated"]
        sums["free"] += row["free"]
        sums["nodes_out_of_use"] += is_out
    return [{"resource": resource, **sums} for resource, sums in sorted(found.items())]


def _queues(snapshot: SchedulerSnapshot) -> list[dict[str, Any]]:
    quotas: dict[str, list[dict[str, Any]]] = {}
    for row in _rows(snapshot, "quota"):
        quotas.setdefault(row["queue"], []).append(row)
    states = {row["queue"]: row for row in _rows(snapshot, "queue_state")}
    queues = {row["queue"]: row for row in _rows(snapshot, "queue")}
    return [
        {
            "queue": name,
            "parent": queues.get(name, {}).get("parent"),
            "status": queues.get(name, {}).get("status", "unknown"),
            **_limit(quotas.get(name, ()), "nominal_gpus"),
            **_limit(quotas.get(name, ()), "limit_gpus"),
            **{
                column: states.get(name, {}).get(column)
                for column in ("running_gpus", "borrowed_gpus", "lent_gpus", "reserved_gpus", "pending_gpus")
            },
        }
        for name in sorted({*queues, *quotas, *states})
    ]


def _limit(quotas: Sequence[Mapping[str, Any]], column: str) -> dict[str, Any]:
    """The sum over flavors, or what it means that there is none."""
    word = column.removesuffix("_gpus") + "_is"
    if not quotas:
        return {column: None, word: NO_QUOTA}
    if all(row[column] is not None for row in quotas):
        return {column: sum(row[column] for row in quotas), word: "set"}
    is_silent = all(row[column] is not None or column in row["not_reported"].split("|") for row in quotas)
    return {column: None, word: NOT_REPORTED if is_silent else UNLIMITED}


def _waiting(snapshot: SchedulerSnapshot) -> list[dict[str, Any]]:
    waits = {row["workload_id"]: row for row in _rows(snapshot, "wait") if row["until_at"] is None}
    found = []
    for work in _rows(snapshot, "workload"):
        wait = waits.get(work["workload_id"])
        if wait is None and (work["status"] not in WAITING or work["started_at"] is not None):
            continue
        gpus = work["pod_count"] * work["num_gpu"] * work["gpu_milli"] / 1000
        found.append(
            {
                "workload": work["workload_id"],
                "queue": work["queue"],
                "gpus": wait["gpus"] if wait and wait["gpus"] is not None else gpus,
                "since": wait["from_at"] if wait else work["submitted_at"],
                "cause": (wait["cause"] if wait else work["pending_cause"]) or "unknown",
                "reason": (wait["reason"] if wait else work["pending_reason"]) or "",
                "message": (wait["message"] if wait else None) or "",
            }
        )
    return sorted(found, key=lambda row: (row["since"], row["workload"]))


def _number(value: float | None, word: str = NOT_REPORTED) -> str:
    return word if value is None else f"{value:,.4g}" if abs(value) < 10 else f"{value:,.1f}".removesuffix(".0")


def _table(title: str, columns: Sequence[str], rows: _Rows) -> Table:
    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows[:ROWS_SHOWN]:
        table.add_row(*(Text(cell) for cell in row))
    if len(rows) > ROWS_SHOWN:
        table.caption = f"{len(rows) - ROWS_SHOWN} more"
    return table


def _titled(title: str, record: str, answer: Mapping[str, Any], columns: Sequence[str], rows: _Rows) -> Table | str:
    """A table of `record`; a line where it would be empty. What could not be seen is not said to be none."""
    if record not in answer["records"]:
        title = f"{title}: not told"
    elif record in answer["not_whole"]:
        title = f"{title}: a part, for an interface is denied or absent"
    elif not rows:
        title = f"{title}: none"
    return _table(title, columns, rows) if rows else title


def print_snapshot(answer: Mapping[str, Any]) -> None:
    """Print what `shown` gave as tables; what is unlimited and what was not reported is said in words."""
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else PIPED_WIDTH)
    console.print(f"taken at: {answer['taken_at'].isoformat()}", highlight=False, markup=False)
    console.print(f"scope: {answer['scope']}", highlight=False, markup=False, soft_wrap=True)
    counts = ("nodes", "capacity", "usable", "allocated", "free", "nodes_out_of_use")
    capacity = [[row["resource"], *(_number(row[name]) for name in counts)] for row in answer["capacity"]]
    console.print(_titled("GPUs", "node_state", answer, ("resource", *counts), capacity))
    amounts = ("running_gpus", "borrowed_gpus", "lent_gpus", "reserved_gpus", "pending_gpus")
    queues = [
        [
            row["queue"],
            row["status"],
            _number(row["nominal_gpus"], row["nominal_is"]),
            _number(row["limit_gpus"], row["limit_is"]),
            *(_number(row[name]) for name in amounts),
        ]
        for row in answer["queues"]
    ]
    named = ("queue", "status", "quota", "limit", "used", "borrowed", "lent", "reserved", "pending")
    console.print(_titled("queues (GPUs)", "queue", answer, named, queues))
    waiting = [
        [
            row["workload"],
            row["queue"],
            _number(row["gpus"]),
            row["since"].isoformat(timespec="seconds"),
            row["cause"],
            ": ".join(text for text in (row["reason"], row["message"]) if text),
        ]
        for row in answer["waiting"]
    ]
    told = ("workload", "queue", "GPUs", "since", "cause", "the scheduler's words")
    console.print(_titled("waits", "wait", answer, told, waiting))
    if answer["problems"]:
        problems = [[row["kind"], row["subject"], row["detail"]] for row in answer["problems"]]
        console.print(_table("problems", ("kind", "subject", "detail"), problems))
