"""What every reader of a scheduler must do, as checks of one snapshot, and the worlds in which it must do it.

A `World` is a running scheduler (real, fake or recorded) with some work in it, and ways to harm it. An adapter joins
with one line in `test_reading_conformance.WORLDS` that names a function like `world(folder, cluster)`, a context
manager that gives a `World`. A harm that cannot come to a scheduler is `Cannot("why")` there.
"""

from __future__ import annotations

import dataclasses
import math
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa

from gpuledger.model import RECORDS, arrow_schema
from gpuledger.ports import SchedulerReader, SchedulerSnapshot
from gpuledger.testing import FakeClock

WAITING = ("held", "pending", "admitted")
LARGEST = 1e15
"""More than any true quantity of a record (bytes are none of them): unlimited has slipped in as a number."""

Rows = list[dict[str, Any]]
Key = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Cannot:
    """Why something cannot happen to a scheduler."""

    reason: str


@dataclass(kw_only=True)
class World:
    """A scheduler with work in it, and its reader.

    `options` are those that `reader` was made from. `place` is what an error about the whole scheduler must name (its
    URL or command), `secrets` what nothing may ever name. `waiting` has for some workloads that wait the words of the
    scheduler that `pending_reason` must hold; `unlimited` are (queue, column of `quota`) that have no limit.

    `stop` makes it not answer; `forbid` takes rights away; `spoil` makes one object senseless and gives a text that the
    problem's subject must hold; `tear` lets each read of a set be of another moment, as long as it lasts.
    """

    reader: SchedulerReader
    options: Mapping[str, Any]
    place: str
    clock: FakeClock
    waiting: Mapping[str, str] | Cannot
    unlimited: Collection[tuple[str, str]] | Cannot
    stop: Callable[[], None] | Cannot
    forbid: Callable[[], None] | Cannot
    spoil: Callable[[], str] | Cannot
    tear: Callable[[], None] | Cannot
    secrets: Collection[str] = field(default_factory=tuple)


def rows(snapshot: SchedulerSnapshot, record: str) -> Rows:
    """The rows of `record`; none where it was not read."""
    table = snapshot.records.get(record)
    return [] if table is None else table.to_pylist()


def check_tables(snapshot: SchedulerSnapshot) -> None:
    """Tables are as the model says: schema, words, bounds, one row a key."""
    for record, table in snapshot.records.items():
        assert table.schema == arrow_schema(record), record
        table.validate(full=True)
        for column in dataclasses.fields(RECORDS[record].cls):
            _check_column(f"{record}.{column.name}", column.metadata, table[column.name].to_pylist())
        key = RECORDS[record].key
        keys = [tuple(row[part] for part in key) for row in table.to_pylist()]
        repeated = sorted({str(one) for one in keys if keys.count(one) > 1}) if len(set(keys)) < len(keys) else []
        assert not repeated, f"{record}: more than one row of {repeated}"


def _check_column(place: str, told: Mapping[str, Any], values: list[Any]) -> None:
    if choices := told.get("choices"):
        wrong = {one for one in values if one is not None} - set(choices)
        assert not wrong, f"{place}: {wrong} is none of its words"
    for value in values:
        if isinstance(value, float):
            assert math.isfinite(value), f"{place} is {value}"
            assert abs(value) < LARGEST, f"{place} is {value}: unlimited is None"
            assert value >= 0, f"{place} is {value}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = told.get("low"), told.get("high")
            assert low is None or value >= low, f"{place} is {value}, least {low}"
            assert high is None or value <= high, f"{place} is {value}, most {high}"


def check_times(snapshot: SchedulerSnapshot) -> None:
    """The moment has a zone, nothing has ended that the snapshot lists as lasting, and nothing is of the future."""
    assert snapshot.taken_at.tzinfo is not None, "taken at no instant"
    assert snapshot.version, "has no version"
    for record in ("queue_state", "node_state", "quota", "queue_resource", "wait", "condition"):
        for row in rows(snapshot, record):
            begin = row[RECORDS[record].time_column]
            assert begin <= snapshot.taken_at, f"{record} begins after the snapshot: {row}"
            assert row.get("until_at") is None, f"{record} has an end: {row}"


def check_queues(snapshot: SchedulerSnapshot) -> None:
    """What names a queue names one of the snapshot, unless its queues could not be read."""
    if "queue" in snapshot.scope.unlisted or "queue" not in snapshot.records:
        assert not rows(snapshot, "quota"), "quotas of queues that were not read"
        return
    known = {row["queue"] for row in rows(snapshot, "queue")}
    for record in ("quota", "queue_state", "queue_resource"):
        unknown = {row["queue"] for row in rows(snapshot, record)} - known
        assert not unknown, f"{record} names {unknown}"
    unknown = {row["queue"] for row in rows(snapshot, "workload")} - known - {""}
    assert not unknown, f"workloads name {unknown}"
    above = known | {row["cohort"] for row in rows(snapshot, "queue")}
    unknown = {row["parent"] for row in rows(snapshot, "queue")} - above - {None}
    assert not unknown, f"queues are below {unknown}"


