"""Sorted bars: tenants by what they held, findings by cause, a GPU's states by share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from gpuledger.model import State
from gpuledger.presentation import numbers
from gpuledger.presentation.charts import frame
from gpuledger.presentation.states import HATCHED, LOOKS, STATE_ORDER
from gpuledger.presentation.texts import Texts

_TENANT_STATES = {
    State.ALLOC_PRODUCTIVE: "productive_gpu_hours",
    State.ALLOC_UNGRADED: "ungraded_gpu_hours",
    State.ALLOC_LOW: "low_gpu_hours",
    State.ALLOC_STALLED: "stalled_gpu_hours",
    State.ALLOC_STANDBY: "standby_gpu_hours",
    State.ALLOC_IDLE: "idle_gpu_hours",
    State.ALLOC_STARTING: "starting_gpu_hours",
    State.ALLOC_UNKNOWN: "unknown_gpu_hours",
}

_WAITING = "#5B7DB1"


def _names(order: list[str]) -> alt.Y:
    axis = alt.Axis(labelLimit=220, ticks=False, domain=False, labelPadding=8)
    return alt.Y("name:N", sort=order, title=None, axis=axis)


def tenants(rows: Sequence[Mapping[str, Any]], texts: Texts, paper: frame.Paper = frame.LIGHT) -> frame.Spec:
    """Rows of query `ledger_tenants` (at least one): what each held, by state; a long rest is folded."""
    shown, folded = frame.fold(sorted(rows, key=lambda row: -row["held_gpu_hours"]))
    lines = [(texts.tenant(row["tenant"]), [row]) for row in shown]
    if folded:
        lines.append((texts("word.other_tenants", count=len(folded)), folded))
    drawn, totals = [], []
    for name, members in lines:
        level = 0.0
        for state, column in _TENANT_STATES.items():
            hours = sum(row[column] or 0.0 for row in members)
            if hours:
                drawn.append(
                    {
                        "name": name,
                        "state": state.value,
                        "label": texts(f"state.{state}"),
                        "low": level,
                        "high": level + hours,
                        "hours": numbers.gpu_hours(hours, texts.language),
                    }
                )
            level += hours
        held = sum(row["held_gpu_hours"] for row in members)
        totals.append({"name": name, "end": max(level, held), "hours": numbers.gpu_hours(held, texts.language)})
    y = _names([name for name, _ in lines])
    scale = alt.Scale(domain=[0, (max(row["end"] for row in totals) or 1.0) * 1.16], nice=False)
    x = alt.X("low:Q", scale=scale, title=None, axis=None)
    tables = frame.Tables()
    base = alt.Chart(tables.add(drawn)).encode(y=y, x=x, x2="high:Q")
    bars = base.mark_bar(height=18, stroke=paper.background, strokeWidth=0.5).encode(
        color=alt.Color("state:N", scale=frame.state_scale(), legend=None),
        tooltip=[
            alt.Tooltip("name:N", title=texts("tenants.tenant")),
            alt.Tooltip("label:N", title=texts("word.state")),
            alt.Tooltip("hours:N", title=texts("word.gpu_hours")),
        ],
    )
    hatched = alt.FieldOneOfPredicate("state", [state.value for state in HATCHED])
    hatch = base.transform_filter(hatched).mark_bar(height=18, color=frame.stripes(paper, 5), tooltip=False)
    ends = alt.Chart(tables.add(totals)).mark_text(align="left", dx=6, color=paper.ink)
    labels = ends.encode(y=y, x=alt.X("end:Q", scale=scale), text="hours:N")
    return tables.finish(alt.layer(bars, hatch, labels).properties(height=28 * len(lines), width="container"), paper)


def causes(rows: Sequence[Mapping[str, Any]], texts: Texts, paper: frame.Paper = frame.LIGHT) -> frame.Spec:
    """Rows of query `findings_by_cause` (at least one): GPU-hours wasted by rule and cause, largest first."""
    shown, folded = frame.fold(sorted(rows, key=lambda row: -row["gpu_hours_wasted"]))
    drawn = [
        {
            "name": f"{texts.code('rule', row['analyzer'])}: {texts.code('cause', row['cause_code'])}",
            "value": row["gpu_hours_wasted"],
            "text": f"{numbers.gpu_hours(row['gpu_hours_wasted'], texts.language)}  ({row['finding_count']})",
        }
        for row in shown
    ]
    if folded:
        wasted = sum(row["gpu_hours_wasted"] for row in folded)
        name = texts("word.other_causes", count=len(folded))
        found = sum(row["finding_count"] for row in folded)
        drawn.append({"name": name, "value": wasted, "text": f"{numbers.gpu_hours(wasted, texts.language)}  ({found})"})
    return _plain(drawn, LOOKS[State.ALLOC_IDLE].colour, paper)


def waits(rows: Sequence[Mapping[str, Any]], texts: Texts, paper: frame.Paper = frame.LIGHT) -> frame.Spec:
    """Rows of query `waits` (at least one with GPU-hours): GPU-hours that waited by cause, the most first."""
    hours: dict[str, float] = {}
    counts: dict[str, int] = {}
    for row in rows:
        hours[row["cause"]] = hours.get(row["cause"], 0.0) + (row["gpu_hours"] or 0.0)
        counts[row["cause"]] = counts.get(row["cause"], 0) + row["workload_count"]
    drawn = [
        {
            "name": texts.code("wait_cause", cause),
            "value": waited,
            "text": f"{numbers.gpu_hours(waited, texts.language)}  ({counts[cause]})",
        }
        for cause, waited in sorted(hours.items(), key=lambda each: (-each[1], each[0]))
        if waited > 0
    ]
    return _plain(drawn, _WAITING, paper)


def _plain(drawn: list[dict[str, Any]], colour: str, paper: frame.Paper) -> frame.Spec:
    scale = alt.Scale(domain=[0, (max(row["value"] for row in drawn) or 1.0) * 1.3], nice=False)
    tables = frame.Tables()
    base = alt.Chart(tables.add(drawn)).encode(
        y=alt.Y(
            "name:N",
            sort=[row["name"] for row in drawn],
            title=None,
            axis=alt.Axis(labelLimit=340, ticks=False, domain=False, labelPadding=8),
        ),
        x=alt.X("value:Q", scale=scale, axis=None),
    )
    bars = base.mark_bar(height=18, color=colour, cornerRadius=1)
    labels = base.mark_text(align="left", dx=6, color=paper.ink).encode(text="text:N")
    return tables.finish(alt.layer(bars, labels).properties(height=28 * len(drawn), width="container"), paper)


def state_shares(shares: Mapping[State, float], texts: Texts, paper: frame.Paper = frame.LIGHT) -> frame.Spec:
    """The parts of a whole (0 to 1), one bar a state that occurs."""
    drawn: list[dict[str, Any]] = [
        {
            "state": state.value,
            "name": f"{texts(f'state.{state}')} {numbers.percent(shares[state])}",
            "part": shares[state],
        }
        for state in STATE_ORDER
        if shares.get(state, 0.0) > 0
    ]
    tables = frame.Tables()
    base = alt.Chart(tables.add(drawn)).encode(
        y=_names([row["name"] for row in drawn]),
        x=alt.X(
            "part:Q",
            scale=alt.Scale(domain=[0, 1]),
            title=None,
            axis=alt.Axis(format=".0%", values=[0, 0.25, 0.5, 0.75, 1]),
        ),
    )
    bars = base.mark_bar(height=16).encode(color=alt.Color("state:N", scale=frame.state_scale(), legend=None))
    hatched = alt.FieldOneOfPredicate("state", [state.value for state in HATCHED])
    hatch = base.transform_filter(hatched).mark_bar(height=16, color=frame.stripes(paper, 12), tooltip=False)
    return tables.finish(alt.layer(bars, hatch).properties(height=24 * len(drawn), width="container"), paper)
