"""The product's face: from all GPU-hours of the inventory down to productive work, each step labelled."""

from __future__ import annotations

import json
from typing import Any

import altair as alt

from gpuledger.presentation import numbers
from gpuledger.presentation.balance import Balance, Bar
from gpuledger.presentation.charts import frame
from gpuledger.presentation.states import LOOKS
from gpuledger.presentation.texts import Texts

_ROW_PIXELS = 26
_COLUMNS = {"hours": 1.25, "share": 1.41, "change": 1.61}
"""Where the three label columns end, right of the bars, in units of the total."""


def _row(bar: Bar, balance: Balance, previous: Balance, texts: Texts) -> dict[str, Any]:
    total = balance.total_gpu_hours
    states = balance.step_states(bar.name) if bar.state is None else (bar.state,)
    share, before = balance.share(*states), previous.share(*states)
    change = None if share is None or before is None else share - before
    is_whole = bar.state is None and bar.name == balance.steps[0].name
    name = texts(f"step.{bar.name}") if bar.state is None else texts(f"state.{bar.state}")
    return {
        "label": name if bar.state is None else f"{name}  ",
        "state": "subtotal" if bar.state is None else bar.state.value,
        "start": bar.start_hours / total,
        "end": bar.end_hours / total,
        "hours": numbers.gpu_hours(bar.gpu_hours, texts.language),
        "share": numbers.percent(share),
        "change": "" if is_whole else numbers.points(change, texts.language),
        "meaning": name if bar.state is None else texts(f"definition.{bar.state}"),
    }


def chart(balance: Balance, previous: Balance, texts: Texts, paper: frame.Paper = frame.LIGHT) -> frame.Spec:
    """The waterfall of `balance`, compared with `previous`. `balance` must not be empty."""
    rows = [_row(bar, balance, previous, texts) for bar in balance.bars()]
    order = [row["label"] for row in rows]
    totals = [row["label"] for row in rows if row["state"] == "subtotal"]
    weight = {
        "condition": {"test": f"indexof({json.dumps(totals)}, datum.value) >= 0", "value": "bold"},
        "value": "normal",
    }
    names = alt.Axis(labelLimit=190, labelFontWeight=weight, ticks=False, domain=False, labelPadding=8)
    y = alt.Y("label:N", sort=order, title=None, axis=names)
    ticks = [0, 0.25, 0.5, 0.75, 1]
    scale = alt.Scale(domain=[0, _COLUMNS["change"]], nice=False)
    axis = alt.Axis(values=ticks, format=".0%", domain=False, ticks=False, gridDash=[2, 3])
    tooltip = [
        alt.Tooltip("label:N", title=texts("word.state")),
        alt.Tooltip("hours:N", title=texts("word.gpu_hours")),
        alt.Tooltip("share:N", title=texts("word.share")),
        alt.Tooltip("change:N", title=texts("word.change")),
        alt.Tooltip("meaning:N", title=" "),
    ]
    domain = ["subtotal", *LOOKS]
    colours = [paper.muted, *(look.colour for look in LOOKS.values())]
    tables = frame.Tables()
    base = alt.Chart(tables.add(rows)).encode(y=y)
    bars = base.mark_bar(height=_ROW_PIXELS - 8, cornerRadius=1).encode(
        x=alt.X("start:Q", scale=scale, axis=axis, title=None),
        x2="end:Q",
        color=alt.Color("state:N", scale=alt.Scale(domain=domain, range=colours), legend=None),
        opacity=alt.condition(alt.datum.state == "subtotal", alt.value(0.35), alt.value(1.0)),
        tooltip=tooltip,
    )
    layers: list[Any] = [bars, *_hatching(base, rows, paper, scale), *_labels(base, tables, texts, paper)]
    return tables.finish(alt.layer(*layers).properties(height=_ROW_PIXELS * len(rows), width="container"), paper)


def _hatching(base: Any, rows: list[dict[str, Any]], paper: frame.Paper, scale: alt.Scale) -> list[Any]:
    hatched = {look.state.value for look in LOOKS.values() if look.is_hatched}
    layers = []
    for row in rows:
        if row["state"] in hatched and row["start"] > row["end"]:
            count = max(2, round((row["start"] - row["end"]) * 80))
            mark = base.transform_filter(alt.datum.state == row["state"])
            layers.append(
                mark.mark_bar(height=_ROW_PIXELS - 8, color=frame.stripes(paper, count)).encode(
                    x=alt.X("start:Q", scale=scale), x2="end:Q"
                )
            )
    return layers


def _labels(base: Any, tables: frame.Tables, texts: Texts, paper: frame.Paper) -> list[Any]:
    layers: list[Any] = []
    for column, at in _COLUMNS.items():
        for is_total in (True, False):
            mark = base.transform_filter(
                (alt.datum.state == "subtotal") if is_total else (alt.datum.state != "subtotal")
            )
            colour = paper.muted if column == "change" else paper.ink
            text = mark.mark_text(align="right", color=colour, fontWeight=600 if is_total else 400)
            layers.append(text.encode(x=alt.datum(at), text=f"{column}:N"))
    head = alt.Chart(tables.add([{"at": 0}])).mark_text(
        align="right", baseline="bottom", color=paper.muted, fontSize=11
    )
    titles = {"hours": "word.gpu_hours", "share": "word.share", "change": "word.change"}
    layers += [
        head.encode(x=alt.datum(at), y=alt.value(-2), text=alt.value(texts(titles[column])))
        for column, at in _COLUMNS.items()
    ]
    return layers
