"""The tree of tenants: each hour goes to the division that it belonged to then, and none is lost or doubled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.model import Tenant, to_table
from warehouse import Warehouse

AT = datetime(2026, 3, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
SPAN = {"from_at": AT, "to_at": AT + timedelta(days=30)}


def fill(house: Warehouse, hours: Sequence[tuple[int, str, float]]) -> None:
    """Rows of the ledger: (hour, tenant, GPU-hours); a tenant "-" is a free card."""
    with house.writing() as cursor:
        for number, (hour, tenant, gpu_hours) in enumerate(hours):
            is_free = tenant == "-"
            row = {
                "hour_at": AT + hour * HOUR,
                "tenant": "" if is_free else tenant,
                "workload_id": "" if is_free else f"w{number}",
                "state": "free_usable" if is_free else "alloc_productive",
                "gpu_hours": gpu_hours,
            }
            cursor.execute(
                "insert into ledger_hour select $hour_at, 'g', 'n', 'p', 'm', $tenant, '', $workload_id, 'other', "
                "'unknown', $state, '', '', $gpu_hours, 0, 0, 0, 0, 0, null, false",
                row,
            )


def declare(house: Warehouse, *rows: tuple[str, str | None, int, int | None]) -> None:
    """Rows of the tree: (tenant, parent, from hour, until hour)."""
    tenants = [
        Tenant(
            tenant=name,
            parent=parent,
            from_at=AT + begin * HOUR,
            until_at=None if end is None else AT + end * HOUR,
        )
        for name, parent, begin, end in rows
    ]
    assert not house.ingest("tenant", to_table("tenant", tenants), "t").rejected


def tree(house: Warehouse, level: int) -> Mapping[str, float]:
    found: dict[str, float] = {}
    for row in house.query("ledger_tree", level=level, **SPAN).to_pylist():
        found[row["tenant"]] = found.get(row["tenant"], 0) + row["gpu_hours"]
    return found


def test_a_reorganisation_in_mid_month_moves_the_hours_after_it() -> None:
    with Warehouse.open(None) as house:
        declare(
            house,
            ("research", None, 0, None),
            ("product", None, 0, None),
            ("nlp", "research", 0, 360),
            ("nlp", "product", 360, None),
            ("llm", "nlp", 0, None),
        )
        fill(house, [(0, "llm", 3.0), (359, "nlp", 1.0), (360, "llm", 5.0), (400, "research", 2.0), (0, "-", 7.0)])
        assert tree(house, 1) == {"research": 6.0, "product": 5.0, "(not held)": 7.0}
        assert tree(house, 2) == {"nlp": 9.0, "research": 2.0, "(not held)": 7.0}
        assert tree(house, 3) == {"llm": 8.0, "nlp": 1.0, "research": 2.0, "(not held)": 7.0}


def test_hours_of_nobody_and_of_strangers_are_named() -> None:
    with Warehouse.open(None) as house:
        declare(house, ("research", None, 0, 10))
        fill(house, [(0, "", 1.0), (0, "stranger", 2.0), (0, "research", 4.0), (20, "research", 8.0)])
        assert tree(house, 1) == {"(unowned)": 11.0, "research": 4.0}


def test_without_a_tree_each_tenant_is_a_division() -> None:
    with Warehouse.open(None) as house:
        fill(house, [(0, "a", 1.0), (0, "b", 2.0)])
        assert tree(house, 1) == {"a": 1.0, "b": 2.0}


def test_a_change_within_an_hour_counts_from_the_next() -> None:
    with Warehouse.open(None) as house:
        half = AT + timedelta(minutes=30)
        rows = [
            Tenant(tenant="a", parent="x", from_at=AT, until_at=half),
            Tenant(tenant="a", parent="y", from_at=half),
        ]
        house.ingest("tenant", to_table("tenant", rows), "t")
        fill(house, [(0, "a", 1.0), (1, "a", 2.0)])
        assert tree(house, 1) == {"x": 1.0, "y": 2.0}


def test_a_circle_does_not_hang_and_loses_nothing() -> None:
    with Warehouse.open(None) as house:
        declare(house, ("a", "b", 0, None), ("b", "c", 0, None), ("c", "a", 0, None), ("d", "d", 0, None))
        fill(house, [(0, "a", 1.0), (0, "b", 2.0), (0, "c", 4.0), (0, "d", 8.0)])
        for level in (1, 2, 3, 9):
            assert sum(tree(house, level).values()) == 15.0


NAMES = ("a", "b", "c", "d", "e")
_rows = st.lists(
    st.tuples(
        st.sampled_from(NAMES), st.sampled_from((None, *NAMES, "outside")), st.integers(0, 40), st.integers(1, 40)
    ),
    max_size=10,
    unique_by=lambda row: (row[0], row[2]),
)
_hours = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from((*NAMES, "", "-", "stranger")), st.integers(1, 8)), max_size=12
)


@settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(rows=_rows, hours=_hours)
def test_every_level_adds_up_to_the_ledger(
    rows: list[tuple[str, str | None, int, int]], hours: list[tuple[int, str, int]]
) -> None:
    with Warehouse.open(None) as house:
        if rows:
            declare(house, *((name, parent, begin, begin + length) for name, parent, begin, length in rows))
        fill(house, [(hour, tenant, float(amount)) for hour, tenant, amount in hours])
        for level in (1, 2, 5):
            assert sum(tree(house, level).values()) == pytest.approx(sum(amount for _, _, amount in hours))
