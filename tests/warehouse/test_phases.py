"""Phases that work declares of itself: cards that are quiet in one are not idle, for two hours of it at most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.warehouse.judged import AT, MINUTE, Judged

IDLE: dict[str, Any] = {"sm_active_ratio": 0.0, "gpu_util_ratio": 0.0, "power_watts": 80.0}


@pytest.fixture
def ledger() -> Iterator[Judged]:
    judged = Judged()
    yield judged
    judged.house.close()


def declare(ledger: Judged, phase: str, begin: float, end: float | None, *, pod: str = "") -> None:
    until = None if end is None else AT + end * MINUTE
    ledger.put(
        "workload_phase",
        {"workload_id": "w", "pod": pod, "phase": phase, "from_at": AT + begin * MINUTE, "until_at": until},
    )


def idle(ledger: Judged, minutes: int, **changed: Any) -> None:
    ledger.hold("g", minutes=minutes, **changed)
    ledger.read("g", 0, minutes, **IDLE)


@pytest.mark.parametrize("phase", ["initialization", "compile", "checkpoint", "evaluation", "rollout", "update"])
def test_idle_in_a_quiet_phase_is_low_with_the_phase_as_its_cause(ledger: Judged, phase: str) -> None:
    idle(ledger, 120)
    declare(ledger, phase, 40, 75)
    hours = ledger.hours("state", "cause", minutes=120)
    assert hours["alloc_low", phase] == pytest.approx(35 / 60)
    assert hours["alloc_idle", ""] == pytest.approx(85 / 60)


def test_idle_while_it_says_that_it_trains_is_idle(ledger: Judged) -> None:
    idle(ledger, 120)
    declare(ledger, "train", 0, 120)
    assert ledger.hours("state", "cause", minutes=120) == {("alloc_idle", ""): 2.0}


@pytest.mark.parametrize("end", [360, None], ids=["declared longer", "never closed"])
def test_a_phase_is_believed_for_two_hours(ledger: Judged, end: float | None) -> None:
    """From the minute after on, the card is idle."""
    idle(ledger, 360)
    declare(ledger, "checkpoint", 60, end)
    spans = ledger.spans("cause", minutes=360)
    low = [(span[1], span[2]) for span in spans if span[4] == "checkpoint"]
    assert (min(low)[0], max(low)[1]) == (60, 180)
    assert {span[3] for span in spans if span[2] <= 60 or span[1] >= 180} == {"alloc_idle"}
    assert ledger.hours("state", "cause", minutes=360) == {
        ("alloc_low", "checkpoint"): 2.0,
        ("alloc_idle", ""): 4.0,
    }


def test_declaring_a_phase_anew_extends_nothing(ledger: Judged) -> None:
    idle(ledger, 360)
    for begin in (60, 120, 180, 240):
        declare(ledger, "evaluation", begin, begin + 60)
    assert ledger.hours("state", "cause", minutes=360)["alloc_low", "evaluation"] == 2.0


def test_a_phase_that_was_not_closed_ends_with_the_next(ledger: Judged) -> None:
    idle(ledger, 120)
    declare(ledger, "checkpoint", 0, None)
    declare(ledger, "train", 45, None)
    hours = ledger.hours("state", "cause", minutes=120)
    assert hours == {("alloc_low", "checkpoint"): 0.75, ("alloc_idle", ""): 1.25}


def test_a_phase_of_one_pod_excuses_no_other(ledger: Judged) -> None:
    """Learner and actors take turns: each pod is quiet in its own phase only."""
    ledger.hold("actor", minutes=120, pod="w-0")
    ledger.hold("learner", minutes=120, pod="w-1")
    for card in ("actor", "learner"):
        ledger.read(card, 0, 120, **IDLE)
    declare(ledger, "update", 0, 60, pod="w-0")
    hours = ledger.hours("gpu_uuid", "state", "cause", minutes=120)
    assert hours["actor", "alloc_low", "update"] == 1.0
    assert {key for key in hours if key[0] == "learner"} == {("learner", "alloc_idle", "")}


def test_before_ready_a_quiet_phase_is_starting(ledger: Judged) -> None:
    idle(ledger, 120, ready_minute=60)
    declare(ledger, "compile", 0, 40)
    spans = ledger.spans("cause", minutes=120)
    assert {span[3] for span in spans if span[2] <= 40} == {"alloc_starting"}
