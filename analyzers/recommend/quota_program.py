"""The linear program that moves quota (algorithms.md, section D), solved by HiGHS.

Unmet demand of one queue is a convex, piecewise linear function of its quota alone, and queues meet only in the sum of
their quotas. So each queue's function is cut into segments of constant slope, and the program has one bounded variable
a segment and one equation: the same optimum as with a variable for each queue and hour, at a fraction of the size. Cut
at multiples of a step, its vertices are whole steps, so that whole GPUs or nodes need no branching.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog
from scipy.sparse import csr_array

Floats = npt.NDArray[np.float64]

EPSILON = 1e-3
"""Cost of moving one GPU, in GPU-hours of unmet demand: enough to keep still where moving gains nothing."""

HAIR = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueDemand:
    """One queue: its quota now, the bounds of the new one, and its demand with a weight for each scenario.

    `floor_gpus` is the guard that no move may cross, `max_change_gpus` the most that may be moved in or out.
    """

    queue: str
    nominal_gpus: float
    floor_gpus: float
    max_change_gpus: float
    demand_gpus: Floats
    scenario_weights: Floats
    weight: float = 1.0

    @property
    def least_gpus(self) -> float:
        """The least that the new quota may be."""
        return max(0.0, min(self.nominal_gpus, self.floor_gpus), self.nominal_gpus - self.max_change_gpus)

    @property
    def most_gpus(self) -> float:
        """The most that the new quota may be."""
        return self.nominal_gpus + self.max_change_gpus

    def unmet(self, nominal_gpus: float) -> float:
        """Weighted demand above `nominal_gpus`."""
        return float(np.dot(self.scenario_weights, np.maximum(0.0, self.demand_gpus - nominal_gpus)))

    def cost(self, nominal_gpus: float, epsilon: float) -> float:
        """The queue's part of the objective."""
        return self.weight * self.unmet(nominal_gpus) + epsilon * abs(nominal_gpus - self.nominal_gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaPlan:
    """The best quotas, their weighted unmet demand and objective.

    `total_price` is the dual price of the total: what one more GPU would save, or one less cost, at the margin.
    """

    nominal_gpus: tuple[float, ...]
    unmet: float
    objective: float
    total_price: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Overcommitted:
    """The guards together ask for more than there is. Nothing is relaxed; the prices say where it presses.

    `total_price`: unmet demand that one more GPU in total would save if the guards were ignored (None when even the
    bounds of change cannot be kept). `floor_prices`: what one GPU less than its floor would cost each queue.
    """

    shortfall_gpus: float
    total_price: float | None
    floor_prices: dict[str, float]


def _breakpoints(queue: QueueDemand, low: float, step_gpus: float | None) -> Floats:
    """Where the queue's cost may bend, from its lower to its upper bound, on the grid of steps if there is one."""
    q0 = queue.nominal_gpus
    if step_gpus is None:
        inner = queue.demand_gpus[(queue.demand_gpus > low) & (queue.demand_gpus < queue.most_gpus)]
        return np.unique(np.concatenate(([low, q0, queue.most_gpus], inner)))
    down = math.floor((q0 - low) / step_gpus + HAIR)
    up = math.floor((queue.most_gpus - q0) / step_gpus + HAIR)
    return q0 + step_gpus * np.arange(-down, up + 1, dtype=np.float64)


def _costs(queue: QueueDemand, points: Floats, epsilon: float) -> Floats:
    """`queue.cost` at sorted `points`, in one pass over the sorted demand."""
    order = np.argsort(queue.demand_gpus)
    demand, weight = queue.demand_gpus[order], queue.scenario_weights[order]
    weight_above = np.concatenate((np.cumsum(weight[::-1])[::-1], [0.0]))
    volume_above = np.concatenate((np.cumsum((weight * demand)[::-1])[::-1], [0.0]))
    first = np.searchsorted(demand, points, side="right")
    unmet = volume_above[first] - points * weight_above[first]
    moved = np.abs(points - queue.nominal_gpus)
    return np.asarray(queue.weight * unmet + epsilon * moved, dtype=np.float64)


def _solve(
    queues: Sequence[QueueDemand], lows: Sequence[float], total: float, epsilon: float, step_gpus: float | None
) -> tuple[list[float], float] | None:
    """The best quotas between `lows` and the upper bounds, and the price of the total; None when there are none."""
    points = [_breakpoints(queue, low, step_gpus) for queue, low in zip(queues, lows, strict=True)]
    lengths = [np.diff(one) for one in points]
    slopes = [
        np.diff(_costs(queue, one, epsilon)) / length
        for queue, one, length in zip(queues, points, lengths, strict=True)
    ]
    length, slope = np.concatenate(lengths), np.concatenate(slopes)
    to_place = total - sum(float(one[0]) for one in points)
    if not length.size or not -HAIR <= to_place <= float(length.sum()) + HAIR:
        return ([float(one[0]) for one in points], 0.0) if abs(to_place) <= HAIR else None
    answer = linprog(
        slope,
        A_eq=csr_array(np.ones((1, length.size))),
        b_eq=[min(max(to_place, 0.0), float(length.sum()))],
        bounds=np.column_stack((np.zeros_like(length), length)),
        method="highs-ds",
    )
    if answer.status != 0:
        return None
    parts = np.split(answer.x, np.cumsum([one.size for one in lengths])[:-1])
    best = [float(one[0] + part.sum()) for one, part in zip(points, parts, strict=True)]
    if step_gpus is not None:
        best = [
            q.nominal_gpus + step_gpus * round((b - q.nominal_gpus) / step_gpus)
            for q, b in zip(queues, best, strict=True)
        ]
    return best, -float(answer.eqlin.marginals[0])


def _overcommitted(
    queues: Sequence[QueueDemand], total: float, epsilon: float, step_gpus: float | None
) -> Overcommitted:
    unguarded = [max(0.0, queue.nominal_gpus - queue.max_change_gpus) for queue in queues]
    solved = _solve(queues, unguarded, total, epsilon, step_gpus)
    return Overcommitted(
        shortfall_gpus=sum(queue.least_gpus for queue in queues) - total,
        total_price=solved[1] if solved else None,
        floor_prices={
            queue.queue: queue.weight * (queue.unmet(max(0.0, queue.least_gpus - 1)) - queue.unmet(queue.least_gpus))
            for queue in queues
        },
    )


def move(
    queues: Sequence[QueueDemand],
    *,
    total_gpus: float | None = None,
    epsilon: float = EPSILON,
    step_gpus: float | None = None,
) -> QuotaPlan | Overcommitted:
    """The quotas of least weighted unmet demand in bounds that sum to `total_gpus` (default: to what they do now).

    With `step_gpus`, changes are multiples of it, and a total that is smaller than now is met from below.
    """
    now = sum(queue.nominal_gpus for queue in queues)
    total = now if total_gpus is None else total_gpus
    if step_gpus is not None:
        total = now + step_gpus * math.floor((total - now) / step_gpus + HAIR)
    solved = _solve(queues, [queue.least_gpus for queue in queues], total, epsilon, step_gpus)
    if solved is None:
        return _overcommitted(queues, total, epsilon, step_gpus)
    best, price = solved
    return QuotaPlan(
        nominal_gpus=tuple(best),
        unmet=sum(queue.weight * queue.unmet(quota) for queue, quota in zip(queues, best, strict=True)),
        objective=sum(queue.cost(quota, epsilon) for queue, quota in zip(queues, best, strict=True)),
        total_price=price,
    )
