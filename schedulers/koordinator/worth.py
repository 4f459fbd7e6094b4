"""How many whole cards a list of Koordinator's resources is."""

from __future__ import annotations

from collections.abc import Mapping

from schedulers.cards import Cards
from schedulers.koordinator.kinds import CORE, PERCENT, RATIO

FRACTIONS = (PERCENT, CORE, RATIO)
"""Three ways to say the same parts of cards, in percent; they are not added."""


def worth(given: Mapping[str, float], cards: Cards, node: str | None = None, *, is_limit: bool = False) -> float | None:
    """`given` in whole cards: those that are asked for whole, slices, and percents of `koordinator.sh/gpu...`.

    Of the percents the largest counts, of a limit the smallest. None where `given` names no GPUs.
    """
    whole = cards.count(given, node).gpus
    percents = [given[name] for name in FRACTIONS if name in given]
    if not percents:
        return whole
    return (whole or 0.0) + (min(percents) if is_limit else max(percents)) / 100.0
