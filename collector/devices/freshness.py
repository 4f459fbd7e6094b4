"""Pages of exporters that measure on their own time, card by card and group by group, and date every sample so.

Such a page is still one reading of its cards. What was measured too long before is no reading of now: a measurement
that stands still is served for a while, and must not look like a card that goes on.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime
from typing import TypeVar

import numpy as np

from collector.samples import NO_TIMESTAMP, Samples

Meaning = TypeVar("Meaning")

TOO_OLD = "measured too long before it was read"
"""Why such a sample was refused."""


def at_one_instant(
    samples: Samples[Meaning], now: datetime, stale_after_seconds: float | None, max_skew_seconds: float | None
) -> tuple[Samples[Meaning], int]:
    """(`samples` as of `now` without those that are too old, how many those were).

    Ages beyond `max_skew_seconds` tell of a clock and not of a measurement: such samples keep their time, for whoever
    assembles them to report. Without `stale_after_seconds` samples stay as they are.
    """
    if stale_after_seconds is None or not len(samples):
        return samples, 0
    times = samples.times_ms
    age = np.where(times == NO_TIMESTAMP, 0.0, now.timestamp() - times / 1e3)
    is_near = np.abs(age) <= (np.inf if max_skew_seconds is None else max_skew_seconds)
    is_stale = is_near & (age > stale_after_seconds)
    placed = np.where(is_near, NO_TIMESTAMP, times)
    if not is_stale.any():
        return dataclasses.replace(samples, times_ms=placed), 0
    kept = ~is_stale
    return (
        Samples(samples.meanings, samples.series[kept], samples.values[kept], placed[kept]),
        int(is_stale.sum()),
    )
