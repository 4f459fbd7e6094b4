"""Who may hold how much of one resource of one flavor: quotas, limits and cohorts, as Kueue counts them.

Pure arithmetic over a forest: queues are leaves, cohorts inner nodes with quota of their own on top of their members'.
What a node does not lend to its parent (`lending_limit`) stays with it; what it takes from its parent is limited by
`borrowing_limit`. Unset limits are None: everything may be lent, any amount borrowed. Amounts are exact fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

NOTHING = Fraction(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """What a queue, or a cohort, has of one resource: its own quota and limits, and what its work holds of it.

    `parent` is the cohort above it. A cohort holds nothing itself.
    """

    name: str
    parent: str | None = None
    nominal: Fraction = NOTHING
    borrowing_limit: Fraction | None = None
    lending_limit: Fraction | None = None
    held: Fraction = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a queue or a cohort stands.

    `reach` is the most that it could ever hold, `available` what more it may take now, `unused` its own quota that it
    does not use, `lendable` the part of this that others may take. `borrowed` is held beyond its own quota and is
    others'; `lent` is its own that others hold; `over_quota` is held beyond what anybody gave it (a quota was lowered
    under running work: Kueue evicts nobody).
    """

    reach: Fraction
    available: Fraction
    unused: Fraction
    lendable: Fraction
    borrowed: Fraction = NOTHING
    lent: Fraction = NOTHING
    over_quota: Fraction = NOTHING


@dataclass(frozen=True, slots=True)
class Standings:
    """Standings of queues and of cohorts by name: the two kinds of names may be the same."""

    queues: Mapping[str, Standing]
    cohorts: Mapping[str, Standing]


def loops(parents: Mapping[str, str | None]) -> frozenset[str]:
    """The cohorts that are part of a cycle, or below one: Kueue admits nothing in them."""
    found: set[str] = set()
    for name in parents:
        path: list[str] = []
        at: str | None = name
        while at is not None and at not in path and at not in found:
            path.append(at)
            at = parents.get(at)
        if at is not None:
            found.update(path)
    return frozenset(found)


def standings(queues: Iterable[Member], cohorts: Iterable[Member]) -> Standings:
    """Where everybody stands. A cohort that is only named by its members is one without quota.

    Members of a cycle stand alone: nothing is lent there.
    """
    forest = _Forest.of(list(queues), list(cohorts))
    flows = _settled(forest)
    return Standings(
        {node.member.name: _standing(node, flows) for node in forest.queues},
        {name: _standing(node, flows) for name, node in forest.cohorts.items()},
    )


@dataclass(slots=True, eq=False)
class _Node:
    """A member with what follows from the members below it: `subtree` quota and `used` of it."""

    member: Member
    parent: _Node | None = None
    children: list[_Node] = field(default_factory=list)
    subtree: Fraction = NOTHING
    used: Fraction = NOTHING

    @property
    def local(self) -> Fraction:
        """The part of its quota that never leaves it."""
        limit = self.member.lending_limit
        return NOTHING if limit is None or self.parent is None else max(NOTHING, self.subtree - limit)

    @property
    def stored(self) -> Fraction:
        """The part of its quota that its parent may give to others."""
        return self.subtree - self.local

    @property
    def taken(self) -> Fraction:
        """What it uses of its parent's."""
        return max(NOTHING, self.used - self.local)


@dataclass(frozen=True, slots=True)
class _Forest:
    queues: Sequence[_Node]
    cohorts: Mapping[str, _Node]

    @classmethod
    def of(cls, queues: Sequence[Member], cohorts: Sequence[Member]) -> _Forest:
        known = {cohort.name: _Node(cohort) for cohort in cohorts}
        for member in (*queues, *cohorts):
            if member.parent is not None and member.parent not in known:
                known[member.parent] = _Node(Member(name=member.parent))
        broken = loops({name: node.member.parent for name, node in known.items()})
        leaves = [_Node(queue) for queue in queues]
        for node in (*leaves, *known.values()):
            parent = node.member.parent
            is_loose = parent is None or parent in broken
            node.parent = None if is_loose or parent is None else known[parent]
            if node.parent is not None:
                node.parent.children.append(node)
        forest = cls(leaves, known)
        for node in (*leaves, *known.values()):
            if node.parent is None:
                _sum_up(node)
        return forest


