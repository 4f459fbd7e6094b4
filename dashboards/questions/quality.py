"""Can the numbers be trusted?"""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboards import notices
from dashboards.filters import start, to_url
from dashboards.view import View, hours_column, queries_note, show_table
from gpuledger.presentation import escaping, numbers


def show(view: View) -> None:
    """The page."""
    texts = view.texts
    st.title(texts("quality.title"))
    differences = view.ask("inventory_differences")
    nodes = view.ask_period("coverage_by_node")
    found = view.ask_period("quality_summary")
    if not differences and not nodes and not found:
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    low = [row for row in nodes if row["coverage_ratio"] is not None and row["coverage_ratio"] < 1]
    unknown = view.hours(sum(row["unknown_gpu_hours"] or 0.0 for row in nodes) if nodes else None)
    figures = {
        "differences": numbers.count(len(differences)),
        "low": numbers.count(len(low)) if nodes else numbers.NO_VALUE,
        "nodes": numbers.count(len(nodes)),
        "unknown": unknown,
    }
    st.markdown(f"##### {texts.markdown('quality.answer', period=view.period, **figures)}")
    shown = ("differences", "low_nodes", "unknown")
    values = (figures["differences"], figures["low"], unknown)
    for place, name, value in zip(st.columns(3), shown, values, strict=True):
        place.metric(texts(f"quality.{name}"), value)
    _differences(view, differences)
    _coverage(view, nodes, len(low))
    _found(view, found)
    queries_note(view, "inventory_differences", "coverage_by_node", "quality_summary")


def _differences(view: View, rows: list[dict[str, Any]]) -> None:
    texts, zone = view.texts, view.filters.timezone
    st.subheader(texts("inventory.title"))
    if not rows:
        st.success(texts("inventory.none"), icon=":material/task_alt:")
        return
    wanted = start("kind", "")
    kinds = ["", *sorted({row["kind"] for row in rows} | {wanted} - {""})]
    kind = st.selectbox(
        texts("quality.kind_filter"),
        kinds,
        format_func=lambda code: texts.code("difference", code) if code else texts("quality.all_kinds"),
        key="kind",
    )
    to_url("kind", kind)
    lines = [
        {
            "kind": texts.code("difference", row["kind"]),
            "subject": escaping.one_line(row["subject"]),
            "node": escaping.one_line(row["node"]),
            "gpus": row["gpu_count"],
            "since": numbers.instant(row["from_at"], zone),
            "until": numbers.instant(row["until_at"], zone),
            "detail": escaping.one_line(row["detail"]),
        }
        for row in rows
        if kind in {"", row["kind"]}
    ]
    columns: dict[str, Any] = {
        "kind": texts("inventory.kind"),
        "subject": texts("inventory.subject"),
        "node": texts("inventory.node"),
        "gpus": st.column_config.NumberColumn(texts("inventory.gpus"), format="%.6g"),
        "since": f"{texts('inventory.since')} ({zone})",
        "until": texts("inventory.until"),
        "detail": st.column_config.TextColumn(texts("inventory.detail"), width="large"),
    }
    show_table(lines, columns, "differences")


def _coverage(view: View, nodes: list[dict[str, Any]], low_count: int) -> None:
    texts = view.texts
    st.subheader(texts("coverage.title"))
    if not nodes:
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    if low_count:
        body = texts("coverage.nodes", count=numbers.count(low_count), total=numbers.count(len(nodes)))
        notices.partial(texts, body)
    else:
        st.success(texts("coverage.full"), icon=":material/task_alt:")
    ratio = st.column_config.ProgressColumn(texts("coverage.ratio"), min_value=0.0, max_value=1.0, format="percent")
    columns: dict[str, Any] = {
        "node": texts("coverage.node"),
        "coverage_ratio": ratio,
        "unknown_gpu_hours": hours_column(texts("coverage.unknown")),
    }
    show_table([{**row, "node": escaping.one_line(row["node"])} for row in nodes], columns, "coverage")


def _found(view: View, rows: list[dict[str, Any]]) -> None:
    texts, zone = view.texts, view.filters.timezone
    st.subheader(texts("quality.found_title"))
    if not rows:
        st.success(texts("quality.found_none"), icon=":material/task_alt:")
        return
    lines = [
        {
            "kind": texts.code("quality_kind", row["kind"]),
            "source": escaping.one_line(row["source"]) or numbers.NO_VALUE,
            "subjects": row["subject_count"],
            "events": row["event_count"],
            "hours": row["hour_count"],
            "last": numbers.instant(row["last_at"], zone),
        }
        for row in rows
    ]
    columns: dict[str, Any] = {name: texts(f"quality.{name}") for name in ("kind", "source")}
    for name in ("subjects", "events", "hours"):
        columns[name] = st.column_config.NumberColumn(texts(f"quality.{name}"), format="localized")
    show_table(lines, columns | {"last": f"{texts('quality.last')} ({zone})"}, "found")
