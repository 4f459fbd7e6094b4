"""What pods hold of the parts of cards that HAMi's quotas limit.

A quota limits cores (percent of a card) and memory (MiB); pods ask for both of each card. A pod that says nothing of
memory gets all of it (HAMi's defaultMem of 0), one that says nothing of cores has no limit of them and counts none.
"""

from __future__ import annotations

from dataclasses import dataclass

from schedulers.kubernetes.equivalents import card_mib
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.hami import CORES, MEMORY, Asked
from schedulers.kubernetes.pods import holds_node, meta, name_of, node_of

LIMITED = (CORES, MEMORY)


@dataclass(slots=True)
class PartsHeld:
    """Of a namespace's bound pods: cores in percent of a card, memory in MiB, and cards of unknown size held whole."""

    cores_percent: float = 0.0
    memory_mib: float = 0.0
    whole_cards: float = 0.0

    def add(self, asked: Asked, size_mib: float | None) -> None:
        """Another pod's, on cards of `size_mib` (None: not known)."""
        self.cores_percent += asked.cards * (asked.cores_percent or 0.0)
        if asked.memory_mib is not None:
            self.memory_mib += asked.cards * asked.memory_mib
        elif size_mib is not None:
            self.memory_mib += asked.cards * size_mib * (asked.memory_percent or 100.0) / 100.0
        else:
            self.whole_cards += asked.cards * (asked.memory_percent or 100.0) / 100.0

    def used(self, resource: str) -> float | None:
        """How much of a limited resource that is, in its unit; None where the size of a card would have to be known."""
        if resource == CORES:
            return self.cores_percent
        return None if self.whole_cards else self.memory_mib

    @property
    def memory_words(self) -> str:
        """Memory in words, for cards of unknown size: "2000 MiB + 1 whole card"."""
        plural = "" if self.whole_cards == 1 else "s"
        return f"{self.memory_mib:g} MiB + {self.whole_cards:g} whole card{plural}"


def parts_held(core: CoreFacts, namespace: str) -> PartsHeld:
    """What the bound pods of `namespace` hold of HAMi's cards."""
    held = PartsHeld()
    for pod in core.pods_by_uid.values():
        if meta(pod)["namespace"] == namespace and holds_node(pod):
            with core.rows.sparing(name_of(pod)):
                asked = Asked.by(core.requests_of(pod))
                if asked.cards:
                    held.add(asked, card_mib(core, node_of(pod)))
    return held


def used_parts(core: CoreFacts, queue: str, namespace: str, limits: dict[str, float]) -> dict[str, float | None]:
    """What is used of each of the limited parts in `limits`; what is beyond its limit, or not countable, is told."""
    wanted = [resource for resource in LIMITED if resource in limits]
    held = parts_held(core, namespace) if wanted else PartsHeld()
    used = {resource: held.used(resource) for resource in wanted}
    for resource, count in used.items():
        if count is None:
            words = f"{resource}: {held.memory_words} of {limits[resource]:g}; the size of a card is not told"
            core.rows.problem("unparsed_allocation", queue, words, subject_kind="queue")
        elif count > limits[resource]:
            words = f"{resource}: {count:g} of {limits[resource]:g}"
            core.rows.problem("limit_not_enforced", queue, words, subject_kind="queue", count=round(count))
    return used
