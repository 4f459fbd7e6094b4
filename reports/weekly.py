"""The weekly report: where the hours went, for the fleet or for one tenant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gpuledger.model import Window
from gpuledger.ports import QueryRunner
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.charts import bars, series, waterfall
from gpuledger.presentation.findings import HOURS_OF
from gpuledger.presentation.states import STATE_ORDER
from gpuledger.presentation.summary import answer
from gpuledger.presentation.texts import Texts
from reports import figures, svg

_TENANT_HOURS = ("productive", "low", "ungraded", "idle", "stalled", "standby", "starting", "unknown")
_SHOWN_ROWS = 20
_CHART_PIXELS = 720


class WeeklyReport:
    """One HTML file with everything inside: styles, charts, definitions. Nothing is fetched when it is opened."""

    name = "weekly"

    def __init__(self) -> None:
        self._templates = Environment(
            loader=PackageLoader("reports"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )

    def render(
        self,
        client: QueryRunner,
        window: Window,
        tenant: str | None = None,
        timezone: str = "UTC",
        language: str = "en",
    ) -> str:
        """The report of `window` as HTML, for all tenants or for `tenant`, with times in IANA zone `timezone`.

        An empty ledger gives a valid report that says what is missing. The same figures give the same bytes.
        """
        texts = Texts(language)
        asked = figures.Asked(window=window, tenant=tenant or "", timezone=timezone, texts=texts)
        found = figures.collect(client, asked)
        subject = texts.tenant(tenant) if tenant else texts("word.fleet")
        return self._templates.get_template("weekly.html.j2").render(
            t=texts,
            language=language,
            title=texts("report.weekly_title", subject=subject),
            period=asked.period,
            timezone=timezone,
            is_fleet=not tenant,
            queries=", ".join(figures.QUERIES),
            definitions=[(texts(f"state.{state}"), texts(f"definition.{state}")) for state in STATE_ORDER],
            missing=_missing(found, asked),
            **_context(found, asked),
        )


def _missing(found: figures.Figures, asked: figures.Asked) -> list[str]:
    """Sentences that say what the report lacks; empty when it lacks nothing."""
    texts, extent = asked.texts, found.extent
    if not found.balance.is_empty:
        return []
    if not extent.get("gpu_count") or extent.get("from_at") is None:
        return [texts("report.missing_all"), texts("notice.empty_fleet")]
    covered = numbers.period(extent["from_at"], extent["to_at"], asked.timezone)
    lines = [texts("report.missing_extent", period=covered)]
    if asked.tenant:
        return [texts("report.missing_tenant", tenant=texts.tenant(asked.tenant), period=asked.period), *lines]
    return [texts("report.missing_ledger", period=asked.period), *lines]


def _context(found: figures.Figures, asked: figures.Asked) -> dict[str, Any]:
    texts, is_empty = asked.texts, found.balance.is_empty
    counted = [one for one in found.findings if one.category not in figures.ASIDE]
    aside = sorted((one for one in found.findings if one.category in figures.ASIDE), key=lambda one: -one.gpu_hours)
    low = [row for row in found.nodes if row["coverage_ratio"] is not None and row["coverage_ratio"] < 1]
    return {
        "sentence": "" if is_empty else answer(found.balance, texts, asked.period, asked.tenant),
        "extent": _extent(found, texts),
        "finality": "" if is_empty else _finality(found, asked),
        "coverage": _coverage(found, asked, len(low)),
        "charts": {} if is_empty else _charts(found, asked),
        "comparison": _comparison(found, asked),
        "tenants": _tenant_rows(found, texts),
        "rates": [] if asked.tenant else _rate_rows(found.rates, texts),
        "findings": counted[: figures.LARGEST_FINDINGS],
        "finding_count": len(counted),
        "sentences": [each.sentence(texts) for each in counted[: figures.LARGEST_FINDINGS]],
        "categories": _category_rows(found, texts),
        "amounts": {one.finding_id: _amount(found, "finding_id", one.finding_id) for one in counted}
        if found.money
        else {},
        "amount_basis": texts.code("price_basis", figures.PRICE_BASIS),
        "aside": [(each, each.sentence(texts)) for each in aside[: figures.LARGEST_FINDINGS]],
        "hours": lambda value: numbers.gpu_hours(value, texts.language),
        "percent": numbers.percent,
        "differences": _difference_rows(found.differences[:_SHOWN_ROWS], asked),
        "difference_count": len(found.differences),
        "nodes": _node_rows(low[:_SHOWN_ROWS], texts),
        "node_count": len(low),
    }


def _amount(found: figures.Figures, column: str, wanted: str) -> str:
    """What the findings whose `column` is `wanted` cost, by currency: two are never added."""
    shown = []
    for currency, rows in found.money.items():
        known = [row["amount"] for row in rows if row[column] == wanted and row["amount"] is not None]
        shown += [numbers.money(sum(known), currency)] if known else []
    return ", ".join(shown) or numbers.NO_VALUE


def _category_rows(found: figures.Figures, texts: Texts) -> list[list[str]]:
    return [
        [
            texts.code("category", row["category"]),
            numbers.count(row["finding_count"]),
            numbers.count(row["open_count"]),
            numbers.gpu_hours(row[HOURS_OF.get(row["category"], "gpu_hours_wasted")], texts.language),
            *([_amount(found, "category", row["category"])] if found.money else []),
        ]
        for row in found.categories
    ]


def _extent(found: figures.Figures, texts: Texts) -> str:
    extent = found.extent
    names = {"gpus": "gpu_count", "nodes": "node_count", "pools": "pool_count"}
    return texts("report.extent", **{name: numbers.count(extent.get(column) or 0) for name, column in names.items()})


def _finality(found: figures.Figures, asked: figures.Asked) -> str:
    provisional = found.balance.provisional_gpu_hours
    if provisional <= 0:
        return asked.texts("notice.final")
    until = f"{numbers.instant(found.extent.get('final_until_at'), asked.timezone)} {asked.timezone}"
    hours = numbers.gpu_hours(provisional, asked.texts.language)
    return asked.texts("notice.provisional", hours=hours, until=until)


def _coverage(found: figures.Figures, asked: figures.Asked, low_count: int) -> str:
    ratio = found.coverage_ratio
    if asked.tenant or ratio is None or ratio >= 1:
        return ""
    note = asked.texts("coverage.note", coverage=numbers.percent(ratio))
    counts = {"count": numbers.count(low_count), "total": numbers.count(len(found.nodes))}
    return f"{note} {asked.texts('coverage.nodes', **counts)}" if low_count else note


def _charts(found: figures.Figures, asked: figures.Asked) -> dict[str, Markup]:
    texts = asked.texts
    drawn = {"waterfall": waterfall.chart(found.balance, found.previous, texts)}
    if any(row["gpu_hours"] > 0 for row in found.days):
        buckets = series.Buckets(asked.window, "day", asked.timezone)
        drawn["series"] = series.chart(found.days, buckets, texts, height=220)
    if found.tenants and not asked.tenant:
        drawn["tenants"] = bars.tenants(found.tenants, texts)
    return {name: svg.draw(chart, name, _CHART_PIXELS) for name, chart in drawn.items()}


def _comparison(found: figures.Figures, asked: figures.Asked) -> str:
    if found.previous.is_empty:
        return asked.texts("hours.no_previous")
    before = asked.previous
    return asked.texts("hours.previous", period=numbers.period(before.from_at, before.to_at, asked.timezone))


def _tenant_rows(found: figures.Figures, texts: Texts) -> list[dict[str, Any]]:
    top = max((row["held_gpu_hours"] for row in found.tenants), default=0.0)
    return [
        {
            "tenant": texts.tenant(row["tenant"]),
            "held": numbers.amount(row["held_gpu_hours"]),
            "bar": round(100 * row["held_gpu_hours"] / top, 1) if top else 0,
            "hours": [numbers.amount(row[f"{name}_gpu_hours"]) for name in _TENANT_HOURS],
            "gpu_util": numbers.percent(row["gpu_util_ratio"]),
            "sm_active": numbers.percent(row["sm_active_ratio"]),
        }
        for row in found.tenants
    ]


def _rate_rows(rates: Iterable[Mapping[str, Any]], texts: Texts) -> list[dict[str, str]]:
    return [
        {
            "name": rate["name_zh"] if texts.language == "zh" else texts.code("rate_name", rate["name"]),
            "value": numbers.percent(rate["value"]),
            "numerator": numbers.amount(rate["numerator_gpu_hours"]),
            "denominator": numbers.amount(rate["denominator_gpu_hours"]),
            "formula": rate["formula"],
            "basis": rate["basis"],
        }
        for rate in rates
    ]


def _difference_rows(rows: Iterable[Mapping[str, Any]], asked: figures.Asked) -> list[list[str]]:
    return [
        [
            asked.texts.code("difference", row["kind"]),
            escaping.one_line(row["subject"]),
            escaping.one_line(row["node"]),
            numbers.count(row["gpu_count"]),
            numbers.instant(row["from_at"], asked.timezone),
            escaping.one_line(row["detail"]),
        ]
        for row in rows
    ]


def _node_rows(rows: Iterable[Mapping[str, Any]], texts: Texts) -> list[list[str]]:
    return [
        [
            escaping.one_line(row["node"]),
            numbers.percent(row["coverage_ratio"]),
            numbers.gpu_hours(row["unknown_gpu_hours"], texts.language),
        ]
        for row in rows
    ]
