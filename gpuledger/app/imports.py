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


def _import(
    name: str,
    given: dict[str, Any],
    warehouse: Path | None,
    config: Path | None,
    form: Format,
    *,
    makes_ledger: bool = True,
) -> None:
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
        if makes_ledger:
            more = {"ledger": client.post("/v1/ledger/build") if rows else {"violations": 0}}
        else:
            book = client.query("money_book").to_pylist()
            more = {"book_problems": [row for row in book if row["problem"]]}
    emit({"imported": dict(rows), "rejected_count": len(rejected), "rejected": rejected, **more}, form)
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
def prices(
    file: Annotated[Path, Existing], warehouse: Warehouse = None, config: Config = None, form: Form = Format.TEXT
) -> None:
    """A price book and factors of conversion (CSV or TOML): dated, by model and tenant. Says what overlaps."""
    _import("prices", {"file": file}, warehouse, config, form, makes_ledger=False)


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


@import_app.command()
def nvidia_smi(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    file: Annotated[Path, Existing],
    node: Annotated[str, typer.Option(help="the node that it was run on")],
    at: Annotated[str | None, typer.Option(help="when it was run, ISO 8601; default: now")] = None,
    timezone: Annotated[str, typer.Option(help="IANA zone of the timestamps in the file")] = "UTC",
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """What `nvidia-smi --query-gpu=... --format=csv` printed, once or in a loop."""
    read_at = parameters.instant("at", at) if at else SystemClock().now()
    given = {"file": file, "node": node, "at": read_at, "timezone": timezone}
    _import("nvidia_smi", given, warehouse, config, form)


@import_app.command()
def prometheus(  # noqa: PLR0913, PLR0917 a command's options are its arguments
    url: Annotated[str, typer.Option(help="address of a Prometheus, Thanos or VictoriaMetrics server")],
    since: Annotated[str, typer.Option(help="how far back (30d), or from when (ISO 8601)")],
    until: Annotated[str | None, typer.Option(help="until when; default: now")] = None,
    step: Annotated[
        str, typer.Option(help="time between two readings (60s, 5m); auto: the finest affordable")
    ] = "auto",
    match: Annotated[list[str] | None, typer.Option(help="only series with label=value (or !=, =~, !~)")] = None,
    token: Annotated[str | None, typer.Option(envvar="GPULEDGER_PROMETHEUS_TOKEN", help="bearer token")] = None,
    user: Annotated[str | None, typer.Option(envvar="GPULEDGER_PROMETHEUS_USER", help="name:password")] = None,
    header: Annotated[list[str] | None, typer.Option(help="further header, as Name: value")] = None,
    param: Annotated[list[str] | None, typer.Option(help="further parameter of each query, as key=value")] = None,
    ca_file: Annotated[Path | None, typer.Option(exists=True, help="certificates to trust (PEM)")] = None,
    concurrency: Annotated[int, typer.Option(min=1, max=64, help="queries at the same time")] = 4,
    requests_per_second: Annotated[float, typer.Option(min=0.01, help="queries a second, at most")] = 20.0,
    timeout_seconds: Annotated[float, typer.Option(min=1, help="how long one query may take")] = 120.0,
    cluster: Annotated[
        str | None,
        typer.Option(help="cluster of all pods; default: their cluster label, else the server's external label"),
    ] = None,
    rules: Annotated[Path | None, typer.Option(exists=True, help="attribution rules (TOML)")] = None,
    gpu_util_ratio_unit: Annotated[str, typer.Option(help="what DCGM_FI_DEV_GPU_UTIL_RATIO holds")] = "percent",
    estimate_only: Annotated[bool, typer.Option("--estimate-only", help="say what it would cost")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="begin without asking, however large")] = False,
    again: Annotated[bool, typer.Option("--again", help="read also what an earlier run has read")] = False,
    warehouse: Warehouse = None,
    config: Config = None,
    form: Form = Format.TEXT,
) -> None:
    """The history that a metrics server has of dcgm-exporter and kube-state-metrics."""
    from gpuledger.app import backfill  # noqa: PLC0415 only this command needs it

    asked = backfill.wanted(
        backfill.span_of(since, until, SystemClock().now()),
        step=step,
        match=match or [],
        param=param or [],
        pace=(concurrency, requests_per_second),
        is_again=again,
    )
    server = backfill.server(
        url, asked, headers=header or [], token=token, user=user, ca_file=ca_file, timeout_seconds=timeout_seconds
    )
    more = {"cluster": cluster, "rules": rules, "gpu_util_ratio_unit": gpu_util_ratio_unit}
    with server:
        what = backfill.prepared(server, asked, more)
        if estimate_only:
            emit(backfill.described(what.cost), form)
            return
        sys.stderr.write(backfill.announced(what.cost))
        if not backfill.agreed(what.cost, is_yes=yes):
            sys.exit(1)
        with open_warehouse(settings_file.load(config, warehouse=warehouse)) as client:
            answer = backfill.run(client, server, what)
    emit({"estimate": backfill.described(what.cost), **answer}, form)
    if answer["gaps"] or not (answer["imported"] or answer["chunks_had_before"]):
        sys.exit(1)
