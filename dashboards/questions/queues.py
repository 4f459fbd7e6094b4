"""Who waits for what?"""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboards import notices
from dashboards.view import View, hours_column, paper, queries_note, show_chart, show_table
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.charts import bars

_AMOUNTS = {"used": "running_gpus", "borrowed": "borrowed_gpus", "lent": "lent_gpus", "pending": "pending_gpus"}

_WIDTH = 105
"""Of a column that may have to say that a number was not reported."""


def show(view: View) -> None:
    """The page."""
    texts, tenant = view.texts, view.filters.tenant
    st.title(texts("queues.title"))
    queues, waits = view.ask("queue_usage", at=view.moment), _told_waits(view)
    if not queues and not waits:
        if view.extent.get("gpu_count"):
            _nothing(texts("queues.empty"))
        else:
            notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    queues = [row for row in queues if tenant in {"", row["tenant"]}]
    waits = [row for row in waits if tenant in {"", row["tenant"]}]
    if not queues and not waits:
        notices.empty(texts, texts.markdown("notice.empty_filter", tenant=tenant))
        return
    _answer(view, queues, waits)
    _usage(view, queues)
    _waits(view, waits)
    queries_note(view, "queue_usage", "waits")


def _told_waits(view: View) -> list[dict[str, Any]]:
    """Up to what is known: a wait that has not ended would go on to the end of the day."""
    begin = view.filters.window.from_at
    return view.ask("waits", from_at=begin, to_at=view.moment) if begin < view.moment else []


def _nothing(body: str) -> None:
    """That the schedulers said nothing: the ledger may be full all the same."""
    st.info(body, icon=":material/inbox:")


def _gpu_hours(rows: list[dict[str, Any]]) -> float | None:
    """Their sum; none where nobody told how many GPUs waited."""
    known = [row["gpu_hours"] for row in rows if row["gpu_hours"] is not None]
    return sum(known) if known else None


def _answer(view: View, queues: list[dict[str, Any]], waits: list[dict[str, Any]]) -> None:
    texts = view.texts
    short = [row for row in waits if row["is_bottleneck"]]
    figures = {
        "count": numbers.count(len(queues)),
        "waited": view.hours(_gpu_hours(waits)),
        "short": view.hours(_gpu_hours(short) if short or not waits else 0.0),
        "open": numbers.count(sum(row["open_count"] for row in waits) if waits else None),
    }
    if waits:
        largest = texts.code("wait_cause", waits[0]["cause"])
        where = escaping.one_line(waits[0]["queue"]) or texts("queues.no_queue")
        sentence = texts.markdown("queues.answer", period=view.period, largest=largest, queue=where, **figures)
    else:
        sentence = texts.markdown("queues.answer_none", period=view.period, count=figures["count"])
    st.markdown(f"##### {sentence}")
    for place, (name, value) in zip(st.columns(len(figures)), figures.items(), strict=True):
        place.metric(texts(f"queues.{name}"), value)


def _usage(view: View, rows: list[dict[str, Any]]) -> None:
    texts, zone = view.texts, view.filters.timezone
    st.subheader(texts("queues.usage"))
    if not rows:
        _nothing(texts("queues.none_of_tenant" if view.filters.tenant else "queues.empty"))
        return
    lines = [
        {
            "queue": escaping.one_line(row["queue"]),
            "parent": escaping.one_line(row["parent"] or numbers.NO_VALUE),
            "tenant": texts.tenant(row["tenant"] or ""),
            "nominal": _limit(view, row, "nominal"),
            "limit": _limit(view, row, "limit"),
            **{name: row[column] for name, column in _AMOUNTS.items()},
            "status": texts.code("queue_status", row["status"]),
            "scheduler": escaping.one_line(row["scheduler"]),
            "told": texts("queues.not_reported") if row["state_at"] is None else numbers.instant(row["state_at"], zone),
        }
        for row in rows
    ]
    columns: dict[str, Any] = {name: texts(f"queues.{name}") for name in ("queue", "tenant", "nominal", "limit")}
    for name in _AMOUNTS:
        columns[name] = st.column_config.NumberColumn(texts(f"queues.{name}"), format="localized", width=_WIDTH)
    columns |= {name: texts(f"queues.{name}") for name in ("status", "parent", "scheduler")}
    columns["told"] = f"{texts('queues.told')} ({zone})"
    show_table(lines, columns, "queues", placeholder=texts("queues.not_reported"))
    st.caption(texts("queues.usage_note"))


def _limit(view: View, row: dict[str, Any], name: str) -> str:
    """A limit as text: of a limit that is no number the query says what that means."""
    return (
        numbers.count(row[f"{name}_gpus"]) if row[f"{name}_is"] == "set" else view.texts(f"queues.{row[f'{name}_is']}")
    )


def _waits(view: View, rows: list[dict[str, Any]]) -> None:
    texts = view.texts
    st.subheader(texts("queues.waits"))
    if not rows:
        _nothing(texts("queues.waits_none"))
        return
    if _gpu_hours(rows):
        show_chart(bars.waits(rows, texts, paper()), texts("queues.waits"))
    lines = [
        {
            "cause": texts.code("wait_cause", row["cause"]),
            "blame": texts.code("blame", row["blame"] or "nobody"),
            "queue": escaping.one_line(row["queue"]) or texts("queues.no_queue"),
            "tenant": texts.tenant(row["tenant"]),
            "workloads": row["workload_count"],
            "open_now": row["open_count"],
            "gpu_hours": row["gpu_hours"],
            "mean": numbers.duration(row["mean_wait_hours"], texts.language),
            "reasons": escaping.one_line(", ".join(row["reasons"] or [])) or numbers.NO_VALUE,
        }
        for row in rows
    ]
    columns: dict[str, Any] = {name: texts(f"queues.{name}") for name in ("cause", "blame", "queue", "tenant")}
    for name in ("workloads", "open_now"):
        columns[name] = st.column_config.NumberColumn(texts(f"queues.{name}"), format="localized")
    columns["gpu_hours"] = hours_column(texts("queues.gpu_hours"))
    columns["mean"] = texts("queues.mean")
    columns["reasons"] = st.column_config.TextColumn(texts("queues.reasons"), width="large")
    show_table(lines, columns, "waits", placeholder=texts("queues.not_reported"))
    st.caption(texts("queues.waits_note"))
