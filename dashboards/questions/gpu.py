"""What did this GPU do?"""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboards import notices
from dashboards.filters import start, to_url
from dashboards.view import View, paper, percent_column, queries_note, show_chart, show_table
from gpuledger.model import State
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.charts import MAX_POINTS, bars, timeline
from gpuledger.presentation.spans import joined, shares

_LISTED = 200
_BUCKETS = 600


def show(view: View) -> None:
    """The page."""
    st.title(view.texts("gpu.title"))
    if not view.extent.get("gpu_count"):
        notices.empty_period(view.texts, view.extent, view.filters.timezone)
        return
    card = _choose(view)
    if card is None:
        return
    spans = joined(view.ask_period("gpu_timeline", gpu_uuid=card["gpu_uuid"]))
    if not spans:
        notices.empty_period(view.texts, view.extent, view.filters.timezone)
        return
    parts = shares(spans, view.filters.window)
    _answer(view, card, parts)
    _card(view, card)
    _timeline(view, card["gpu_uuid"], spans)
    st.subheader(view.texts("gpu.share_title"))
    show_chart(bars.state_shares(parts, view.texts, paper()), view.texts("gpu.share_title"))
    _spans(view, spans)
    queries_note(view, "gpu_list", "gpu_timeline", "gpu_readings")


def _choose(view: View) -> dict[str, Any] | None:
    texts = view.texts
    left, right = st.columns(2)
    start("gpu_search", "", parameter="q")
    text = left.text_input(texts("gpu.search"), help=texts("gpu.search_help", limit=_LISTED), key="gpu_search")
    to_url("q", text)
    cards = {row["gpu_uuid"]: row for row in view.ask("gpu_list", text=text.strip(), limit_count=_LISTED)}
    if not cards:
        notices.empty(texts, texts.markdown("gpu.not_found", text=text))
        return None
    names = list(cards)
    start("gpu_choice", names[0], cards, parameter="gpu")

    def label(uuid: str) -> str:
        row = cards[uuid]
        slot = "" if row["slot"] is None else f" · {texts('gpu.slot')} {row['slot']}"
        return escaping.one_line(f"{row['node']}{slot} · {uuid}")

    chosen = right.selectbox(texts("gpu.choose"), names, format_func=label, key="gpu_choice")
    to_url("gpu", chosen)
    return cards[chosen]


def _answer(view: View, card: dict[str, Any], parts: dict[State, float]) -> None:
    texts = view.texts
    largest = max(parts, key=lambda state: parts[state])
    sentence = texts.markdown(
        "gpu.answer",
        gpu=card["gpu_uuid"],
        model=card["model"] or numbers.NO_VALUE,
        node=card["node"],
        slot=numbers.count(card["slot"]),
        largest=texts(f"state.{largest}"),
        share=numbers.percent(parts[largest]),
        period=view.period,
    )
    st.markdown(f"##### {sentence}")


def _card(view: View, card: dict[str, Any]) -> None:
    names = ("model", "node", "slot", "pool", "origin")
    for place, name in zip(st.columns(len(names)), names, strict=True):
        value = card[name]
        shown = numbers.NO_VALUE if value in {None, ""} else escaping.one_line(value)
        place.caption(view.texts(f"gpu.{name}"))
        place.text(shown)


def _timeline(view: View, gpu_uuid: str, spans: list[dict[str, Any]]) -> None:
    texts, window = view.texts, view.filters.window
    bucket_seconds = max(60, round(window.hours * 3600 / _BUCKETS / 60) * 60)
    shared = timeline.Frame(window, view.filters.timezone, texts, paper())
    readings = view.ask_period("gpu_readings", gpu_uuid=gpu_uuid, bucket_seconds=bucket_seconds)
    st.subheader(texts("gpu.timeline"))
    pieces = timeline.stacked(spans)
    panels = []
    if len(pieces) <= MAX_POINTS:
        panels.append((timeline.states(pieces, shared), texts("gpu.states")))
    else:
        notices.partial(texts, texts("gpu.too_many"))
    if readings:
        panels.append((timeline.activity(readings, shared, bucket_seconds), texts("gpu.util")))
        panels.append((timeline.power(readings, shared, bucket_seconds), texts("gpu.power")))
    for panel, meaning in panels:
        show_chart(panel, meaning)
    if not readings:
        notices.partial(texts, texts("gpu.no_readings"))


def _spans(view: View, spans: list[dict[str, Any]]) -> None:
    texts, zone = view.texts, view.filters.timezone
    rows = [
        {
            **span,
            "from": numbers.instant(span["from_at"], zone),
            "until": numbers.instant(span["until_at"], zone),
            "state": texts(f"state.{State(span['state'])}"),
            "tenant": escaping.one_line(span["tenant"] or numbers.NO_VALUE),
            "workload": escaping.one_line(span["workload_id"] or numbers.NO_VALUE),
            "cause": texts.code("cause", span["cause"]) if span["cause"] else numbers.NO_VALUE,
        }
        for span in spans
    ]
    columns: dict[str, Any] = {
        "from": f"{texts('gpu.from')} ({zone})",
        "until": texts("gpu.until"),
        "state": texts("word.state"),
        "tenant": texts("finding.tenant"),
        "workload": texts("gpu.workload"),
        "share": percent_column(texts("word.share")),
        "cause": texts("finding.cause"),
        "basis": texts("finding.basis"),
        "slice_id": texts("gpu.slice"),
    }
    st.subheader(texts("gpu.spans"))
    show_table(rows, columns, "spans")
