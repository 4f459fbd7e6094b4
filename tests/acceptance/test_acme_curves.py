"""Utilization 99 % is not efficiency: cards drawn from Acme's published curves, graded by SM activity or not at all.

Card k of a cluster reads the k-th point of each curve, as the same raw samples would if both rose together. What the
ledger must say of them is counted from the curves by the definitions of section A alone: below 5 % SM activity idle,
below 50 % low, else productive; without SM activity, utilization below 1 % is idle and all else has no grade.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from analyzers.rules.low_activity import LowActivity
from gpuledger.model import Reading, Window, to_table
from tests.warehouse.judged import AT, H100, MINUTE, Judged

CURVES = Path(__file__).parents[3] / "shared" / "data" / "acme" / "acme_metric_cdfs.parquet"
SOURCES = {"seren": "util_gpu_seren", "kalos": "util_gpu_kalos_full"}
ONE_CARD = {"pod_count": 1, "num_gpu": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
Values = Sequence[float] | np.ndarray
HOUR = Window(AT, AT + 60 * MINUTE)
STEP = 15
"""Minutes between two readings: four stand for the hour."""

OWN_UTIL = (0, 0, 0, 0.5, 1, 40, 97, 98, 99, 99, 99, 99, 99, 99, 99, 99, 99, 100, 100, 100)
OWN_SM = (0, 0, 0, 0, 2, 4.9, 5, 8, 12, 20, 28, 36, 42, 48, 49.9, 50, 58, 66, 80, 97)
"""A curve of our own of the same shape, in percent."""


def _curve(cluster: str, metric: str) -> np.ndarray:
    if not CURVES.exists():
        pytest.skip("../shared is absent: the published curves are not beside this checkout")
    points = pl.read_parquet(CURVES).filter(
        (pl.col("cluster") == cluster) & (pl.col("metric") == metric) & (pl.col("source_pkl") == SOURCES[cluster])
    )
    return np.asarray(points.sort("cdf_pct")["value"].to_numpy())


def _ledger(util_pct: Values, sm_pct: Values | None) -> Judged:
    """An hour of as many cards as the curves have points, each held by a job and reading the same all the time."""
    ledger = Judged()
    cards = [f"g{k:04}" for k in range(len(util_pct))]
    ledger.put("workload", {"workload_id": "w", "kind": "training", "submitted_at": AT, **ONE_CARD})
    ledger.hold(*cards)
    readings = [
        Reading(
            ts=AT + minute * MINUTE,
            node="n",
            gpu_uuid=card,
            source="s",
            interval_seconds=60.0 * STEP,
            model=H100,
            gpu_util_ratio=util_pct[k] / 100,
            sm_active_ratio=None if sm_pct is None else sm_pct[k] / 100,
        )
        for k, card in enumerate(cards)
        for minute in range(0, 60, STEP)
    ]
    assert not ledger.house.ingest("reading", to_table("reading", readings), "curves").rejected
    return ledger


def _check(util_pct: np.ndarray, sm_pct: np.ndarray, *, idle: tuple[int, int], low: int, productive: int) -> None:
    """`idle`: cards idle by SM activity, and by utilization alone; an hour of each card, so cards are GPU-hours."""
    by_sm = _ledger(util_pct, sm_pct)
    ungraded = len(util_pct) - idle[0] - low - productive
    expected = {"alloc_idle": idle[0], "alloc_low": low, "alloc_productive": productive, "alloc_ungraded": ungraded}
    assert by_sm.hours() == {state: count for state, count in expected.items() if count}
    by_sm.house.close()
    by_util = _ledger(util_pct, None)
    assert by_util.hours() == {"alloc_idle": idle[1], "alloc_ungraded": len(util_pct) - idle[1]}
    assert set(by_util.hours("basis", "state")) == {("gpu_util", "alloc_idle"), ("gpu_util", "alloc_ungraded")}
    by_util.house.close()


@pytest.mark.parametrize(
    ("cluster", "idle", "low", "productive"),
    [("seren", (342, 315), 157, 501), ("kalos", (394, 259), 107, 466)],
)
def test_published_curves_are_graded_by_sm_activity_and_never_by_utilization(
    cluster: str, idle: tuple[int, int], low: int, productive: int
) -> None:
    """Of Kalos' 427 points below 5 % SM activity, 33 read exactly 0 beside 90 % or more: no measurement, no grade."""
    util, sm = _curve(cluster, "GPU_UTIL_pct"), _curve(cluster, "SM_ACTIVE_pct")
    assert np.median(util) >= 98, "half of the cards read nearly full utilization"
    _check(util, sm, idle=idle, low=low, productive=productive)


def test_a_curve_of_our_own_is_graded_alike() -> None:
    """Six points lie below 5 % SM activity, nine more below 50 %; four lie below 1 % utilization."""
    _check(np.array(OWN_UTIL), np.array(OWN_SM), idle=(6, 4), low=9, productive=5)


def test_cards_that_all_read_99_percent_are_told_apart_by_sm_activity_alone() -> None:
    """Whoever graded by utilization would call all twenty productive, or all twenty alike."""
    util = [99.0] * len(OWN_SM)
    ledger = _ledger(util, [max(point, 0.1) for point in OWN_SM])
    assert ledger.hours() == {"alloc_idle": 6, "alloc_low": 9, "alloc_productive": 5}
    found = LowActivity().run(ledger.house, HOUR, {}).findings
    assert {finding.cause_code for finding in found} == {"util_lies"}
    ledger.house.close()
    without = _ledger(util, None)
    assert without.hours() == {"alloc_ungraded": 20}
    result = LowActivity().run(without.house, HOUR, {})
    assert not result.findings
    assert result.totals["ungraded_gpu_hours"] == pytest.approx(20)
    without.house.close()
