"""The short form of docs/accuracy.md: one seed of each mix, one with telemetry missing, and the clean fleet."""

from __future__ import annotations

from functools import cache

import pytest

from gpuledger.app.accuracy import MISSING_RATIO, MIXES, Trial, Verdict, judge
from gpuledger.app.accuracy_page import WANTED_PRECISION, WANTED_RECALL, precision, recall

OF_WASTE = {"idle_allocation", "gang_partial_idle", "stalled_allocation", "fragmentation"}


@cache
def verdict_of(mix: str, missing_ratio: float = 0.0) -> Verdict:
    return judge(Trial(mix, 1, missing_ratio))


@pytest.mark.parametrize("mix", MIXES)
def test_rules_find_what_was_planted_and_accuse_nobody_else(mix: str) -> None:
    verdict = verdict_of(mix)
    measured = [score for score in verdict.scores if score.planted or score.claimed]
    assert {score.rule for score in measured} >= OF_WASTE | {"low_activity", "hardware_fault", "throttling"}
    for score in measured:
        assert not score.error, score
        assert (precision(score) or 0.0) >= WANTED_PRECISION, score
        assert (recall(score) or 0.0) >= WANTED_RECALL, score


@pytest.mark.parametrize("mix", MIXES)
def test_no_gpu_hour_is_claimed_twice_and_the_ledger_adds_up(mix: str) -> None:
    verdict = verdict_of(mix)
    assert verdict.double_claimed_hours == 0
    assert verdict.audit_rows == 0
    trial = verdict.trial
    assert sum(verdict.state_hours.values()) == pytest.approx(trial.nodes * 8 * trial.days * 24)


def test_what_is_not_seen_becomes_unknown_and_no_accusation() -> None:
    whole, thinned = verdict_of("training"), verdict_of("training", MISSING_RATIO)
    for score in thinned.scores:
        if score.rule in OF_WASTE | {"low_activity"}:
            assert (precision(score) or 0.0) >= WANTED_PRECISION, score
    lost = thinned.state_hours["alloc_unknown"] - whole.state_hours["alloc_unknown"]
    assert lost > 0.1 * sum(whole.state_hours.values())
    for state in ("alloc_idle", "alloc_stalled", "alloc_low", "alloc_productive"):
        assert thinned.state_hours[state] < whole.state_hours[state]
    assert thinned.state_hours["free_stranded"] == pytest.approx(whole.state_hours["free_stranded"])
    assert thinned.double_claimed_hours == 0


def test_a_clean_fleet_full_of_look_alikes_gives_no_finding() -> None:
    verdict = verdict_of("clean")
    assert {score.rule: score.findings for score in verdict.scores if score.findings or score.error} == {}
    assert "quota_balance" in {score.rule for score in verdict.scores}
    assert sum(verdict.lookalike_hours.values()) > 1000
