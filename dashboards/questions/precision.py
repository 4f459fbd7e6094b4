"""How often each rule is right, and whether it may tell anybody: a part of the page of findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboards.view import View, percent_column, show_table
from gpuledger.presentation import numbers


def banner(view: View, told: Mapping[str, Any]) -> None:
    """That rules only record here, while owners have not judged enough of what they find."""
    silent = [row for row in told["strata"] if not row["may_notify"]]
    if told["notifications"] == "reviewed" and silent:
        counts = {"count": numbers.count(len(silent)), "total": numbers.count(len(told["strata"]))}
        least = {"least": numbers.percent(told["minimum_precision"]), "judged": numbers.count(told["minimum_judged"])}
        st.info(view.texts.markdown("precision.shadow", **counts, **least), icon=":material/visibility_off:")


def show(view: View, told: Mapping[str, Any]) -> None:
    """Precision by rule, kind of workload and vendor, from samples that were judged and from what owners said."""
    texts = view.texts
    st.subheader(texts("precision.title"))
    owners = {(row["rule"], row["kind"], row["vendor"]): row for row in told["owners"]}
    rows = []
    for row in told["strata"]:
        said = owners.get((row["rule"], row["kind"], row["vendor"]), {})
        rows.append(
            {
                "rule": texts.code("rule", row["rule"]),
                "kind": texts.code("kind", row["kind"]) if row["kind"] else numbers.NO_VALUE,
                "vendor": row["vendor"] or numbers.NO_VALUE,
                "found": row["finding_count"],
                "right": row["right_count"],
                "wrong": row["wrong_count"],
                "precision": row["precision"],
                "interval": _interval(row),
                "confirmed": said.get("confirmed_count"),
                "disputed": said.get("disputed_count"),
                "notifies": texts.code("silent", row["silent_because"] or "no"),
            }
        )
    if not rows:
        st.caption(texts("precision.none"))
        return
    counted = ("found", "right", "wrong", "confirmed", "disputed")
    columns: dict[str, Any] = {name: texts(f"precision.{name}") for name in ("rule", "kind", "vendor")}
    columns |= {name: st.column_config.NumberColumn(texts(f"precision.{name}"), format="localized") for name in counted}
    columns["precision"] = percent_column(texts("precision.precision"))
    columns |= {name: texts(f"precision.{name}") for name in ("interval", "notifies")}
    order = (
        "rule",
        "kind",
        "vendor",
        "found",
        "right",
        "wrong",
        "precision",
        "interval",
        "confirmed",
        "disputed",
        "notifies",
    )
    show_table(rows, {name: columns[name] for name in order}, "precision")
    st.caption(texts("precision.note"))


def _interval(row: Mapping[str, Any]) -> str:
    """The 95 % interval; none where nothing was judged."""
    if row["precision"] is None:
        return numbers.NO_VALUE
    return f"{numbers.percent(row['low'])} \N{EN DASH} {numbers.percent(row['high'])}"
