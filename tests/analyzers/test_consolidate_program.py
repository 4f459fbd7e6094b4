"""Moves of pods that open nodes: the worked example, brute force on small fleets, orders, spares and bounds."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.fgd import NodeState, TaskClass, fragment_milli
from analyzers.recommend.consolidate_fleet import (
    Host,
    Need,
    Problem,
    Resident,
    Room,
    Step,
    closed,
    greedy,
    in_order,
    openable,
    opened,
)
from analyzers.recommend.consolidate_program import Moves, consolidate

Arcs: TypeAlias = list[tuple[str, str]]
Answer: TypeAlias = tuple[int, int, float, list[tuple[str, str]]]


def host(name: str, free: int, cards: int = 8, **more: int) -> Host:
    return Host(node=name, card_count=cards, free_cards=free, **more)  # type: ignore[arg-type]


def resident(name: str, node: str, cards: int, **more: object) -> Resident:
    return Resident(**{"name": name, "node": node, "cards": cards, "cost": float(cards), **more})  # type: ignore[arg-type]


B2 = Problem(
    hosts=[host("A", 3), host("B", 5), host("C", 5), host("D", 4)],
    residents=[
        resident("A5", "A", 5),
        resident("B2", "B", 2),
        resident("B1", "B", 1),
        resident("C3", "C", 3),
        resident("D4", "D", 4),
    ],
)


def moves_of(found: Moves) -> Arcs:
    return sorted((step.resident.name, step.to_node) for step in found.steps)


@pytest.mark.parametrize(
    ("max_moves", "best", "moves"),
    [
        (0, (0, 0, 0), []),
        (1, (1, 1, 3), [("C3", "A")]),
        (2, (2, 2, 7), [("C3", "A"), ("D4", "B")]),
        (3, (2, 2, 7), [("C3", "A"), ("D4", "B")]),
        (16, (2, 2, 7), [("C3", "A"), ("D4", "B")]),
    ],
)
def test_b2(max_moves: int, best: tuple[int, int, float], moves: Arcs) -> None:
    found = consolidate(replace(B2, max_moves=max_moves))
    assert found.tuple == best
    assert moves_of(found) == moves
    assert (found.method, found.gap_nodes, found.is_settled) == ("program", 0, True)
    assert set(found.opened) == {name[0] for name, _ in moves}


def test_b2_lowers_the_index_from_8_5_to_4_5_to_0_5() -> None:
    classes = [TaskClass(cpu_milli=0, gpu_milli=1000, num_gpu=count, weight=0.5) for count in (8, 1)]

    def index(max_moves: int) -> float:
        room = Room(B2.hosts)
        for step in consolidate(replace(B2, max_moves=max_moves)).steps:
            room.move(step)
        states = []
        for name in room.hosts:
            free = room.cards(name)
            states.append(
                NodeState(node=name, cpu_free_milli=1, gpu_free_milli=(1000,) * free + (0,) * (8 - free)),
            )
        return sum(fragment_milli(state, classes) for state in states) / 1000

    assert [index(max_moves) for max_moves in (0, 1, 2)] == [8.5, 4.5, 0.5]


def test_b2_greedy_opens_as_many_with_more_moves() -> None:
    steps = greedy(B2)
    assert opened(B2, steps) == ["B", "C"]
    assert len(steps) == 3
    assert opened(B2, greedy(replace(B2, max_moves=1))) == ["C"]


def _brute_force(problem: Problem) -> Answer:
    """The best of all assignments, by (nodes opened, pods moved, cost, smallest list of moves)."""
    targets = [one.node for one in closed(problem)]
    best: Answer | None = None
    before = set(opened(problem, []))
    assert not before
    can = {one.node for one in openable(problem)}
    for choice in itertools.product([None, *targets], repeat=len(problem.residents)):
        pairs = [
            (one, node) for one, node in zip(problem.residents, choice, strict=True) if node not in (None, one.node)
        ]
        if len(pairs) < sum(node is not None for node in choice) or not _is_allowed(problem, pairs):
            continue
        count = _opened(problem, pairs, can)
        if problem.max_opened is not None and count > problem.max_opened:
            count = problem.max_opened
        pods, cost = sum(len(one.pods) for one, _ in pairs), sum(one.cost for one, _ in pairs)
        one_answer = (-count, pods, cost, sorted((one.name, str(node)) for one, node in pairs))
        best = min(best or one_answer, one_answer)
    assert best is not None
    return -best[0], best[1], best[2], best[3]


def _free(problem: Problem, pairs: Sequence[tuple[Resident, str | None]]) -> dict[str, list[int]]:
    free = {one.node: [one.free_cards, one.cpu_free_milli or 0] for one in problem.hosts}
    for one, node in pairs:
        for name, sign in ((one.node, 1), (str(node), -1)):
            free[name][0] += sign * one.cards
            free[name][1] += sign * one.cpu_milli
    return free


def _is_allowed(problem: Problem, pairs: Sequence[tuple[Resident, str | None]]) -> bool:
    models = {one.node: one.model for one in problem.hosts}
    moved: dict[str, int] = {}
    for one, _ in pairs:
        moved[one.tenant] = moved.get(one.tenant, 0) + one.cards
    return (
        min(min(left) for left in _free(problem, pairs).values()) >= 0
        and sum(len(one.pods) for one, _ in pairs) <= problem.max_moves
        and all(not one.models or models[str(node)] in one.models for one, node in pairs)
        and all(moved.get(tenant, 0) <= cards for tenant, cards in problem.tenant_cards.items())
    )


def _opened(problem: Problem, pairs: Sequence[tuple[Resident, str | None]], can: set[str]) -> int:
    free = _free(problem, pairs)
    return sum(
        one.node in can
        and free[one.node][0] >= problem.need.cards_of(one)
        and free[one.node][1] >= problem.need.cpu_milli
        for one in problem.hosts
    )


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    hosts: list[Host] = []
    residents: list[Resident] = []
    for n in range(draw(st.integers(2, 4))):
        cards = draw(st.sampled_from([4, 4, 8]))
        held = draw(st.lists(st.integers(1, 3), max_size=2))
        held = held if sum(held) <= cards and len(residents) + len(held) <= 5 else []
        spare = draw(st.integers(0, 6))
        for cards_of_one in held:
            residents.append(
                Resident(
                    name=f"j{draw(st.integers(0, 99)):02d}-{len(residents)}",
                    node=f"n{n}",
                    cards=cards_of_one,
                    cost=float(draw(st.integers(0, 4))),
                    tenant=draw(st.sampled_from(["a", "b"])),
                    pods=("p",) * draw(st.sampled_from([1, 1, 2])),
                    cpu_milli=draw(st.integers(0, 2)),
                    models=draw(st.sampled_from([frozenset[str](), frozenset({"H"})])),
                )
            )
        pinned = draw(st.sampled_from([0, 0, 1]))
        free = max(0, cards - sum(held) - pinned)
        model = draw(st.sampled_from(["H", "H", "A"]))
        hosts.append(
            Host(node=f"n{n}", card_count=cards, free_cards=free, cpu_free_milli=spare, model=model),
        )
    return Problem(
        hosts=hosts,
        residents=residents,
        need=Need(
            cards=draw(st.sampled_from([None, 2, 4])),
            cpu_milli=draw(st.integers(0, 3)),
            models=draw(st.sampled_from([frozenset[str](), frozenset({"H"})])),
        ),
        max_moves=draw(st.integers(0, 6)),
        max_opened=draw(st.sampled_from([None, 1, 2])),
        tenant_cards=draw(st.sampled_from([{}, {"a": 3.0}, {"a": 2.5, "b": 1.0}])),
    )


@settings(max_examples=120, deadline=None)
@given(problem=problems())
def test_brute_force_agrees_and_greedy_opens_no_more(problem: Problem) -> None:
    best = _brute_force(problem)
    found = consolidate(problem)
    steps = greedy(problem)
    for made in (list(found.steps), steps):
        _is_feasible(problem, made)
    assert len(opened(problem, steps)) <= best[0]
    if not any(step.is_detour for step in found.steps) and found.method == "program":
        nodes, pods, cost = found.tuple
        nodes = nodes if problem.max_opened is None else min(nodes, problem.max_opened)
        assert (nodes, pods, cost, moves_of(found)) == best
    else:
        assert found.tuple[0] <= best[0], "greedy, or a way round"


def _is_feasible(problem: Problem, steps: Sequence[Step]) -> None:
    room, pods = Room(problem.hosts), 0
    moved: dict[str, int] = {}
    for step in steps:
        assert room.fits(step.resident, step.to_node)
        room.move(step)
        one = step.resident
        pods += len(one.pods)
        moved[one.tenant] = moved.get(one.tenant, 0) + one.cards
    assert pods <= problem.max_moves
    assert all(moved.get(tenant, 0) <= cards for tenant, cards in problem.tenant_cards.items())


def test_a_move_waits_until_its_target_has_room() -> None:
    """z must leave B before a can come: sorted by name alone, a would be first, and find B full."""
    problem = Problem(
        hosts=[host("A", 0, 2), host("B", 0, 2), host("C", 2, 4)],
        residents=[resident("a", "A", 2), resident("z", "B", 2)],
    )
    ordered = in_order(problem, {"a": "B", "z": "C"})
    assert ordered is not None
    assert [(step.resident.name, step.to_node) for step in ordered] == [("z", "C"), ("a", "B")]


def _swap(max_moves: int, spare: int, tenant_cards: Mapping[str, float] | None = None) -> Arcs | None:
    problem = Problem(
        hosts=[host("A", 0, 2), host("B", 0, 2), host("S", spare, 2)],
        residents=[resident("a", "A", 2, tenant="t"), resident("b", "B", 2, tenant="t")],
        max_moves=max_moves,
        tenant_cards=tenant_cards or {},
    )
    ordered = in_order(problem, {"a": "B", "b": "A"})
    return None if ordered is None else [(step.resident.name, step.to_node) for step in ordered]


def test_two_that_wait_for_each_other_go_through_a_spare_place_or_not_at_all() -> None:
    assert _swap(3, 2) == [("a", "S"), ("b", "A"), ("a", "B")]
    assert _swap(2, 2) is None, "the way round is a third move"
    assert _swap(3, 1) is None, "no room to spare"
    assert _swap(3, 2, {"t": 6.0}) == [("a", "S"), ("b", "A"), ("a", "B")]
    assert _swap(3, 2, {"t": 5.9}) is None, "the tenant's share is used up"


def test_a_node_need_not_be_emptied_where_half_of_it_is_wanted() -> None:
    """Three nodes with 1, 2 and 1 free cannot take 4 GPUs; one move of 2 gives them room, and no node is empty."""
    problem = Problem(
        hosts=[host("A", 1), host("B", 2), host("C", 2)],
        residents=[resident("a7", "A", 7), resident("b2", "B", 2), resident("b4", "B", 4), resident("c6", "C", 6)],
        need=Need(cards=4),
    )
    found = consolidate(problem)
    assert (found.tuple, moves_of(found), found.opened) == ((1, 1, 2), [("b2", "C")], ("B",))


def test_a_node_that_holds_more_than_it_has_keeps_no_other_from_being_opened() -> None:
    hosts = [host("A", 2, 4, cpu_free_milli=8), host("B", 3, 4, cpu_free_milli=8), host("C", 4, 4, cpu_free_milli=-5)]
    residents = [resident("a", "A", 2), resident("b", "B", 1)]
    found = consolidate(Problem(hosts=hosts, residents=residents))
    assert (found.method, found.tuple, found.opened, found.gap_nodes) == ("program", (1, 1, 1.0), ("B",), 0)
    room, need = Room(hosts), Need(cards=1, cpu_milli=2)
    assert [room.count(need, node) for node in "ABC"] == [2, 3, 0], "it takes nothing, and nothing from the others"


@pytest.mark.parametrize(("left", "opens"), [(-2, False), (-1, False), (0, True)])
def test_such_a_node_is_opened_once_what_is_too_much_has_left(left: int, opens: bool) -> None:
    hosts = [host("A", 2, 4, cpu_free_milli=left), host("B", 2, 4, cpu_free_milli=9)]
    residents = [resident("a", "A", 2, cpu_milli=3), resident("b", "B", 1, cpu_milli=1)]
    found = consolidate(Problem(hosts=hosts, residents=residents, need=Need(cards=4, cpu_milli=3)))
    assert found.opened == (("A",) if opens else ())


def test_nothing_moves_to_a_node_that_is_open_already() -> None:
    problem = Problem(hosts=[host("A", 5), host("E", 8)], residents=[resident("a3", "A", 3)])
    assert consolidate(problem) == Moves(steps=(), opened=(), method="program")
    other = Problem(hosts=[host("A", 5), host("B", 5)], residents=[resident("a3", "A", 3), resident("b3", "B", 3)])
    assert consolidate(other).tuple == (1, 1, 3)


def test_out_of_time_the_greedy_moves_stand_in_and_say_so() -> None:
    found = consolidate(B2, seconds=0)
    assert (found.method, found.tuple, found.is_settled) == ("greedy", (2, 3, 6), False)
    assert found.gap_nodes == 2
    assert consolidate(replace(B2, max_opened=2), seconds=0).gap_nodes == 0


def test_the_solver_leaves_stdout_alone() -> None:
    code = (
        "from tests.analyzers.test_consolidate_program import B2, consolidate, like\n"
        "consolidate(B2); consolidate(like(12))\nprint('only this')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert ran.stdout == "only this\n"


def like(count: int) -> Problem:
    """Nodes that are alike, each with jobs of 1 to 3 GPUs: what the solver says most about."""
    residents = [
        resident(f"j{n:02d}-{i}", f"n{n:02d}", 1 + (n + i) % 3) for n in range(count) for i in range(1 + n % 2)
    ]
    held = {name: sum(one.cards for one in residents if one.node == name) for name in {r.node for r in residents}}
    return Problem(hosts=[host(name, 8 - cards) for name, cards in sorted(held.items())], residents=residents)
