"""Quota arithmetic of cohorts: hand-worked cases, the public problems, and what holds for every forest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedulers.kueue.cohorts import Member, Standing, Standings, loops, standings

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"


def _member(name: str, parent: str | None, nominal: float, *limits: float | None, held: float = 0) -> Member:
    borrowing, lending = (Fraction(one) if one is not None else None for one in (*limits, None, None)[:2])
    return Member(
        name=name,
        parent=parent,
        nominal=Fraction(nominal),
        borrowing_limit=borrowing,
        lending_limit=lending,
        held=Fraction(held),
    )


def _values(stands: Standings, what: str) -> dict[str, float]:
    return {name: float(getattr(stand, what)) for name, stand in stands.queues.items()}


def test_an_unset_borrowing_limit_lets_a_queue_reach_all_that_others_have() -> None:
    queues = [_member("a", "ai", 8), _member("b", "ai", 8, 0), _member("c", "ai", 8, 4)]
    assert _values(standings(queues, []), "reach") == {"a": 24, "b": 8, "c": 12}


def test_a_lending_limit_caps_what_others_may_take() -> None:
    stands = standings([_member("team-a", "ab", 9), _member("team-b", "ab", 12, None, 1)], [])
    assert _values(stands, "reach") == {"team-a": 10, "team-b": 21}
    assert _values(stands, "lendable") == {"team-a": 9, "team-b": 1}
    assert _values(stands, "unused") == {"team-a": 9, "team-b": 12}


def test_what_is_held_beyond_a_lowered_quota_is_not_borrowed_without_a_cohort() -> None:
    stand = standings([_member("solo", None, 1, held=3)], []).queues["solo"]
    assert stand == Standing(
        reach=Fraction(1), available=Fraction(0), unused=Fraction(0), lendable=Fraction(0), over_quota=Fraction(2)
    )


def test_lenders_give_in_proportion_to_what_they_do_not_use() -> None:
    queues = [_member("a", "ai", 4, held=8), _member("b", "ai", 8, held=2), _member("c", "ai", 4, held=2)]
    stands = standings(queues, [])
    assert _values(stands, "borrowed") == {"a": 4, "b": 0, "c": 0}
    assert _values(stands, "lent") == {"a": 0, "b": 3, "c": 1}  # 6 and 2 unused of 8, 4 taken
    assert _values(stands, "available") == {"a": 4, "b": 4, "c": 4}
    assert _values(stands, "over_quota") == {"a": 0, "b": 0, "c": 0}


def test_what_a_cohort_has_of_its_own_is_taken_before_anybody_lends() -> None:
    queues = [_member("a", "ai", 4, held=9), _member("b", "ai", 4, held=1)]
    stands = standings(queues, [_member("ai", None, 3)])
    assert float(stands.cohorts["ai"].lent) == 3
    assert _values(stands, "lent") == {"a": 0, "b": 2}
    assert _values(stands, "reach") == {"a": 11, "b": 11}


def test_in_a_tree_neighbours_lend_before_relatives() -> None:
    queues = [
        _member("a1", "a", 4, held=10),
        _member("a2", "a", 4, held=1),
        _member("b1", "b", 8, None, 5, held=2),
    ]
    cohorts = [_member("a", "org", 0, 4), _member("b", "org", 0)]
    stands = standings(queues, cohorts)
    # a1 is 6 over: 3 from a2, the other 3 from b1, which lends 5 at most and keeps 3 in any case.
    assert _values(stands, "borrowed") == {"a1": 6, "a2": 0, "b1": 0}
    assert _values(stands, "lent") == {"a1": 0, "a2": 3, "b1": 3}
    # a may take 4 from outside: 8 of its own and those; b1 has 3 local, 5 in org, and 8 that a's members lend.
    assert _values(stands, "reach") == {"a1": 12, "a2": 12, "b1": 16}
    assert _values(stands, "available") == {"a1": 1, "a2": 1, "b1": 3}


def test_more_is_held_than_all_have_together() -> None:
    queues = [_member("a", "ai", 2, held=6), _member("b", "ai", 2, held=4), _member("c", "ai", 3, held=0)]
    stands = standings(queues, [])
    assert _values(stands, "borrowed") == {"a": 2, "b": 1, "c": 0}  # 3 lent for 6 wanted: half of each
    assert _values(stands, "over_quota") == {"a": 2, "b": 1, "c": 0}
    assert _values(stands, "available") == {"a": 0, "b": 0, "c": 0}


def test_queue_and_cohort_may_have_one_name() -> None:
    stands = standings([_member("ai", "ai", 4)], [_member("ai", None, 2)])
    assert float(stands.queues["ai"].reach) == 6
    assert float(stands.cohorts["ai"].reach) == 6


def test_nothing_is_lent_in_a_cycle_of_cohorts() -> None:
    parents = {"x": "y", "y": "x", "below": "x", "fine": None, "itself": "itself"}
    assert loops(parents) == {"x", "y", "below", "itself"}
    queues = [_member("a", "below", 4, held=6), _member("b", "x", 4)]
    stands = standings(queues, [_member(name, parent, 0) for name, parent in parents.items()])
    assert _values(stands, "reach") == {"a": 4, "b": 4}
    assert _values(stands, "lendable") == {"a": 0, "b": 0}
    assert float(stands.queues["a"].over_quota) == 2


def _public(name: str) -> dict[str, object]:
    path = PROBLEMS / name
    if not path.exists():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    found: dict[str, object] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _public_queues(told: dict[str, object], held: dict[str, float]) -> list[Member]:
    queues: Sequence[dict[str, float | None]] = told["clusterqueues"]  # type: ignore[assignment]
    return [
        _member(
            str(one["name"]), str(told["cohort"]), one["nominal"] or 0, one.get("borrowingLimit"), one["lendingLimit"],
            held=held[str(one["name"])],
        )
        for one in queues
    ]  # fmt: skip


def test_070_the_public_unset_borrowing_limit() -> None:
    told = _public("070-kueue-unset-borrowing.json")
    stands = standings(_public_queues(told, told["usage"]), [])  # type: ignore[arg-type]
    assert _values(stands, "reach") == {"a": 24, "b": 8, "c": 12}


def test_071_the_public_lending_limit() -> None:
    told = _public("071-kueue-lending.json")
    stands = standings(_public_queues(told, {"team-a": 0, "team-b": 0}), [])
    assert _values(stands, "reach") == {"team-a": 10, "team-b": 21}
    lendable, unused = _values(stands, "lendable"), _values(stands, "unused")
    assert lendable == {"team-a": 9, "team-b": 1}
    assert (sum(lendable.values()), sum(unused.values())) == (10, 21)


def test_072_the_public_lowered_quota() -> None:
    told = _public("072-kueue-over-not-borrowed.json")
    member = _member(str(told["name"]), None, float(str(told["nominal"])), held=float(str(told["usage"])))
    stand = standings([member], []).queues["solo"]
    assert (float(stand.borrowed), float(stand.over_quota), float(stand.unused)) == (0, 2, 0)


AMOUNTS = st.integers(0, 20).map(Fraction)
LIMITS = st.none() | AMOUNTS
NAMES = ("k0", "k1", "k2", "k3")


@st.composite
def forests(draw: st.DrawFn) -> tuple[list[Member], list[Member]]:
    """Up to five queues below a tree of four cohorts; what is held is anything."""
    parents = [draw(st.sampled_from([None, *NAMES[:number]])) for number in range(len(NAMES))]
    cohorts = [
        Member(
            name=name,
            parent=parent,
            nominal=draw(AMOUNTS),
            borrowing_limit=draw(LIMITS) if parent else None,
            lending_limit=draw(LIMITS) if parent else None,
        )
        for name, parent in zip(NAMES, parents, strict=True)
    ]
    queues = [
        Member(
            name=f"q{number}",
            parent=(parent := draw(st.sampled_from([None, *NAMES]))),
            nominal=draw(AMOUNTS),
            borrowing_limit=draw(LIMITS) if parent else None,
            lending_limit=draw(LIMITS) if parent else None,
            held=draw(AMOUNTS),
        )
        for number in range(draw(st.integers(1, 5)))
    ]
    return queues, cohorts


def _root(name: str | None, cohorts: Sequence[Member]) -> str | None:
    parents = {cohort.name: cohort.parent for cohort in cohorts}
    while name is not None and parents[name] is not None:
        name = parents[name]
    return name


@given(forests())
@settings(deadline=None)
def test_nobody_borrows_or_lends_beyond_limits(forest: tuple[list[Member], list[Member]]) -> None:
    queues, cohorts = forest
    stands = standings(queues, cohorts)
    for queue in queues:
        stand = stands.queues[queue.name]
        assert stand.reach >= queue.nominal
        assert 0 <= stand.lent <= stand.unused
        assert queue.held == min(queue.held, queue.nominal) + stand.borrowed + stand.over_quota
        if queue.borrowing_limit is not None:
            assert stand.borrowed <= queue.borrowing_limit
            assert stand.reach <= queue.nominal + queue.borrowing_limit
        if queue.lending_limit is not None:
            assert stand.lent <= queue.lending_limit
            assert stand.lendable <= queue.lending_limit
        if queue.parent is None:
            assert [stand.borrowed, stand.lent, stand.lendable] == [0, 0, 0]
            assert stand.reach == queue.nominal


@given(forests())
@settings(deadline=None)
def test_in_each_tree_as_much_is_lent_as_borrowed_and_nothing_is_lost(
    forest: tuple[list[Member], list[Member]],
) -> None:
    queues, cohorts = forest
    stands = standings(queues, cohorts)
    for root in (cohort.name for cohort in cohorts if cohort.parent is None):
        inside = [queue for queue in queues if _root(queue.parent, cohorts) == root]
        pools = [cohort for cohort in cohorts if _root(cohort.name, cohorts) == root]
        borrowed = sum(stands.queues[queue.name].borrowed for queue in inside)
        lenders = [stands.queues[queue.name] for queue in inside] + [stands.cohorts[pool.name] for pool in pools]
        lent = sum(stand.lent for stand in lenders)
        assert borrowed == lent
        total = sum(member.nominal for member in (*inside, *pools))
        held = sum(queue.held - stands.queues[queue.name].over_quota for queue in inside)
        free = sum(stand.unused - stand.lent for stand in lenders)
        assert held + free == total


@given(forests(), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 12)), max_size=12))
@settings(deadline=None)
def test_what_was_admitted_within_what_is_available_is_never_over_quota(
    forest: tuple[list[Member], list[Member]], wishes: list[tuple[int, int]]
) -> None:
    given_queues, cohorts = forest
    queues = [
        Member(
            name=one.name, parent=one.parent, nominal=one.nominal,
            borrowing_limit=one.borrowing_limit, lending_limit=one.lending_limit,
        )
        for one in given_queues
    ]  # fmt: skip
    for number, wish in wishes:
        index = number % len(queues)
        queue = queues[index]
        taken = min(Fraction(wish), standings(queues, cohorts).queues[queue.name].available)
        queues[index] = Member(
            name=queue.name, parent=queue.parent, nominal=queue.nominal, borrowing_limit=queue.borrowing_limit,
            lending_limit=queue.lending_limit, held=queue.held + taken,
        )  # fmt: skip
    stands = standings(queues, cohorts)
    assert {name: stand.over_quota for name, stand in stands.queues.items() if stand.over_quota} == {}
    for queue in queues:
        assert queue.held <= stands.queues[queue.name].reach


@given(forests())
@settings(deadline=None)
def test_an_empty_forest_has_available_what_can_be_reached(forest: tuple[list[Member], list[Member]]) -> None:
    queues, cohorts = forest
    idle = [
        Member(
            name=one.name, parent=one.parent, nominal=one.nominal,
            borrowing_limit=one.borrowing_limit, lending_limit=one.lending_limit,
        )
        for one in queues
    ]  # fmt: skip
    for stand in standings(idle, cohorts).queues.values():
        assert stand.available == stand.reach


def test_a_lender_gives_no_more_than_its_limit_whatever_others_hold() -> None:
    queues = [_member("a", "ai", 4, held=10), _member("b", "ai", 8, None, 2, held=1)]
    stands = standings(queues, [])
    assert _values(stands, "lent") == {"a": 0, "b": 2}
    assert _values(stands, "borrowed") == {"a": 2, "b": 0}
    assert _values(stands, "over_quota") == {"a": 4, "b": 0}


def test_a_cohort_lends_its_parent_no_more_than_its_limit() -> None:
    queues = [_member("a", "left", 4, held=10), _member("b", "right", 8, held=1)]
    cohorts = [_member("left", "org", 0), _member("right", "org", 1, None, 3)]
    stands = standings(queues, cohorts)
    assert _values(stands, "borrowed") == {"a": 3, "b": 0}
    assert float(stands.queues["b"].lent + stands.cohorts["right"].lent) == 3
    assert float(stands.queues["a"].over_quota) == 3
