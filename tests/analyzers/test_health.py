"""Rates, training time expected and observed, goodput: the examples of algorithms.md, F, with their neighbours."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.health.ettr import (
    Attempt,
    Training,
    expected,
    first_order,
    observed,
    published,
    renewal,
    young_interval_hours,
)
from analyzers.health.goodput import Factor, Goodput, program_factor
from analyzers.health.rates import (
    expected_false_nodes,
    failure_rate,
    lemon_threshold,
    mean_hours_to_failure,
    mean_time,
)
from gpuledger.errors import BadInput

RATE = 6.5 / 1000
"""Failures a node-day of F's examples."""


def _per_hour(gpus: int) -> float:
    return gpus / 8 * RATE / 24


SMALL = Training(
    failures_per_hour=_per_hour(2048),
    checkpoint_hours=1.0,
    restart_hours=5 / 60,
    requeue_hours=10 / 60,
    productive_hours=168.0,
)


def test_f1_a_week_on_2048_gpus() -> None:
    assert pytest.approx(0.069333, abs=5e-7) == SMALL.failures_per_hour
    assert mean_hours_to_failure(2048, RATE) == pytest.approx(14.4231, abs=5e-5)
    assert published(SMALL).ratio == pytest.approx(0.947201, abs=5e-7)
    assert first_order(SMALL).ratio == pytest.approx(0.947233, abs=5e-7)
    assert expected(SMALL) == published(SMALL)
    assert expected(SMALL).is_valid


@pytest.mark.parametrize(
    ("minutes", "by_first_order", "by_renewal"),
    [(60, 0.6764, 0.7144), (15, 0.8844, 0.8902), (7, 0.9214, 0.9243)],
)
def test_f1_an_endless_job_on_16384_gpus(minutes: int, by_first_order: float, by_renewal: float) -> None:
    job = Training(failures_per_hour=_per_hour(16384), checkpoint_hours=minutes / 60, restart_hours=5 / 60)
    assert published(job).ratio == pytest.approx(by_first_order, abs=5e-5)
    assert first_order(job).ratio == pytest.approx(by_first_order, abs=5e-5)
    assert renewal(job).ratio == pytest.approx(by_renewal, abs=5e-5)
    assert renewal(job).is_valid


def test_f1_youngs_interval_is_a_formula() -> None:
    assert young_interval_hours(30 / 3600, _per_hour(16384)) * 60 == pytest.approx(10.401, abs=5e-4)
    with pytest.raises(BadInput):
        young_interval_hours(30 / 3600, 0.0)


@pytest.mark.parametrize(("load", "is_valid"), [(0.1, True), (0.100001, False)])
def test_the_first_order_form_says_up_to_where_it_holds(load: float, *, is_valid: bool) -> None:
    job = Training(failures_per_hour=load, checkpoint_hours=0.75, restart_hours=0.25)
    assert published(job).is_valid is is_valid
    assert expected(job).formula == ("published_first_order" if is_valid else "exact_renewal")


@pytest.mark.parametrize(("failures", "no_progress"), [(0.999, False), (1.0, True), (2.0, True)])
def test_where_failures_take_all_the_time_there_is_no_progress(failures: float, *, no_progress: bool) -> None:
    job = Training(failures_per_hour=failures, checkpoint_hours=1.0, restart_hours=0.5)  # λ(u0 + Δ/2) = λ
    assert published(job).no_progress is no_progress
    assert expected(job).no_progress is no_progress
    if no_progress:
        assert expected(job).ratio == 0.0
        assert not expected(job).is_valid


def test_checkpoints_that_block_are_paid_for() -> None:
    free = Training(failures_per_hour=0.01, checkpoint_hours=0.9)
    paid = Training(failures_per_hour=0.01, checkpoint_hours=0.9, blocking_hours=0.1)
    assert published(paid).ratio == pytest.approx(0.9 * published(free).ratio)


def test_both_forms_meet_where_failures_are_rare() -> None:
    job = Training(failures_per_hour=1e-4, checkpoint_hours=1.0, restart_hours=0.1, requeue_hours=0.1)
    assert renewal(job).ratio == pytest.approx(published(job).ratio, abs=1e-7)


F2 = (
    Attempt(queue_hours=0.5, init_hours=0.25, trained_hours=5.25, lost_hours=0.25),
    Attempt(queue_hours=0.25, init_hours=0.25, trained_hours=10.5, lost_hours=0.5),
    Attempt(queue_hours=0.0, init_hours=0.25, trained_hours=6.75),
)


