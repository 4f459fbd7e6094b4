"""Where did the hours go?"""

from __future__ import annotations

from typing import Any, Literal

import streamlit as st

from dashboards import notices
from dashboards.view import (
    View,
    bar_column,
    hours_column,
    paper,
    percent_column,
    queries_note,
    show_chart,
    show_table,
)
from gpuledger.model import State
from gpuledger.presentation import numbers
from gpuledger.presentation.balance import Balance
from gpuledger.presentation.charts import bars, series, waterfall
from gpuledger.presentation.states import STATE_ORDER
from gpuledger.presentation.summary import answer

_HOURLY_UP_TO_HOURS = 8 * 24
_WARN_BELOW_COVERAGE = 0.99
_OTHER_HOURS = ("idle", "stalled", "low", "ungraded", "unknown", "standby", "starting")


def show(view: View) -> None:
    """The page."""
    texts, filters = view.texts, view.filters
    st.title(texts("hours.title"))
    balance, previous = _balance(view, filters.bounds), _balance(view, _previous(view))
    if balance.is_empty:
        notices.empty_period(texts, view.extent, filters.timezone, filters.tenant)
        return
    st.markdown(f"##### {answer(balance, texts, view.period, filters.tenant, is_markdown=True)}")
    _figures(view, balance, previous)
    notices.finality(texts, balance.provisional_gpu_hours, view.extent.get("final_until_at"), filters.timezone)
    rates = view.ask_period("ledger_rates")
    _trust(view, rates)
    _waterfall(view, balance, previous)
    _series(view)
    _tenants(view)
    if not filters.tenant:
        _rates(view, rates)
    _definitions(view)
    queries_note(
        view, "ledger_by", "ledger_series", "ledger_tenants", "ledger_rates", "inventory_differences", "quality_summary"
    )


def _previous(view: View) -> dict[str, Any]:
    window = view.filters.previous
    return {"from_at": window.from_at, "to_at": window.to_at}


def _balance(view: View, bounds: dict[str, Any]) -> Balance:
    if view.filters.tenant:
        return Balance.of_tenant(view.ask("ledger_by", by="tenant", **bounds), view.filters.tenant)
    return Balance.of_fleet(view.ask("ledger_by", by="state", **bounds))


def _figures(view: View, balance: Balance, previous: Balance) -> None:
    texts = view.texts
    first = balance.steps[0].name
    shown: list[tuple[str, tuple[State, ...], int]] = [
        (texts(f"step.{first}"), balance.step_states(first), 0),
        (texts("state.alloc_productive"), (State.ALLOC_PRODUCTIVE,), 1),
        (texts("state.alloc_idle"), (State.ALLOC_IDLE,), -1),
        (texts("state.alloc_stalled"), (State.ALLOC_STALLED,), -1),
    ]
    if first == "inventory":
        shown.insert(1, (texts("step.held"), balance.step_states("held"), 0))
        shown.append((texts("state.free_stranded"), (State.FREE_STRANDED,), -1))
    with st.container(horizontal=True, gap="medium"):
        for label, states, good in shown:
            share, before = balance.share(*states), previous.share(*states)
            is_whole = states == balance.step_states(first)
            change = None if is_whole or share is None or before is None else share - before
            st.metric(
                label,
                view.hours(balance.gpu_hours(*states)),
                None if change is None else f"{numbers.percent(share)}, {numbers.points(change, texts.language)}",
                delta_color=_colour(change, good),
                delta_arrow="off",
                help=texts(f"definition.{states[0]}") if len(states) == 1 else None,
                width="content",
            )


def _colour(change: float | None, good: int) -> Literal["green", "red", "gray"]:
    """Of a change of a share, where `good` says whether more of it is welcome (1), unwelcome (-1) or neither (0)."""
    if change is None or not good or not round(change, 3):
        return "gray"
    return "green" if change * good > 0 else "red"


