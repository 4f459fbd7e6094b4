"""Whatever is seen on cards and whatever pods say, the ledger closes, and the cut of a build does not matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.model import Asset, Holding, Pod, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse
from warehouse.ledger import AUDITS

BEGIN = datetime(2026, 3, 2, 22, tzinfo=UTC)  # a midnight lies within
HOURS = 4
MINUTES = HOURS * 60
WHOLE = Window(BEGIN, BEGIN + timedelta(hours=HOURS))
CARDS = ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
PODS = ("a", "b", "c")

Rows = Mapping[str, Sequence[Any]]


def _at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


def _node(card: str) -> str:
    return f"n{CARDS.index(card) % 2}"


_runs = st.lists(
    st.tuples(
        st.sampled_from(CARDS),
        st.sampled_from(PODS),
        st.integers(0, MINUTES),
        st.integers(1, 60),
        st.sampled_from((1, 9)),
    ),
    max_size=5,
)
_lives = st.lists(
    st.tuples(
        st.sampled_from(PODS),
        st.integers(-60, MINUTES),
        st.integers(1, MINUTES),
        st.booleans(),
        st.sampled_from((1.0, 2.0, 8.0)),
        st.sampled_from((*{"n0", "n1"}, None)),
    ),
    max_size=5,
)


@st.composite
def _fleets(draw: st.DrawFn) -> Rows:
    seen: dict[tuple[str, int], set[str]] = {}
    for card, pod, first, length, step in draw(_runs):
        for minute in range(first, min(first + length, MINUTES), step):
            seen.setdefault((card, minute), set()).add(pod)
    holdings = [
        Holding(
            ts=_at(minute),
            node=_node(card),
            gpu_uuid=card,
            namespace="t",
            pod=pod,
            source="dcgm",
            share=1 / len(pods),
            interval_seconds=60,
        )
        for (card, minute), pods in seen.items()
        for pod in pods
    ]
    lives = [
        Pod(
            uid=str(number),
            namespace="t",
            pod=pod,
            node=node,
            gpu_count=gpus,
            resource="nvidia_com_gpu",
            phase="Succeeded" if is_over else "Running",
            started_at=_at(begin),
            ended_at=_at(begin + length) if is_over else None,
            seen_at=_at(begin + length),
        )
        for number, (pod, begin, length, is_over, gpus, node) in enumerate(draw(_lives))
    ]
    assets = [Asset(gpu_uuid=card, node=_node(card), status="in_service", from_at=_at(-120)) for card in CARDS]
    return {"asset": assets, "holding": holdings, "pod": lives}


def _filled(rows: Rows) -> Warehouse:
    house = Warehouse.open(None, clock=FakeClock(WHOLE.to_at + timedelta(days=1)))
    for record, found in rows.items():
        if found:
            assert not house.ingest(record, to_table(record, found), record).rejected
    return house


def _ledger(house: Warehouse) -> list[tuple[Any, ...]]:
    """By card, hour, state and workload: GPU-hours to a millionth."""
    with house.writing() as cursor:
        return cursor.execute(
            "select gpu_uuid, hour_at, state, workload_id, basis, round(sum(gpu_hours), 6) from ledger_hour "
            "group by all order by all"
        ).fetchall()


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(rows=_fleets(), cut=st.integers(1, HOURS - 1))
def test_the_ledger_closes_and_its_cut_does_not_matter(rows: Rows, cut: int) -> None:
    with _filled(rows) as house:
        assert house.build_ledger(WHOLE, until_at=WHOLE.to_at).violations == 0
        for audit in AUDITS:
            assert house.query(audit, from_at=WHOLE.from_at, to_at=WHOLE.to_at).to_pylist() == []
        whole = _ledger(house)
        assert sum(row[-1] for row in whole) == pytest.approx(len(CARDS) * HOURS, abs=1e-4)
        middle = WHOLE.from_at + timedelta(hours=cut)
        for half in (Window(WHOLE.from_at, middle), Window(middle, WHOLE.to_at)):
            house.build_ledger(half, until_at=WHOLE.to_at)
        assert _ledger(house) == whole
