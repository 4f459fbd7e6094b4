"""One GPU over time: the band of its states, the span of its activity, its power."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import altair as alt

from gpuledger.model import State, Window
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.charts import frame
from gpuledger.presentation.states import HATCHED
from gpuledger.presentation.texts import Texts

_ROUNDING = 1e-9
_AXIS_PIXELS = 44
_UTIL, _SM, _POWER = "#5B7DB1", "#00876C", "#B3589A"


@dataclass(frozen=True, slots=True)
class Frame:
    """What the panels of one timeline share: the window, its zone, words and paper."""

    window: Window
    timezone: str
    texts: Texts
    paper: frame.Paper = frame.LIGHT

    def x(self, field: str, *, is_last: bool = False) -> alt.X:
        """The common time axis; only the last panel labels it."""
        ends = [frame.wall_clock(at, self.timezone) for at in (self.window.from_at, self.window.to_at)]
        axis = frame.time_axis(self.window, self.timezone, labels=is_last, ticks=is_last)
        title = self.timezone if is_last else None
        return alt.X(f"{field}:T", scale=frame.time_scale(domain=ends), title=title, axis=axis)

    def tip(self, field: str, key: str) -> alt.Tooltip:
        """One line of a tooltip."""
        return alt.Tooltip(f"{field}:N", title=self.texts(key))


def _y_axis(**options: Any) -> alt.Axis:
    """A value axis of fixed width, so that the panels' time axes lie below each other."""
    return alt.Axis(minExtent=_AXIS_PIXELS, maxExtent=_AXIS_PIXELS, domain=False, ticks=False, **options)


