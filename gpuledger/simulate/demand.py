"""What each team runs and waits for, as exact steps in time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuledger.simulate.script import Script


@dataclass(frozen=True, slots=True)
class Steps:
    """Piecewise constant: from `minutes[i]` to `minutes[i+1]` the team ran and waited for this many GPUs."""

    minutes: np.ndarray
    running: np.ndarray
    pending: np.ndarray

    @property
    def demand(self) -> np.ndarray:
        """Running and pending GPUs together."""
        return np.asarray(self.running + self.pending)

    @property
    def hours(self) -> np.ndarray:
        """Length of each step in hours; the last one is the end mark and has none."""
        return np.append(np.diff(self.minutes), 0) / 60

    def hourly_demand(self) -> np.ndarray:
        """Mean demand of each whole hour."""
        edges = np.arange(self.minutes[0], self.minutes[-1] + 1, 60)
        area = np.concatenate([[0.0], np.cumsum(self.demand[:-1] * np.diff(self.minutes))])
        return np.asarray(np.diff(np.interp(edges, self.minutes, area)) / 60)


def team_steps(script: Script, team: str, begin: int, end: int) -> Steps:
    """The steps of `team` in [`begin`, `end`), cut at whole hours too."""
    jobs = [job for job in script.jobs if job.team == team]
    holds = [(h.start, h.end, h.share) for job in jobs for h in job.holds if h.card is not None]
    waits = [(job.submit, job.end if job.start is None else job.start, job.asked_gpus) for job in jobs]
    cuts = {*range(begin, end + 1, 60), end}
    for start, stop, _ in [*holds, *waits]:
        cuts |= {min(max(start, begin), end), min(max(stop, begin), end)}
    minutes = np.array(sorted(cuts))
    return Steps(minutes, _sum(holds, minutes), _sum(waits, minutes))


def _sum(spans: list[tuple[int, int, float]], minutes: np.ndarray) -> np.ndarray:
    change = np.zeros(len(minutes))
    first, last = minutes[0], minutes[-1]
    for start, stop, amount in spans:
        if max(start, first) < min(stop, last):
            change[np.searchsorted(minutes, max(start, first))] += amount
            change[np.searchsorted(minutes, min(stop, last))] -= amount
    return np.round(np.maximum(np.cumsum(change), 0.0), 9)
