"""What will be asked: every step in exactly one chunk, the same chunks on every run, and what it costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.prometheus.families import NAMES, Reduction, Window, pod_step_ms, queries, reads_of, reduction
from collector.prometheus.plan import (
    CHUNK_SAMPLES,
    MAX_POINTS,
    Chunk,
    Cost,
    Pace,
    Survey,
    choose_step,
    chunk_points,
    chunks,
    estimate,
    instant,
    likely_interval_ms,
    milliseconds,
    span_ms,
    split,
)
from gpuledger.errors import BadInput
from gpuledger.model import Reading

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
steps = st.sampled_from([1000, 7000, 15_000, 60_000, 300_000])
sizes = st.sampled_from([1, 2, 20, 1440, 11_000])


def instants(chunk: Chunk) -> list[int]:
    return list(range(chunk.first_ms, chunk.last_ms + 1, chunk.step_ms))


@given(st.integers(0, 10**9), st.integers(0, 40_000), steps, sizes)
def test_every_step_is_in_exactly_one_chunk(since_ms: int, count: int, step_ms: int, points: int) -> None:
    begin = NOON + timedelta(milliseconds=since_ms)
    until = begin + timedelta(milliseconds=step_ms * min(count, points * 50))
    cut = list(chunks(begin, until, step_ms, points))
    first = milliseconds(begin) // step_ms * step_ms
    assert [at for chunk in cut for at in instants(chunk)] == list(range(first, milliseconds(until) + 1, step_ms))
    assert all(chunk.points == len(instants(chunk)) <= min(points, MAX_POINTS) for chunk in cut)


@given(st.integers(0, 10**6), st.integers(0, 10**6), steps, sizes)
def test_a_later_run_cuts_the_same_chunks(early: int, later: int, step_ms: int, points: int) -> None:
    """Only the first and the last chunk of a span may differ from another span's."""
    end = NOON + timedelta(milliseconds=3 * points * step_ms)
    one = list(chunks(NOON - timedelta(seconds=early % 3600), end, step_ms, points))
    two = list(chunks(NOON - timedelta(seconds=later % 3600), end, step_ms, points))
    last = max(one[0].last_ms, two[0].last_ms)
    assert [chunk for chunk in one if chunk.first_ms > last] == [chunk for chunk in two if chunk.first_ms > last]


def test_a_week_at_15_seconds_both_ends_included() -> None:
    cut = list(chunks(datetime(2026, 3, 2, tzinfo=UTC), datetime(2026, 3, 9, tzinfo=UTC), 15_000, chunk_points(20)))
    assert len(cut) >= 4
    assert sum(chunk.points for chunk in cut) == 40_321
    assert str(cut[0]).startswith("2026-03-02T00:00:00+00:00/2026-03-02T")


@pytest.mark.parametrize(("series", "points"), [(0, 11_000), (20, 11_000), (300, 5_760), (10_000, 240), (10**7, 1)])
def test_chunks_stay_in_memory(series: float, points: int) -> None:
    assert chunk_points(series) == points
    assert series * points <= CHUNK_SAMPLES or points == 1


def a_survey(series: float, interval_ms: int | None = 15_000) -> Survey:
    return Survey({"DCGM_FI_DEV_GPU_UTIL": series}, series, interval_ms, is_closed=True)


@pytest.mark.parametrize(
    ("series", "interval_ms", "wanted", "step_ms"),
    [
        (160, 15_000, "auto", 15_000),  # 160 x 172,800 = 28 M
        (5_787, 15_000, "auto", 15_000),  # 999,993,600: just affordable
        (5_788, 15_000, "auto", 60_000),
        (23_148, 15_000, "auto", 60_000),
        (23_149, 15_000, "auto", 300_000),
        (10**6, 15_000, "auto", 300_000),  # the coarsest, affordable or not
        (160, 120_000, "auto", 120_000),
        (160, None, "auto", 60_000),
        (160, 15_000, "5m", 300_000),
        (160, 30_000, "15s", 30_000),  # never finer than what there is
        (160, None, "15s", 15_000),
    ],
)
def test_the_step(series: float, interval_ms: int | None, wanted: str, step_ms: int) -> None:
    assert choose_step(a_survey(series, interval_ms), timedelta(days=30), wanted) == step_ms