def test_f2_a_day_with_two_failures() -> None:
    day = observed(F2)
    assert day.wall_hours == 24.0
    assert day.productive_hours == 21.75
    assert day.ratio == 0.90625
    assert day.ratio_without_queue == pytest.approx(0.935484, abs=5e-7)
    assert (day.queue_hours, day.init_hours, day.lost_hours) == (0.75, 0.75, 0.75)


def test_f2_neighbours() -> None:
    longer = observed([*F2[:2], Attempt(queue_hours=0.01, init_hours=0.25, trained_hours=6.75)])
    assert longer.ratio == pytest.approx(21.75 / 24.01)
    assert longer.ratio_without_queue == pytest.approx(21.75 / 23.25)
    assert observed([]).ratio is None
    with pytest.raises(BadInput):
        Attempt(queue_hours=0, init_hours=0, trained_hours=1, lost_hours=1.1)


hours = st.floats(0, 1000)


@given(st.lists(st.tuples(hours, hours, hours, st.floats(0, 1)), max_size=8))
def test_the_parts_of_a_run_add_up_to_its_wall_time(parts: list[tuple[float, float, float, float]]) -> None:
    run = observed(
        [Attempt(queue_hours=q, init_hours=i, trained_hours=t, lost_hours=t * share) for q, i, t, share in parts]
    )
    total = run.productive_hours + run.queue_hours + run.init_hours + run.lost_hours
    assert math.isclose(total, run.wall_hours, abs_tol=1e-6)
    if run.ratio is not None and run.ratio_without_queue is not None:
        assert -1e-9 <= run.ratio <= run.ratio_without_queue + 1e-9 <= 1 + 2e-9


def test_f3_a_rate_with_its_interval() -> None:
    rate = failure_rate(13, 2000)
    assert rate.per_node_day * 1000 == pytest.approx(6.5)
    assert rate.low * 1000 == pytest.approx(3.461, abs=5e-4)
    assert rate.high * 1000 == pytest.approx(11.115, abs=5e-4)
    none = failure_rate(0, 2000)
    assert none.low == 0.0
    assert none.high * 2000 == pytest.approx(-math.log(0.025))
    with pytest.raises(BadInput):
        failure_rate(0, 0.0)


@pytest.mark.parametrize(("count", "nodes"), [(3, 27.1), (4, 3.84), (5, 0.44)])
def test_f3_nodes_that_chance_alone_would_show(count: int, nodes: float) -> None:
    assert expected_false_nodes(count, RATE * 90, 1250) == pytest.approx(nodes, rel=2e-3)


def test_f3_the_threshold_is_the_smallest_count_below_half_a_node() -> None:
    assert lemon_threshold(RATE * 90, 1250) == 5
    budget = expected_false_nodes(5, RATE * 90, 1250)
    assert lemon_threshold(RATE * 90, 1250, budget_nodes=budget) == 6  # strictly below
    assert lemon_threshold(RATE * 90, 1250, budget_nodes=budget * 1.0001) == 5


def test_mttf_of_the_published_sizes() -> None:
    assert mean_hours_to_failure(16384, RATE) == pytest.approx(1.803, abs=5e-4)
    assert mean_hours_to_failure(131072, RATE) == pytest.approx(0.2254, abs=5e-5)
    assert mean_hours_to_failure(1024, 0.0) is None
    mean = mean_time(failure_rate(13, 2000), 16384)
    assert mean.hours == pytest.approx(1.803, abs=5e-4)
    assert mean.low_hours == pytest.approx(24 / (2048 * 0.011115198), rel=1e-6)
    assert mean.high_hours == pytest.approx(24 / (2048 * 0.0034609762), rel=1e-6)
    assert mean_time(failure_rate(0, 2000), 16384).high_hours is None


def test_goodput_is_unknown_while_a_factor_is() -> None:
    half = Factor(numerator=1.0, denominator=2.0)
    assert Goodput(scheduling=half, runtime=half, program=half).ratio == 0.125
    assert Goodput(scheduling=half, runtime=half, program=Factor(numerator=0.0, denominator=0.0)).ratio is None
    assert Goodput(scheduling=half, runtime=half, program=Factor(numerator=0.0, denominator=1.0)).ratio == 0.0


def test_a_program_is_measured_against_its_ideal() -> None:
    assert program_factor(40.0, 100.0, gpu_hours=10.0).numerator == pytest.approx(4.0)
    assert program_factor(40.0, 100.0, gpu_hours=10.0, ideal_ratio=0.5).numerator == pytest.approx(8.0)
    assert program_factor(60.0, 100.0, gpu_hours=10.0, ideal_ratio=0.5).numerator == pytest.approx(10.0)
    assert program_factor(60.0, 0.0, gpu_hours=10.0).ratio is None
