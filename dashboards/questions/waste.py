"""What was found, is it right, and what does it cost?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import streamlit as st

from dashboards import notices
from dashboards.filters import start, to_url
from dashboards.questions import precision
from dashboards.view import View, bar_column, hours_column, paper, percent_column, queries_note, show_chart, show_table
from gpuledger.model import State
from gpuledger.model.vocabulary import FINDING_CATEGORIES, FINDING_STATUSES
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.charts import bars
from gpuledger.presentation.findings import FindingView, ranked
from gpuledger.presentation.states import LOOKS

BASIS = "amortised"


def show(view: View) -> None:
    """The page."""
    texts = view.texts
    st.title(texts("waste.title"))
    if not view.extent.get("gpu_count"):
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    told = view.fetch("/v1/precision")
    precision.banner(view, told)
    rows = _touching(view)
    chosen = _choose(view, rows)
    found = ranked([row for row in rows if _matches(row, chosen)], texts)
    if found:
        _findings(view, found, chosen)
    else:
        st.markdown(f"##### {texts.markdown('waste.answer_none', period=view.period)}")
        notices.empty(texts, texts("finding.none"))
    precision.show(view, told)
    queries_note(view, "GET /v1/findings", "GET /v1/precision", "findings_by_cause", "money_by_finding")


def _findings(view: View, found: list[FindingView], chosen: Mapping[str, str]) -> None:
    texts = view.texts
    amounts, currency = _amounts(view)
    _answer(view, found, chosen["category"], (amounts, currency))
    causes = view.ask_period("findings_by_cause") if chosen["category"] == "waste" else []
    shown = [
        row
        for row in causes
        if row["gpu_hours_wasted"] > 0
        and chosen["rule"] in {"", row["analyzer"]}
        and chosen["cause"] in {"", row["cause_code"]}
    ]
    if shown and not view.filters.tenant and not chosen["status"]:
        st.subheader(texts("waste.by_cause"))
        show_chart(bars.causes(shown, texts, paper()), texts("waste.by_cause"))
    _evidence(view, _table(view, found, amounts, currency))


def _touching(view: View) -> list[dict[str, Any]]:
    """The stored findings that touch the period, of the chosen tenant."""
    window, tenant = view.filters.window, view.filters.tenant
    rows = []
    for row in view.fetch("/v1/findings")["findings"]:
        span = {name: _instant(row[name]) for name in ("window_start", "window_end")}
        if (
            span["window_start"] < window.to_at
            and span["window_end"] > window.from_at
            and tenant in {"", row["tenant"]}
        ):
            rows.append({**row, **span})
    return rows


def _instant(value: str | datetime) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _matches(row: Mapping[str, Any], chosen: Mapping[str, str]) -> bool:
    own = {"category": row["category"], "rule": row["analyzer"], "cause": row["cause_code"], "status": row["status"]}
    return all(value in {"", own[name]} for name, value in chosen.items())


def _pick(view: View, key: str, codes: list[str], family: str, default: str = "") -> str:
    wanted = start(key, default)
    options = ["", *sorted({*codes, wanted} - {""})]
    chosen = st.selectbox(
        view.texts(f"waste.{key}"),
        options,
        format_func=lambda code: view.texts.code(family, code) if code else view.texts(f"waste.all_{key}"),
        key=key,
    )
    to_url(key, chosen, default)
    return chosen


def _choose(view: View, rows: list[dict[str, Any]]) -> dict[str, str]:
    places = st.columns(4)
    with places[0]:
        category = _pick(view, "category", list(FINDING_CATEGORIES), "category", "waste")
    of_category = [row for row in rows if category in {"", row["category"]}]
    with places[1]:
        rule = _pick(view, "rule", [row["analyzer"] for row in of_category], "rule")
    with places[2]:
        cause = _pick(view, "cause", [r["cause_code"] for r in of_category if rule in {"", r["analyzer"]}], "cause")
    with places[3]:
        status = _pick(view, "status", list(FINDING_STATUSES), "status")
    return {"category": category, "rule": rule, "cause": cause, "status": status}


def _amounts(view: View) -> tuple[dict[str, float | None], str]:
    """What each finding costs, in the currency that the reader chose; nothing where there is no price book."""
    known = [row["currency"] for row in view.ask_period("money_currencies", price_basis=BASIS)]
    if not known:
        return {}, ""
    currency = known[0]
    if len(known) > 1:
        start("currency", known[0], known)
        currency = st.segmented_control(view.texts("money.currency"), known, key="currency") or known[0]
        to_url("currency", currency, known[0])
    rows = view.ask_period("money_by_finding", price_basis=BASIS, currency=currency)
    return {row["finding_id"]: row["amount"] for row in rows}, currency


def _answer(view: View, found: list[FindingView], category: str, money: tuple[Mapping[str, float | None], str]) -> None:
    texts, (amounts, currency) = view.texts, money
    cards = [each for each in found if not each.is_claim and each.category == "waste"]
    about = [each for each in found if each.category != "waste"]
    count = numbers.count(len(found))
    figures = {"count": count}
    if category in {"", "waste"}:
        figures["wasted"] = view.hours(sum(each.gpu_hours_wasted for each in cards))
        figures["recoverable"] = view.hours(sum(each.gpu_hours_recoverable for each in cards))
    if category in {"", "quota"}:
        figures["claimed"] = view.hours(sum(each.gpu_hours for each in found if each.is_claim))
    for name in ("advice", "health"):
        if category in {"", name}:
            figures[name] = view.hours(sum(each.gpu_hours for each in about if each.category == name))
    known = [amounts[each.finding_id] for each in found if amounts.get(each.finding_id) is not None]
    if currency and category in {"waste", "advice"}:
        figures["amount"] = numbers.money(sum(value or 0.0 for value in known) if known else None, currency)
    kind = category if category in {"waste", "advice", "health"} else "any"
    largest = found[0].sentence(texts)
    st.markdown(f"##### {texts.markdown(f'waste.answer_{kind}', period=view.period, largest=largest, **_all(figures))}")
    for place, (key, value) in zip(st.columns(len(figures)), figures.items(), strict=True):
        place.metric(texts(f"waste.{key}"), value)
    st.caption(texts("waste.counted"))
    if currency:
        st.caption(texts.markdown("waste.amount_note", currency=currency, basis=texts.code("price_basis", BASIS)))


def _all(figures: Mapping[str, str]) -> dict[str, str]:
    names = ("count", "wasted", "recoverable", "advice", "health")
    return {name: figures.get(name, numbers.NO_VALUE) for name in names}


def _table(view: View, found: list[FindingView], amounts: Mapping[str, float | None], currency: str) -> FindingView:
    texts = view.texts
    st.subheader(texts("waste.ranked"))
    rows = [
        {
            "subject": each.subject,
            "rule": each.rule,
            "cause": each.cause,
            "tenant": each.tenant,
            "owner": each.owner or numbers.NO_VALUE,
            "status": texts.code("status", each.status),
            "hours": each.gpu_hours,
            "recoverable": each.gpu_hours_recoverable,
            "amount": amounts.get(each.finding_id),
            "confidence": each.confidence,
            "period": numbers.period(each.from_at, each.to_at, view.filters.timezone),
        }
        for each in found
    ]
    unit = texts("word.gpu_hours")
    colour = LOOKS[State.ALLOC_IDLE].colour
    columns: dict[str, Any] = {
        "subject": texts("finding.subject"),
        "hours": bar_column(unit, max(each.gpu_hours for each in found), colour),
        "recoverable": hours_column(f"{texts('finding.recoverable')}, {unit}"),
        "amount": st.column_config.NumberColumn(currency, format="localized"),
        "cause": texts("finding.cause"),
        "status": texts("waste.status"),
        "tenant": texts("finding.tenant"),
        "owner": texts("waste.owner"),
        "confidence": percent_column(texts("finding.confidence")),
        "rule": texts("finding.rule"),
        "period": texts("finding.period"),
    }
    if not currency:
        del columns["amount"]
    event = show_table(rows, columns, "findings", on_select="rerun", selection_mode="single-row")
    selected = event.selection.rows
    return found[selected[0]] if selected and selected[0] < len(found) else found[0]


def _evidence(view: View, chosen: FindingView) -> None:
    texts = view.texts
    with st.container(border=True):
        st.markdown(f"**{escaping.markdown(chosen.sentence(texts))}**")
        facts = f"{texts('finding.tenant')}: {chosen.tenant} · {texts('finding.basis')}: {chosen.basis} · "
        facts += f"{texts('finding.confidence')}: {numbers.percent(chosen.confidence)}{_parts(view, chosen)}"
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
        st.caption(texts("waste.explain"))
        st.code(f"gpuledger explain {chosen.finding_id}", language=None)


def _parts(view: View, chosen: FindingView) -> str:
    """The factors that the confidence is made of."""
    parts = [f"{view.texts.code('confidence', name)} {part:.2f}" for name, part in chosen.confidence_parts.items()]
    return " = " + " \N{MULTIPLICATION SIGN} ".join(parts) if parts else ""
