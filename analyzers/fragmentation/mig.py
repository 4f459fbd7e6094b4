"""Which MIG profiles still fit on a card: legal starts in memory slices, and what is stranded for want of one.

Where the driver tells a card's possible placements (NVML's possible placements of a GPU instance profile), give those
as `starts`; the table here is a default that stands in for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from gpuledger.model import canonical_model

MEMORY_SLICES = 8

_UNCONFIRMED_DEFAULT: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "1g": (1, (0, 1, 2, 3, 4, 5, 6)),
    "2g": (2, (0, 2, 4)),
    "3g": (4, (0, 4)),
    "4g": (4, (0,)),
    "7g": (8, (0,)),
}
"""Profile: (memory slices that it takes, where it may start). Of A100 and H100; not confirmed by a driver's answer
(algorithms.md, section B, [M]): a collector's placements come before it."""

_MODELS = ("A100", "A800", "H100", "H800", "H100-PCIE", "H20", "H200")

_PROFILE = re.compile(r"(?:MIG )?(?:\d+c\.)?(\d+g)(?:\.\d+gb)?(?:[+.-][a-z]+)*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placements:
    """Of one model: for each profile the memory slices that an instance takes, and where it may start."""

    starts: Mapping[str, tuple[int, tuple[int, ...]]]
    memory_slices: int = MEMORY_SLICES
    is_confirmed: bool = False


def placements_of(model: str | None) -> Placements | None:
    """The default table of a model; None for one whose placements nobody has told."""
    return Placements(starts=_UNCONFIRMED_DEFAULT) if canonical_model(model) in _MODELS else None


def profile_of(text: str | None) -> str | None:
    """The profile without its memory and attributes: "3g" of "3g.20gb" or "MIG 1c.3g.40gb+me"; None for other text.

    A profile with more memory than its compute slices imply (1g.20gb of an 80 GB card) reads like the plain one.
    """
    match = _PROFILE.fullmatch(text or "")
    return match[1].lower() if match else None


def free_starts(profile: str, held: Iterable[tuple[str, int]], placements: Placements) -> tuple[int, ...]:
    """Where one more instance of `profile` may start beside `held`, (profile, start) pairs."""
    taken = {start + step for name, start in held for step in range(placements.starts[name][0])}
    length, starts = placements.starts[profile]
    return tuple(start for start in starts if taken.isdisjoint(range(start, start + length)))


def free_memory_slices(held: Iterable[str], placements: Placements) -> int:
    """Memory slices that the instances `held` leave."""
    return placements.memory_slices - sum(placements.starts[name][0] for name in held)


def stranded_memory_slices(profile: str, held: Sequence[tuple[str, int]], placements: Placements) -> int:
    """Free memory slices that an instance of `profile` cannot use: all of them where it has no legal start, else 0."""
    if free_starts(profile, held, placements):
        return 0
    return free_memory_slices((name for name, _ in held), placements)


def could_fit(profile: str, held: Sequence[str], placements: Placements) -> bool:
    """Whether some legal arrangement of `held`, whose places nobody knows, leaves `profile` a start.

    True where the profiles held contradict the table: what cannot be is no proof.
    """
    names = (*held, profile)
    if any(name not in placements.starts for name in names):
        return True
    if not _can_stand((), tuple(sorted(held)), _Table.of(placements)):
        return True
    return _can_stand((), tuple(sorted(names)), _Table.of(placements))


@dataclass(frozen=True, slots=True)
class _Table:
    """Placements as something to remember answers by."""

    entries: tuple[tuple[str, int, tuple[int, ...]], ...]

    @classmethod
    def of(cls, placements: Placements) -> _Table:
        return cls(tuple((name, length, starts) for name, (length, starts) in sorted(placements.starts.items())))


@cache
def _can_stand(taken: tuple[int, ...], left: tuple[str, ...], table: _Table) -> bool:
    """Whether all of `left` have places beside the memory slices `taken`."""
    if not left:
        return True
    length, starts = next((length, starts) for name, length, starts in table.entries if name == left[-1])
    for start in starts:
        wanted = range(start, start + length)
        if set(taken).isdisjoint(wanted) and _can_stand(tuple(sorted({*taken, *wanted})), left[:-1], table):
            return True
    return False
