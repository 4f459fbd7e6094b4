"""One planning cycle: for each shape that has no room, moves in the blocks that can give it some."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil

from analyzers.recommend.consolidate_fleet import Host, Need, Problem, Resident, Room, Step, greedy, openable, opened
from analyzers.recommend.consolidate_program import Moves, consolidate
from analyzers.recommend.consolidate_snapshot import Snapshot, Want

BLOCK_NODES = 40
"""Most nodes of a block: the program of a larger one takes longer than its answer is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one cycle may do, and how its gain is reckoned."""

    max_moves: int
    tenant_cards: Mapping[str, float]
    horizon_hours: float
    block_seconds: float
    cycle_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """Moves that let pods of `want` start: which nodes take how many of them afterwards, and what it brings and costs.

    `fitting_before` and `fitting_after` are pods of the shape that have room at once.
    """

    want: Want
    parts: tuple[Moves, ...]
    places: Mapping[str, int]
    fitting_before: int
    fitting_after: int
    started_pods: int
    gain_gpu_hours: float
    cost_gpu_hours: float

    @property
    def steps(self) -> list[Step]:
        """All moves, in their order."""
        return [step for part in self.parts for step in part.steps]

    @property
    def net_gpu_hours(self) -> float:
        """What is gained less what moving loses."""
        return self.gain_gpu_hours - self.cost_gpu_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why nothing is moved for `want`: a word, and the same as a sentence's end."""

    want: Want
    reason: str
    text: str


