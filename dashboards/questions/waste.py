"""What is wasted?"""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboards import notices
from dashboards.filters import start, to_url
from dashboards.view import View, bar_column, hours_column, paper, percent_column, queries_note, show_chart, show_table
from gpuledger.model import State
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.charts import bars
from gpuledger.presentation.findings import FindingView, ranked
from gpuledger.presentation.states import LOOKS


def show(view: View) -> None:
    """The page."""
    texts = view.texts
    st.title(texts("waste.title"))
    if not view.extent.get("gpu_count"):
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    causes = view.ask_period("findings_by_cause")
    rule, cause = _choose(view, causes)
    found = _found(view, rule, cause)
    if not found:
        st.markdown(f"##### {texts.markdown('waste.answer_none', period=view.period)}")
        notices.empty(texts, texts("finding.none"))
        return
    _answer(view, found)
    shown = [row for row in causes if rule in {"", row["analyzer"]} and cause in {"", row["cause_code"]}]
    if shown and not view.filters.tenant:
        st.subheader(texts("waste.by_cause"))
        show_chart(bars.causes(shown, texts, paper()), texts("waste.by_cause"))
    chosen = _table(view, found)
    _evidence(view, chosen)
    queries_note(view, "finding_list", "findings_by_cause")


def _pick(view: View, key: str, codes: list[str], family: str) -> str:
    wanted = start(key, "")
    options = ["", *sorted({*codes, wanted} - {""})]
    chosen = st.selectbox(
        view.texts(f"waste.{key}"),
        options,
        format_func=lambda code: view.texts.code(family, code) if code else view.texts(f"waste.all_{key}s"),
        key=key,
    )
    to_url(key, chosen)
    return chosen


def _choose(view: View, causes: list[dict[str, Any]]) -> tuple[str, str]:
    left, right, _ = st.columns([1, 1, 2])
    with left:
        rule = _pick(view, "rule", [row["analyzer"] for row in causes], "rule")
    with right:
        codes = [row["cause_code"] for row in causes if rule in {"", row["analyzer"]}]
        cause = _pick(view, "cause", codes, "cause")
    return rule, cause


def _found(view: View, rule: str, cause: str) -> list[FindingView]:
    window = view.filters.window
    rows = view.ask("finding_list", analyzer=rule, tenant=view.filters.tenant)
    touching = [row for row in rows if row["window_start"] < window.to_at and row["window_end"] > window.from_at]
    return ranked([row for row in touching if cause in {"", row["cause_code"]}], view.texts)


def _answer(view: View, found: list[FindingView]) -> None:
    texts = view.texts
    cards = [each for each in found if not each.is_claim]
    wasted = view.hours(sum(each.gpu_hours_wasted for each in cards))
    recoverable = view.hours(sum(each.gpu_hours_recoverable for each in cards))
    claimed = view.hours(sum(each.gpu_hours_wasted for each in found if each.is_claim))
    count = numbers.count(len(found))
    sentence = texts.markdown(
        "waste.answer",
        count=count,
        wasted=wasted,
        recoverable=recoverable,
        period=view.period,
        largest=found[0].sentence(texts),
    )
    st.markdown(f"##### {sentence}")
    figures = {"count": count, "wasted": wasted, "recoverable": recoverable, "claimed": claimed}
    for place, (key, value) in zip(st.columns(4), figures.items(), strict=True):
        place.metric(texts(f"waste.{key}"), value)
    st.caption(texts("waste.counted"))


def _table(view: View, found: list[FindingView]) -> FindingView:
    texts = view.texts
    st.subheader(texts("waste.ranked"))
    rows = [
        {
            "subject": each.subject,
            "rule": each.rule,
            "cause": each.cause,
            "tenant": each.tenant,
            "wasted": each.gpu_hours_wasted,
            "recoverable": each.gpu_hours_recoverable,
            "confidence": each.confidence,
            "period": numbers.period(each.from_at, each.to_at, view.filters.timezone),
        }
        for each in found
    ]
    unit = texts("word.gpu_hours")
    wasted = f"{texts('finding.wasted')}, {unit}"
    columns: dict[str, Any] = {
        "subject": texts("finding.subject"),
        "wasted": bar_column(wasted, found[0].gpu_hours_wasted, LOOKS[State.ALLOC_IDLE].colour),
        "recoverable": hours_column(f"{texts('finding.recoverable')}, {unit}"),
        "cause": texts("finding.cause"),
        "tenant": texts("finding.tenant"),
        "confidence": percent_column(texts("finding.confidence")),
        "rule": texts("finding.rule"),
        "period": texts("finding.period"),
    }
    event = show_table(rows, columns, "findings", on_select="rerun", selection_mode="single-row")
    selected = event.selection.rows
    return found[selected[0]] if selected and selected[0] < len(found) else found[0]


def _evidence(view: View, chosen: FindingView) -> None:
    texts = view.texts
    with st.container(border=True):
        st.markdown(f"**{escaping.markdown(chosen.sentence(texts))}**")
        facts = f"{texts('finding.tenant')}: {chosen.tenant} · {texts('finding.basis')}: {chosen.basis} · "
        facts += f"{texts('finding.confidence')}: {numbers.percent(chosen.confidence)}"
        st.caption(escaping.markdown(facts))
        if chosen.evidence:
            names = ("metric", "value", "threshold", "samples", "coverage", "query")
            rows = [
                dict(zip(names, (e.metric, e.value, e.threshold, e.sample_count, e.coverage, e.query), strict=True))
                for e in chosen.evidence
            ]
            show_table(rows, {name: texts(f"finding.{name}") for name in names}, "evidence")
        else:
            st.caption(texts("waste.no_evidence"))
        st.markdown(f"**{texts('finding.act')}**: {escaping.markdown(chosen.action)}")
        st.markdown(f"_{chosen.changes}_")
