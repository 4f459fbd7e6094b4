"""`gpuledger placeable`: how large a gang would still fit, at each level of the network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger import config as settings_file
from gpuledger.app.client import open_warehouse
from gpuledger.app.printing import Format, emit


def placeable(
    pool: Annotated[str | None, typer.Option(help="one pool; default: all")] = None,
    at: Annotated[str | None, typer.Option(help="instant, ISO 8601; default: the end of the ledger")] = None,
    gpus: Annotated[
        str | None, typer.Option(help="sizes of gangs in GPUs, separated by commas; default: 1,2,4 and so on to 512")
    ] = None,
    warehouse: Annotated[Path | None, typer.Option("--warehouse", help="the warehouse file")] = None,
    config: Annotated[Path | None, typer.Option("--config", help="settings file (TOML)")] = None,
    form: Annotated[Format, typer.Option("--format", help="text for people, json for scripts")] = Format.TEXT,
) -> None:
    """How large a gang would fit in a node, NVLink domain, leaf, spine or cluster now, and how many of each size."""
    with open_warehouse(settings_file.load(config, warehouse=warehouse), must_exist=True) as client:
        answer = client.get("/v1/placeable", pool=pool, at=at, gpus=gpus)
    emit(answer if form is Format.JSON else _for_people(answer), form)


def _for_people(answer: dict[str, Any]) -> dict[str, Any]:
    """One row a pool and level, one column a size."""
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for row in answer["placeable"]:
        about = {name: row[name] for name in ("pool", "level", "free_gpus", "largest_gang_gpus")}
        table.setdefault((row["pool"], row["level"]), about)[f"x{row['gang_gpus']}"] = row["slot_count"]
    return {"at": answer["at"], "placeable": list(table.values())}
