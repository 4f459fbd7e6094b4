"""What did the hours cost?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboards import notices
from dashboards.filters import start, to_url
from dashboards.view import View, hours_column, queries_note, show_table
from gpuledger.model.vocabulary import CONVERSION_BASES, PRICE_BASES
from gpuledger.presentation import escaping, numbers

DIMENSIONS = ("tenant", "model", "state", "pool", "kind")


def show(view: View) -> None:
    """The page."""
    texts = view.texts
    st.title(texts("money.title"))
    if not view.extent.get("gpu_count"):
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    asked = _choose(view)
    told = view.fetch_period("/v1/money", **asked)
    if not told["rows"]:
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    _answer(view, told)
    _rows(view, told)
    _units(view, told)
    _serving(view, told)
    _unpriced(view, told)
    queries_note(view, "GET /v1/money", "money_by", "converted_hours", "unit_cost", "serving_cost", "money_unpriced")


def _pick(view: View, key: str, options: tuple[str, ...] | list[str], family: str) -> str:
    start(key, options[0], options)
    chosen = st.selectbox(
        view.texts(f"money.{key}"), options, format_func=lambda code: view.texts.code(family, code), key=key
    )
    to_url(key, chosen, options[0])
    return chosen


def _choose(view: View) -> dict[str, str]:
    places = st.columns(4)
    with places[0]:
        asked = {"by": _pick(view, "by", DIMENSIONS, "dimension")}
    with places[1]:
        asked["price_basis"] = _pick(view, "price_basis", PRICE_BASES, "price_basis")
    with places[2]:
        asked["conversion_basis"] = _pick(view, "conversion_basis", CONVERSION_BASES, "conversion_basis")
    known = [row["currency"] for row in view.ask_period("money_currencies", price_basis=asked["price_basis"])]
    with places[3]:
        if known:
            asked["currency"] = _pick(view, "currency", known, "currency")
    return asked


def _answer(view: View, told: Mapping[str, Any]) -> None:
    texts, total, converted = view.texts, told["total"], told["converted"]
    figures = {
        "hours": view.hours(total["gpu_hours"]),
        "amount": numbers.money(total["amount"], told["currency"] or ""),
        "unpriced": view.hours(total["gpu_hours"] - total["priced_gpu_hours"]),
        "converted": view.hours(converted["converted_gpu_hours"]),
    }
    reference = escaping.one_line(converted["reference"])
    key = "money.answer" if told["currency"] else "money.answer_none"
    st.markdown(f"##### {texts.markdown(key, period=view.period, reference=reference, **figures)}")
    for place, (name, value) in zip(st.columns(4), figures.items(), strict=True):
        place.metric(texts(f"money.{name}"), value)
    basis = texts.code("price_basis", told["price_basis"])
    st.caption(texts.markdown("money.note", basis=basis, reference=reference))
    for row in told["book_problems"]:
        words = {"model": row["model"] or "*", "tenant": row["tenant"] or "*"}
        st.caption(":material/warning: " + texts.markdown(f"money.{row['problem']}", **words))


def _rows(view: View, told: Mapping[str, Any]) -> None:
    texts, by = view.texts, told["by"]
    converted = {(row["key"], row["state"]): row["converted_gpu_hours"] for row in told["converted"]["rows"]}
    lines: dict[str, dict[str, Any]] = {}
    for row in told["rows"]:
        line = lines.setdefault(
            row["key"],
            {"key": _key(view, by, row["key"]), "hours": 0.0, "amount": None, "priced": 0.0, "converted": None},
        )
        line["hours"] += row["gpu_hours"]
        line["priced"] += row["priced_gpu_hours"]
        for name, value in (("amount", row["amount"]), ("converted", converted.get((row["key"], row["state"])))):
            if value is not None:
                line[name] = (line[name] or 0.0) + value
    st.subheader(texts("money.by_dimension", dimension=texts.code("dimension", by)))
    columns: dict[str, Any] = {"key": texts.code("dimension", by)}
    columns |= {name: hours_column(texts(f"money.{name}")) for name in ("hours", "converted", "priced")}
    columns["amount"] = st.column_config.NumberColumn(told["currency"] or texts("money.amount"), format="localized")
    show_table(sorted(lines.values(), key=lambda line: -line["hours"]), columns, "money")


def _key(view: View, by: str, key: str) -> str:
    if by == "state":
        return view.texts(f"state.{key}")
    return view.texts.tenant(key) if by == "tenant" else escaping.one_line(key) or numbers.NO_VALUE


def _units(view: View, told: Mapping[str, Any]) -> None:
    texts, currency = view.texts, told["currency"] or ""
    st.subheader(texts("money.units"))
    if not told["unit_costs"]:
        st.caption(texts("money.units_none"))
        return
    lines = [
        {
            "model": escaping.one_line(row["model"]) or numbers.NO_VALUE,
            "steps": row["step_count"],
            "hours_per_step": _small(row["gpu_hours_per_step"]),
            "per_step": numbers.money(row["amount_per_step"], currency),
            "hours_per_tokens": _small(row["gpu_hours_per_1000_tokens"]),
            "per_tokens": _small(row["amount_per_1000_tokens"]),
        }
        for row in told["unit_costs"]
    ]
    show_table(lines, {name: texts(f"money.{name}", currency=currency) for name in lines[0]}, "units")
    st.caption(texts("money.units_note"))


def _serving(view: View, told: Mapping[str, Any]) -> None:
    """What services gave, where they tell it."""
    texts, currency = view.texts, told["currency"] or ""
    if not told["serving_costs"]:
        return
    st.subheader(texts("money.serving"))
    lines = [
        {
            "model": escaping.one_line(row["model"]) or numbers.NO_VALUE,
            "requests": row["request_count"],
            "per_requests": _small(row["amount_per_1000_requests"]),
            "generated": row["generation_token_count"],
            "hours_per_tokens": _small(row["gpu_hours_per_1000_tokens"]),
            "per_tokens": _small(row["amount_per_1000_tokens"]),
        }
        for row in told["serving_costs"]
    ]
    show_table(lines, {name: texts(f"money.{name}", currency=currency) for name in lines[0]}, "serving")
    st.caption(texts("money.serving_note"))


def _small(value: float | None) -> str:
    """A cost of very little: three digits that say something."""
    return numbers.NO_VALUE if value is None else f"{value:,.3g}"


def _unpriced(view: View, told: Mapping[str, Any]) -> None:
    texts = view.texts
    if not told["unpriced"] or not told["currency"]:
        return
    st.subheader(texts("money.unpriced_title"))
    lines = [
        {
            "model": escaping.one_line(row["model"]) or numbers.NO_VALUE,
            "tenant": texts.tenant(row["tenant"]),
            "reason": texts.code("unpriced", row["reason"]),
            "hours": row["gpu_hours"],
        }
        for row in told["unpriced"]
    ]
    columns: dict[str, Any] = {name: texts(f"money.{name}") for name in ("model", "tenant", "reason")}
    columns["hours"] = hours_column(texts("money.hours"))
    show_table(lines, columns, "unpriced")
