"""What every page is given, and how charts and tables are put on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import streamlit as st

from dashboards.access import Ask, Fetch
from dashboards.filters import Filters
from gpuledger.presentation import numbers
from gpuledger.presentation.charts.frame import DARK, LIGHT, Paper, Spec
from gpuledger.presentation.texts import Texts


@dataclass(frozen=True, slots=True)
class View:
    """The reader's language and filters, how to ask, what the ledger covers, the time, and links to the other pages.

    `ask` gives the rows of a named query, `fetch` an answer of the API.
    """

    texts: Texts
    filters: Filters
    ask: Ask
    fetch: Fetch
    extent: Mapping[str, Any]
    now: datetime
    pages: Mapping[str, Any] = field(default_factory=dict)

    @property
    def period(self) -> str:
        """The chosen period with its zone."""
        return numbers.period(self.filters.window.from_at, self.filters.window.to_at, self.filters.timezone)

    @property
    def moment(self) -> datetime:
        """The end of the period; where it goes on after the ledger, the ledger's; without a ledger, this minute."""
        known_until = self.extent.get("to_at") or self.now.replace(second=0, microsecond=0)
        return min(self.filters.window.to_at, known_until)

    def hours(self, value: float | None) -> str:
        """GPU-hours as text in the reader's language."""
        return numbers.gpu_hours(value, self.texts.language)

    def ask_period(self, name: str, **parameters: Any) -> list[dict[str, Any]]:
        """The rows of query `name` over the chosen period."""
        return self.ask(name, **parameters, **self.filters.bounds)

    def fetch_period(self, path: str, **parameters: Any) -> dict[str, Any]:
        """The API's answer at `path` for the chosen period, as far as the ledger goes."""
        window = self.filters.window
        return self.fetch(path, **parameters, from_=window.from_at.isoformat(), to=window.to_at.isoformat())


def paper() -> Paper:
    """Chart surroundings for the reader's light or dark theme."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def show_chart(chart: Spec, meaning: str) -> None:
    """A chart over the whole width; `meaning` is read out instead of it."""
    st.vega_lite_chart(spec=chart, width="stretch", theme=None, alt=meaning)


def _shown(value: Any) -> Any:
    return round(value, 3 if abs(value) <= 1 else 1) if isinstance(value, float) else value


def show_table(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, Any],
    key: str,
    placeholder: str = numbers.NO_VALUE,
    **options: Any,
) -> Any:
    """Rows as a table that sorts, searches and exports; `columns` maps a field to its title or column definition.

    `placeholder` is what a missing value reads as.
    """
    table = {name: [_shown(row[name]) for row in rows] for name in columns}
    height: Any = "auto" if len(rows) < 12 else 420
    return st.dataframe(
        table,
        column_config=dict(columns),
        hide_index=True,
        width="stretch",
        height=height,
        placeholder=placeholder,
        key=key,
        **options,
    )


def hours_column(title: str, **options: Any) -> Any:
    """A column of GPU-hours."""
    return st.column_config.NumberColumn(title, format="localized", **options)


def percent_column(title: str, **options: Any) -> Any:
    """A column of ratios (0 to 1) shown in percent."""
    return st.column_config.NumberColumn(title, format="percent", **options)


def bar_column(title: str, top: float, colour: str = "#5B7DB1") -> Any:
    """A column of GPU-hours with a bar in each row, from zero to `top`."""
    top = max(top, 1e-9)
    return st.column_config.ProgressColumn(
        title, min_value=0.0, max_value=top, format="localized", color=colour, width="medium"
    )


def queries_note(view: View, *names: str) -> None:
    """Which named queries the page read."""
    st.caption(view.texts.markdown("hours.queries", names=", ".join(names)))
