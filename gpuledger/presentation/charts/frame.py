"""What every chart shares: paper and ink, the states' colours, hatching, and wall-clock time axes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import altair as alt

from gpuledger.model import State, Window
from gpuledger.presentation.charts import MAX_POINTS
from gpuledger.presentation.states import LOOKS, STATE_ORDER

FONT = "'Source Sans', Inter, 'Helvetica Neue', Arial, 'Noto Sans CJK SC', 'PingFang SC', 'Microsoft YaHei', sans-serif"


Spec = dict[str, Any]
"""A Vega-Lite specification."""


@dataclass(frozen=True, slots=True)
class Paper:
    """Colours of the surroundings of a chart."""

    ink: str
    muted: str
    grid: str
    background: str


LIGHT = Paper(ink="#1F2430", muted="#5B6472", grid="#E4E7EC", background="#FFFFFF")
DARK = Paper(ink="#F2F4F7", muted="#A7B0BD", grid="#343B46", background="#0E1117")


class Tables:
    """The rows of one chart, kept beside its Altair object until the end: Altair copies whatever data it is given."""

    def __init__(self) -> None:
        self._rows: dict[str, list[dict[str, Any]]] = {}

    def add(self, rows: Sequence[Mapping[str, Any]]) -> alt.NamedData:
        """Rows as chart data. Raises ValueError beyond `MAX_POINTS`: the query should have down-sampled."""
        if len(rows) > MAX_POINTS:
            raise ValueError(f"{len(rows)} rows for one chart; its query must down-sample to {MAX_POINTS}")
        name = f"rows_{len(self._rows)}"
        self._rows[name] = [dict(row) for row in rows]
        return alt.NamedData(name=name)

    def finish(self, chart: Any, paper: Paper) -> Spec:
        """The chart as a Vega-Lite specification with its rows, in the colours of `paper`, as wide as its place."""
        specification: Spec = _styled(chart, paper).to_dict()
        return {**specification, "datasets": self._rows}


def wall_clock(at: datetime, timezone: str) -> str:
    """An instant as the wall-clock time of `timezone`, written so that a chart with `time_scale` shows just that."""
    return at.astimezone(ZoneInfo(timezone)).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def time_scale(**options: Any) -> alt.Scale:
    """A time axis that shows `wall_clock` values as they are, whatever the browser's own zone."""
    return alt.Scale(type="utc", nice=False, **options)


def time_axis(window: Window, timezone: str, **options: Any) -> alt.Axis:
    """Labels of a wall-clock axis on whole local hours or days: clock times within two days, dates beyond.

    The instants are listed, because the renderer knows hourly steps under another name than the specification does.
    """
    is_short = window.hours <= 48
    step = timedelta(hours=3 if window.hours <= 24 else 6) if is_short else _days(window)
    at = window.from_at.astimezone(ZoneInfo(timezone)).replace(hour=0, minute=0, second=0, microsecond=0, tzinfo=UTC)
    start, end = (edge.astimezone(ZoneInfo(timezone)).replace(tzinfo=UTC) for edge in (window.from_at, window.to_at))
    ticks: list[alt.DateTime] = []
    while at <= end:
        if at >= start:
            ticks.append(alt.DateTime(year=at.year, month=at.month, date=at.day, hours=at.hour, utc=True))
        at += step
    return alt.Axis(format="%m-%d %H:%M" if is_short else "%m-%d", values=ticks, labelOverlap=True, **options)


def _days(window: Window) -> timedelta:
    return timedelta(days=max(1, round(window.hours / 24 / 8)))


def state_scale(states: Iterable[State] = STATE_ORDER) -> alt.Scale:
    """The states' colours, in their one order."""
    shown = list(states)
    return alt.Scale(domain=[state.value for state in shown], range=[LOOKS[state].colour for state in shown])


def stripes(paper: Paper, stripe_count: int, *, across: bool = True) -> alt.Gradient:
    """Hatching: `stripe_count` hard-edged stripes of paper over a mark, side by side (`across`) or stacked."""
    stops = []
    for index in range(stripe_count):
        edges = ((index, "transparent"), (index + 0.66, "transparent"), (index + 0.66, paper.background))
        stops += [alt.GradientStop(color=colour, offset=offset / stripe_count) for offset, colour in edges]
        stops.append(alt.GradientStop(color=paper.background, offset=(index + 1) / stripe_count))
    x2, y2 = (1, 0) if across else (0, 1)
    return alt.LinearGradient(gradient="linear", stops=stops, x1=0, y1=0, x2=x2, y2=y2)


def _styled(chart: Any, paper: Paper) -> Any:
    return (
        chart.properties(autosize=alt.AutoSizeParams(type="fit-x", contains="padding"))
        .configure(font=FONT, background="transparent", padding=4, aria=False)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=paper.muted,
            labelFont=FONT,
            titleFont=FONT,
            titleColor=paper.muted,
            gridColor=paper.grid,
            domainColor=paper.grid,
            tickColor=paper.grid,
            labelFontSize=12,
            titleFontSize=12,
            titleFontWeight="normal",
        )
        .configure_text(color=paper.ink, font=FONT, fontSize=12)
        .configure_title(font=FONT, color=paper.ink, fontSize=13, anchor="start", fontWeight=600)
    )


def fold(rows: Sequence[Mapping[str, Any]], limit: int = 7) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """The first rows to be shown each and the rest to be folded into one; at most `limit` lines come out."""
    return (list(rows), []) if len(rows) <= limit else (list(rows[: limit - 1]), list(rows[limit - 1 :]))
