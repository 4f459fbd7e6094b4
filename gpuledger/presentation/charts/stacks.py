"""Amounts of several names over time: stacked where they are parts of a whole, as lines where they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import altair as alt

from gpuledger.model import Window
from gpuledger.presentation import numbers
from gpuledger.presentation.charts import MAX_POINTS, frame
from gpuledger.presentation.charts.series import spread
from gpuledger.presentation.texts import Texts

COLOURS = ("#E69F00", "#5B7DB1", "#D1495B", "#8CCBB5", "#B3589A", "#D9C36A", "#6FB7E0")
"""Neighbours differ in lightness, so that colour-vision deficiencies lose nothing."""

LIMIT = 7
_HEIGHT = 240
_LABEL_PIXELS = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What is drawn, bottom first: each name's label; a name in `colours` has its own colour."""

    labels: Mapping[str, str]
    colours: Mapping[str, str]

    def colour(self, name: str) -> str:
        """The colour of `name`."""
        others = [each for each in self.labels if each not in self.colours]
        return self.colours.get(name) or COLOURS[others.index(name) % len(COLOURS)]

    @property
    def scale(self) -> alt.Scale:
        """The colours as a scale."""
        return alt.Scale(domain=list(self.labels), range=[self.colour(name) for name in self.labels])


def every(hours: Sequence[datetime], name_count: int) -> list[datetime]:
    """The instants of `hours` that are drawn: all, or one in so many that the chart holds them. They are moments."""
    known = sorted(set(hours))
    step = -(-len(known) * max(1, name_count) // MAX_POINTS)
    return known[:: max(1, step)]


def folded(rows: Sequence[Mapping[str, Any]], keep: Sequence[str] = ()) -> tuple[list[str], list[str]]:
    """Names by their sum, the largest first (those of `keep` before all), and those that are too many to show."""
    sums: dict[str, float] = {}
    for row in rows:
        sums[row["name"]] = sums.get(row["name"], 0.0) + (row["value"] or 0.0)
    names = sorted((name for name in sums if sums[name] > 0), key=lambda name: (name not in keep, -sums[name], name))
    return (names, []) if len(names) <= LIMIT else (names[: LIMIT - 1], names[LIMIT - 1 :])


def chart(
    rows: Sequence[Mapping[str, Any]],
    names: Names,
    span: tuple[Window, str],
    texts: Texts,
    paper: frame.Paper = frame.LIGHT,
    *,
    is_stacked: bool,
) -> frame.Spec:
    """Rows of (`at`, `name`, `value` in GPUs), at least one, over the window and zone of `span`.

    Stacked as bars up to the next instant, or as lines from zero, which break where a value is not known.
    """
    window, timezone = span
    drawn = _bars(rows, names, window, timezone) if is_stacked else _points(rows, names, timezone)
    top = max((row["high"] for row in drawn if row["high"] is not None), default=0.0) or 1.0
    ends = [frame.wall_clock(at, timezone) for at in (window.from_at, window.to_at)]
    axis = frame.time_axis(window, timezone, grid=False)
    x = alt.X("from:T", scale=frame.time_scale(domain=ends), title=timezone, axis=axis)
    y_scale = alt.Scale(domain=[0, top], nice=False)
    y_axis = alt.Axis(tickCount=4, format=",~r", domain=False, ticks=False)
    colour = alt.Color("name:N", scale=names.scale, legend=None)
    tooltip = [
        alt.Tooltip("at:N", title=texts("word.time")),
        alt.Tooltip("label:N", title=texts("fragments.blocked_by")),
        alt.Tooltip("text:N", title=texts("fragments.gpus")),
    ]
    tables = frame.Tables()
    base = alt.Chart(tables.add(drawn))
    if is_stacked:
        low = alt.Y("low:Q", scale=y_scale, title=texts("fragments.gpus"), axis=y_axis)
        stroke = alt.Stroke("name:N", scale=names.scale, legend=None)
        mark = base.mark_bar(strokeWidth=0.5).encode(
            x=x, x2="until:T", y=low, y2="high:Q", color=colour, stroke=stroke, tooltip=tooltip
        )
    else:
        high = alt.Y("high:Q", scale=y_scale, title=texts("fragments.gpus"), axis=y_axis)
        mark = base.mark_line(strokeWidth=2).encode(x=x, y=high, color=colour, tooltip=tooltip)
    beside = alt.Chart(tables.add(_labels(drawn, names, top))).encode(
        y=alt.Y("y:Q", scale=y_scale), x=alt.value("width")
    )
    swatch = beside.mark_square(size=70, xOffset=10, opacity=1).encode(color=colour)
    words = beside.mark_text(align="left", dx=20, color=paper.ink, fontSize=11).encode(text="label:N")
    return tables.finish(alt.layer(mark, swatch, words).properties(height=_HEIGHT, width="container"), paper)


def _bars(rows: Sequence[Mapping[str, Any]], names: Names, window: Window, timezone: str) -> list[dict[str, Any]]:
    by_instant: dict[datetime, dict[str, float]] = {}
    for row in rows:
        of_instant = by_instant.setdefault(row["at"], {})
        of_instant[row["name"]] = of_instant.get(row["name"], 0.0) + (row["value"] or 0.0)
    instants = sorted(by_instant)
    step = min((later - at for at, later in pairwise(instants)), default=timedelta(hours=1))
    drawn = []
    for at in instants:
        level = 0.0
        for name, label in names.labels.items():
            value = by_instant[at].get(name, 0.0)
            if value <= 0:
                continue
            drawn.append(
                {
                    **_cell(at, name, label, value, timezone),
                    "until": frame.wall_clock(min(at + step, window.to_at), timezone),
                    "low": level,
                    "high": level + value,
                }
            )
            level += value
    return drawn


def _points(rows: Sequence[Mapping[str, Any]], names: Names, timezone: str) -> list[dict[str, Any]]:
    return [
        {**_cell(row["at"], row["name"], names.labels[row["name"]], row["value"], timezone), "high": row["value"]}
        for row in sorted(rows, key=lambda row: row["at"])
        if row["name"] in names.labels
    ]


def _cell(at: datetime, name: str, label: str, value: float | None, timezone: str) -> dict[str, Any]:
    return {
        "from": frame.wall_clock(at, timezone),
        "at": f"{numbers.instant(at, timezone)} ({timezone})",
        "name": name,
        "label": label,
        "text": numbers.amount(value),
    }


def _labels(drawn: Sequence[Mapping[str, Any]], names: Names, top: float) -> list[dict[str, Any]]:
    """A label beside the last value of each name."""
    last = {row["name"]: row for row in drawn if row["high"] is not None}
    wanted = sorted(((row.get("low", row["high"]) + row["high"]) / 2, name) for name, row in last.items())
    heights = spread([height for height, _ in wanted], _LABEL_PIXELS * top / _HEIGHT, top)
    return [{"name": name, "label": names.labels[name], "y": y} for (_, name), y in zip(wanted, heights, strict=True)]
