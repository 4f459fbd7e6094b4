"""What were services asked for, and what did they answer? A part of the page of health."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

import streamlit as st

from dashboards.view import View, hours_column, percent_column, show_table
from gpuledger.presentation import escaping

QUERIES = ("service_activity",)
HOUR = timedelta(hours=1)
_SHOWN = {
    "requests": "requests_per_second",
    "running": "running_requests",
    "waiting": "waiting_requests",
    "cache_mean": "kv_cache_used_mean_ratio",
    "cache_most": "kv_cache_used_max_ratio",
    "prompt_tokens": "prompt_tokens_per_second",
    "generated_tokens": "generation_tokens_per_second",
    "first_token": "first_token_seconds",
    "output_token": "output_token_seconds",
    "replicas": "replica_count",
}
_MILLISECONDS = ("first_token", "output_token")
_RATIOS = ("cache_mean", "cache_most")


def show(view: View) -> None:
    """Each service in the last hour in which it was read, prefill and decode apart; nothing where none was."""
    texts, until = view.texts, view.moment
    begin = max(view.filters.window.from_at, until.replace(minute=0, second=0, microsecond=0) - HOUR)
    rows = _latest(view.ask("service_activity", from_at=begin, to_at=until, bucket_seconds=int(HOUR.total_seconds())))
    st.subheader(texts("health.services_title"))
    if not rows:
        st.caption(texts("health.services_none"))
        return
    columns: dict[str, Any] = {name: texts(f"health.{name}") for name in ("service", "role")}
    columns |= {
        name: percent_column(texts(f"health.{name}")) if name in _RATIOS else hours_column(texts(f"health.{name}"))
        for name in _SHOWN
    }
    show_table([_line(view, row) for row in rows], columns, "services")
    st.caption(texts("health.services_note"))


def _latest(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The last row of each service and role that was read, the most asked first. Rows come in order of time."""
    last = {(row["workload_id"], row["role"]): row for row in rows if row["engine_count"]}
    return sorted(last.values(), key=lambda row: -(row["requests_per_second"] or 0))


def _line(view: View, row: Mapping[str, Any]) -> dict[str, Any]:
    """Times in milliseconds; what was not told stays None."""
    values = {name: row[column] for name, column in _SHOWN.items()}
    for name in _MILLISECONDS:
        values[name] = None if values[name] is None else 1000 * values[name]
    role = view.texts.code("engine_role", row["role"])
    return {"service": escaping.one_line(row["workload_id"]), "role": role, **values}
