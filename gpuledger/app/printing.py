"""What the CLI prints: JSON for scripts, tables for people; always on standard output, logs never are."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import structlog
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from gpuledger.app.encoding import plain, to_json

FOLDED = 30
"""How many rows of a long list a person is shown; JSON always has all."""


class Format(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


class _InOurForm(logging.Handler):
    """Passes on what libraries log, so that it has the form of our own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log `record` once more."""
        structlog.get_logger(record.name).log(record.levelno, record.getMessage(), exc_info=record.exc_info)


def configure_logs(*, is_verbose: bool = False) -> None:
    """Logs go to standard error, one line each; of libraries, warnings and errors."""
    logging.basicConfig(handlers=[_InOurForm()], level=logging.WARNING)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=("timestamp", "level", "event"), bool_as_flag=False),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if is_verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def progress() -> Progress:
    """A progress bar on standard error; silent where that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, disable=not console.is_terminal)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4f}" if abs(value) < 10 else f"{value:,.1f}"
    return str(plain(value)) if not isinstance(value, Mapping | list) else to_json(value)


def _table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    columns = list(rows[0]) if rows else []
    for column in columns:
        is_number = isinstance(rows[0][column], int | float) and not isinstance(rows[0][column], bool)
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows[:FOLDED]:
        table.add_row(*(Text(_cell(row[column])) for column in columns))  # "[N/A]" is text, not markup
    if len(rows) > FOLDED:
        table.caption = f"{len(rows) - FOLDED} more"
    return table


def emit(answer: Mapping[str, Any], form: Format, *, columns: Mapping[str, Sequence[str]] | None = None) -> None:
    """Print `answer`: as JSON whole; as text its values, then each list of records as a table of `columns[key]`."""
    if form is Format.JSON:
        sys.stdout.write(to_json(answer) + "\n")
        return
    console = Console(file=sys.stdout)
    lists = {}
    for key, value in answer.items():
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            lists[key] = value
        elif not isinstance(value, Mapping) or value:
            console.print(f"{key}: {_cell(value)}", highlight=False, markup=False)
    for key, rows in lists.items():
        wanted = (columns or {}).get(key)
        console.print(_table(key, [{c: row[c] for c in wanted} for row in rows] if wanted else rows))


def ledger_for_people(answer: Mapping[str, Any], *, is_whole: bool) -> dict[str, Any]:
    """The ledger's answer with rates as a list; where it holds no hour, only that. `is_whole`: no window was asked."""
    if not answer["rows"]:
        begins = "no hours yet: the ledger begins about 3 minutes after the first reading"
        return {"ledger": begins if is_whole else "no hours in this window"}
    shown = {**answer, "rates": [{"rate": name, **rate} for name, rate in answer["rates"].items()]}
    unheld = shown.pop("active_unheld_gpu_hours")
    if unheld:
        shown["note"] = f"{unheld:,.1f} GPU-hours of free cards were active: see gpuledger doctor"
    return shown


def print_problems(problems: Sequence[Mapping[str, Any]]) -> None:
    """Print each problem as a headline and its advice; lines are not broken, so that names can be copied."""
    console = Console(file=sys.stdout)
    console.print("problems:" if problems else "problems: none")
    for problem in problems:
        source = f"{problem['source']}: " if problem["source"] else ""
        console.print(Text(f"{source}{problem['problem']}", style="bold"), soft_wrap=True)
        console.print(Text(f"    {problem['advice']}"), soft_wrap=True)