def _sum_up(node: _Node) -> None:
    node.subtree, node.used = node.member.nominal, node.member.held
    for child in node.children:
        _sum_up(child)
        node.subtree += child.stored
        node.used += child.taken


def _reach(node: _Node) -> Fraction:
    if node.parent is None:
        return node.subtree
    reach = node.local + _reach(node.parent)
    limit = node.member.borrowing_limit
    return reach if limit is None else min(reach, node.subtree + limit)


def _available(node: _Node) -> Fraction:
    """What more it may take; below zero where more is held than there is."""
    if node.parent is None:
        return node.subtree - node.used
    above = _available(node.parent)
    limit = node.member.borrowing_limit
    if limit is not None:
        above = min(above, node.stored - node.taken + limit)
    return max(NOTHING, node.local - node.used) + above


@dataclass(slots=True)
class _Flows:
    """Who borrowed and lent how much, by node."""

    borrowed: dict[_Node, Fraction] = field(default_factory=dict)
    lent: dict[_Node, Fraction] = field(default_factory=dict)

    def add(self, side: dict[_Node, Fraction], amounts: Mapping[_Node, Fraction], part: Fraction) -> None:
        for node, amount in amounts.items():
            side[node] = side.get(node, NOTHING) + amount * part


def _settled(forest: _Forest) -> _Flows:
    """Match what is held beyond quotas with what others do not use, in the lowest cohort that can."""
    flows = _Flows()
    for node in forest.cohorts.values():
        if node.parent is None:
            _settle(node, flows)
    return flows


def _settle(node: _Node, flows: _Flows) -> tuple[dict[_Node, Fraction], dict[_Node, Fraction]]:
    """Demands and supplies that `node` could not match below it, by queue or cohort, within its limits."""
    demands: dict[_Node, Fraction] = {}
    supplies: dict[_Node, Fraction] = {}
    for child in node.children:
        wanted, offered = _settle(child, flows) if child.children else _own(child)
        demands |= _capped(wanted, child.member.borrowing_limit)
        supplies |= _capped(offered, child.member.lending_limit)
    demands, pool = _matched(demands, {node: node.member.nominal}, flows)
    demands, supplies = _matched(demands, supplies, flows)
    return demands, pool | supplies


def _own(node: _Node) -> tuple[dict[_Node, Fraction], dict[_Node, Fraction]]:
    balance = node.member.nominal - node.member.held
    return ({node: -balance}, {}) if balance < 0 else ({}, {node: balance})


def _capped(amounts: dict[_Node, Fraction], limit: Fraction | None) -> dict[_Node, Fraction]:
    total = sum(amounts.values(), NOTHING)
    if limit is None or total <= limit:
        return amounts
    return {node: amount * limit / total for node, amount in amounts.items()}


def _matched(
    demands: dict[_Node, Fraction], supplies: dict[_Node, Fraction], flows: _Flows
) -> tuple[dict[_Node, Fraction], dict[_Node, Fraction]]:
    """Give each side its part in proportion; what is left of both."""
    wanted, offered = sum(demands.values(), NOTHING), sum(supplies.values(), NOTHING)
    moved = min(wanted, offered)
    if not moved:
        return demands, supplies
    flows.add(flows.borrowed, demands, moved / wanted)
    flows.add(flows.lent, supplies, moved / offered)
    return _remaining(demands, moved / wanted), _remaining(supplies, moved / offered)


def _remaining(amounts: dict[_Node, Fraction], part: Fraction) -> dict[_Node, Fraction]:
    return {node: amount * (1 - part) for node, amount in amounts.items()} if part < 1 else {}


def _standing(node: _Node, flows: _Flows) -> Standing:
    member = node.member
    borrowed = flows.borrowed.get(node, NOTHING)
    return Standing(
        reach=_reach(node),
        available=max(NOTHING, _available(node)),
        unused=max(NOTHING, member.nominal - member.held),
        lendable=max(NOTHING, node.stored - node.taken) if node.parent is not None else NOTHING,
        borrowed=borrowed,
        lent=flows.lent.get(node, NOTHING),
        over_quota=max(NOTHING, member.held - member.nominal - borrowed),
    )