class Cycle:
    """Plans for one want after the other; what one is given, the next cannot have."""

    def __init__(self, seen: Snapshot, allowance: Allowance, clock: Callable[[], float] = time.monotonic) -> None:
        """Give what waits the room that is there already: it needs no moves."""
        self._seen, self._allowance, self._clock = seen, allowance, clock
        self._until = clock() + allowance.cycle_seconds
        self._room = Room(seen.hosts)
        self._residents = list(seen.residents)
        self._moves_left, self._tenant_cards = allowance.max_moves, dict(allowance.tenant_cards)
        self.unmet = [(want, missing) for want in seen.wants if (missing := self._seat(want)) > 0]

    def plan(self, want: Want, missing: int) -> Proposal | Refusal:
        """Moves for `missing` pods of `want` (a gang misses all of its own), or why there are none."""
        seats = max((host.card_count // want.cards for host in self._acceptable(want)), default=0)
        if seats == 0:
            return Refusal(want=want, reason="no_such_node", text="no node has the model and the cards for it")
        before = self._fitting(self._room, want.need)
        most = ceil((missing - before if want.is_gang else missing) / seats)
        best: Proposal | None = None
        while most >= 1:
            best = self._try(want, missing, before, most)
            if best is not None and best.net_gpu_hours > 0:
                self._accept(best)
                return best
            most = 0 if want.is_gang else most // 2
        if best is None:
            return Refusal(want=want, reason="no_room_even_so", text="no allowed moves would make room for it")
        return Refusal(
            want=want,
            reason="moves_cost_more",
            text=f"moving would lose {best.cost_gpu_hours:.1f} GPU-hours and gain {best.gain_gpu_hours:.1f}",
        )

    def _acceptable(self, want: Want) -> list[Host]:
        return [host for host in self._seen.hosts if not want.need.models or host.model in want.need.models]

    def _fitting(self, room: Room, need: Need) -> int:
        return sum(room.count(need, node) for node in room.hosts)

    def _seat(self, want: Want) -> int:
        """Pods of `want` that have no room now; those that wait and have room take it."""
        fitting = self._fitting(self._room, want.need)
        if want.basis == "usual":
            return max(0, want.pod_count - fitting)
        if want.is_gang and fitting < want.pod_count:
            return want.pod_count
        self._take(self._room, want.need, min(fitting, want.pod_count))
        return max(0, want.pod_count - fitting)

    def _take(self, room: Room, need: Need, pods: int) -> dict[str, int]:
        """Seat `pods` pods, on nodes that they fill best first; gives how many each node takes."""
        places = {}
        for node in sorted(room.hosts, key=lambda node: (room.cards(node), node)):
            if (count := min(pods, room.count(need, node))) > 0:
                room.take(need, node, count)
                places[node] = count
                pods -= count
        return places

    def _try(self, want: Want, missing: int, before: int, most: int) -> Proposal | None:
        """The moves that open up to `most` nodes, block by block; None where no further pod would start."""
        room, parts = self._room.copy(), list[Moves]()
        moves_left, cards, left = self._moves_left, dict(self._tenant_cards), most
        hours = want.used_hours(self._allowance.horizon_hours)
        for problem in self._blocks(want, room, hours):
            if left <= 0 or moves_left <= 0:
                break
            bounded = replace(problem, max_moves=moves_left, tenant_cards=cards, max_opened=left)
            found = consolidate(bounded, seconds=min(self._allowance.block_seconds, self._until - self._clock()))
            if not found.opened:
                continue
            parts.append(found)
            left -= len(found.opened)
            for step in found.steps:
                room.move(step)
                moves_left -= len(step.resident.pods)
                if step.resident.tenant in cards:
                    cards[step.resident.tenant] -= step.resident.cards
        after = self._fitting(room, want.need)
        started = min(after, missing)
        if started <= 0 or (want.is_gang and started < want.pod_count):
            return None
        return Proposal(
            want=want,
            parts=tuple(parts),
            places=self._take(room, want.need, started),
            fitting_before=before,
            fitting_after=after,
            started_pods=started,
            gain_gpu_hours=started * want.cards * hours,
            cost_gpu_hours=sum(step.resident.cost for part in parts for step in part.steps),
        )

    def _blocks(self, want: Want, room: Room, hours: float) -> Iterator[Problem]:
        """Pools, and leaves of a pool that is too large, those first that the greedy moves open most of.

        A pod whose move costs more than the room of a whole node brings stays where it is.
        """
        problems = []
        for name, nodes in self._block_nodes().items():
            hosts = [room.now(node) for node in nodes]
            worth = {host.node: host.card_count // want.cards * want.cards * hours for host in hosts}
            own = [one for one in self._residents if one.node in worth and one.cost < worth[one.node]]
            problem = _cut(Problem(hosts=hosts, residents=own, need=want.need, max_moves=self._moves_left))
            steps = greedy(problem)
            rank = (-len(opened(problem, steps)), len(steps), sum(step.resident.cost for step in steps), name)
            problems.append((rank, problem))
        yield from (problem for _, problem in sorted(problems, key=lambda one: one[0]))

    def _block_nodes(self) -> dict[tuple[str, str], list[str]]:
        pools: dict[str, list[str]] = {}
        for node, (pool, _) in self._seen.blocks.items():
            pools.setdefault(pool, []).append(node)
        found: dict[tuple[str, str], list[str]] = {}
        for pool, nodes in sorted(pools.items()):
            for node in sorted(nodes):
                leaf = self._seen.blocks[node][1] if len(nodes) > BLOCK_NODES else ""
                found.setdefault((pool, leaf), []).append(node)
        return found

    def _accept(self, proposal: Proposal) -> None:
        for step in proposal.steps:
            self._room.move(step)
            self._moves_left -= len(step.resident.pods)
            if step.resident.tenant in self._tenant_cards:
                self._tenant_cards[step.resident.tenant] -= step.resident.cards
        for node, count in proposal.places.items() if proposal.want.basis == "pending" else ():
            self._room.take(proposal.want.need, node, count)
        moved = {step.resident.name for step in proposal.steps}
        self._residents = [one for one in self._residents if one.name not in moved]


def _cut(problem: Problem) -> Problem:
    """The block itself, or of a large one the nodes easiest to open and those that pods would best move to."""
    if len(problem.hosts) <= BLOCK_NODES:
        return problem
    held: dict[str, list[Resident]] = {}
    for one in problem.residents:
        held.setdefault(one.node, []).append(one)
    need = problem.need
    easiest = sorted(
        openable(problem), key=lambda host: (need.cards_of(host) - host.free_cards, len(held[host.node]), host.node)
    )[: BLOCK_NODES // 2]
    kept = {host.node for host in easiest}
    room = Room(problem.hosts)
    others = [host for host in problem.hosts if host.node not in kept and host.free_cards > 0]
    targets = sorted(
        (host for host in others if not room.fits(need, host.node)), key=lambda host: (host.free_cards, host.node)
    )
    hosts = [*easiest, *targets[: BLOCK_NODES - len(easiest)]]
    names = {host.node for host in hosts}
    return replace(problem, hosts=hosts, residents=[one for one in problem.residents if one.node in names])
