"""How often hardware fails: rates with intervals, mean time to failure, and which nodes fail more than chance allows.

Exposure is *scheduled* node-days: time in which work held GPUs of the node (algorithms.md, section F).
"""

from __future__ import annotations

from dataclasses import dataclass

from scipy import stats

from gpuledger.errors import BadInput

GPUS_PER_NODE = 8
"""Nodes of the published rates; another size is a parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Events per node-day with its exact Poisson interval, [`low`, `high`], of `event_count` in `node_days`."""

    event_count: int
    node_days: float
    per_node_day: float
    low: float
    high: float


def failure_rate(event_count: int, node_days: float, *, level: float = 0.95) -> Rate:
    """The rate of `event_count` failures in `node_days`; chi-square interval, whose lower end is 0 without events.

    Raises BadInput without exposure: then nothing is known, which is not a rate of zero.
    """
    if not node_days > 0:
        raise BadInput("node_days", "must be positive")
    if event_count < 0:
        raise BadInput("event_count", "must not be negative")
    tail = (1.0 - level) / 2.0
    low = float(stats.chi2.ppf(tail, 2 * event_count)) / 2.0 / node_days if event_count else 0.0
    high = float(stats.chi2.ppf(1.0 - tail, 2 * event_count + 2)) / 2.0 / node_days
    return Rate(event_count=event_count, node_days=node_days, per_node_day=event_count / node_days, low=low, high=high)


def mean_hours_to_failure(
    gpu_count: float, failures_per_node_day: float, *, gpus_per_node: int = GPUS_PER_NODE
) -> float | None:
    """Hours until the first of the nodes of a job of `gpu_count` GPUs fails, by model: 24 / ((N/8) r_f).

    A projection: it assumes independent nodes of one rate, and is never to be shown as an observation. None at rate 0.
    """
    if gpu_count <= 0 or gpus_per_node <= 0:
        raise BadInput("gpu_count", "must be positive")
    if failures_per_node_day <= 0:
        return None
    return 24.0 / (gpu_count / gpus_per_node * failures_per_node_day)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanTime:
    """Hours to failure by model, from the rate and from both ends of its interval; None: no upper end."""

    hours: float | None
    low_hours: float | None
    high_hours: float | None


def mean_time(rate: Rate, gpu_count: float, *, gpus_per_node: int = GPUS_PER_NODE) -> MeanTime:
    """`mean_hours_to_failure` with its interval: the higher rate gives the lower end."""
    hours, low, high = (
        mean_hours_to_failure(gpu_count, value, gpus_per_node=gpus_per_node)
        for value in (rate.per_node_day, rate.high, rate.low)
    )
    return MeanTime(hours=hours, low_hours=low, high_hours=high)


def chance_of_at_least(event_count: int, expected: float) -> float:
    """P(Poisson(expected) >= event_count)."""
    return float(stats.poisson.sf(event_count - 1, expected)) if event_count > 0 else 1.0


def expected_false_nodes(event_count: int, expected: float, node_count: int) -> float:
    """How many of `node_count` equal nodes reach `event_count` events by chance alone."""
    return chance_of_at_least(event_count, expected) * node_count


def lemon_threshold(expected: float, node_count: int, *, budget_nodes: float = 0.5) -> int:
    """The smallest count that fewer than `budget_nodes` (strictly) of all nodes would reach by chance."""
    if expected < 0 or node_count < 1 or budget_nodes <= 0:
        raise BadInput("expected", "needs a rate of at least 0, a node and a positive budget")
    count = 1
    while expected_false_nodes(count, expected, node_count) >= budget_nodes:
        count += 1
    return count
