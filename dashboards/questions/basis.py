"""How far do the verdicts rest on SM activity?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboards import notices
from dashboards.view import View, hours_column, queries_note, show_table
from gpuledger.model import Window
from gpuledger.presentation import numbers
from gpuledger.presentation.states import STATE_ORDER

MOST_DAYS = 7
"""The history is judged anew while the reader waits."""


def show(view: View) -> None:
    """The page."""
    texts = view.texts
    st.title(texts("basis.title"))
    if not view.extent.get("gpu_count"):
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    window = view.filters.window
    if window.hours > MOST_DAYS * 24:
        notices.empty(texts, texts.markdown("basis.too_long", days=MOST_DAYS))
        return
    with st.spinner(texts("basis.judging")):
        told = view.fetch_period("/v1/basis-shift")
    states = [row for row in told["states"] if row["gpu_hours_with"] or row["gpu_hours_without"]]
    if not states:
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    _answer(view, told, window)
    _states(view, states)
    _matrix(view, told["matrix"])
    queries_note(view, "GET /v1/basis-shift")


def _answer(view: View, told: Mapping[str, Any], window: Window) -> None:
    texts = view.texts
    moved = [row for row in told["matrix"] if row["state_with"] != row["state_without"] and row["gpu_hours"] > 0]
    figures = {"moved": view.hours(sum(row["gpu_hours"] for row in moved)), "count": numbers.count(len(moved))}
    period = numbers.period(window.from_at, window.to_at, view.filters.timezone)
    without = ", ".join(told["without"])
    if moved:
        largest = max(moved, key=lambda row: row["gpu_hours"])
        words = {
            "largest": view.hours(largest["gpu_hours"]),
            "before": texts(f"state.{largest['state_with']}"),
            "after": texts(f"state.{largest['state_without']}"),
        }
        sentence = texts.markdown("basis.answer", period=period, without=without, moved=figures["moved"], **words)
    else:
        sentence = texts.markdown("basis.answer_none", period=period, without=without)
    st.markdown(f"##### {sentence}")
    for place, (name, value) in zip(st.columns(2), figures.items(), strict=True):
        place.metric(texts(f"basis.{name}"), value)


def _states(view: View, rows: list[dict[str, Any]]) -> None:
    texts = view.texts
    st.subheader(texts("basis.states"))
    places = {state.value: number for number, state in enumerate(STATE_ORDER)}
    lines = [
        {
            "state": texts(f"state.{row['state']}"),
            "with": row["gpu_hours_with"],
            "without": row["gpu_hours_without"],
            "shift": row["gpu_hours_without"] - row["gpu_hours_with"],
        }
        for row in sorted(rows, key=lambda row: places[row["state"]])
    ]
    columns: dict[str, Any] = {"state": texts("word.state")}
    columns |= {name: hours_column(texts(f"basis.{name}")) for name in ("with", "without", "shift")}
    show_table(lines, columns, "states")
    st.caption(texts("basis.note"))


def _matrix(view: View, rows: list[dict[str, Any]]) -> None:
    texts = view.texts
    st.subheader(texts("basis.matrix"))
    moved = [row for row in rows if row["state_with"] != row["state_without"] and row["gpu_hours"] > 0]
    if not moved:
        st.caption(texts("basis.matrix_none"))
        return
    lines = [
        {
            "with": texts(f"state.{row['state_with']}"),
            "without": texts(f"state.{row['state_without']}"),
            "hours": row["gpu_hours"],
        }
        for row in sorted(moved, key=lambda row: -row["gpu_hours"])
    ]
    columns: dict[str, Any] = {"with": texts("basis.judged_with"), "without": texts("basis.judged_without")}
    columns["hours"] = hours_column(texts("word.gpu_hours"))
    show_table(lines, columns, "matrix")
