"""Nodes and the pods on them, as far as moving pods together is concerned; room, greedy moves, and a feasible order.

Cards are whole: what holds a part of a card stays where it is, and its card is neither free nor movable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import floor, inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A node: all its cards, the free ones, and free CPU and memory; None where they are not known (taken as ample)."""

    node: str
    card_count: int
    free_cards: int
    cpu_free_milli: int | None = None
    memory_free_mib: int | None = None
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """What moves as one: a pod, or all pods of a gang on one node. `models` it accepts (empty: any).

    `cost` is what one move of it loses, in GPU-hours; GPUs where a caller only counts those.
    """

    name: str
    node: str
    cards: int
    cost: float
    workload_id: str = ""
    tenant: str = ""
    pods: tuple[str, ...] = ("",)
    pod_cards: tuple[int, ...] = ()
    cpu_milli: int = 0
    memory_mib: int = 0
    models: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """The room that a node shall have: cards, CPU and memory of one pod, on one of `models`. No `cards`: all it has."""

    cards: int | None = None
    cpu_milli: int = 0
    memory_mib: int = 0
    models: frozenset[str] = frozenset()

    def cards_of(self, host: Host) -> int:
        """Cards that must be free on `host`."""
        return host.card_count if self.cards is None else self.cards


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A block of nodes, the pods that may move in it, and the bounds.

    `max_moves` counts pods, `max_opened` nodes, `tenant_cards` the cards of each tenant that may move (absent: any).
    """

    hosts: Sequence[Host]
    residents: Sequence[Resident]
    need: Need = field(default_factory=Need)
    max_moves: int = 16
    max_opened: int | None = None
    tenant_cards: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One move of one resident. `is_detour`: to a spare place, from which a later step takes it on."""

    resident: Resident
    from_node: str
    to_node: str
    is_detour: bool = False


class Room:
    """What is free on each node while residents move."""

    def __init__(self, hosts: Iterable[Host]) -> None:
        """Start from `hosts` as they are."""
        self.hosts = {host.node: host for host in hosts}
        self._free = {
            host.node: [
                host.free_cards,
                inf if host.cpu_free_milli is None else host.cpu_free_milli,
                inf if host.memory_free_mib is None else host.memory_free_mib,
            ]
            for host in self.hosts.values()
        }

    def cards(self, node: str) -> int:
        """Free cards of `node`."""
        return int(self._free[node][0])

    def now(self, node: str) -> Host:
        """`node` with what is free on it now."""
        cards, cpu, memory = self._free[node]
        return replace(
            self.hosts[node],
            free_cards=int(cards),
            cpu_free_milli=None if cpu == inf else int(cpu),
            memory_free_mib=None if memory == inf else int(memory),
        )

    def copy(self) -> Room:
        """Another room in the same state."""
        return Room(self.now(node) for node in self.hosts)

    def fits(self, asked: Resident | Need, node: str) -> bool:
        """Whether `asked` has room on `node` now."""
        host = self.hosts[node]
        cards = asked.cards_of(host) if isinstance(asked, Need) else asked.cards
        wanted = (cards, asked.cpu_milli, asked.memory_mib)
        accepted = not asked.models or host.model in asked.models
        return accepted and all(free >= one for free, one in zip(self._free[node], wanted, strict=True))

    def count(self, need: Need, node: str) -> int:
        """How many pods of `need` have room on `node` now, side by side."""
        host = self.hosts[node]
        wanted = (need.cards_of(host), need.cpu_milli, need.memory_mib)
        if need.models and host.model not in need.models:
            return 0
        # A node that holds more CPU or memory than it has takes nothing; it does not take room from the others.
        return max(0, floor(min(free / one for free, one in zip(self._free[node], wanted, strict=True) if one > 0)))

    def take(self, asked: Resident | Need, node: str, count: int = 1) -> None:
        """Hold what `asked` needs on `node`, `count` times; a negative count gives it back."""
        host = self.hosts[node]
        cards = asked.cards_of(host) if isinstance(asked, Need) else asked.cards
        for i, one in enumerate((cards, asked.cpu_milli, asked.memory_mib)):
            self._free[node][i] -= count * one

    def move(self, step: Step) -> None:
        """Carry a step out."""
        self.take(step.resident, step.from_node, -1)
        self.take(step.resident, step.to_node)

    def best_fit(self, asked: Resident, nodes: Iterable[str]) -> str | None:
        """The one of `nodes` with room that has the fewest cards left afterwards; of equals the smallest name."""
        fitting = [node for node in nodes if self.fits(asked, node)]
        return min(fitting, key=lambda node: (self.cards(node), node), default=None)


def closed(problem: Problem) -> list[Host]:
    """Nodes without room for the need now: those that can be opened, and the only ones that anything may move to.

    A node with room already is what all this is for; nothing is moved onto it.
    """
    room = Room(problem.hosts)
    return [host for host in problem.hosts if not room.fits(problem.need, host.node)]


