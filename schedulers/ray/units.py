"""What holds and what wants resources in a Ray cluster: tasks, actors, bundles of placement groups. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schedulers.ray.amounts import Parts, demands, inside_group
from schedulers.ray.told import Row, Spare, instant, sparing

SUPERVISOR = "_ray_internal_job_actor_"
"""How Ray names the actor that runs a submitted job's entrypoint, before the submission's id."""

HOLDING_TASKS = frozenset({"RUNNING", "RUNNING_IN_RAY_GET", "RUNNING_IN_RAY_WAIT"})


@dataclass(frozen=True, slots=True)
class Unit:
    """A task, an actor, or a bundle of a placement group that has no place yet: what holds or waits as one.

    `demand` is by resource, `is_inside` where it comes out of a placement group. `owner` is a job's or submission's id.
    `together` is what it needs with those that must start with it.
    """

    owner: str
    kind: str
    state: str
    demand: Parts
    is_inside: bool = False
    node_id: str | None = None
    since: datetime | None = None
    started_at: datetime | None = None
    has_selector: bool = False
    together: Parts | None = None

    @property
    def holds(self) -> bool:
        """Whether it has its resources."""
        return self.node_id is not None and (self.state in HOLDING_TASKS if self.kind == "task" else True)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A placed bundle of a placement group."""

    owner: str
    node_id: str
    demand: Parts


def units(
    tasks: Iterable[Row], actors: Iterable[Row], groups: Iterable[Row], workers: Iterable[Row], spare: Spare
) -> list[Unit]:
    """Everything that holds or wants resources. An actor holds from its creation to its end, its calls hold nothing."""
    creations: dict[str, Row] = {}
    found: list[Unit] = []
    for row in tasks:
        with sparing(spare, "task", row.get("task_id")):
            if row["type"] == "ACTOR_CREATION_TASK":
                creations[row["actor_id"]] = row
            elif row["type"] == "NORMAL_TASK" and row["state"] not in ("FINISHED", "FAILED"):
                found.append(_task(row))
    begun = {(row.get("node_id"), row.get("pid")): instant(row.get("start_time_ms")) for row in workers}
    for row in actors:
        with sparing(spare, "actor", row.get("actor_id")):
            if row["state"] != "DEAD":
                found.append(_actor(row, creations.get(row["actor_id"]), begun))
    for row in groups:
        with sparing(spare, "placement group", row.get("placement_group_id")):
            found += _wanted_bundles(row)
    return found


def placed_bundles(groups: Iterable[Row], spare: Spare) -> list[Bundle]:
    """The bundles that placement groups have got."""
    found = []
    for row in groups:
        with sparing(spare, "placement group", row.get("placement_group_id")):
            if row["state"] in ("CREATED", "RESCHEDULING"):
                found += [
                    Bundle(row["creator_job_id"], one["node_id"], demands(one["unit_resources"], "unit_resources"))
                    for one in row["bundles"]
                    if one.get("node_id")
                ]
    return found


def _state_since(row: Row | None) -> datetime | None:
    """When its present state began; when it was made where Ray does not say."""
    if row is None:
        return None
    events: Sequence[Row] = row.get("events") or ()
    dated = [instant(one.get("created_ms")) for one in events if one.get("state") == row["state"]]
    return next((at for at in reversed(dated) if at), None) or instant(row.get("creation_time_ms"))


def _demand(row: Row) -> tuple[dict[str, int], bool]:
    asked = demands(row["required_resources"] or {}, "required_resources")
    inside = inside_group(asked)
    return (asked, False) if inside is None else (inside, True)


def _task(row: Row) -> Unit:
    demand, is_inside = _demand(row)
    return Unit(
        row["job_id"],
        "task",
        row["state"],
        demand,
        is_inside,
        row.get("node_id") or None,
        _state_since(row),
        instant(row.get("start_time_ms")),
        bool(row.get("label_selector")),
    )


def _actor(row: Row, creation: Row | None, begun: Mapping[tuple[Any, Any], datetime | None]) -> Unit:
    demand, is_inside = _demand(row)
    name = row.get("name") or ""
    owner = name.removeprefix(SUPERVISOR) if name.startswith(SUPERVISOR) else row["job_id"]
    node_id, state = row.get("node_id") or None, row["state"]
    if node_id is None and creation is not None and creation["state"] in HOLDING_TASKS:
        node_id, state = creation.get("node_id"), "ALIVE"
    started_at = begun.get((node_id, row.get("pid"))) if node_id else None
    return Unit(
        owner,
        "actor",
        state,
        demand,
        is_inside,
        node_id if state == "ALIVE" else None,
        _state_since(creation),
        started_at,
        bool(row.get("label_selector")),
    )


def _wanted_bundles(row: Row) -> list[Unit]:
    if row["state"] in ("REMOVED", "CREATED"):
        return []
    stats = row.get("stats") or {}
    waiting = [one for one in row["bundles"] if not one.get("node_id")]
    asked = [demands(one["unit_resources"], "unit_resources") for one in waiting]
    together: Counter[str] = Counter()
    for demand in asked:
        together.update(demand)
    since = int(stats.get("creation_request_received_ns") or 0) // 1_000_000
    return [
        Unit(
            row["creator_job_id"],
            "bundle",
            stats.get("scheduling_state") or row["state"],
            demand,
            since=instant(since),
            has_selector=bool(one.get("label_selector")),
            together=together,
        )
        for one, demand in zip(waiting, asked, strict=True)
    ]
