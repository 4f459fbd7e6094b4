"""`gpuledger fabric`: what the network of nodes and of gangs carried, by the hour."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuledger import config as settings_file
from gpuledger.app.client import Client, open_warehouse
from gpuledger.app.parameters import instant
from gpuledger.app.printing import Format, emit

_GIGA = 1e9


class By(StrEnum):
    """Whose network."""

    NODE = "node"
    GANG = "gang"


def fabric(
    by: Annotated[By, typer.Option(help="node: adapters and errors of each; gang: traffic of each workload")] = By.NODE,
    warehouse: Annotated[Path | None, typer.Option("--warehouse", help="the warehouse file")] = None,
    from_: Annotated[
        str | None, typer.Option("--from", help="start of the window, ISO 8601; default: an hour before the last hour")
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", help="end of the window, ISO 8601; default: the last reading")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", help="settings file (TOML)")] = None,
    form: Annotated[Format, typer.Option("--format", help="text for people, json for scripts")] = Format.TEXT,
) -> None:
    """What network adapters carried, by node or gang and hour, newest first. A dash was not told, and is not zero."""
    with open_warehouse(settings_file.load(config, warehouse=warehouse), must_exist=True) as client:
        from_at, to_at = _window(client, from_, to)
        rows = client.query(f"fabric_by_{by}", from_at=from_at, to_at=to_at).to_pylist() if from_at and to_at else []
    rows.sort(key=lambda row: row["hour_at"], reverse=True)
    answer: dict[str, Any] = {"from": from_at, "to": to_at, "by": by.value, "rows": rows}
    if form is Format.TEXT:
        shown = [_nodes_row(row) if by is By.NODE else _gangs_row(row) for row in rows]
        answer["rows"] = shown or "no network adapter was read: see sources infiniband and node_exporter"
    emit(answer, form)


def _nodes_row(row: Mapping[str, Any]) -> dict[str, Any]:
    ports = f"{row['active_port_count']}/{row['port_count']}"
    shown = {"hour": _hour(row), "node": row["node"], "ports": ports, **_traffic(row), "use": row["use_ratio"]}
    errors = {"symbol": row["symbol_errors"], "receive": row["received_errors"], "resent": row["retransmits"]}
    return {**shown, "downs": row["link_downed_count"], **errors}


def _gangs_row(row: Mapping[str, Any]) -> dict[str, Any]:
    nodes = f"{row['told_node_count']}/{row['node_count']}"
    shown = {"hour": _hour(row), "workload": row["workload_id"], "nodes": nodes, "shared": row["shared_node_count"]}
    return {**shown, **_traffic(row), "downs": row["link_downed_count"]}


def _hour(row: Mapping[str, Any]) -> str:
    return f"{row['hour_at']:%m-%d %H}h"


def _traffic(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Bytes a second as GB/s; None stays None."""
    rates = {"sent GB/s": row["sent_bytes_per_second"], "received GB/s": row["received_bytes_per_second"]}
    return {name: None if rate is None else rate / _GIGA for name, rate in rates.items()}


def _window(client: Client, from_: str | None, to: str | None) -> tuple[datetime | None, datetime | None]:
    """The window asked for; without bounds it ends with the evidence and begins an hour before its last hour."""
    extent = client.query("evidence_extent").to_pylist()[0]
    to_at = instant("to", to) if to else extent["to_at"]
    if from_:
        return instant("from", from_), to_at
    return (to_at.replace(minute=0, second=0, microsecond=0) - timedelta(hours=1) if to_at else None), to_at