@pytest.mark.parametrize(
    "text", ["", "5", "0s", "²s", "9" * 5000 + "s", "-5m", "5 m", "1.5h", "m", "2h", "1ms", "99999999999s"]
)
def test_texts_that_are_no_step(text: str) -> None:
    with pytest.raises(BadInput, match="step"):
        choose_step(a_survey(1), timedelta(days=1), text)


def test_spans_and_intervals() -> None:
    assert [span_ms("since", text) for text in ("1500ms", "90s", "5m", "12h", "30d", "2w")] == [
        1_500, 90_000, 300_000, 43_200_000, 2_592_000_000, 1_209_600_000,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "interval_ms"),
    [
        ([0, 15, 30, 45], 15_000),
        ([0, 14.2, 30.1, 45, 59.9], 15_000),
        ([0, 15, 30, 300, 315], 15_000),  # a gap is no interval
        ([7, 37], 30_000),
        ([0, 45, 90, 135], 45_000),  # near none that people set
        ([0, 0.2, 0.4], 1_000),
        ([0, 900, 1800], 900_000),
        ([5], None),
        ([], None),
    ],
)
def test_the_interval_is_the_usual_distance(seconds: list[float], interval_ms: int | None) -> None:
    assert likely_interval_ms([int(1000 * second) for second in seconds]) == interval_ms


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    steps,
    sizes,
    st.lists(st.tuples(st.integers(-50, 300), st.integers(1, 99)), max_size=8),
)
def test_what_was_had_is_left_out_however_it_was_cut(
    since: int, length: int, step_ms: int, points: int, had: list[tuple[int, int]]
) -> None:
    """Every step is either present or missing, and present exactly where an earlier run had it."""
    begin = NOON + timedelta(seconds=since)
    cut = list(chunks(begin, begin + timedelta(milliseconds=step_ms * min(length % 400, points * 50)), step_ms, points))
    base = milliseconds(begin) // step_ms * step_ms
    known = [Chunk(base + step_ms * at, base + step_ms * (at + size - 1), step_ms) for at, size in had]
    of_known = {at for one in known for at in instants(one)}
    for chunk in cut:
        present, missing = split(chunk, known)
        assert sorted(at for one in (*present, *missing) for at in instants(one)) == instants(chunk)
        assert {at for one in present for at in instants(one)} == of_known & set(instants(chunk))
        assert all(one.points > 0 for one in (*present, *missing))


def test_the_estimate_by_hand() -> None:
    found = Survey(
        {"DCGM_FI_DEV_GPU_UTIL": 100.0, "DCGM_FI_DEV_FB_USED": 50.0},
        160,
        15_000,
        is_closed=True,
        cost=Cost(2.0, 1e-3),
    )
    cut = list(chunks(NOON, NOON + timedelta(minutes=119), 60_000, 60))
    asked = queries(list(found.series), (), Window(60_000, is_closed=True), is_raw=False)
    reads = {metric: reads_of(query) for metric, query in asked.items()}
    assert reads == {"DCGM_FI_DEV_GPU_UTIL": 4, "DCGM_FI_DEV_FB_USED": 1, "DCGM_SIGHTED_0": 1}
    cost = estimate(found, cut, reads, Pace(concurrency=1, requests_per_second=2), step_ms=60_000)
    assert (cost.points, cost.chunks, cost.requests, cost.series) == (120, 2, 6, 150)
    assert cost.samples == 18_000
    # Of every minute four samples are read: four times for the mean and its guard, once for memory.
    assert cost.source_samples == 120 * (100 * 4 * 4 + 50 * 4)
    assert cost.largest_query_samples == 60 * 100 * 4 * 4
    assert cost.seconds == 30  # six requests of 2 s, 18,000 samples of 1 ms, one after the other
    cost = estimate(found, cut, reads, Pace(concurrency=64, requests_per_second=2), step_ms=60_000)
    assert cost.seconds == 10  # three queries of a chunk at the same time
    cost = estimate(found, cut, reads, Pace(concurrency=64, requests_per_second=0.1), step_ms=60_000)
    assert cost.seconds == 60  # six requests, one every ten seconds


