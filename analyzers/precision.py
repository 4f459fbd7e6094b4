"""How often a rule is right: precision with an interval, from verdicts on findings drawn by stratum.

Clopper and Pearson (1934): the interval of a binomial share holds the true one in at least 95 of 100 draws, also near
0 and 1 and for few verdicts, where the normal approximation is wrong. Across strata each verdict stands for N / m
findings (N in the stratum, m judged there), and the interval is that of as many verdicts as Kish's effective size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

LEVEL = 0.95

Stratum = tuple[str, str, str]
"""Rule, kind of workload, vendor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Verdicts on one stratum of `stratum_count` findings. Those that could not tell are in none of the two."""

    stratum_count: int
    right_count: int
    wrong_count: int

    @property
    def judged_count(self) -> int:
        """Verdicts that say something."""
        return self.right_count + self.wrong_count


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The share of findings that are right, with its 95 % interval; None where nothing was judged.

    `judged_share`: findings in strata with a verdict, of all findings in the strata.
    """

    value: float | None
    low: float
    high: float
    judged_count: int
    effective_count: float
    judged_share: float


def clopper_pearson(right: float, judged: float, level: float = LEVEL) -> tuple[float, float]:
    """The interval of a share of which `right` of `judged` were seen; 0 to 1 where nothing was judged."""
    if judged <= 0:
        return 0.0, 1.0
    tail = (1 - level) / 2
    low = float(stats.beta.ppf(tail, right, judged - right + 1)) if right > 0 else 0.0
    high = float(stats.beta.ppf(1 - tail, right + 1, judged - right)) if right < judged else 1.0
    return low, high


def precision(strata: Sequence[Judged]) -> Precision:
    """The precision over `strata`, each weighted by how many findings it has. One stratum: its plain share."""
    told = [one for one in strata if one.judged_count > 0]
    judged = sum(one.judged_count for one in told)
    population = sum(max(one.stratum_count, one.judged_count) for one in told)
    whole = sum(max(one.stratum_count, one.judged_count) for one in strata)
    if not told:
        return Precision(value=None, low=0.0, high=1.0, judged_count=0, effective_count=0.0, judged_share=0.0)
    sizes = np.array([max(one.stratum_count, one.judged_count) for one in told], dtype=float)
    counts = np.array([one.judged_count for one in told], dtype=float)
    rights = np.array([one.right_count for one in told], dtype=float)
    value = min(1.0, float(np.sum(sizes * rights / counts) / population))
    effective = min(float(judged), float(population**2 / np.sum(sizes**2 / counts)))
    low, high = clopper_pearson(value * effective, effective)
    return Precision(
        value=value,
        low=low,
        high=high,
        judged_count=judged,
        effective_count=effective,
        judged_share=population / whole,
    )


def allocate(counts: Mapping[Stratum, int], size: int, floor: int) -> dict[Stratum, int]:
    """How many of `size` draws each stratum of `counts` findings gets: `floor` where it has them, then in proportion.

    Where the floors alone exceed `size` they are lowered alike; where even one each does, the largest strata get one.
    """
    names = sorted(counts, key=lambda name: (-counts[name], name))
    size = min(size, sum(counts.values()))
    if size < len(names):
        return {name: int(place < size) for place, name in enumerate(names)}
    drawn = {name: min(counts[name], max(1, min(floor, size // len(names)))) for name in names}
    rest = size - sum(drawn.values())
    room = {name: counts[name] - drawn[name] for name in names}
    free = sum(room.values())
    if free == 0:
        return drawn
    parts = {name: divmod(rest * room[name], free) for name in names}
    for name in names:
        drawn[name] += parts[name][0]
    left = size - sum(drawn.values())
    for name in sorted(names, key=lambda name: (-parts[name][1], name))[:left]:
        drawn[name] += 1
    return drawn
