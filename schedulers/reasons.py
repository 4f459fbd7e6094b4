"""From a scheduler's words for why something waits to one of PENDING_CAUSES: tables of patterns, one mechanism.

The root cause is the most specific blocking fact, not the last message that wrapped it: of several reasons the first in
the order of PENDING_CAUSES counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuledger.model import PENDING_CAUSES

_RANK = {cause: rank for rank, cause in enumerate(PENDING_CAUSES)}


@dataclass(frozen=True, slots=True)
class Told:
    """One thing that a scheduler said: its reason (a word), its message (a sentence), and the cause that they mean."""

    cause: str
    reason: str
    message: str = ""
    subject: str = ""


@dataclass(frozen=True, slots=True)
class Reasons:
    """Patterns for reasons and messages, searched in order; the first that matches says the cause.

    A pattern is a regular expression over "reason: message", upper and lower case alike.
    """

    patterns: tuple[tuple[re.Pattern[str], str], ...]

    @classmethod
    def of(cls, table: Sequence[tuple[str, str]]) -> Reasons:
        """From (pattern, cause) pairs. Raises ValueError for a cause that is none of PENDING_CAUSES."""
        for _, cause in table:
            if cause not in PENDING_CAUSES:
                raise ValueError(f"{cause!r} is no cause")
        return cls(tuple((re.compile(pattern, re.IGNORECASE), cause) for pattern, cause in table))

    def tell(self, reason: str, message: str = "", subject: str = "") -> Told:
        """What `reason` and `message` mean; "unknown" where no pattern knows them."""
        text = f"{reason}: {message}"
        cause = next((cause for pattern, cause in self.patterns if pattern.search(text)), "unknown")
        return Told(cause, reason, message, subject)


def root(told: Iterable[Told]) -> Told | None:
    """The most specific of what was told; of equals the first. None where nothing was."""
    return min(told, key=lambda one: _RANK[one.cause], default=None)
