from __future__ import annotations

from datetime import timedelta

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from gpuledger.app.accuracy import Grid, Score, Trial, Verdict, _by_hours, trials
from gpuledger.app.accuracy_page import merge, page, precision, recall, shortfalls, sorted_out
from gpuledger.simulate import FleetSpec, Simulation, simulate


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(FleetSpec(nodes=1, days=1, scenario="busy"))


def claims(simulation: Simulation, *rows: tuple[int, int, int, float]) -> pa.Table:
    at = simulation.spec.instant
    return pa.table(
        {
            "gpu_uuid": [simulation.fleet.cards[card].gpu_uuid for card, *_ in rows],
            "from_at": [at(begin) for _, begin, *_ in rows],
            "until_at": [at(end) for _, _, end, _ in rows],
            "gpu_hours": [hours for *_, hours in rows],
        }
    )


def truth(simulation: Simulation, *rows: tuple[str, str, str, int, int, int]) -> pl.DataFrame:
    at = simulation.spec.instant
    return pl.DataFrame(
        {
            "kind": [kind for kind, *_ in rows],
            "rule": [rule for _, rule, *_ in rows],
            "cause": [cause for _, _, cause, *_ in rows],
            "gpu_uuid": [simulation.fleet.cards[card].gpu_uuid for *_, card, _, _ in rows],
            "from_at": [at(begin) for *_, begin, _ in rows],
            "until_at": [at(end) for *_, end in rows],
            "gpu_hours": [(end - begin) / 60 for *_, begin, end in rows],
        }
    )


def score_of(simulation: Simulation, planted: pl.DataFrame, claimed: pa.Table) -> Score:
    grid, score = Grid(simulation), Score("r", planted=0.0)
    own = planted.filter((pl.col("rule") == "r") & (pl.col("kind") != "lookalike"))
    score.planted = float(own["gpu_hours"].sum())
    _by_hours(score, own, planted, grid, grid.claimed(claimed))
    return score


def test_precision_and_recall_by_hand(simulation: Simulation) -> None:
    told = truth(simulation, ("waste", "r", "idle", 0, 60, 180), ("lookalike", "r", "checkpoint", 0, 180, 200))
    # Half of what was planted, 20 minutes of a look-alike, and 10 of plain work on another card.
    score = score_of(simulation, told, claims(simulation, (0, 120, 200, 80 / 60), (1, 0, 10, 10 / 60)))
    assert score.planted == pytest.approx(2.0)
    assert score.claimed == pytest.approx(1.5)
    assert precision(score) == pytest.approx(1.0 / 1.5)
    assert recall(score) == pytest.approx(0.5)
    assert score.accused == pytest.approx({"checkpoint": 20 / 60, "plain work": 10 / 60})


def test_the_right_minutes_of_the_wrong_card_are_wrong(simulation: Simulation) -> None:
    told = truth(simulation, ("waste", "r", "idle", 0, 60, 180))
    score = score_of(simulation, told, claims(simulation, (1, 60, 180, 2.0)))
    assert (precision(score), recall(score)) == (0.0, 0.0)


def test_what_another_rule_should_have_claimed_is_named(simulation: Simulation) -> None:
    told = truth(simulation, ("waste", "r", "idle", 0, 60, 120), ("waste", "other", "hung", 2, 60, 120))
    score = score_of(simulation, told, claims(simulation, (0, 60, 120, 1.0), (2, 60, 120, 1.0)))
    assert precision(score) == pytest.approx(0.5)
    assert score.accused == {"other: hung": pytest.approx(1.0)}


def test_a_claim_that_is_told_twice_finds_no_more_than_was_planted(simulation: Simulation) -> None:
    told = truth(simulation, ("waste", "r", "idle", 0, 0, 120))
    score = score_of(simulation, told, claims(simulation, (0, 0, 60, 1.0), (0, 0, 60, 1.0), (0, 0, 60, 1.0)))
    assert score.found == pytest.approx(2.0)
    grid = Grid(simulation).claimed(claims(simulation, (0, 0, 60, 1.0), (0, 30, 60, 0.5)))
    assert np.clip(grid - 1, 0, None).sum() == pytest.approx(30)


def test_claims_outside_the_span_are_cut(simulation: Simulation) -> None:
    grid = Grid(simulation)
    uuid = simulation.fleet.cards[0].gpu_uuid
    end = simulation.spec.end_at
    assert grid.cells(uuid, end - timedelta(minutes=5), end + timedelta(hours=1)) == (0, slice(1435, 1440))


def verdict(mix: str, *scores: Score, missing: float = 0.0) -> Verdict:
    return Verdict(Trial(mix, 1, missing), list(scores), {"alloc_idle": 1.0}, {"paused": 3.0}, 0.0, 0)


def test_scores_of_fleets_are_summed_before_they_are_divided() -> None:
    total = merge(
        [
            Score("r", 1.0, 1.0, 2.0, 1.0, 1, {}, {"a": (2.0, 1.0)}),
            Score("r", 3.0, 1.0, 2.0, 2.0, 1, {"b": 2.0}, {"a": (2.0, 2.0)}),
        ]
    )
    assert precision(total) == 0.5
    assert recall(total) == 0.75
    assert total.by_cause == {"a": (4.0, 3.0)}
    assert precision(Score("r")) is None
    assert recall(Score("r")) is None


def test_what_falls_short_is_said_and_what_does_not_is_not() -> None:
    good = Score("r", 10.0, 9.7, 10.0, 9.5, 2)
    bad = Score("s", 10.0, 9.6, 10.0, 9.4, 2, {"paused": 0.4}, {"idle": (10.0, 9.4)})
    whole, thinned = verdict("training", good, bad), verdict("training", good, bad, missing=0.2)
    clean = verdict("clean", Score("r", findings=1))
    told = list(shortfalls(*sorted_out([whole, thinned, clean])))
    assert told == [
        "`s` on training: precision 0.9600; claimed wrongly: paused 0.4.",
        "`s` on training: recall 0.9400; missed: idle 0.6.",
        "With telemetry missing: `s` on training: precision 0.9600; claimed wrongly: paused 0.4.",
        "The clean fleet of seed 1 has 1 findings.",
    ]
    written = page([whole, thinned, clean])
    assert all(f"* {line}" in written for line in told)
    assert "| paused | 3.0 | `s` 0.4 |" in written


def test_each_mix_is_tried_whole_and_thinned_and_each_seed_has_a_clean_fleet() -> None:
    chosen = trials(("training", "serving"), (1, 2, 3))
    assert len(chosen) == 2 * 3 * 2 + 3
    assert sum(trial.missing_ratio > 0 for trial in chosen) == 6