def check_names(snapshot: SchedulerSnapshot, reader: SchedulerReader) -> None:
    """Rows say whose they are, and those of a cluster with a name of its own carry it."""
    apart = reader.cluster != "default"
    whose = f"{reader.name}/{reader.cluster}" if apart else reader.name
    for record, column in (("queue", "scheduler"), ("node_state", "scheduler"), ("scheduler_node", "scheduler")):
        assert {row[column] for row in rows(snapshot, record)} <= {whose}, record
    for record in ("node", "pod"):
        assert {row["cluster"] for row in rows(snapshot, record)} <= {reader.cluster}, record
    if apart:
        names = [row["queue"] for row in rows(snapshot, "queue")]
        names += [row["workload_id"] for row in rows(snapshot, "workload")]
        bare = [name for name in names if not name.startswith(f"{reader.cluster}/")]
        assert not bare, f"names without their cluster: {bare}"


def check_waits(snapshot: SchedulerSnapshot) -> None:
    """Who waits says why, in the scheduler's words too, and has one wait that lasts; nothing both waits and runs."""
    waits = {row["workload_id"]: row for row in rows(snapshot, "wait")}
    workloads = {row["workload_id"]: row for row in rows(snapshot, "workload")}
    for name, row in workloads.items():
        if row["status"] in WAITING:
            assert row["pending_cause"], f"{name} waits for no cause"
            assert row["pending_reason"], f"{name} waits for no reason"
            assert name in waits, f"{name} has no wait"
            assert waits[name]["cause"] == row["pending_cause"], f"{name} waits for another cause than its wait"
        else:
            assert row["pending_cause"] is None, f"{name} is {row['status']} and waits for {row['pending_cause']}"
    others = {name for name in waits if name not in workloads or workloads[name]["status"] not in WAITING}
    assert not others, f"{others} has a wait and does not wait"


def check_nodes(snapshot: SchedulerSnapshot) -> None:
    """No node gave away, or has left, more than it has; what takes no work has nothing free (problem 123)."""
    for row in rows(snapshot, "node_state"):
        assert 0 <= row["free"] <= row["capacity"], row
        assert 0 <= row["allocated"] <= row["capacity"], row
        assert row["free"] + row["allocated"] <= row["capacity"], row
        assert row["allocatable"] is None or row["allocatable"] <= row["capacity"], row
        if not (row["is_ready"] and row["is_schedulable"]):
            assert row["free"] == 0, row


def check_snapshot(snapshot: SchedulerSnapshot, reader: SchedulerReader) -> None:
    """Everything that one snapshot alone can show."""
    check_tables(snapshot)
    check_times(snapshot)
    check_queues(snapshot)
    check_names(snapshot, reader)
    check_waits(snapshot)
    check_nodes(snapshot)


def timeless(snapshot: SchedulerSnapshot) -> dict[str, Rows]:
    """Rows by record in a fixed order, without the time of reading."""

    def blank(value: Any) -> Any:
        return "taken" if isinstance(value, datetime) and value == snapshot.taken_at else value

    return {
        record: sorted(({name: blank(value) for name, value in row.items()} for row in table.to_pylist()), key=str)
        for record, table in snapshot.records.items()
    }


def keyed(snapshot: SchedulerSnapshot) -> dict[Key, dict[str, Any]]:
    """Rows of what is (not of what happened), by record and key without times."""
    found = {}
    for record, table in snapshot.records.items():
        if record == "quality_event":
            continue
        key = [part for part in RECORDS[record].key if not pa.types.is_timestamp(table.schema.field(part).type)]
        found.update({(record, tuple(row[part] for part in key)): row for row in table.to_pylist()})
    return found


def check_no_false_zeros(before: SchedulerSnapshot, after: SchedulerSnapshot) -> None:
    """What could not be seen (any more) is not told to be nothing: `after` was read with fewer rights."""
    missing = keyed(before).keys() - keyed(after).keys()
    gone = sorted(str(key) for key in missing if key[0] in after.records and key[0] not in after.scope.unlisted)
    assert not gone, f"lists as gone what it could not see: {gone}"
    for key, row in keyed(after).items():
        old = keyed(before).get(key, row)
        zeros = [name for name, value in row.items() if value == 0 and isinstance(value, float) and old[name]]
        assert not zeros, f"{key}: {zeros} were more than zero and are not seen"


def check_costs_itself(before: SchedulerSnapshot, after: SchedulerSnapshot, name: str) -> None:
    """A problem names the object `name`, and nothing else is lost."""
    subjects = [row["subject"] for row in rows(after, "quality_event")]
    assert [one for one in subjects if name in one], f"no problem names {name}: {subjects}"
    lost = {
        key
        for key in keyed(before).keys() - keyed(after).keys()
        if key[0] in ("queue", "node", "node_state", "workload", "pod")
        and not any(name in str(value) for value in keyed(before)[key].values())
    }
    assert not lost, f"lost beside {name}: {lost}"


def check_error(error: BaseException, world: World) -> None:
    """It names the place and no secret, its causes included."""
    assert world.place in str(error), f"{error} does not name {world.place}"
    told = "".join(traceback.format_exception(error))
    assert not any(secret in told for secret in world.secrets), "tells a secret"
