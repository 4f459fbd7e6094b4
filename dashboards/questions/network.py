"""What did the network carry? A part of the page of health."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import streamlit as st

from dashboards.view import View, hours_column, percent_column, show_table
from gpuledger.presentation import escaping

QUERIES = ("fabric_by_node", "fabric_by_gang")
_GIGA = 1e9
_LEAST = timedelta(minutes=10)
"""An hour that began later than this has too few readings yet: the one before is asked for, too."""


def show(view: View) -> None:
    """Nodes and gangs, each in the last hour of the period in which it was told of."""
    texts, until = view.texts, view.moment
    st.subheader(texts("health.network_title"))
    hour = (until - _LEAST).replace(minute=0, second=0, microsecond=0)
    from_at = max(hour, view.filters.window.from_at)
    nodes = _latest(view.ask("fabric_by_node", from_at=from_at, to_at=until), "node")
    gangs = _latest(view.ask("fabric_by_gang", from_at=from_at, to_at=until), "workload_id")
    gangs = [row for row in gangs if row["told_node_count"]]
    if not nodes:
        st.caption(texts("health.network_none"))
        return
    _nodes(view, nodes)
    if gangs:
        _gangs(view, gangs)
    st.caption(texts("health.network_note"))


def _latest(rows: Iterable[Mapping[str, Any]], key: str) -> list[Mapping[str, Any]]:
    """The last row of each `key`, the busiest first. Rows come in order of time."""
    last = {row[key]: row for row in rows}
    return sorted(last.values(), key=lambda row: -(row["sent_bytes_per_second"] or 0))


def _nodes(view: View, rows: list[Mapping[str, Any]]) -> None:
    texts = view.texts
    counts = {name: name for name in ("symbol_errors", "received_errors", "retransmits")}
    lines = [
        {
            "node": escaping.one_line(row["node"]),
            "ports": f"{row['active_port_count']} / {row['port_count']}",
            **_traffic(row),
            "network_use": row["use_ratio"],
            "link_downed": row["link_downed_count"],
            **{name: row[column] for name, column in counts.items()},
        }
        for row in rows
    ]
    columns: dict[str, Any] = {name: texts(f"health.{name}") for name in ("node", "ports")}
    columns |= {name: hours_column(texts(f"health.{name}")) for name in ("sent", "received")}
    columns["network_use"] = percent_column(texts("health.network_use"))
    columns |= {name: hours_column(texts(f"health.{name}")) for name in ("link_downed", *counts)}
    show_table(lines, columns, "network_nodes")


def _gangs(view: View, rows: list[Mapping[str, Any]]) -> None:
    texts = view.texts
    lines = [
        {
            "workload": escaping.one_line(row["workload_id"]),
            "told_nodes": f"{row['told_node_count']} / {row['node_count']}",
            "shared_nodes": row["shared_node_count"],
            **_traffic(row),
            "link_downed": row["link_downed_count"],
        }
        for row in rows
    ]
    columns: dict[str, Any] = {name: texts(f"health.{name}") for name in ("workload", "told_nodes")}
    named = ("shared_nodes", "sent", "received", "link_downed")
    columns |= {name: hours_column(texts(f"health.{name}")) for name in named}
    show_table(lines, columns, "network_gangs")


def _traffic(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Bytes a second as GB/s; None stays None."""
    rates = {"sent": row["sent_bytes_per_second"], "received": row["received_bytes_per_second"]}
    return {name: None if rate is None else rate / _GIGA for name, rate in rates.items()}
