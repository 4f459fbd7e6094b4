"""Period, zone, tenant and language: held in the URL, the same on every page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

import streamlit as st

from gpuledger.model import Window
from gpuledger.presentation.texts import LANGUAGES, Texts

PERIODS = {"24h": "filter.last_day", "7d": "filter.last_week", "30d": "filter.last_month", "days": "filter.chosen"}
_LENGTHS = {"24h": timedelta(hours=24), "7d": timedelta(days=7), "30d": timedelta(days=30)}
_DEFAULT_PERIOD = "7d"


@dataclass(frozen=True, slots=True)
class Filters:
    """What the reader chose. `window` is in UTC; `tenant` is empty for all."""

    window: Window
    timezone: str
    tenant: str

    @property
    def previous(self) -> Window:
        """The period of the same length just before."""
        return Window(self.window.from_at - (self.window.to_at - self.window.from_at), self.window.from_at)

    @property
    def bounds(self) -> dict[str, datetime]:
        """The window as the parameters that every query of a period takes."""
        return {"from_at": self.window.from_at, "to_at": self.window.to_at}


def start(key: str, default: str, known: Collection[str] | None = None, *, parameter: str = "") -> str:
    """Give the widget `key` its value: the reader's last choice, else the URL's `parameter`, else `default`.

    The choice is written back before the widget is drawn, which keeps it when the page or the language changes.
    """
    value: str = st.session_state.get(key, st.query_params.get(parameter or key, default))
    if known is not None and value not in known:
        value = default
    st.session_state[key] = value
    return value


def to_url(key: str, value: str, default: str = "") -> None:
    """Put `value` in the URL; a default is left out, so that links stay short."""
    if value != default:
        if st.query_params.get(key) != value:
            st.query_params[key] = value
    elif key in st.query_params:
        del st.query_params[key]


def language() -> Texts:
    """The texts in the reader's language."""
    return Texts(start("language", "en", LANGUAGES, parameter="lang"))


def choose_language(texts: Texts) -> None:
    """The language switch."""
    st.radio(
        texts("filter.language"), list(LANGUAGES), format_func=LANGUAGES.__getitem__, horizontal=True, key="language"
    )
    to_url("lang", texts.language, "en")


def _date(text: str, default: date) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return default


def _whole_hour(at: datetime) -> datetime:
    start = at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    return start if start == at else start + timedelta(hours=1)


def _days(texts: Texts, newest: datetime, zone: ZoneInfo) -> Window:
    last = (newest.astimezone(zone) - timedelta(microseconds=1)).date()
    begin = _date(st.query_params.get("from", ""), last - timedelta(days=6))
    end = max(begin, _date(st.query_params.get("to", ""), last))
    st.session_state["days"] = st.session_state.get("days", (begin, end))
    chosen = st.date_input(texts("filter.days"), key="days")
    first, final = chosen if isinstance(chosen, tuple) and len(chosen) == 2 else (begin, end)
    to_url("from", first.isoformat())
    to_url("to", final.isoformat())
    edges = [datetime.combine(day, time(), zone).astimezone(UTC) for day in (first, final + timedelta(days=1))]
    return Window(*edges)


def choose_window(texts: Texts, extent: Mapping[str, Any], default_zone: str, now: datetime) -> tuple[Window, str]:
    """The period and the zone. Periods are counted back from the ledger's newest hour, so old ledgers show too."""
    zones = sorted(available_timezones())
    start("timezone", default_zone, zones, parameter="tz")
    start("period", _DEFAULT_PERIOD, PERIODS)
    newest = _whole_hour(extent.get("to_at") or now)
    period = st.selectbox(
        texts("filter.period"),
        list(PERIODS),
        format_func=lambda name: texts(PERIODS[name]),
        help=texts("filter.period_help"),
        key="period",
    )
    holder = st.container()
    timezone = st.selectbox(texts("filter.timezone"), zones, key="timezone")
    to_url("period", period, _DEFAULT_PERIOD)
    to_url("tz", timezone, default_zone)
    if period == "days":
        with holder:
            return _days(texts, newest, ZoneInfo(timezone)), timezone
    return Window(newest - _LENGTHS[period], newest), timezone


def choose_tenant(texts: Texts, known: list[str]) -> str:
    """The tenant; one that the URL names is kept even when it holds nothing."""
    wanted = start("tenant", "")
    names = ["", *sorted({*known, wanted} - {""})]
    chosen = st.selectbox(
        texts("filter.tenant"),
        names,
        format_func=lambda name: texts.tenant(name) if name else texts("word.all_tenants"),
        key="tenant",
    )
    to_url("tenant", chosen)
    return chosen