def test_what_stands_for_a_step() -> None:
    assert (
        reduction("gpu_util_ratio")
        is reduction("power_watts")
        is reduction("nvlink_bytes_per_second")
        is Reduction.MEAN
    )
    assert {reduction(c) for c in ("energy_joules", "power_limit_watts", "pcie_replay_count")} == {Reduction.COUNTER}
    assert {reduction(c) for c in ("fb_used_bytes", "fb_free_bytes", "fb_total_bytes")} == {Reduction.LAST}
    assert {reduction(c) for c in ("xid_code", "throttle_reasons", "row_remap_failure")} == {Reduction.MAX}
    means = {column for column in Reading.__dataclass_fields__ if reduction(column) is Reduction.MEAN}
    assert not {column for column in means if column.endswith(("_count", "_bytes", "_joules", "_code"))}


def test_the_expressions() -> None:
    closed, open_ = Window(60_000, is_closed=True), Window(60_000, is_closed=False)
    names = ["DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_FB_USED", "up", "kube_pod_info"]
    asked = queries(names, (), closed, is_raw=False)
    over = "DCGM_FI_DEV_POWER_USAGE[59999ms] offset 1ms"
    mean = asked["DCGM_FI_DEV_POWER_USAGE"]
    labels = mean[mean.index("(pod, ") + 1 : mean.index(")")]
    assert "vgpu" not in labels  # copies for the slots of a shared card stay apart from the card's own
    total, count, largest = (
        f"{how} without ({labels}) ({function}({over}))"
        for how, function in (("sum", "sum_over_time"), ("sum", "count_over_time"), ("max", "max_over_time"))
    )
    assert mean == f"({total} / {count} and {largest} <= 20000) or {largest}"
    largest_code = "(max_over_time(DCGM_FI_DEV_XID_ERRORS[59999ms] offset 1ms))"
    assert asked["DCGM_FI_DEV_XID_ERRORS"] == f"max without ({labels}) {largest_code}"
    assert asked["DCGM_SIGHTED_0"] == f"count_over_time({over})"
    assert asked["DCGM_FI_DEV_FB_USED"] == "last_over_time(DCGM_FI_DEV_FB_USED[59999ms] offset 1ms)"
    assert asked["kube_pod_info"].startswith("last_over_time(kube_pod_info[59999ms] offset 1ms) and on (")
    assert "up" not in asked
    raw = queries(names, (), open_, is_raw=True)
    assert raw["DCGM_FI_DEV_POWER_USAGE"] == "last_over_time(DCGM_FI_DEV_POWER_USAGE[60s] offset 1ms)"
    assert [pod_step_ms(step) for step in (15_000, 7_000, 60_000, 300_000)] == [60_000, 63_000, 60_000, 300_000]
    assert instant(milliseconds(NOON)) == NOON


def test_metrics_of_mapped_exporters_are_asked_for_as_well() -> None:
    window = Window(60_000, is_closed=True)
    asked = queries(["gpu_gfx_activity", "amd_gpu_used_vram", "gpu_of_nobody"], (), window, is_raw=False)
    assert asked["gpu_gfx_activity"].startswith("(sum without (pod, ")
    assert asked["gpu_gfx_activity"].count("<= 100)") == 1
    assert asked["amd_gpu_used_vram"] == "last_over_time(amd_gpu_used_vram[59999ms] offset 1ms)"
    assert "gpu_of_nobody" not in asked
    holders = ["hami_vgpu_core_allocated_ratio", "hami_container_device_utilization_ratio"]
    of_holders = queries(holders, (), window, is_raw=False)
    assert all(of_holders[name] == f"last_over_time({name}[59999ms] offset 1ms)" for name in holders)
    assert "gpu_gfx_activity" in NAMES.value
