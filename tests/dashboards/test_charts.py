from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
import vl_convert

from gpuledger.model import State, Window
from gpuledger.presentation.balance import Balance
from gpuledger.presentation.charts import MAX_POINTS, bars, frame, series, timeline, waterfall
from gpuledger.presentation.texts import Texts
from tests.dashboards.recorded import END, HOSTILE, RecordedClient

WEEK = Window(END - timedelta(days=7), END)
BOUNDS = {"from_at": WEEK.from_at, "to_at": WEEK.to_at}
EN = Texts("en")


def rows(name, **parameters):
    return RecordedClient().query(name, **parameters).to_pylist()


def _waterfall(paper):
    return waterfall.chart(Balance.of_fleet(rows("ledger_by", by="state", **BOUNDS)), Balance(), EN, paper)


def _series(bucket):
    found = rows("ledger_series", bucket=bucket, timezone="Asia/Shanghai", tenant="", **BOUNDS)
    return series.chart(found, series.Buckets(WEEK, bucket, "Asia/Shanghai"), EN)


def _timeline(part, paper):
    shared = timeline.Frame(WEEK, "UTC", EN, paper)
    if part == "states":
        return timeline.states(timeline.stacked(rows("gpu_timeline", gpu_uuid="x", **BOUNDS)), shared)
    readings = rows("gpu_readings", gpu_uuid="x", bucket_seconds=1800, **BOUNDS)
    return getattr(timeline, part)(readings, shared, 1800)


CHARTS = {
    "waterfall": lambda: _waterfall(frame.LIGHT),
    "waterfall, dark": lambda: _waterfall(frame.DARK),
    "hours": lambda: _series("hour"),
    "days": lambda: _series("day"),
    "tenants": lambda: bars.tenants(rows("ledger_tenants", **BOUNDS), EN),
    "causes": lambda: bars.causes(rows("findings_by_cause", **BOUNDS), EN),
    "waits": lambda: bars.waits(rows("waits", **BOUNDS), EN),
    "shares": lambda: bars.state_shares({State.ALLOC_IDLE: 0.25, State.ALLOC_UNKNOWN: 0.75}, EN),
    "states": lambda: _timeline("states", frame.LIGHT),
    "activity": lambda: _timeline("activity", frame.DARK),
    "power": lambda: _timeline("power", frame.LIGHT),
}


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_valid_and_draws_without_network(name):
    svg = vl_convert.vegalite_to_svg({**CHARTS[name](), "width": 600}, allowed_base_urls=[])
    assert svg.startswith("<svg")
    assert "NaN" not in svg
    assert "undefined" not in svg


def test_the_waterfall_is_labelled_and_hatches_what_is_not_graded():
    svg = vl_convert.vegalite_to_svg(_waterfall(frame.LIGHT) | {"width": 700}, allowed_base_urls=[])
    for text in ("Inventory", "10,752 GPU-h", "31.6 %", "Productive"):
        assert f">{text}" in svg
    assert svg.count("<linearGradient") == 2


def test_changes_are_against_the_period_before():
    def balance(idle):
        hours = {"alloc_idle": idle, "alloc_productive": 100 - idle}
        found = [{"key": s, "state": s, "gpu_hours": h, "provisional_gpu_hours": 0.0} for s, h in hours.items()]
        return Balance.of_fleet(found)

    datasets = waterfall.chart(balance(30.0), balance(20.0), EN)["datasets"].values()
    lines = {row["label"].strip(): row for table in datasets for row in table if "label" in row}
    assert lines["Held, idle"]["change"] == "+10.0 pp"
    assert lines["Productive"]["change"] == "\N{MINUS SIGN}10.0 pp"
    assert lines["Inventory"]["change"] == ""


def test_charts_refuse_what_a_query_should_have_thinned():
    with pytest.raises(ValueError, match="down-sample"):
        frame.Tables().add([{}] * (MAX_POINTS + 1))


def test_a_month_of_days_and_a_week_of_hours_stay_small():
    for bucket in ("hour", "day"):
        points = sum(map(len, _series(bucket)["datasets"].values()))
        assert points <= MAX_POINTS


def test_hostile_names_are_text_in_svg():
    tenants = [row for row in rows("ledger_tenants", **BOUNDS) if row["tenant"] == HOSTILE]
    svg = vl_convert.vegalite_to_svg(bars.tenants(tenants, EN) | {"width": 700}, allowed_base_urls=[])
    assert "<script" not in svg
    assert "&lt;script" in svg


def test_labels_beside_a_stack_never_overlap():
    wanted = [1.0, 1.1, 1.2, 9.7, 9.8, 9.9]
    placed = series.spread(wanted, 1.0, 10.0)
    assert all(later - earlier >= 1.0 - 1e-9 for earlier, later in pairwise(placed))
    assert placed[-1] <= 9.5


def test_slices_of_one_card_lie_above_each_other_without_a_gap():
    def part(slice_id, start, end, share):
        hours = {"from_at": END + timedelta(hours=start), "until_at": END + timedelta(hours=end)}
        held = {"workload_id": slice_id and "w", "state": "alloc_low" if slice_id else "free_usable"}
        return {"slice_id": slice_id, "share": share, **hours, **held}

    found = [
        part("", 0, 1, 0.5),
        part("", 1, 3, 0.25),
        part("2", 1, 3, 0.25),
        part("1", 0, 2, 0.5),
        part("", 2, 3, 0.5),
    ]
    pieces = [
        (row["slice_id"], row["low"], *((row[at] - END).total_seconds() / 3600 for at in ("from_at", "until_at")))
        for row in timeline.stacked(found)
    ]
    assert pieces == [
        ("1", 0.0, 0, 2),
        ("", 0.5, 0, 1),
        ("2", 0.5, 1, 2),
        ("", 0.75, 1, 2),
        ("2", 0.0, 2, 3),
        ("", 0.25, 2, 3),
        ("", 0.5, 2, 3),
    ]


def test_time_axes_name_whole_local_hours_and_days():
    day = frame.time_axis(Window(END - timedelta(hours=24), END), "Asia/Kolkata")
    assert [tick.hours for tick in day.values] == [6, 9, 12, 15, 18, 21, 0, 3]
    month = frame.time_axis(Window(END - timedelta(days=30), END), "Asia/Kolkata")
    assert {tick.hours for tick in month.values} == {0}
    assert len(month.values) == 7


def test_the_panels_of_one_day_draw():
    window = Window(END - timedelta(hours=24), END)
    shared = timeline.Frame(window, "Asia/Kolkata", EN)
    bounds = {"from_at": window.from_at, "to_at": window.to_at}
    spec = timeline.states(timeline.stacked(rows("gpu_timeline", gpu_uuid="x", **bounds)), shared)
    readings = rows("gpu_readings", gpu_uuid="x", bucket_seconds=120, **bounds)
    for each in (spec, timeline.power(readings, shared, 120)):
        svg = vl_convert.vegalite_to_svg({**each, "width": 600}, allowed_base_urls=[])
        assert svg.count("<path") > 5
    assert ">03-15 06:00<" in svg


def test_no_line_crosses_a_gap_in_the_readings():
    found = rows("gpu_readings", gpu_uuid="x", bucket_seconds=1800, **BOUNDS)
    shared = timeline.Frame(WEEK, "UTC", EN)
    points = timeline._points(found, shared, 1800)
    assert len(points) == len(found) + 1
    assert [point for point in points if "gpu_util_mean" not in point] == [
        {"slice_id": "", "bucket_at": "2026-03-11T02:30:00Z"}
    ]
