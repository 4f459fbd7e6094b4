"""Whatever happens on a few cards, the ledger closes, and neither the order of input nor the cut of a build matters."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.model import RECORDS, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse
from warehouse.ledger import AUDITS

BEGIN = datetime(2026, 3, 2, 22, tzinfo=UTC)  # a midnight lies within
HOURS = 4
MINUTES = HOURS * 60
WHOLE = Window(BEGIN, BEGIN + timedelta(hours=HOURS))
CARDS = ("GPU-0", "GPU-1", "GPU-2")

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

_minutes = st.integers(-30, MINUTES + 30)
_spans = st.tuples(_minutes, st.integers(1, MINUTES))


def _at(minute: int) -> datetime:
    return BEGIN + timedelta(minutes=minute)


@st.composite
def _fleets(draw: st.DrawFn) -> Rows:
    assets = [
        {"gpu_uuid": card, "node": f"n{i % 2}", "slot": i, "status": "in_service", "from_at": _at(-60), "pool": "p"}
        for i, card in enumerate(CARDS)
    ]
    holds, held = [], draw(st.lists(st.tuples(st.sampled_from(CARDS), _spans, st.sampled_from((1.0, 0.5, 0.3)))))
    for number, (card, (begin, length), share) in enumerate(held):
        name = str(number)
        where = {"pod": name, "node": f"n{CARDS.index(card) % 2}", "gpu_uuid": card}
        times = {"started_at": _at(begin), "ended_at": _at(begin + length)}
        holds.append({"allocation_id": name, "workload_id": f"w{number % 3}", "share": share, **where, **times})
    conditions = {
        (card, name, begin): {
            "subject_kind": "gpu",
            "subject": card,
            "condition": name,
            "from_at": _at(begin),
            "until_at": _at(begin + length),
        }
        for card, name, (begin, length) in draw(
            st.lists(st.tuples(st.sampled_from(CARDS), st.sampled_from(("drain", "spare")), _spans), max_size=3)
        )
    }
    readings = {
        (card, minute): {
            "ts": _at(minute),
            "node": f"n{CARDS.index(card) % 2}",
            "gpu_uuid": card,
            "source": "dcgm",
            "interval_seconds": 60.0,
            "gpu_util_ratio": util,
            "sm_active_ratio": util,
        }
        for card, first, length, util in draw(
            st.lists(
                st.tuples(
                    st.sampled_from(CARDS),
                    st.integers(0, MINUTES),
                    st.integers(1, 60),
                    st.sampled_from((0.0, 0.02, 0.9)),
                ),
                max_size=6,
            )
        )
        for minute in range(first, min(first + length, MINUTES))
    }
    return {
        "asset": assets,
        "allocation": holds,
        "condition": list(conditions.values()),
        "reading": list(readings.values()),
    }


def _batches(rows: Rows, seed: int | None) -> list[tuple[str, Sequence[Mapping[str, Any]]]]:
    batches = [(record, list(found)) for record, found in rows.items() if found]
    if seed is not None:
        dice = random.Random(seed)
        batches = [
            part for record, found in batches for part in ((record, found[::2]), (record, found[1::2])) if part[1]
        ]
        dice.shuffle(batches)
        for _, found in batches:
            dice.shuffle(found)
    return [(record, found) for record, found in batches]


def _filled(rows: Rows, seed: int | None = None) -> Warehouse:
    house = Warehouse.open(None, clock=FakeClock(WHOLE.to_at + timedelta(days=1)))
    for number, (record, found) in enumerate(_batches(rows, seed)):
        table = to_table(record, [RECORDS[record].cls(**row) for row in found])
        assert not house.ingest(record, table, f"{number}").rejected
    return house


def _ledger(house: Warehouse) -> list[tuple[Any, ...]]:
    """Card, hour, state, workload and GPU-hours to a millionth."""
    with house.writing() as cursor:
        return cursor.execute(
            "select gpu_uuid, hour_at, state, workload_id, cause, round(sum(gpu_hours), 6) from ledger_hour "
            "group by all order by all"
        ).fetchall()


def _check(house: Warehouse) -> None:
    span = {"from_at": WHOLE.from_at, "to_at": WHOLE.to_at}
    for audit in AUDITS:
        assert house.query(audit, **span).to_pylist() == []
    total = sum(house.query("ledger_by", by="state", **span)["gpu_hours"].to_pylist())
    assert total == pytest.approx(len(CARDS) * HOURS)
    with house.writing() as cursor:
        spans = cursor.execute("select gpu_uuid, from_at, until_at, share from state_span").fetchall()
    for card in CARDS:
        own = [span for span in spans if span[0] == card]
        edges = sorted({edge for _, begin, end, _ in own for edge in (begin, end)})
        assert (edges[0], edges[-1]) == (WHOLE.from_at, WHOLE.to_at)
        for edge in edges[:-1]:
            assert sum(share for _, begin, end, share in own if begin <= edge < end) == pytest.approx(1)


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(rows=_fleets(), seed=st.integers(0, 2**16), cut=st.integers(1, HOURS - 1))
def test_the_ledger_closes_whatever_the_order_and_the_cut(rows: Rows, seed: int, cut: int) -> None:
    with _filled(rows) as house:
        assert house.build_ledger(WHOLE, until_at=WHOLE.to_at).violations == 0
        _check(house)
        whole = _ledger(house)
        middle = WHOLE.from_at + timedelta(hours=cut)
        for half in (Window(WHOLE.from_at, middle), Window(middle, WHOLE.to_at)):
            house.build_ledger(half, until_at=WHOLE.to_at)
        assert _ledger(house) == whole
    with _filled(rows, seed) as house:
        house.build_ledger(WHOLE, until_at=WHOLE.to_at)
        assert _ledger(house) == whole
