from __future__ import annotations

from datetime import timedelta
from typing import cast

import polars as pl
import pytest

from gpuledger.simulate.truth import TRUTH_SCHEMA

CARDS = pl.col("rule") != "quota_balance"


@pytest.mark.parametrize(("nodes", "days", "seed"), [(8, 3, 1), (8, 3, 7), (16, 2, 1), (24, 2, 3)])
def test_look_alikes_weigh_at_least_as_much_as_the_waste(tell, nodes: int, days: int, seed: int) -> None:
    truth = tell(nodes, days, seed).truth.filter(CARDS)
    waste = truth.filter(pl.col("kind") == "waste")["gpu_hours"].sum()
    lookalike = truth.filter(pl.col("kind") == "lookalike")["gpu_hours"].sum()
    assert 0 < waste <= lookalike
    assert waste + lookalike < nodes * 8 * 24 * days


def test_eight_nodes_already_hold_every_kind_of_waste(small) -> None:
    assert small.simulation.truth().schema == TRUTH_SCHEMA
    planted = set(small.truth.filter(pl.col("kind") == "waste").select("rule", "cause").iter_rows())
    assert {
        ("idle_allocation", "finished_not_released"),
        ("idle_allocation", "memory_held"),
        ("idle_allocation", "never_used"),
        ("idle_allocation", "tidal_idle"),
        ("stalled", "collective_hang"),
        ("fragmentation", "cpu"),
        ("fragmentation", "insufficient_whole"),
        ("quota_balance", "underused"),
        ("quota_balance", "blocked"),
        ("tidal", "overprovisioned_at_night"),
        ("fault", "not_ready"),
        ("fault", "gpu_lost"),
        ("fault", "fatal_xid"),
        ("fault", "under_repair"),
    } <= planted


def test_a_fleet_of_four_for_a_day_still_has_waste_and_look_alikes(tell) -> None:
    truth = tell(4, 1, 1).truth
    assert set(truth["kind"]) == {"waste", "lookalike"}


def test_rows_lie_in_the_span_and_hours_fit_their_length(small) -> None:
    truth, spec = small.truth, small.simulation.spec
    assert truth["from_at"].min() >= spec.start_at
    assert truth["until_at"].max() <= spec.end_at
    assert (truth["from_at"] < truth["until_at"]).all()
    length = (truth["until_at"] - truth["from_at"]).dt.total_seconds() / 3600
    on_a_card = truth["gpu_uuid"].is_not_null()
    assert (truth["gpu_hours"] <= length + 1e-9).filter(on_a_card).all()


def test_what_is_wasted_on_a_card_is_wasted_once(small) -> None:
    waste = small.truth.filter((pl.col("kind") == "waste") & pl.col("gpu_uuid").is_not_null())
    minutes = waste.with_columns(
        share=pl.col("gpu_hours") / ((pl.col("until_at") - pl.col("from_at")).dt.total_seconds() / 3600),
        at=pl.datetime_ranges("from_at", pl.col("until_at") - timedelta(minutes=1), "1m"),
    ).explode("at")
    assert minutes.group_by("gpu_uuid", "at").agg(pl.col("share").sum())["share"].max() <= 1 + 1e-6


def _read_during(small, rows: pl.DataFrame) -> pl.DataFrame:
    """The readings of the rows' cards (whole ones) strictly inside the rows' stretches."""
    readings = small.tables["reading"].filter(pl.col("slice_id") == "")
    return readings.join_where(
        rows.select(card="gpu_uuid", begin="from_at", end="until_at"),
        pl.col("gpu_uuid") == pl.col("card"),
        pl.col("ts") >= pl.col("begin"),
        pl.col("ts") < pl.col("end"),
    )


def _lowest(rows: pl.DataFrame, column: str) -> float:
    return cast("float", rows[column].min())


def _highest(rows: pl.DataFrame, column: str) -> float:
    return cast("float", rows[column].max())


def test_planted_idleness_is_idle_and_planted_stalls_only_look_busy(small) -> None:
    whole = small.truth.filter(pl.col("note") != "a notebook left open overnight")
    idle = _read_during(small, whole.filter((pl.col("kind") == "waste") & (pl.col("rule") == "idle_allocation")))
    measured = idle.filter(pl.col("sm_active_ratio").is_not_null())
    assert measured.height > 1000
    assert measured["sm_active_ratio"].max() == 0
    assert measured["gpu_util_ratio"].max() == 0
    stalled = _read_during(small, whole.filter(pl.col("rule") == "stalled"))
    assert _lowest(stalled, "gpu_util_ratio") >= 0.9
    assert _highest(stalled, "tensor_active_ratio") < 0.02
    assert _highest(stalled, "dram_active_ratio") < 0.05
    lost = _read_during(small, whole.filter(pl.col("cause").is_in(["gpu_lost", "not_ready", "under_repair"])))
    assert lost.height == 0


def test_silent_counters_are_absent_where_power_says_that_the_card_works(small) -> None:
    silent = _read_during(small, small.truth.filter(pl.col("cause") == "silent_profiling"))
    assert silent.height > 500
    assert silent["sm_active_ratio"].null_count() == silent.height
    assert (silent["quality_flags"] & 2 == 2).all()
    assert cast("float", silent["gpu_util_ratio"].median()) > 0.95
    assert _lowest(silent, "power_watts") > 150


def test_a_fatal_xid_shows_only_while_the_card_is_poisoned(small) -> None:
    shown = small.tables["reading"].filter(pl.col("xid_code") > 0)
    row = small.truth.filter(pl.col("cause") == "fatal_xid")
    assert set(shown["gpu_uuid"]) == set(row["gpu_uuid"])
    assert shown["ts"].min() >= row["from_at"].min()
    assert shown["ts"].max() < row["until_at"].max()
