"""Why a pod finds no node, by what the scheduler said and by what is free: the first word is the scheduler's.

It says "Insufficient nvidia.com/gpu" whether GPUs are gone, scattered, broken, or more than any node has.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.hami import Asked, Card, Held, held_by
from schedulers.kubernetes.nodes import NodeFacts
from schedulers.kubernetes.pods import ENDED, Object, phase_of
from schedulers.kubernetes.words import EXCLUSIONS, Verdict
from schedulers.reasons import Told, root


@dataclass(frozen=True, slots=True)
class Supply:
    """Of one resource: the most that a node has, has free, and would have free were it mended; what is free in all."""

    most: float
    most_free: float
    most_free_if_mended: float
    free: float


@dataclass(frozen=True, slots=True)
class Room:
    """What is free: nodes by name (empty where not every pod was shown), HAMi's cards by node, what is held of them."""

    nodes: Mapping[str, NodeFacts]
    cards: Mapping[str, Sequence[Card]]
    held: Mapping[str, Sequence[Held]]
    _supplies: dict[str, Supply] = field(default_factory=dict)

    def supply(self, resource: str) -> Supply:
        """Of `resource` on all nodes, gone through once however many pods wait."""
        if resource not in self._supplies:
            nodes = self.nodes.values()
            free = [node.free(resource) for node in nodes]
            self._supplies[resource] = Supply(
                most=max(node.capacity.get(resource, 0.0) for node in nodes),
                most_free=max(free),
                most_free_if_mended=max(node.free_if_mended(resource) for node in nodes),
                free=sum(free),
            )
        return self._supplies[resource]

    @classmethod
    def of(cls, core: CoreFacts, nodes: Mapping[str, NodeFacts]) -> Room:
        """From what nodes registered and pods hold."""
        held: dict[str, list[Held]] = defaultdict(list)
        cards = {name: found for name, found in core.cards_of_node.items() if name in nodes}
        for pod in core.pods_by_uid.values() if cards else ():
            if phase_of(pod) not in ENDED:
                for part in held_by(pod):
                    held[part.uuid].append(part)
        return cls(nodes, cards, held)


def why_unplaced(core: CoreFacts, pod: Object, told: Sequence[Verdict], room: Room) -> Told | None:
    """The cause of several verdicts on one pod; None where nothing was said."""
    own = [one.told for one in told if not one.nodes]
    if (chosen := root(own)) and chosen.cause not in ("unknown", "gang", "scheduler", "capacity"):
        return chosen
    asked = Asked.by(core.requests_of(pod))
    if asked.cards and asked.is_shared and room.cards and told:
        return _shared(asked, room, told[-1].told)
    lacking = [one.told for one in told if one.told.cause in ("capacity", "cpu_mem")]
    if lacking:
        return _lacking(core, pod, told, room)
    return root(one.told for one in told)


def _lacking(core: CoreFacts, pod: Object, told: Sequence[Verdict], room: Room) -> Told:
    """Of several: GPUs that no node has, GPUs that are free but refused or without CPU, scattered, broken, gone."""
    causes = {one.told.cause: one.told for one in told}
    gpus = core.gpus_of(pod)
    short = causes.get("capacity") or causes["cpu_mem"]
    if any(f"Insufficient {name}" in short.message for name in gpus):
        short = replace(short, cause="capacity")
    if not gpus or not room.nodes:
        return short
    resource, count = max(gpus.items(), key=lambda item: item[1])
    supply = room.supply(resource)
    if supply.most_free >= count:
        others = (one.told for one in told if one.told.cause in EXCLUSIONS)
        return causes.get("cpu_mem") or root(others) or short
    return _short_of_gpus(resource, count, short, supply)


def _short_of_gpus(resource: str, count: float, said: Told, supply: Supply) -> Told:
    """No node has `count` of `resource` free."""
    if count > supply.most:
        return _found(said, "exceeds_max", f"{resource}: more than any node has ({count:g} > {supply.most:g})")
    if supply.most_free_if_mended >= count:
        return _found(said, "health", f"{resource}: {count:g} would fit if broken or cordoned nodes were back")
    if supply.free >= count:
        words = f"{resource}: {supply.free:g} are free, at most {supply.most_free:g} on a node"
        return _found(said, "fragmentation", words)
    return said


def _shared(asked: Asked, room: Room, said: Told) -> Told:
    """Parts of cards: more cards than a node has, memory that is not free on enough of them, or no room at all."""
    most = max(len(cards) for cards in room.cards.values())
    if asked.cards > most:
        return _found(said, "exceeds_max", f"more cards than the node has ({asked.cards:g} > {most})")
    fits = [sum(_fits(asked, card, room.held[card.uuid], 1.0) for card in cards) for cards in room.cards.values()]
    if max(fits) >= asked.cards:
        return said
    is_memory = asked.memory_mib is not None or asked.memory_percent is not None
    if is_memory and any(
        sum(_fits(asked, card, room.held[card.uuid], 0.0) for card in cards) >= asked.cards
        for cards in room.cards.values()
    ):
        return _found(said, "gpu_memory", _memory_words(asked, room))
    return _found(said, "capacity", "no card has a free slot and enough cores")


def _fits(asked: Asked, card: Card, held: Sequence[Held], memory_weight: float) -> bool:
    """Whether one more part fits on `card`; with `memory_weight` 0 its memory does not count."""
    memory = asked.memory_of(card) + sum(part.memory_mib for part in held)
    cores = (asked.cores_percent or 0.0) + sum(part.cores_percent for part in held)
    return card.is_healthy and len(held) < card.slots and cores <= 100.0 and memory * memory_weight <= card.memory_mib


def _memory_words(asked: Asked, room: Room) -> str:
    needed = [
        (asked.memory_of(card) + sum(part.memory_mib for part in room.held[card.uuid]), card.memory_mib)
        for cards in room.cards.values()
        for card in cards
    ]
    total, has = min(needed, key=lambda pair: pair[0] - pair[1])
    return f"GPU memory ({total:g} > {has:g} MiB)"


def _found(said: Told, cause: str, finding: str) -> Told:
    """The scheduler's words with what we found; `finding` is ours."""
    message = f"{said.message} [{finding}]" if said.message else finding
    return replace(said, cause=cause, message=message)
