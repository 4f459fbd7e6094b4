"""What broke, and what did it cost?"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import streamlit as st

from dashboards import notices
from dashboards.questions import network, services
from dashboards.view import View, bar_column, hours_column, percent_column, queries_note, show_table
from gpuledger.model import State
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.findings import FindingView, ranked
from gpuledger.presentation.states import LOOKS

FAULTS, NODES, SLOW = "hardware_fault", ("lemon_node", "flapping_node"), "throttling"


def show(view: View) -> None:
    """The page."""
    texts = view.texts
    st.title(texts("health.title"))
    if not view.extent.get("gpu_count"):
        notices.empty_period(texts, view.extent, view.filters.timezone)
        return
    rows = _findings(view)
    found = ranked(rows, texts)
    recorded = view.ask_period("fault_list")
    _answer(view, found, recorded)
    _faults(view, [row for row in rows if row["analyzer"] == FAULTS])
    _nodes(view, [each for each in found if each.analyzer in NODES])
    _slow(view, [each for each in found if each.analyzer == SLOW])
    _goodput(view)
    network.show(view)
    services.show(view)
    _recorded(view, recorded)
    queries_note(view, "GET /v1/findings", "GET /v1/health-figures", "fault_list", *network.QUERIES, *services.QUERIES)


def _findings(view: View) -> list[dict[str, Any]]:
    """The stored findings of health that touch the period, of the chosen tenant where they name one."""
    window, tenant = view.filters.window, view.filters.tenant
    rows = []
    for row in view.fetch("/v1/findings", category="health")["findings"]:
        span = {name: _instant(row[name]) for name in ("window_start", "window_end")}
        touches = span["window_start"] < window.to_at and span["window_end"] >= window.from_at
        if touches and tenant in {"", row["tenant"]}:
            rows.append({**row, **span})
    return rows


def _instant(value: str | datetime) -> datetime:
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def _answer(view: View, found: list[FindingView], recorded: list[dict[str, Any]]) -> None:
    texts = view.texts
    figures = {
        "recorded": numbers.count(len(recorded)),
        "faults": numbers.count(sum(each.analyzer == FAULTS for each in found)),
        "nodes": numbers.count(sum(each.analyzer in NODES for each in found)),
        "lost": view.hours(sum(each.gpu_hours for each in found)),
    }
    key = "health.answer" if found else "health.answer_none"
    st.markdown(f"##### {texts.markdown(key, period=view.period, **figures)}")
    for place, (name, value) in zip(st.columns(4), figures.items(), strict=True):
        place.metric(texts(f"health.{name}"), value)
    st.caption(texts("health.lost_note"))


def _faults(view: View, rows: list[dict[str, Any]]) -> None:
    texts, zone = view.texts, view.filters.timezone
    st.subheader(texts("health.faults_title"))
    if not rows:
        st.caption(texts("health.faults_none"))
        return
    lines = []
    for row in sorted(rows, key=lambda row: row["window_start"], reverse=True):
        what = row["action_params"]
        jobs = what.get("jobs") or []
        lines.append(
            {
                "at": numbers.instant(row["window_start"], zone),
                "subject": escaping.one_line(row["subject_id"]),
                "node": escaping.one_line(what.get("node") or numbers.NO_VALUE),
                "cause": texts.code("cause", row["cause_code"]),
                "severity": texts.code("severity", row["severity"]),
                "jobs": escaping.one_line(", ".join(job["workload_id"] for job in jobs)) or numbers.NO_VALUE,
                "gang_gpus": sum(job["gang_gpus"] or 0.0 for job in jobs) if jobs else None,
                "lost": row["gpu_hours_lost"],
                "action": texts.code("action", row["action_code"]),
                "status": texts.code("status", row["status"]),
            }
        )
    top = max(line["lost"] for line in lines)
    columns: dict[str, Any] = {"at": f"{texts('health.at')} ({zone})"}
    columns |= {name: texts(f"health.{name}") for name in ("subject", "cause", "severity", "jobs")}
    columns["gang_gpus"] = hours_column(texts("health.gang_gpus"))
    columns["lost"] = bar_column(texts("health.lost"), top, LOOKS[State.UNAVAILABLE].colour)
    columns |= {name: texts(f"health.{name}") for name in ("action", "node", "status")}
    show_table(lines, columns, "faults")


def _nodes(view: View, found: list[FindingView]) -> None:
    texts = view.texts
    st.subheader(texts("health.nodes_title"))
    if not found:
        st.caption(texts("health.nodes_none"))
        return
    lines = [
        {
            "subject": each.subject,
            "rule": each.rule,
            "cause": each.cause,
            "evidence": "; ".join(f"{fact.metric} {fact.value} ({fact.threshold})" for fact in each.evidence),
            "lost": each.gpu_hours,
            "confidence": each.confidence,
            "action": each.action,
        }
        for each in found
    ]
    columns: dict[str, Any] = {"subject": texts("finding.subject"), "rule": texts("finding.rule")}
    columns |= {"cause": texts("finding.cause"), "evidence": texts("health.evidence")}
    columns |= {"lost": hours_column(texts("health.lost")), "confidence": percent_column(texts("finding.confidence"))}
    columns["action"] = texts("health.action")
    show_table(lines, columns, "nodes")
    st.caption(texts("health.nodes_note"))


def _slow(view: View, found: list[FindingView]) -> None:
    texts = view.texts
    st.subheader(texts("health.slow_title"))
    if not found:
        st.caption(texts("health.slow_none"))
        return
    lines = [
        {
            "subject": each.subject,
            "tenant": each.tenant,
            "cause": each.cause,
            "lost": each.gpu_hours,
            "period": numbers.period(each.from_at, each.to_at, view.filters.timezone),
        }
        for each in found
    ]
    columns: dict[str, Any] = {name: texts(f"finding.{name}") for name in ("subject", "tenant", "cause", "period")}
    columns["lost"] = hours_column(texts("health.lost"))
    show_table(lines, columns, "slow")


def _goodput(view: View) -> None:
    """ETTR as it was and as a model expects it, and the mean time to failure: each says which it is."""
    texts = view.texts
    st.subheader(texts("health.goodput_title"))
    told = view.fetch_period("/v1/health-figures")
    mttf, ettr = told["mttf"], told["ettr"]["observed"]
    figures = {
        "rate": _per_1000(mttf),
        "ettr_observed": numbers.percent(ettr["ratio"]),
        "ettr_without_queue": numbers.percent(ettr["ratio_without_queue"]),
        "goodput": numbers.percent(told["goodput"]["ratio"]),
    }
    for place, (name, value) in zip(st.columns(4), figures.items(), strict=True):
        place.metric(texts(f"health.{name}"), value)
    counts = {
        "failures": numbers.count(mttf["failure_count"]),
        "days": numbers.amount(mttf["node_days"]),
        "runs": numbers.count(ettr["run_count"]),
        "low": numbers.percent(ettr["low"]),
        "high": numbers.percent(ettr["high"]),
    }
    st.caption(texts.markdown("health.observed_note", **counts))
    _modelled(view, mttf["modelled"], told["ettr"])


def _per_1000(mttf: Mapping[str, Any]) -> str:
    """Failures in 1,000 node-days with their 95 % interval."""
    if mttf["failures_per_1000_node_days"] is None:
        return numbers.NO_VALUE
    ends = (mttf["low_per_1000_node_days"], mttf["high_per_1000_node_days"])
    low, high = (numbers.amount(value) for value in ends)
    return f"{numbers.amount(mttf['failures_per_1000_node_days'])} ({low} \N{EN DASH} {high})"


def _modelled(view: View, times: list[dict[str, Any]], ettr: Mapping[str, Any]) -> None:
    """What a model makes of the observed rate, for gangs of several sizes."""
    texts, language = view.texts, view.texts.language
    expected = {row["gpu_count"]: row for row in ettr["expected"]}
    if not times:
        st.caption(texts("health.modelled_none"))
        return
    lines = []
    for row in times:
        model = expected.get(row["gpu_count"], {})
        low, high = (numbers.duration(row[name], language) for name in ("low_hours", "high_hours"))
        note = "no_progress" if model.get("no_progress") else "valid" if model.get("is_valid", True) else "rough"
        lines.append(
            {
                "gpus": row["gpu_count"],
                "mttf": numbers.duration(row["hours"], language),
                "interval": f"{low} \N{EN DASH} {high}",
                "ettr": model.get("ratio"),
                "model_note": texts(f"health.{note}"),
            }
        )
    columns: dict[str, Any] = {"gpus": hours_column(texts("health.gpus"))}
    columns |= {name: texts(f"health.{name}") for name in ("mttf", "interval")}
    columns |= {"ettr": percent_column(texts("health.ettr_expected")), "model_note": texts("health.model_note")}
    show_table(lines, columns, "modelled")
    assumed = ettr["inputs"]["is_checkpoint_interval_assumed"]
    st.caption(texts("health.modelled_assumed" if assumed else "health.modelled_note"))


def _recorded(view: View, rows: list[dict[str, Any]]) -> None:
    texts, zone = view.texts, view.filters.timezone
    if not rows:
        return
    with st.expander(texts("health.recorded_title")):
        lines = [
            {
                "at": numbers.instant(row["ts"], zone),
                "node": escaping.one_line(row["node"]),
                "gpu": escaping.one_line(row["gpu_uuid"]) or numbers.NO_VALUE,
                "kind": texts.code("fault_kind", row["kind"]),
                "code": escaping.one_line(row["code"]) or numbers.NO_VALUE,
                "events": row["event_count"],
                "sources": escaping.one_line(", ".join(row["sources"] or [])),
                "detail": escaping.one_line(row["detail"] or numbers.NO_VALUE),
            }
            for row in reversed(rows)
        ]
        columns: dict[str, Any] = {"at": f"{texts('health.at')} ({zone})"}
        columns |= {
            name: texts(f"health.{name}") for name in ("node", "gpu", "kind", "code", "events", "sources", "detail")
        }
        show_table(lines, columns, "recorded")
