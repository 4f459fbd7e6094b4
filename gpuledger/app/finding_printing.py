"""Explanations and precision as a person reads them on a terminal; lines are not broken: names can be copied."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gpuledger.presentation import escaping, numbers

SHOWN = 20
"""How many claims and cards a person is shown; JSON always has all."""

WIDE = 180
"""Columns of a page that is no terminal."""


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=True)


def _rows(console: Console, title: str, rows: Sequence[Mapping[str, Any]], columns: Iterable[str]) -> None:
    wanted = list(columns)
    table = Table(title=title, title_justify="left")
    for name in wanted:
        table.add_column(name, overflow="fold")
    for row in rows[:SHOWN]:
        table.add_row(*(_cell(row.get(name)) for name in wanted))
    if len(rows) > SHOWN:
        table.caption = f"{len(rows) - SHOWN} more"
    console.print(table)


def _cell(value: Any) -> str:
    if value is None or value == "":
        return "-"
    return f"{value:,.4g}" if isinstance(value, float) else escaping.one_line(value)


def print_explanation(answer: Mapping[str, Any]) -> None:
    """What was found, and all that shows whether it is right."""
    console, found = _console(), answer["finding"]
    if not found["is_stored"]:
        _say(console, "No run finds this any more; what is left is its history.", "bold")
        _history(console, answer["history"])
        return
    _say(console, answer["what"], "bold")
    _say(console, f"rule: {answer['rule']} ({found['analyzer']}, version {found['rule_version']})")
    _say(console, f"status: {found['status']}; owner: {escaping.one_line(found['owner']) or '-'}")
    _say(console, f"what helps: {answer['action']}")
    _say(console, f"what would change the verdict: {answer['would_change']}")
    if answer["silent_because"]:
        _say(console, f"nobody is told: {answer['silent_because']}")
    if answer["exemption"]:
        exempt = answer["exemption"]
        until = exempt["expires_at"] or "-"
        _say(console, f"exempted by {exempt['by']} until {until} ({exempt['where']}): {exempt['reason']}")
    sure = answer["confidence"]
    parts = " x ".join(f"{name} {value:.2f}" for name, value in sure["parts"].items())
    _say(console, f"confidence: {numbers.percent(sure['value'])}" + (f" = {parts}" if parts else ""))
    _say(console, f"basis: {sure['basis'] or '-'}")
    if answer["thresholds"]:
        _rows(console, "thresholds", answer["thresholds"], ("option", "value", "unit", "default", "source"))
    if answer["evidence"]:
        _rows(console, "evidence", answer["evidence"], ("metric", "value", "threshold", "n_samples", "coverage"))
    _proof(console, answer)
    _history(console, answer["history"])


def _proof(console: Console, answer: Mapping[str, Any]) -> None:
    query = answer["query"]
    given = ", ".join(f"{name}={value}" for name, value in query["parameters"].items())
    _say(console, f"query: {query['name'] or '-'}({given})")
    if answer["claimed_gpu_hours"] is None:
        _say(console, "claims: none; this rule counts no pieces of the ledger")
    else:
        verdict = "equal" if answer["is_proven"] else "NOT equal"
        _say(
            console,
            f"claims: {len(answer['claims'])} pieces of the ledger, {answer['claimed_gpu_hours']:,.4f} GPU-h; the"
            f" finding counts {answer['counted_gpu_hours']:,.4f} GPU-h: {verdict}",
        )
        _rows(console, "cards", answer["cards"], ("node", "gpu_uuid", "gpu_hours"))
        columns = ("from_at", "until_at", "gpu_uuid", "state", "gpu_hours", "sm_active_ratio", "gpu_util_ratio")
        _rows(console, "claims", answer["claims"], (*columns, "power_watts", "coverage_ratio", "span_state"))
    if query["sql"]:
        _say(console, query["sql"])


def _history(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    _rows(console, "history", rows, ("at", "actor", "before", "after", "reason", "owner", "note"))


def print_precision(answer: Mapping[str, Any]) -> None:
    """How often each rule is right, where, and whether it may notify there."""
    console = _console()
    told = (
        "where it was reviewed" if answer["notifications"] == "reviewed" else "everywhere but where it was judged wrong"
    )
    _say(
        console,
        f"a rule notifies {told}; reviewed: {answer['minimum_judged']} judged,"
        f" {numbers.percent(answer['minimum_precision'])} of them right",
    )
    strata = [
        {
            **row,
            **_figures(row),
            "findings": row["finding_count"],
            "notifies": "yes" if row["may_notify"] else row["silent_because"],
        }
        for row in answer["strata"]
    ]
    figures = ("precision", "95 %", "judged")
    _rows(
        console,
        "by rule, kind of workload and vendor",
        strata,
        ("rule", "kind", "vendor", *figures, "findings", "notifies"),
    )
    rules = [{"rule": row["rule"], **_figures(row)} for row in [*answer["rules"], {"rule": "all", **answer["overall"]}]]
    _rows(console, "by rule", rules, ("rule", *figures))
    if answer["owners"]:
        owners = [{**row, **_figures(row)} for row in answer["owners"]]
        columns = ("rule", "kind", "vendor", "confirmed_count", "disputed_count", "precision", "95 %")
        _rows(console, "what owners said unasked", owners, (*columns, "disputed_by_reason"))


def _figures(row: Mapping[str, Any]) -> dict[str, str]:
    """Precision, its interval and what it rests on, as text."""
    value = row["precision"]
    return {
        "precision": numbers.NO_VALUE if value is None else f"{value:.3f}",
        "95 %": f"{row['low']:.3f} to {row['high']:.3f}",
        "judged": str(row.get("judged_count", "")),
    }


def _console() -> Console:
    """Standard output; where it is no terminal, wide enough for a table's cells to stay whole."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDE)