def openable(problem: Problem) -> list[Host]:
    """Closed nodes that the need accepts and that would have the cards if every resident left, and hold one."""
    cards: dict[str, int] = {}
    for one in problem.residents:
        cards[one.node] = cards.get(one.node, 0) + one.cards
    accepted = problem.need.models
    return [
        host
        for host in closed(problem)
        if host.node in cards
        and (not accepted or host.model in accepted)
        and problem.need.cards_of(host) <= host.free_cards + cards[host.node]
    ]


class Bounds:
    """What of a problem's bounds is left while moves are made."""

    def __init__(self, problem: Problem) -> None:
        """Nothing is moved yet."""
        self._moves, self._cards = problem.max_moves, dict(problem.tenant_cards)

    def allow(self, one: Resident) -> bool:
        """Whether `one` may still move."""
        return len(one.pods) <= self._moves and one.cards <= self._cards.get(one.tenant, inf)

    def spend(self, one: Resident, times: int = 1) -> None:
        """`one` moves, or is put back (-1)."""
        self._moves -= times * len(one.pods)
        if one.tenant in self._cards:
            self._cards[one.tenant] -= times * one.cards


def greedy(problem: Problem) -> list[Step]:
    """Open one node after the other: the one that holds fewest cards, then fewest jobs, then by name.

    Its residents go, the largest first, to the nodes that fit them best. Every step is feasible in its turn. A lower
    bound of what the program opens, and its stand-in.
    """
    room, bounds, steps = Room(problem.hosts), Bounds(problem), list[Step]()
    homes: dict[str, list[Resident]] = {}
    for one in sorted(problem.residents, key=lambda one: (-one.cards, one.name)):
        homes.setdefault(one.node, []).append(one)
    order = [(sum(one.cards for one in homes[h.node]), len(homes[h.node]), h.node) for h in openable(problem)]
    shut = {host.node for host in closed(problem)}
    count = 0
    for _, _, node in sorted(order):
        if count == problem.max_opened:
            break
        if node in {step.to_node for step in steps}:
            continue
        made = _open_one(problem.need, node, homes[node], room, bounds, shut - {node})
        if made:
            steps += made
            shut.discard(node)
            count += 1
    return steps


def _open_one(
    need: Need, node: str, residents: Sequence[Resident], room: Room, bounds: Bounds, others: set[str]
) -> list[Step]:
    """The steps that make room for `need` on `node`; none, and all as it was, where they do not suffice."""
    steps: list[Step] = []
    for one in residents:
        target = room.best_fit(one, others)
        if target is not None and bounds.allow(one):
            steps.append(Step(resident=one, from_node=node, to_node=target))
            room.move(steps[-1])
            bounds.spend(one)
        if room.fits(need, node):
            return steps
    for step in reversed(steps):
        room.move(Step(resident=step.resident, from_node=step.to_node, to_node=step.from_node))
        bounds.spend(step.resident, -1)
    return []


def in_order(problem: Problem, targets: Mapping[str, str]) -> list[Step] | None:
    """Steps that bring each resident (by name) to its target, each with room at its moment; None where there is none.

    Where all that is left waits for each other, one goes to a spare place first, if the bounds allow one more move.
    """
    room, steps = Room(problem.hosts), list[Step]()
    where = {one.name: one.node for one in problem.residents}
    waiting = sorted((one for one in problem.residents if one.name in targets), key=lambda one: one.name)
    bounds = Bounds(problem)
    for one in waiting:
        bounds.spend(one)
    while waiting:
        ready = [one for one in waiting if room.fits(one, targets[one.name])]
        if ready:
            step = Step(resident=ready[0], from_node=where[ready[0].name], to_node=targets[ready[0].name])
            waiting.remove(ready[0])
        else:
            detour = _detour(room, waiting, where, bounds)
            if detour is None:
                return None
            step = detour
            bounds.spend(step.resident)
        room.move(step)
        where[step.resident.name] = step.to_node
        steps.append(step)
    return steps


def _detour(room: Room, waiting: Sequence[Resident], where: Mapping[str, str], bounds: Bounds) -> Step | None:
    for one in waiting:
        spare = room.best_fit(one, (node for node in room.hosts if node != where[one.name]))
        if spare is not None and bounds.allow(one):
            return Step(resident=one, from_node=where[one.name], to_node=spare, is_detour=True)
    return None


def opened(problem: Problem, steps: Sequence[Step]) -> list[str]:
    """The nodes that have room for the need after `steps` and had none before."""
    room = Room(problem.hosts)
    before = {node for node in room.hosts if room.fits(problem.need, node)}
    for step in steps:
        room.move(step)
    return sorted(node for node in room.hosts if node not in before and room.fits(problem.need, node))
