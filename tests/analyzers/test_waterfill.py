"""Fair shares: worked example D2 and what must hold for any claims."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.recommend.waterfill import Claim, water_fill, whole_gpus

DESERVED = (50, 30, 20)


def _claims(requests: tuple[float, ...], weights: tuple[float, ...] = (1, 1, 1)) -> list[Claim]:
    return [
        Claim(queue=name, deserved_gpus=deserved, request_gpus=request, weight=weight, created_order=i)
        for i, (name, deserved, request, weight) in enumerate(zip("ABC", DESERVED, requests, weights, strict=True))
    ]


def test_d2_what_nobody_asks_for_stays_unallocated() -> None:
    claims = _claims((20, 45, 25))
    assert water_fill(100, claims) == pytest.approx([20, 45, 25])
    assert whole_gpus(100, claims, water_fill(100, claims)) == [20, 45, 25]


def test_d2_the_rest_goes_by_weight() -> None:
    claims = _claims((20, 60, 60), (1, 3, 1))
    shares = water_fill(100, claims)
    assert shares == pytest.approx([20, 52.5, 27.5])
    assert whole_gpus(100, claims, shares) == [20, 53, 27]


def test_d2_the_older_queue_gets_the_last_gpu() -> None:
    a, b, c = _claims((20, 60, 60), (1, 3, 1))
    younger = Claim(queue="B", deserved_gpus=30, request_gpus=60, weight=3, created_order=9)
    claims = [a, younger, c]
    assert whole_gpus(100, claims, water_fill(100, claims)) == [20, 52, 28]
    assert b.created_order < c.created_order


def test_d2_without_deserved_parts_weights_alone_decide() -> None:
    plain = [
        Claim(queue=claim.queue, deserved_gpus=0, request_gpus=claim.request_gpus, weight=claim.weight)
        for claim in _claims((20, 60, 60), (1, 3, 1))
    ]
    assert water_fill(100, plain) == pytest.approx([20, 60, 20])


def test_higher_priority_is_served_first() -> None:
    first = Claim(queue="first", deserved_gpus=0, request_gpus=8, priority=1)
    second = Claim(queue="second", deserved_gpus=0, request_gpus=8)
    assert water_fill(10, [second, first]) == pytest.approx([2, 8])


CLAIMS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 60), st.sampled_from([0, 1, 2.5]), st.integers(0, 2)),
    min_size=1,
    max_size=6,
)


@given(total=st.integers(0, 120), rows=CLAIMS)
def test_shares_stay_within_requests_and_the_total(total: int, rows: list[tuple[int, int, float, int]]) -> None:
    claims = [
        Claim(
            queue=f"q{i}",
            deserved_gpus=deserved,
            request_gpus=request,
            weight=weight,
            priority=priority,
            created_order=i,
        )
        for i, (deserved, request, weight, priority) in enumerate(rows)
    ]
    shares = water_fill(total, claims)
    whole = whole_gpus(total, claims, shares)
    for given_gpus in (shares, whole):
        assert sum(given_gpus) <= total + 1e-6
        assert all(0 <= share <= claim.request_gpus + 1e-6 for share, claim in zip(given_gpus, claims, strict=True))
    deserved = sum(min(claim.deserved_gpus, claim.request_gpus) for claim in claims)
    if deserved <= total:
        for share, claim in zip(shares, claims, strict=True):
            assert share >= min(claim.deserved_gpus, claim.request_gpus) - 1e-6
