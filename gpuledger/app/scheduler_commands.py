"""`gpuledger scheduler`: look at a scheduler through its adapter, and bring what it remembers into the warehouse."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger import config as settings_file
from gpuledger.app import parameters
from gpuledger.app.client import open_warehouse
from gpuledger.app.printing import Format, emit
from gpuledger.app.schedulers.history import import_history
from gpuledger.app.schedulers.listing import Entry, entries, reader_of
from gpuledger.app.schedulers.showing import print_snapshot, shown
from gpuledger.attribution.rules import load as load_rules
from gpuledger.clock import SystemClock
from gpuledger.config import Settings
from gpuledger.errors import BadInput, ConfigError, InconsistentSnapshot, NotPermitted, SchedulerUnreachable
from gpuledger.ports import HistoryReader, SchedulerReader

scheduler_app = typer.Typer(help="Look at schedulers, and import what they remember.", no_args_is_help=True)

EXIT_UNREACHABLE, EXIT_NOT_PERMITTED, EXIT_PARTIAL = 3, 4, 5
"""Beside 0 (whole), 1 (any other failure) and 2 (wrong arguments), for scripts."""

Adapter = Annotated[str, typer.Option(help="adapter: kubernetes, kueue, slurm, ...")]
Cluster = Annotated[str, typer.Option(help="name of the cluster, where there are several of a kind")]
Options = Annotated[
    list[str] | None,
    typer.Option("--option", help="key=value of the adapter; may be repeated. Lists and tables are written as JSON"),
]
Config = Annotated[Path | None, typer.Option("--config", help="settings file (TOML)")]
Warehouse = Annotated[Path | None, typer.Option("--warehouse", help="the warehouse file")]
Form = Annotated[Format, typer.Option("--format", help="text for people, json for scripts")]


class Shape(StrEnum):
    """How a snapshot is printed."""

    TABLE = "table"
    JSON = "json"


Shaped = Annotated[Shape, typer.Option("--format", help="tables for people, json for scripts")]


@scheduler_app.callback()
def _group() -> None:
    """Look at schedulers, and import what they remember."""


def options_of(given: Sequence[str]) -> dict[str, Any]:
    """The options in "key=value" texts. Raises BadInput naming the one that is not written so, without its value."""
    found: dict[str, Any] = {}
    for text in given:
        key, is_there, value = text.partition("=")
        if not is_there or not key.strip():
            raise BadInput("option", f"{key.strip()[:40]!r} must be written as key=value")
        found[key.strip()] = _value(key.strip(), value)
    return found


def _value(key: str, text: str) -> Any:
    if text[:1] not in {"[", "{"}:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadInput(f"option {key}", f"is no JSON: {error}") from None


def _reader(adapter: str, cluster: str, given: Sequence[str], settings: Settings) -> SchedulerReader:
    """The reader that was asked for; what the options leave out comes from the settings' list of schedulers."""
    options = options_of(given)
    if settings.schedulers_file is not None:
        listed = {entry.name: entry for entry in entries(settings.schedulers_file)}
        known = listed.get(adapter if cluster == "default" else f"{adapter}/{cluster}")
        options = {**(known.options if known else {}), **options}
    try:
        entry = Entry(adapter=adapter, cluster=cluster, options=options)
    except ValueError:
        raise ConfigError(
            f"cluster: {cluster!r} is not a name of letters, digits, dots, dashes and underscores"
        ) from None
    return reader_of(entry, load_rules(settings.attribution_rules), SystemClock())


@scheduler_app.command()
def snapshot(
    adapter: Adapter,
    cluster: Cluster = "default",
    option: Options = None,
    config: Config = None,
    shape: Shaped = Shape.TABLE,
) -> None:
    """Read a scheduler once and print what it has, gave away, and lets wait. Nothing is stored.

    Ends with 0 when all could be read, 3 when it does not answer, 4 when it permits nothing, 5 when it permits a part.
    """
    reader = _reader(adapter, cluster, option or [], settings_file.load(config))
    try:
        taken = reader.snapshot()
    except (SchedulerUnreachable, InconsistentSnapshot) as error:
        _end(f"could not see: {error}", EXIT_UNREACHABLE)
    except NotPermitted as error:
        _end(f"not permitted: {error}", EXIT_NOT_PERMITTED)
    else:
        if shape is Shape.JSON:
            emit(shown(taken), Format.JSON)
        else:
            print_snapshot(shown(taken))
        if not taken.scope.is_complete:
            _end(str(taken.scope), EXIT_PARTIAL)


def _end(text: str, code: int) -> None:
    sys.stderr.write(f"gpuledger: {text}\n")
    sys.exit(code)


@scheduler_app.command()
def history(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    adapter: Adapter,
    from_: Annotated[str, typer.Option("--from", help="start of the window, ISO 8601")],
    to: Annotated[str | None, typer.Option("--to", help="end of the window, ISO 8601; default: now")] = None,
    cluster: Cluster = "default",
    option: Options = None,
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Bring the finished work that a scheduler remembers into the warehouse, day by day.

    A second run asks only for the days that the first one did not finish.
    """
    settings = settings_file.load(config, warehouse=warehouse)
    reader = _reader(adapter, cluster, option or [], settings)
    if not isinstance(reader, HistoryReader):
        raise ConfigError(f"adapter: {adapter} does not remember finished work")
    now = SystemClock().now()
    window = parameters.window(from_, to or now, None)
    with open_warehouse(settings) as client:
        answer = import_history(client, reader, window, now)
        if answer["imported"]:
            answer["ledger"] = client.post("/v1/ledger/build", from_=window.from_at, to=window.to_at)
    emit(answer, form)
    if answer["gaps"]:
        sys.exit(1)