def _trust(view: View, rates: list[dict[str, Any]]) -> None:
    coverage = next((rate["value"] for rate in rates if rate["name"] == "coverage"), None)
    if not view.filters.tenant and coverage is not None and coverage < 1:
        note = view.texts.markdown("coverage.note", coverage=numbers.percent(coverage))
        if coverage < _WARN_BELOW_COVERAGE:
            notices.partial(view.texts, note)
        else:
            st.caption(f":material/incomplete_circle: {note}")
    differences = view.ask("inventory_differences")
    if differences and "quality" in view.pages:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(":material/rule: " + view.texts("inventory.count", count=numbers.count(len(differences))))
            st.page_link(view.pages["quality"], label=view.texts("hours.differences_link"))
    if not view.filters.tenant:
        _unheld(view)


def _unheld(view: View) -> None:
    """Say how much of what is called free worked for somebody whom nothing names."""
    found = [row["event_count"] for row in view.ask_period("quality_summary") if row["kind"] == "active_unheld"]
    if found:
        notices.partial(view.texts, view.texts.markdown("hours.active_unheld", hours=view.hours(sum(found) / 60)))


def _waterfall(view: View, balance: Balance, previous: Balance) -> None:
    texts = view.texts
    title = texts("hours.waterfall_tenant" if view.filters.tenant else "hours.waterfall")
    st.subheader(title)
    show_chart(waterfall.chart(balance, previous, texts, paper()), title)
    before = view.filters.previous
    period = numbers.period(before.from_at, before.to_at, view.filters.timezone)
    key = "hours.no_previous" if previous.is_empty else "hours.previous"
    st.caption(texts(key) if previous.is_empty else texts.markdown(key, period=period))


def _series(view: View) -> None:
    filters = view.filters
    bucket = "hour" if filters.window.hours <= _HOURLY_UP_TO_HOURS else "day"
    rows = view.ask_period("ledger_series", bucket=bucket, timezone=filters.timezone, tenant=filters.tenant)
    if not any(row["gpu_hours"] > 0 for row in rows):
        return
    title = view.texts("hours.series")
    st.subheader(title)
    buckets = series.Buckets(filters.window, bucket, filters.timezone)
    show_chart(series.chart(rows, buckets, view.texts, paper()), title)


def _tenants(view: View) -> None:
    texts, wanted = view.texts, view.filters.tenant
    rows = [row for row in view.ask_period("ledger_tenants") if wanted in {"", row["tenant"]}]
    if not rows:
        return
    st.subheader(texts("tenants.title"))
    if not wanted:
        show_chart(bars.tenants(rows, texts, paper()), texts("tenants.title"))
    top = max(row["held_gpu_hours"] for row in rows)
    columns: dict[str, Any] = {
        "tenant": texts("tenants.tenant"),
        "held_gpu_hours": bar_column(f"{texts('tenants.held')}, {texts('word.gpu_hours')}", top),
        "productive_gpu_hours": hours_column(texts("tenants.productive")),
        "gpu_util_ratio": percent_column(texts("tenants.gpu_util")),
        "sm_active_ratio": percent_column(texts("tenants.sm_active")),
        **{f"{name}_gpu_hours": hours_column(texts(f"tenants.{name}")) for name in _OTHER_HOURS},
    }
    show_table([{**row, "tenant": texts.tenant(row["tenant"])} for row in rows], columns, "tenants")
    st.caption(texts("tenants.basis_note"))


def _rates(view: View, rates: list[dict[str, Any]]) -> None:
    texts = view.texts
    st.subheader(texts("rate.title"))
    rows = [
        {
            **rate,
            "name": rate["name_zh"] if texts.language == "zh" else texts.code("rate_name", rate["name"]),
            "value": numbers.percent(rate["value"]),
        }
        for rate in rates
    ]
    columns: dict[str, Any] = {
        "name": st.column_config.TextColumn(texts("rate.name"), width=270),
        "value": texts("rate.value"),
        "numerator_gpu_hours": hours_column(texts("rate.numerator")),
        "denominator_gpu_hours": hours_column(texts("rate.denominator")),
        "formula": st.column_config.TextColumn(texts("rate.formula"), width=330),
        "basis": texts("rate.basis"),
    }
    show_table(rows, columns, "rates")


def _definitions(view: View) -> None:
    texts = view.texts
    with st.expander(texts("word.definitions")):
        lines = [f"- **{texts(f'state.{state}')}**: {texts(f'definition.{state}')}" for state in STATE_ORDER]
        st.markdown("\n".join([*lines, "", texts("report.waste_note")]))
