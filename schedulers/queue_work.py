"""What the work of queues holds and waits for, summed up their tree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class QueueWork:
    """What the pods of a queue's work hold, and what its waiting work wants at least.

    `held_gpus` are whole cards; `uncounted` of its pods hold something that cannot be told in cards. `pending` and
    `pending_gpus` are None where some of what waits does not say what it wants.
    """

    held: dict[str, float] = field(default_factory=dict)
    held_gpus: float = 0.0
    uncounted: int = 0
    pending: dict[str, float] | None = field(default_factory=dict)
    pending_gpus: float | None = 0.0

    def hold(self, amounts: Mapping[str, float], gpus: float | None) -> None:
        """A pod holds `amounts`, which are so many cards (None: not to be told)."""
        add_to(self.held, amounts)
        self.held_gpus += gpus or 0.0
        self.uncounted += gpus is None

    def want(self, amounts: Mapping[str, float] | None, gpus: float | None) -> None:
        """Something waits for `amounts`, which are so many cards. None: it does not say."""
        if amounts is None or self.pending is None:
            self.pending = None
        else:
            add_to(self.pending, amounts)
        self.pending_gpus = None if gpus is None or self.pending_gpus is None else self.pending_gpus + gpus

    def add(self, other: QueueWork) -> None:
        """Take in what a queue below holds and waits for."""
        self.want(other.pending, other.pending_gpus)
        add_to(self.held, other.held)
        self.held_gpus += other.held_gpus
        self.uncounted += other.uncounted


def add_to(total: dict[str, float], more: Mapping[str, float]) -> None:
    """Add amounts to a sum, by resource."""
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0.0) + amount


def with_those_below(
    queues: Iterable[str], work: Mapping[str, QueueWork], parent_of: Callable[[str], str | None]
) -> dict[str, QueueWork]:
    """The work of each queue and of all that stand below it. Queues that are above themselves count once."""
    totals = {name: QueueWork() for name in queues}
    for name, own in work.items():
        seen: set[str] = set()
        at: str | None = name
        while at is not None and at in totals and at not in seen:
            totals[at].add(own)
            seen.add(at)
            at = parent_of(at)
    return totals
