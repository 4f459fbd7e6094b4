"""The states stacked over time, with a label beside each band instead of a legend to look up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import altair as alt

from gpuledger.model import State, Window
from gpuledger.presentation import numbers
from gpuledger.presentation.charts import frame
from gpuledger.presentation.states import HATCHED, STATE_ORDER
from gpuledger.presentation.texts import Texts

_LABEL_PIXELS = 15


@dataclass(frozen=True, slots=True)
class Buckets:
    """How the rows of `window` were cut: `bucket` is "hour" or "day" in zone `timezone`."""

    window: Window
    bucket: str
    timezone: str

    def span(self, start: datetime) -> tuple[datetime, datetime]:
        """The bucket that starts at `start`, cut to the window; days follow the zone's clock changes."""
        length = timedelta(hours=1) if self.bucket == "hour" else timedelta(days=1)
        zone = UTC if self.bucket == "hour" else ZoneInfo(self.timezone)
        return max(start, self.window.from_at), min(start.astimezone(zone) + length, self.window.to_at)


def _stacked(rows: Sequence[Mapping[str, Any]], buckets: Buckets, texts: Texts) -> list[dict[str, Any]]:
    by_bucket: dict[datetime, dict[State, float]] = {}
    for row in rows:
        by_bucket.setdefault(row["bucket_at"], {})[State(row["state"])] = row["gpu_hours"]
    drawn = []
    for at, hours in sorted(by_bucket.items()):
        level, total = 0.0, sum(hours.values())
        start, end = (frame.wall_clock(edge, buckets.timezone) for edge in buckets.span(at))
        for state in reversed(STATE_ORDER):
            if state in hours and hours[state] > 0:
                drawn.append(
                    {
                        "from": start,
                        "until": end,
                        "at": f"{numbers.instant(at, buckets.timezone)} ({buckets.timezone})",
                        "state": state.value,
                        "name": texts(f"state.{state}"),
                        "low": level,
                        "high": level + hours[state],
                        "hours": numbers.gpu_hours(hours[state], texts.language),
                        "share": numbers.percent(hours[state] / total),
                    }
                )
                level += hours[state]
    return drawn


def spread(wanted: list[float], gap: float, top: float) -> list[float]:
    """Heights as near to `wanted` (ascending) as a distance of `gap` and the range 0 to `top` allow."""
    placed: list[float] = []
    for height in wanted:
        placed.append(max(height, placed[-1] + gap if placed else gap / 2))
    limit = top - gap / 2
    for index in range(len(placed) - 1, -1, -1):
        placed[index] = min(placed[index], limit)
        limit = placed[index] - gap
    return placed


def _labels(drawn: list[dict[str, Any]], height: int) -> list[dict[str, Any]]:
    top = max(row["high"] for row in drawn)
    pixel = top / height
    last: dict[str, dict[str, Any]] = {}
    for row in drawn:
        last[row["state"]] = row
    newest = max(row["from"] for row in drawn)
    shown = [last[state] for state in reversed(STATE_ORDER) if state in last]
    level, wanted = 0.0, []
    for row in shown:
        if row["from"] == newest:
            level = row["high"]
            wanted.append((row["low"] + row["high"]) / 2)
        else:
            wanted.append(level)
    heights = spread(wanted, _LABEL_PIXELS * pixel, top)
    return [{"name": row["name"], "state": row["state"], "y": y} for row, y in zip(shown, heights, strict=True)]


def chart(
    rows: Sequence[Mapping[str, Any]],
    buckets: Buckets,
    texts: Texts,
    paper: frame.Paper = frame.LIGHT,
    height: int = 260,
) -> frame.Spec:
    """Rows of query `ledger_series` (at least one above zero) as stacked bars, one a bucket."""
    drawn = _stacked(rows, buckets, texts)
    top = max(row["high"] for row in drawn)
    ends = [frame.wall_clock(at, buckets.timezone) for at in (buckets.window.from_at, buckets.window.to_at)]
    y_scale = alt.Scale(domain=[0, top], nice=False)
    axis = frame.time_axis(buckets.window, buckets.timezone, grid=False)
    x = alt.X("from:T", scale=frame.time_scale(domain=ends), title=buckets.timezone, axis=axis)
    title = texts("hours.per_hour" if buckets.bucket == "hour" else "hours.per_day")
    y = alt.Y("low:Q", scale=y_scale, title=title, axis=alt.Axis(tickCount=4, format=",~r", domain=False, ticks=False))
    tooltip = [
        alt.Tooltip("at:N", title=texts("word.time")),
        alt.Tooltip("name:N", title=texts("word.state")),
        alt.Tooltip("hours:N", title=texts("word.gpu_hours")),
        alt.Tooltip("share:N", title=texts("word.share")),
    ]
    tables = frame.Tables()
    base = alt.Chart(tables.add(drawn)).encode(x=x, x2="until:T", y=y, y2="high:Q")
    colour = alt.Color("state:N", scale=frame.state_scale(), legend=None)
    bars = base.mark_bar(stroke=paper.background, strokeWidth=1).encode(color=colour, tooltip=tooltip)
    if buckets.bucket == "hour":  # a hairline in the bar's own colour closes the seams between narrow bars
        seamless = alt.Stroke("state:N", scale=frame.state_scale(), legend=None)
        bars = base.mark_bar(strokeWidth=0.5).encode(color=colour, stroke=seamless, tooltip=tooltip)
    hatch = base.transform_filter(alt.FieldOneOfPredicate("state", [state.value for state in HATCHED])).mark_bar(
        color=frame.stripes(paper, 4, across=False), tooltip=False
    )
    labels = _labels(drawn, height)
    beside = alt.Chart(tables.add(labels)).encode(y=alt.Y("y:Q", scale=y_scale), x=alt.value("width"))
    swatch = beside.mark_square(size=70, xOffset=10, opacity=1).encode(color=colour)
    names = beside.mark_text(align="left", dx=20, color=paper.ink, fontSize=11).encode(text="name:N")
    layered = alt.layer(bars, hatch, swatch, names).properties(height=height, width="container")
    return tables.finish(layered, paper)