def stacked(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows cut wherever any of them begins or ends, each piece with the height `low` at which it lies.

    At every instant the pieces lie above each other without a gap, slices first and what nobody holds on top; pieces
    that follow each other at the same height are one again.
    """
    edges = sorted({row[name] for row in rows for name in ("from_at", "until_at")})
    ordered = sorted(
        rows, key=lambda row: (not row["workload_id"], row["slice_id"], row["workload_id"] or "", row["state"])
    )
    starting: dict[datetime, list[int]] = {}
    for index, row in enumerate(ordered):
        starting.setdefault(row["from_at"], []).append(index)
    active: set[int] = set()
    found: list[dict[str, Any]] = []
    last: dict[int, dict[str, Any]] = {}
    for start, end in pairwise(edges):
        active = {index for index in active if ordered[index]["until_at"] > start} | set(starting.get(start, ()))
        low = 0.0
        for index in sorted(active):
            piece = last.get(index)
            if piece is not None and abs(piece["low"] - low) < _ROUNDING:
                piece["until_at"] = end
            else:
                last[index] = {**ordered[index], "from_at": start, "until_at": end, "low": low}
                found.append(last[index])
            low += ordered[index]["share"]
    return found


def states(pieces: Sequence[Mapping[str, Any]], shared: Frame) -> frame.Spec:
    """Rows of query `gpu_timeline`, `stacked`, as one band as high as the card."""
    texts = shared.texts
    drawn = [
        {
            "from": frame.wall_clock(row["from_at"], shared.timezone),
            "until": frame.wall_clock(row["until_at"], shared.timezone),
            "low": row["low"],
            "high": min(1.0, row["low"] + row["share"]),
            "state": row["state"],
            "name": texts(f"state.{State(row['state'])}"),
            "period": numbers.period(row["from_at"], row["until_at"], shared.timezone),
            "tenant": texts.tenant(row["tenant"] or ""),
            "workload": escaping.one_line(row["workload_id"] or numbers.NO_VALUE),
            "basis": row["basis"] or numbers.NO_VALUE,
            "cause": texts.code("cause", row["cause"]) if row["cause"] else numbers.NO_VALUE,
        }
        for row in pieces
    ]
    y = alt.Y("low:Q", scale=alt.Scale(domain=[0, 1]), title=None, axis=_y_axis(labels=False, grid=False))
    tables = frame.Tables()
    base = alt.Chart(tables.add(drawn)).encode(x=shared.x("from"), x2="until:T", y=y, y2="high:Q")
    tips = [
        shared.tip("name", "word.state"),
        shared.tip("period", "word.time"),
        shared.tip("tenant", "finding.tenant"),
        shared.tip("workload", "gpu.workload"),
        shared.tip("cause", "finding.cause"),
        shared.tip("basis", "finding.basis"),
    ]
    band = base.mark_bar().encode(color=alt.Color("state:N", scale=frame.state_scale(), legend=None), tooltip=tips)
    hatched = alt.FieldOneOfPredicate("state", [state.value for state in HATCHED])
    hatch = base.transform_filter(hatched).mark_bar(color=frame.stripes(shared.paper, 5, across=False), tooltip=False)
    panel = alt.layer(band, hatch).properties(height=46, width="container", title=texts("gpu.states"))
    return tables.finish(panel, shared.paper)


def _points(rows: Sequence[Mapping[str, Any]], shared: Frame, bucket_seconds: int) -> list[dict[str, Any]]:
    """The rows with an empty one put into each gap, so that no line crosses what was not read."""
    points: list[dict[str, Any]] = []
    last: dict[str, datetime] = {}
    length = timedelta(seconds=bucket_seconds)
    for row in sorted(rows, key=lambda each: (each["slice_id"] or "", each["bucket_at"])):
        key, at = row["slice_id"] or "", row["bucket_at"]
        if key in last and at - last[key] > length:
            points.append({"slice_id": key, "bucket_at": frame.wall_clock(last[key] + length, shared.timezone)})
        points.append({**row, "slice_id": key, "bucket_at": frame.wall_clock(at, shared.timezone)})
        last[key] = at
    return points


def activity(rows: Sequence[Mapping[str, Any]], shared: Frame, bucket_seconds: int) -> frame.Spec:
    """Rows of query `gpu_readings`: utilization and SM activity as bands from minimum to maximum with their means."""
    tables = frame.Tables()
    base = alt.Chart(tables.add(_points(rows, shared, bucket_seconds))).encode(
        x=shared.x("bucket_at"), detail="slice_id:N"
    )
    layers: list[Any] = []
    for prefix, colour in (("gpu_util", _UTIL), ("sm_active", _SM)):
        y_axis = _y_axis(format=".0%", values=[0, 0.5, 1])
        scale = alt.Scale(domain=[0, 1])
        low = alt.Y(f"{prefix}_min:Q", scale=scale, title=None, axis=y_axis)
        band = base.mark_area(opacity=0.22, color=colour, interpolate="step-after")
        line = base.mark_line(color=colour, strokeWidth=1.4, interpolate="step-after")
        layers += [
            band.encode(y=low, y2=f"{prefix}_max:Q"),
            line.encode(y=alt.Y(f"{prefix}_mean:Q", scale=scale, title=None)),
        ]
    panel = alt.layer(*layers, *_key(tables, shared))
    return tables.finish(panel.properties(height=120, width="container", title=shared.texts("gpu.util")), shared.paper)


def _key(tables: frame.Tables, shared: Frame) -> list[Any]:
    layers = []
    for index, (key, colour) in enumerate((("tenants.gpu_util", _UTIL), ("tenants.sm_active", _SM))):
        text = alt.Chart(tables.add([{"at": 0}])).mark_text(
            align="right", dx=-130 * index, dy=-12, color=colour, fontWeight=600
        )
        layers.append(text.encode(x=alt.value("width"), y=alt.value(0), text=alt.value(shared.texts(key))))
    return layers


def power(rows: Sequence[Mapping[str, Any]], shared: Frame, bucket_seconds: int) -> frame.Spec:
    """Rows of query `gpu_readings`: mean power in watts."""
    tables = frame.Tables()
    base = alt.Chart(tables.add(_points(rows, shared, bucket_seconds)))
    y = alt.Y("power_watts_mean:Q", title=None, scale=alt.Scale(zero=True), axis=_y_axis(tickCount=3))
    line = base.mark_line(color=_POWER, strokeWidth=1.4, interpolate="step-after")
    panel = line.encode(x=shared.x("bucket_at", is_last=True), y=y, detail="slice_id:N")
    return tables.finish(panel.properties(height=80, width="container", title=shared.texts("gpu.power")), shared.paper)
