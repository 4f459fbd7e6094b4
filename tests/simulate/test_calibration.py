"""Training's counters against the published curves of the Acme trace, and our constants against the same curves."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import polars as pl
import pytest

from gpuledger.model import GPU_MODELS
from gpuledger.simulate import shapes

CURVES = Path(__file__).parents[3] / "shared" / "data" / "acme" / "acme_metric_cdfs.parquet"
ACTIVE_ABOVE_PCT = 5.0


def _training(told) -> pl.DataFrame:
    """Readings of cards that training holds, ready, while anything runs on them."""
    workloads = told.tables["workload"].filter(pl.col("kind") == "training")
    holds = told.tables["allocation"].join(workloads.select("workload_id"), on="workload_id")
    readings = told.tables["reading"].filter(pl.col("sm_active_ratio") > ACTIVE_ABOVE_PCT / 100)
    spans = holds.select(
        card="gpu_uuid", begin="ready_at", end=pl.col("ended_at").fill_null(told.simulation.spec.end_at)
    )
    return readings.join_where(
        spans,
        pl.col("gpu_uuid") == pl.col("card"),
        pl.col("ts") >= pl.col("begin"),
        pl.col("ts") < pl.col("end"),
    ).filter((pl.col("sm_active_ratio") > 0.25) & (pl.col("gpu_util_ratio") > 0.6))


def test_active_training_reads_near_99_percent_while_its_sms_do_not(tell) -> None:
    training = _training(tell(16, 2, 1))
    assert training["gpu_util_ratio"].median() == pytest.approx(shapes.ACTIVE_UTIL_MEDIAN_RATIO, abs=0.01)
    for position in (0.25, 0.5, 0.75):
        expected = shapes.quantile(shapes.ACTIVE_SM_RATIO, position)
        assert training["sm_active_ratio"].quantile(position) == pytest.approx(expected, abs=0.07), position
    tensor = cast("float", (training["tensor_active_ratio"] / training["sm_active_ratio"]).median())
    assert 0.3 < tensor < 0.8


def test_over_all_cards_the_median_sm_activity_lies_between_the_two_published_ones(tell) -> None:
    readings = tell(16, 2, 1).tables["reading"].filter(pl.col("sm_active_ratio").is_not_null())
    low, high = shapes.FLEET_SM_MEDIAN_RATIO
    assert low - 0.1 <= readings["sm_active_ratio"].median() <= high + 0.05


def test_power_follows_activity_between_idle_and_full(small) -> None:
    known = {model.model: model for model in GPU_MODELS}
    readings = small.tables["reading"].filter(pl.col("slice_id") == "").drop_nulls("sm_active_ratio")
    for (model,), rows in readings.group_by("model"):
        facts = known[str(model)]
        band = facts.power_tdp_watts - facts.power_idle_watts
        effort = (rows["power_watts"] - facts.power_idle_watts) / band
        assert effort.min() >= -1e-9
        assert effort.max() <= 1 + 1e-9
        quiet = effort.filter((rows["sm_active_ratio"] == 0) & (rows["gpu_util_ratio"] == 0))
        assert quiet.max() < 0.12
    busy = readings.filter(pl.col("sm_active_ratio") > 0.1)
    assert np.corrcoef(busy["sm_active_ratio"], busy["power_watts"])[0, 1] > 0.5


def _published(metric: str, cluster: str, source: str) -> np.ndarray:
    if not CURVES.exists():
        pytest.skip("the published curves are not beside this checkout")
    curve = pl.read_parquet(CURVES).filter(
        (pl.col("cluster") == cluster) & (pl.col("metric") == metric) & (pl.col("source_pkl") == source)
    )
    return np.asarray(curve["value"].to_numpy())


def test_our_constants_are_the_published_quantiles() -> None:
    sm = _published("SM_ACTIVE_pct", "seren", "util_gpu_seren")
    active = sm[sm > ACTIVE_ABOVE_PCT]
    inner = slice(1, -1)
    expected = np.quantile(active, shapes.QUANTILE_POINTS[inner]) / 100
    assert shapes.ACTIVE_SM_RATIO[inner] == pytest.approx(expected, abs=0.005)
    util = _published("GPU_UTIL_pct", "seren", "util_gpu_seren")
    assert np.median(util[util > ACTIVE_ABOVE_PCT]) / 100 == pytest.approx(shapes.ACTIVE_UTIL_MEDIAN_RATIO, abs=0.005)
    kalos = _published("SM_ACTIVE_pct", "kalos", "util_gpu_kalos_full")
    assert pytest.approx((np.median(kalos) / 100, np.median(sm) / 100), abs=0.005) == shapes.FLEET_SM_MEDIAN_RATIO


def test_our_memory_constants_lie_between_the_two_clusters() -> None:
    quantiles = []
    for cluster, source in (("seren", "util_gpu_seren"), ("kalos", "util_gpu_kalos_full")):
        used = _published("FB_USED_pct", cluster, source)
        quantiles.append(np.quantile(used[used > ACTIVE_ABOVE_PCT], shapes.QUANTILE_POINTS[1:-1]) / 100)
    low, high = np.minimum(*quantiles), np.maximum(*quantiles)
    assert (shapes.ACTIVE_FB_RATIO[1:-1] >= low - 0.02).all()
    assert (shapes.ACTIVE_FB_RATIO[1:-1] <= high + 0.02).all()
