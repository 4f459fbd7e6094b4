"""`gpuledger import`: files of others into the warehouse, through the same ingest as everything else."""

from __future__ import annotations

import hashlib
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger import config as settings_file
from gpuledger.app import parameters
from gpuledger.app.client import open_warehouse
from gpuledger.app.printing import Format, emit, progress
from gpuledger.clock import SystemClock
from gpuledger.errors import BadRecord
from gpuledger.registry import resolve

import_app = typer.Typer(help="Import traces, recordings and lists.", no_args_is_help=True)

Existing = typer.Argument(exists=True, dir_okay=False)
Warehouse = Annotated[Path | None, typer.Option("--warehouse", help="the warehouse file")]
Config = Annotated[Path | None, typer.Option("--config", help="settings file (TOML)")]
Form = Annotated[Format, typer.Option("--format", help="text for people, json for scripts")]


def _digest(given: dict[str, Any]) -> str:
    """Identifies an import by what its files hold, so that importing them again changes nothing."""
    digest = hashlib.sha256()
    for name, value in sorted(given.items()):
        digest.update(f"{name}=".encode())
        digest.update(value.read_bytes() if isinstance(value, Path) else str(value).encode())
    return digest.hexdigest()[:16]


def _import(name: str, given: dict[str, Any], warehouse: Path | None, config: Path | None, form: Format) -> None:
    settings = settings_file.load(config, warehouse=warehouse)
    rows: Counter[str] = Counter()
    rejected: list[dict[str, Any]] = []
    tables = resolve("importers", name)(**given)
    digest = _digest(given)
    with open_warehouse(settings) as client, progress() as bar:
        task = bar.add_task(f"import {name}", total=None)
        try:
            for number, (record, table) in enumerate(tables):
                answer = client.ingest(record, table, f"import-{name}-{digest}-{number}")
                rows[record] += answer["accepted"]
                rejected += answer["rejected"]
                bar.advance(task, table.num_rows)
        except BadRecord as error:
            rejected += [dict(zip(("row", "field", "reason"), row, strict=True)) for row in error.rejected]
        build = client.post("/v1/ledger/build") if rows else {"violations": 0}
    emit({"imported": dict(rows), "rejected_count": len(rejected), "rejected": rejected, "ledger": build}, form)
    if not rows:
        sys.exit(1)


@import_app.command()
def openb(
    nodes: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="node list (CSV)")],
    pods: Annotated[Path, typer.Option(exists=True, dir_okay=False, help="pod list (CSV)")],
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """Alibaba's openb trace: nodes as inventory, pods as request shapes. Places nothing."""
    _import("openb", {"nodes": nodes, "pods": pods}, warehouse, config, form)


@import_app.command()
def helios(
    file: Annotated[Path, Existing], warehouse: Warehouse = None, config: Config = None, form: Form = Format.TEXT
) -> None:
    """SenseTime's Helios trace: per-minute GPUs of virtual clusters (Parquet)."""
    _import("helios", {"file": file}, warehouse, config, form)


@import_app.command()
def assets(
    file: Annotated[Path, Existing], warehouse: Warehouse = None, config: Config = None, form: Form = Format.TEXT
) -> None:
    """The dated list of cards (CSV): arrived, racked, in service, under repair, returned."""
    _import("assets", {"file": file}, warehouse, config, form)


@import_app.command()
def exposition(
    file: Annotated[Path, Existing],
    node: Annotated[str, typer.Option(help="the node that the page speaks for")],
    at: Annotated[str | None, typer.Option(help="when it was read, ISO 8601; default: now")] = None,
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """One recorded dcgm-exporter page."""
    read_at = parameters.instant("at", at) if at else SystemClock().now()
    _import("exposition", {"file": file, "node": node, "at": read_at}, warehouse, config, form)
