"""What a pod holds in whole cards, Volcano's shares of cards (`volcano.sh/vgpu-*`) included."""

from __future__ import annotations

from collections.abc import Mapping

from schedulers.kubernetes.equivalents import card_mib, of_pod
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.pods import Object, node_of
from schedulers.kubernetes.quantities import quantity

NUMBER = "volcano.sh/vgpu-number"
MEMORY = "volcano.sh/vgpu-memory"
PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
WHOLE = "volcano.sh/gpu-number"
"""The older way to ask for cards of one's own."""


def held_cards(pod: Object, core: CoreFacts) -> float | None:
    """The cards that `pod` holds; None where part of it cannot be told. Raises BadInput for what is no quantity."""
    gpus = core.gpus_of(pod)
    if gpus.get(NUMBER):
        node = node_of(pod)
        return _shared_cards(pod, card_mib(core, node) if node else None)
    return gpus[WHOLE] if gpus.get(WHOLE) else of_pod(core, pod)


def _shared_cards(pod: Object, memory_mib: float | None) -> float | None:
    """The sum over its containers; None where memory is asked for and the cards' memory is not known."""
    shares = [_of_container(one, memory_mib) for one in (pod.get("spec") or {}).get("containers") or ()]
    known = [share for share in shares if share is not None]
    return sum(known) if len(known) == len(shares) else None


def _of_container(container: Object, memory_of_card_mib: float | None) -> float | None:
    resources = container.get("resources") or {}
    asked: Mapping[str, object] = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    number = quantity(asked.get(NUMBER, 0), NUMBER)
    if PERCENTAGE in asked:
        return number * min(1.0, quantity(asked[PERCENTAGE], PERCENTAGE) / 100)
    memory_mib = quantity(asked.get(MEMORY, 0), MEMORY)
    if not number or not memory_mib:
        return number
    return number * min(1.0, memory_mib / memory_of_card_mib) if memory_of_card_mib else None
