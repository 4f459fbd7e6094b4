"""What a pod holds in whole cards, Volcano's shares of cards (`volcano.sh/vgpu-*`) included."""

from __future__ import annotations

from collections.abc import Mapping

from schedulers.cards import Amount, Cards
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.pods import Object, node_of
from schedulers.kubernetes.quantities import quantity

NUMBER = "volcano.sh/vgpu-number"
MEMORY = "volcano.sh/vgpu-memory"
PERCENTAGE = "volcano.sh/vgpu-memory-percentage"
WHOLE = "volcano.sh/gpu-number"
"""The older way to ask for cards of one's own."""


def held_cards(pod: Object, core: CoreFacts, cards: Cards) -> Amount:
    """The cards that `pod` holds. Raises BadInput for what is no quantity."""
    gpus = core.gpus_of(pod)
    node = node_of(pod)
    plain = cards.count({name: amount for name, amount in gpus.items() if name not in (NUMBER, WHOLE)}, node)
    total, is_partial = plain.gpus, plain.is_partial
    if gpus.get(WHOLE):
        total = (total or 0.0) + gpus[WHOLE]
    if gpus.get(NUMBER):
        shared = _shared_cards(pod, cards.card_mib(node))
        total = total if shared is None else (total or 0.0) + shared
        is_partial = is_partial or shared is None
    return Amount(total, is_partial)


def _shared_cards(pod: Object, card_mib: float | None) -> float | None:
    """The sum over its containers; None where memory is asked for and the cards' memory is not known."""
    shares = [_of_container(one, card_mib) for one in (pod.get("spec") or {}).get("containers") or ()]
    known = [share for share in shares if share is not None]
    return sum(known) if len(known) == len(shares) else None


def _of_container(container: Object, card_mib: float | None) -> float | None:
    resources = container.get("resources") or {}
    asked: Mapping[str, object] = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    number = quantity(asked.get(NUMBER, 0), NUMBER)
    if PERCENTAGE in asked:
        return number * min(1.0, quantity(asked[PERCENTAGE], PERCENTAGE) / 100)
    memory_mib = quantity(asked.get(MEMORY, 0), MEMORY)
    if not number or not memory_mib:
        return number
    return number * min(1.0, memory_mib / card_mib) if card_mib else None
