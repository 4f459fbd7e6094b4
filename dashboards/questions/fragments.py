"""Which free GPUs can nobody use, and why?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboards import notices
from dashboards.filters import start, to_url
from dashboards.view import View, hours_column, paper, percent_column, queries_note, show_chart, show_table
from gpuledger.model import State
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.charts import stacks
from gpuledger.presentation.states import LOOKS

USABLE = "usable"
INDEXES = {"typical": "fgd_typical", "pending": "fgd_pending"}


def show(view: View) -> None:
    """The page."""
    texts = view.texts
    st.title(texts("fragments.title"))
    if not view.extent.get("gpu_count"):
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    told = view.fetch("/v1/placeable", at=view.moment.isoformat())
    pool = _pool(view, sorted({row["pool"] for row in told["placeable"]}))
    free = [{**row, "at": row["hour_at"]} for row in _series(view, pool, "free")]
    if free:
        _blocked(view, free)
        _index(view, pool)
    else:
        notices.empty(texts, texts("fragments.none"))
    _placeable(view, [row for row in told["placeable"] if pool in {"", row["pool"]}])
    queries_note(view, "fragmentation_series", "GET /v1/placeable")


def _pool(view: View, known: Sequence[str]) -> str:
    wanted = start("pool", "")
    options = ["", *sorted({*known, wanted} - {""})]
    pool = st.selectbox(
        view.texts("subject.pool"),
        options,
        format_func=lambda name: escaping.one_line(name) if name else view.texts("fragments.all_pools"),
        key="pool",
    )
    to_url("pool", pool)
    return pool


def _series(view: View, pool: str, measure: str) -> list[dict[str, Any]]:
    return view.ask_period("fragmentation_series", pool=pool, measure=measure)


def _blocked(view: View, rows: list[dict[str, Any]]) -> None:
    texts = view.texts
    newest = max(row["at"] for row in rows)
    now: dict[str, float] = {}
    for row in rows:
        if row["at"] == newest:
            now[row["name"]] = now.get(row["name"], 0.0) + (row["value"] or 0.0)
    blocked = {name: value for name, value in now.items() if name != USABLE and value > 0}
    figures = {
        "free": numbers.count(sum(now.values())),
        "blocked": numbers.count(sum(blocked.values())),
        "usable": numbers.count(now.get(USABLE, 0.0)),
    }
    at = f"{numbers.instant(newest, view.filters.timezone)} ({view.filters.timezone})"
    if blocked:
        largest = max(blocked, key=lambda name: (blocked[name], name))
        sentence = texts.markdown("fragments.answer", at=at, largest=_name(view, largest), **figures)
    else:
        sentence = texts.markdown("fragments.answer_none", at=at, **figures)
    st.markdown(f"##### {sentence}")
    for place, (name, value) in zip(st.columns(3), figures.items(), strict=True):
        place.metric(texts(f"fragments.{name}"), value)
    st.subheader(texts("fragments.over_time"))
    names, rest = stacks.folded(rows, keep=(USABLE,))
    shown = [{**row, "name": "rest" if row["name"] in rest else row["name"]} for row in rows]
    labels = {name: _name(view, name) for name in names}
    if rest:
        labels["rest"] = texts("word.other_causes", count=len(rest))
    _chart(view, shown, stacks.Names(labels=labels, colours=_colours()), "fragments.over_time", is_stacked=True)
    st.caption(texts("fragments.note"))


def _colours() -> dict[str, str]:
    return {USABLE: LOOKS[State.FREE_USABLE].colour, "rest": LOOKS[State.ALLOC_UNKNOWN].colour}


def _name(view: View, code: str) -> str:
    return view.texts.code("block", code)


def _chart(view: View, rows: list[dict[str, Any]], names: stacks.Names, title: str, *, is_stacked: bool) -> None:
    kept = set(stacks.every([row["at"] for row in rows], len(names.labels)))
    drawn = [row for row in rows if row["at"] in kept]
    span = (view.filters.window, view.filters.timezone)
    if any(row["value"] for row in drawn):
        show_chart(stacks.chart(drawn, names, span, view.texts, paper(), is_stacked=is_stacked), view.texts(title))
    else:
        st.caption(view.texts("fragments.all_zero"))


def _index(view: View, pool: str) -> None:
    texts = view.texts
    st.subheader(texts("fragments.index"))
    basis = st.segmented_control(
        texts("fragments.shapes"),
        list(INDEXES),
        format_func=lambda name: texts(f"fragments.{name}"),
        default="typical",
        key="shapes",
    )
    of_pools = [row for row in _series(view, pool, INDEXES[basis or "typical"]) if row["value"] is not None]
    sums: dict[tuple[Any, str], float] = {}
    for row in of_pools:
        sums[row["hour_at"], row["name"]] = sums.get((row["hour_at"], row["name"]), 0.0) + row["value"]
    rows = [{"at": at, "name": name, "value": value} for (at, name), value in sums.items()]
    if not rows:
        st.caption(texts("fragments.index_none"))
        return
    labels = {name: texts.code("weighting", name) for name in sorted({row["name"] for row in rows})}
    _chart(view, rows, stacks.Names(labels=labels, colours={}), "fragments.index", is_stacked=False)
    st.caption(texts("fragments.index_note"))


def _placeable(view: View, rows: list[Mapping[str, Any]]) -> None:
    texts = view.texts
    st.subheader(texts("fragments.placeable"))
    if not rows:
        st.caption(texts("fragments.placeable_none"))
        return
    sizes = sorted({row["gang_gpus"] for row in rows})
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        about = {
            "pool": escaping.one_line(row["pool"]),
            "level": texts.code("level", row["level"]),
            "free": row["free_gpus"],
            "largest": row["largest_gang_gpus"],
            "ratio": None,
        }
        line = lines.setdefault((row["pool"], row["level"]), {**about, **dict.fromkeys(map(_size, sizes))})
        line[_size(row["gang_gpus"])] = row["slot_count"]
        if row["gang_gpus"] == 8:
            line["ratio"] = row["frag_ratio"]
    columns: dict[str, Any] = {name: texts(f"fragments.{name}") for name in ("pool", "level")}
    columns |= {name: hours_column(texts(f"fragments.{name}")) for name in ("free", "largest")}
    columns |= {_size(size): hours_column(f"\N{MULTIPLICATION SIGN} {size}") for size in sizes}
    columns["ratio"] = percent_column(texts("fragments.ratio"))
    show_table(list(lines.values()), columns, "placeable")
    at = f"{numbers.instant(view.moment, view.filters.timezone)} ({view.filters.timezone})"
    st.caption(texts.markdown("fragments.placeable_note", at=at))


def _size(gpus: int) -> str:
    return f"x{gpus}"
