"""A pod's row follows from all that was said of it, in whatever order, and says from when on it changes the ledger."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count, permutations
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuledger.model import Pod, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse
from warehouse.queries import SQL_ROOT, find

AT = datetime(2026, 3, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
BARE = {"namespace": "t", "pod": "p", "cluster": "c"}


def at(hours: float) -> datetime:
    return AT + hours * HOUR


def pod(seen: float, **changed: Any) -> Pod:
    return Pod(**{"uid": "u", **BARE, "seen_at": at(seen), **changed})


_numbers = count()


@pytest.fixture(scope="module")
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(at(10))) as opened:
        yield opened


def told(house: Warehouse, *batches: Sequence[Pod]) -> tuple[list[datetime | None], dict[str, Any]]:
    """What each batch changed, and the row that is left, of a pod of its own (in a namespace of its own)."""
    namespace = f"t{next(_numbers)}"
    changed = []
    for batch in batches:
        rows = [replace(row, uid=row.uid.replace("/t/", f"/{namespace}/"), namespace=namespace) for row in batch]
        rows = [replace(row, uid=row.uid if "/" in row.uid else namespace) for row in rows]
        changed.append(house.ingest("pod", to_table("pod", rows), str(next(_numbers))).earliest_at)
    with house.reading() as cursor:
        found = cursor.sql(
            "select * exclude (uid, namespace) from pod where namespace = $namespace", params={"namespace": namespace}
        )
        (row,) = found.to_arrow_table().to_pylist()
    return changed, dict(row)


def test_of_a_pod_its_life_and_its_place_are_told_and_a_null_is_not(house: Warehouse) -> None:
    changed, row = told(
        house,
        [pod(1, node="n1", phase="Pending")],
        [pod(1.1, phase="Running", started_at=AT)],
        [pod(1.2, phase="Running", started_at=AT, labels="{}")],
        [pod(1.2)],
        [pod(1.3, phase="Succeeded", ended_at=at(1.25))],
        [pod(1.3, workload_id="w")],
    )
    assert changed == [None, AT, at(1.1), None, at(1.25), AT]
    assert (row["node"], row["phase"], row["started_at"], row["workload_id"]) == ("n1", "Succeeded", AT, "w")
    assert (row["ended_at"], row["labels"], row["seen_at"]) == (at(1.25), "{}", at(1.3))


def test_an_older_record_only_fills_what_the_newer_one_does_not_know(house: Warehouse) -> None:
    newer = pod(2, node="n2", phase="Running", started_at=AT)
    older = pod(1, node="n1", phase="Pending", resource="nvidia_com_gpu")
    rows = [
        told(house, *batches)[1]
        for batches in ([[newer], [older]], [[older], [newer]], [[older, newer]], [[newer, older]])
    ]
    assert all(row == rows[0] for row in rows)
    row = rows[0]
    assert (row["node"], row["phase"], row["resource"], row["seen_at"]) == ("n2", "Running", "nvidia_com_gpu", at(2))


def test_the_end_of_a_failed_pod_stays_where_it_was_first_seen_and_goes_when_it_runs_again(house: Warehouse) -> None:
    first, again = pod(2, phase="Failed", ended_at=at(1)), pod(5, phase="Failed", ended_at=at(5))
    for order in permutations([first, again]):
        assert told(house, *[[row] for row in order])[1]["ended_at"] == at(1)
    row = told(house, [first], [pod(3, phase="Running")])[1]
    assert (row["phase"], row["ended_at"]) == ("Running", None)
    for order in permutations([first, pod(3, phase="Running"), again]):
        row = told(house, *[[said] for said in order])[1]
        assert (row["phase"], row["ended_at"]) == ("Failed", at(5))


def test_a_pod_that_was_only_missed_has_not_ended(house: Warehouse) -> None:
    lost = pod(2, phase="Running", ended_at=at(2))
    assert told(house, [pod(2, phase="Running")], [lost])[1]["ended_at"] == at(2)
    assert told(house, [lost], [pod(3, phase="Running")])[1]["ended_at"] is None


def test_a_start_never_moves_forward_unless_the_uid_only_repeats_the_name(house: Warehouse) -> None:
    first, again = {"started_at": at(1), "phase": "Running"}, {"started_at": at(3), "phase": "Running"}
    assert told(house, [pod(2, **first)], [pod(4, **again)])[1]["started_at"] == at(1)
    name = {"uid": "c/t/p"}
    assert told(house, [pod(2, **name, **first)], [pod(4, **name, **again)])[1]["started_at"] == at(3)
    one = {**name, "created_at": AT}
    assert told(house, [pod(2, **one, **first)], [pod(4, **one, **again)])[1]["started_at"] == at(1)
    row = told(house, [pod(2, **one, **first, node="n1")], [pod(4, **name, **again, created_at=at(2.9))])[1]
    assert (row["started_at"], row["created_at"], row["node"]) == (at(3), at(2.9), None)


def test_a_pod_that_is_seen_again_reopens_what_was_built_without_it() -> None:
    life = {"phase": "Running", "started_at": AT}
    clock = FakeClock(at(1.25))
    with Warehouse.open(None, clock=clock) as house:

        def changed_at(seen: float) -> datetime | None:
            return told(house, [pod(1, **life)], [pod(seen, **life)])[0][1]

        assert changed_at(1.25) is None  # 15 minutes later: known all the time
        assert changed_at(1.26) == at(1)
        assert changed_at(0.9) is None  # an older record
        clock.advance(180)
        assert changed_at(1.25) == at(1)  # what was known had run out when it came: a sender that catches up
        assert changed_at(0.9) is None


def test_the_ledger_and_the_change_know_a_pod_for_equally_long() -> None:
    spans = {
        name: re.findall(r"seen_at \+ (interval \d+ \w+)", find(name).sql) for name in ("ledger_pod", "pod_changed_at")
    }
    assert spans == {"ledger_pod": ["interval 15 minute"], "pod_changed_at": ["interval 15 minute"]}


def test_pods_of_an_older_warehouse_are_what_was_said_of_them() -> None:
    script = (SQL_ROOT / "schema" / "0006_pod_said.sql").read_text(encoding="utf-8")
    with Warehouse.open(None, clock=FakeClock(at(10))) as house:
        house.ingest("pod", to_table("pod", [pod(1, node="n1")]), "1")
        with house.writing() as cursor:
            cursor.execute("drop table pod_said")
            cursor.execute(script)
        house.ingest("pod", to_table("pod", [pod(2, phase="Running")]), "2")
        with house.reading() as cursor:
            assert cursor.execute("select node, phase from pod").fetchall() == [("n1", "Running")]


_hours = st.integers(1, 4)
_said = st.builds(
    pod,
    _hours,
    uid=st.just("u"),
    node=st.sampled_from([None, "n1", "n2"]),
    workload_id=st.sampled_from([None, "a", "b"]),
    gpu_count=st.sampled_from([None, 1.0, 2.0]),
    phase=st.sampled_from([None, "Pending", "Running", "Succeeded", "Failed"]),
    labels=st.sampled_from([None, "{}", '{"a":"b"}']),
    created_at=st.sampled_from([None, at(0)]),
    started_at=st.sampled_from([None, at(0), at(0.5)]),
    ended_at=st.sampled_from([None, at(1), at(2), at(3)]),
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rows=st.lists(_said, min_size=2, max_size=5), data=st.data())
def test_neither_order_nor_batches_matter(house: Warehouse, rows: list[Pod], data: st.DataObject) -> None:
    other = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(1, len(rows) - 1))
    row = told(house, *[[said] for said in rows])[1]
    assert told(house, *[[said] for said in other])[1] == row
    assert told(house, *[other[:cut], other[cut:]])[1] == row
    assert told(house, *[rows])[1] == row
