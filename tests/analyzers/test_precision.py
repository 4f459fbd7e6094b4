"""Intervals against published values, draws that add up, estimates that are right on average over every draw."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.precision import Judged, Stratum, allocate, clopper_pearson, precision


@pytest.mark.parametrize(
    ("right", "judged", "low", "high"),
    [
        (19, 20, 0.751267, 0.998735),
        (20, 20, 0.025 ** (1 / 20), 1.0),
        (0, 20, 0.0, 1 - 0.025 ** (1 / 20)),
        (1, 1, 0.025, 1.0),
        (5, 10, 0.187086, 0.812914),
        (0, 0, 0.0, 1.0),
    ],
)
def test_clopper_and_pearson(right: int, judged: int, low: float, high: float) -> None:
    assert clopper_pearson(right, judged) == pytest.approx((low, high), abs=5e-7)


def test_one_stratum_is_its_plain_share() -> None:
    found = precision([Judged(stratum_count=1000, right_count=19, wrong_count=1)])
    assert (found.value, found.judged_count, found.effective_count) == pytest.approx((0.95, 20, 20))
    assert (found.low, found.high) == pytest.approx(clopper_pearson(19, 20))


def test_strata_count_by_their_size_not_by_what_was_judged_of_them() -> None:
    large = Judged(stratum_count=900, right_count=9, wrong_count=1)
    small = Judged(stratum_count=100, right_count=10, wrong_count=10)
    found = precision([large, small])
    assert found.value == pytest.approx(0.9 * 0.9 + 0.1 * 0.5)
    assert found.effective_count == pytest.approx(1000**2 / (900**2 / 10 + 100**2 / 20))
    assert found.low < 0.86 < found.high
    assert found.low == pytest.approx(clopper_pearson(0.86 * found.effective_count, found.effective_count)[0])


def test_what_was_not_judged_is_not_guessed() -> None:
    nothing = Judged(stratum_count=50, right_count=0, wrong_count=0)
    assert precision([]).value is None
    assert precision([nothing]).value is None
    found = precision([nothing, Judged(stratum_count=150, right_count=3, wrong_count=0)])
    assert (found.value, found.judged_share) == (1.0, 0.75)


def test_over_all_draws_the_estimate_is_the_truth_on_average() -> None:
    truth = {"a": (1, 1, 0, 0, 0), "b": (1, 1, 0)}
    draws = itertools.product(itertools.combinations(truth["a"], 2), itertools.combinations(truth["b"], 1))
    estimates = []
    for first, second in draws:
        strata = [
            Judged(stratum_count=len(all_), right_count=sum(drawn), wrong_count=len(drawn) - sum(drawn))
            for all_, drawn in ((truth["a"], first), (truth["b"], second))
        ]
        estimates.append(precision(strata).value or 0.0)
    assert sum(estimates) / len(estimates) == pytest.approx(float(Fraction(4, 8)))


COUNTS = st.dictionaries(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.sampled_from("uv")), st.integers(1, 60), max_size=10
)


@given(COUNTS, st.integers(1, 400), st.integers(0, 30))
def test_draws_add_up_and_no_stratum_is_overdrawn(counts: dict[Stratum, int], size: int, floor: int) -> None:
    drawn = allocate(counts, size, floor)
    assert sum(drawn.values()) == min(size, sum(counts.values()))
    assert all(0 <= drawn[one] <= counts[one] for one in counts)
    lowered = min(max(1, floor), size // len(counts)) if counts else 0
    assert all(drawn[one] >= min(counts[one], lowered) for one in counts)
    for one, other in itertools.combinations(counts, 2):
        if counts[one] < counts[other]:
            assert drawn[one] <= drawn[other] + 1


def test_a_floor_lets_small_strata_be_judged() -> None:
    counts: dict[Stratum, int] = {("r", "a", "n"): 1000, ("r", "b", "n"): 30, ("r", "c", "n"): 5}
    assert list(allocate(counts, 200, 20).values()) == [173, 22, 5]
    assert list(allocate(counts, 30, 20).values()) == [15, 10, 5]
    assert list(allocate(counts, 2, 20).values()) == [1, 1, 0]
