"""The program that moves quota: worked example D1, brute force, and the program written out with a variable an hour."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from analyzers.recommend.quota_program import Overcommitted, QueueDemand, QuotaPlan, move

NOW = (50.0, 30.0, 20.0)
DEMAND = ([10, 20, 20, 15], [45, 45, 30, 40], [20, 20, 25, 10])


def _d1(max_change_gpus: float, floors: Sequence[float] = (24, 0, 0)) -> list[QueueDemand]:
    return [
        QueueDemand(
            queue=name,
            nominal_gpus=nominal,
            floor_gpus=floor,
            max_change_gpus=max_change_gpus,
            demand_gpus=np.array(demand, dtype=float),
            scenario_weights=np.ones(4),
        )
        for name, nominal, floor, demand in zip("ABC", NOW, floors, DEMAND, strict=True)
    ]


def _objective(queues: Sequence[QueueDemand], quotas: Sequence[float]) -> float:
    return sum(queue.cost(quota, 1e-3) for queue, quota in zip(queues, quotas, strict=True))


def _best_whole(queues: Sequence[QueueDemand], count: int) -> list[tuple[float, tuple[int, ...]]]:
    ranges = [range(int(np.ceil(q.least_gpus)), int(q.most_gpus) + 1) for q in queues[:-1]]
    total, last = int(sum(q.nominal_gpus for q in queues)), queues[-1]
    points = ((*head, total - sum(head)) for head in itertools.product(*ranges))
    feasible = (point for point in points if last.least_gpus <= point[-1] <= last.most_gpus)
    return sorted((round(_objective(queues, point), 9), point) for point in feasible)[:count]


def test_d1_now() -> None:
    queues = _d1(0)
    assert [queue.unmet(queue.nominal_gpus) for queue in queues] == [0, 40, 5]
    idle = [np.maximum(0, queue.nominal_gpus - queue.demand_gpus).sum() for queue in queues]
    assert idle == [135, 0, 10]


@pytest.mark.parametrize("floors", [(24, 0, 0), (24, 30, 20)])
@pytest.mark.parametrize("step_gpus", [None, 1, 5])
@pytest.mark.parametrize(
    ("max_change_gpus", "quotas", "unmet", "objective"),
    [(10, (40, 40, 20), 15, 15.02), (100, (30, 45, 25), 0, 0.04)],
)
def test_d1(
    max_change_gpus: float,
    quotas: tuple[int, ...],
    unmet: float,
    objective: float,
    step_gpus: float | None,
    floors: Sequence[float],
) -> None:
    plan = move(_d1(max_change_gpus, floors), step_gpus=step_gpus)
    assert isinstance(plan, QuotaPlan)
    assert plan.nominal_gpus == pytest.approx(quotas, abs=1e-9)
    assert (plan.unmet, plan.objective) == pytest.approx((unmet, objective), abs=1e-9)


@pytest.mark.parametrize(
    ("max_change_gpus", "best", "next_best"),
    [(10, (15.02, (40, 40, 20)), 17.02), (100, (0.04, (30, 45, 25)), 0.042)],
)
def test_d1_is_unique_among_whole_gpus(
    max_change_gpus: float, best: tuple[float, tuple[int, ...]], next_best: float
) -> None:
    first, second = _best_whole(_d1(max_change_gpus), 2)
    assert first == best
    assert second[0] == next_best


def test_guards_that_exceed_the_total_are_reported_and_not_relaxed() -> None:
    found = move(_d1(100, (24, 30, 20)), total_gpus=60)
    assert isinstance(found, Overcommitted)
    assert found.shortfall_gpus == pytest.approx(14)
    assert found.total_price is not None
    assert found.total_price > 0
    # One GPU less than its floor costs B an hour in each scenario, C in three, A in none.
    assert found.floor_prices == {"A": 0.0, "B": 4.0, "C": 3.0}


def test_bounds_of_change_that_exceed_the_total_have_no_price() -> None:
    found = move(_d1(10, (24, 30, 20)), total_gpus=60)
    assert isinstance(found, Overcommitted)
    assert found.total_price is None


def _written_out(queues: Sequence[QueueDemand]) -> float:
    """The objective of section D's program with u[i, t], p[i] and n[i] as they stand there."""
    count, hours = len(queues), len(queues[0].demand_gpus)
    weights = np.concatenate([queue.weight * queue.scenario_weights for queue in queues])
    cost = np.concatenate((weights, np.full(2 * count, 1e-3)))
    rows, limits = [], []
    for i, queue in enumerate(queues):
        for t in range(hours):
            row = np.zeros(cost.size)
            row[i * hours + t] = -1
            row[count * hours + i] = -1
            row[count * hours + count + i] = 1
            rows.append(row)
            limits.append(queue.nominal_gpus - queue.demand_gpus[t])
    balance = np.concatenate((np.zeros(count * hours), np.ones(count), -np.ones(count)))
    bounds: list[tuple[float, float | None]] = [(0, None)] * (count * hours)
    bounds += [(0, queue.most_gpus - queue.nominal_gpus) for queue in queues]
    bounds += [(0, queue.nominal_gpus - queue.least_gpus) for queue in queues]
    answer = linprog(
        cost, A_ub=np.array(rows), b_ub=limits, A_eq=balance[None, :], b_eq=[0], bounds=bounds, method="highs"
    )
    assert answer.status == 0
    return float(answer.fun)


@st.composite
def _queues(draw: st.DrawFn) -> list[QueueDemand]:
    hours = draw(st.integers(1, 5))
    weights = np.array(draw(st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=hours, max_size=hours)))
    return [
        QueueDemand(
            queue=f"q{i}",
            nominal_gpus=draw(st.integers(0, 12)),
            floor_gpus=draw(st.integers(0, 12)),
            max_change_gpus=draw(st.integers(0, 6)),
            demand_gpus=np.array(draw(st.lists(st.integers(0, 16).map(float), min_size=hours, max_size=hours))),
            scenario_weights=weights,
            weight=draw(st.sampled_from([1.0, 2.0])),
        )
        for i in range(draw(st.integers(2, 4)))
    ]


@settings(max_examples=80, deadline=None)
@given(queues=_queues())
def test_segments_give_the_optimum_of_the_program_written_out(queues: list[QueueDemand]) -> None:
    plan = move(queues)
    assert isinstance(plan, QuotaPlan)
    assert plan.objective == pytest.approx(_written_out(queues), abs=1e-6)


@settings(max_examples=80, deadline=None)
@given(queues=_queues())
def test_whole_gpus_are_the_best_whole_point_and_sum_to_what_they_did(queues: list[QueueDemand]) -> None:
    plan = move(queues, step_gpus=1)
    assert isinstance(plan, QuotaPlan)
    assert all(quota == int(quota) for quota in plan.nominal_gpus)
    assert sum(plan.nominal_gpus) == sum(queue.nominal_gpus for queue in queues)
    for queue, quota in zip(queues, plan.nominal_gpus, strict=True):
        assert queue.least_gpus <= quota <= queue.most_gpus
    assert plan.objective == pytest.approx(_best_whole(queues, 1)[0][0], abs=1e-6)
