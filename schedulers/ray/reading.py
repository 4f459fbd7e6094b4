"""Several calls to a dashboard as of one moment, or none of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from gpuledger.clock import Clock
from gpuledger.errors import BadInput, SchedulerUnreachable
from schedulers.ray.amounts import parts
from schedulers.ray.client import Dashboard, Listing, Split
from schedulers.ray.told import EPOCH, Given, Row, given
from schedulers.rest import steady

PAUSE_SECONDS = 2.5
"""The head writes its status every 5 s: a node that joined a moment ago is in the list of nodes before it is there."""
OLDEST_STATUS = timedelta(seconds=60)
"""The head writes its status every 5 s; an older one is of a head that stopped writing it, and says nothing."""

_WANTED_TASKS = (
    "RUNNING",
    "RUNNING_IN_RAY_GET",
    "RUNNING_IN_RAY_WAIT",
    "PENDING_NODE_ASSIGNMENT",
    "SUBMITTED_TO_WORKER",
    "PENDING_ARGS_FETCH",
    "GETTING_AND_PINNING_ARGS",
    "PENDING_OBJ_STORE_MEM_AVAIL",
    "PENDING_ARGS_AVAIL",
)
_WANTED_ACTORS = ("ALIVE", "PENDING_CREATION", "RESTARTING", "DEPENDENCIES_UNREADY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a cluster told at `taken_at`. `given` is None where the head does not say what its nodes gave away.

    `missing` counts, by kind, the rows that it did not give; `stale_seconds` is the age of a status that is too old.
    """

    taken_at: datetime
    version: str
    jobs: list[Row]
    nodes: list[Row]
    tasks: list[Row]
    actors: list[Row]
    groups: list[Row]
    workers: list[Row]
    given: Mapping[str, Given] | None
    missing: Mapping[str, int]
    stale_seconds: int | None


@dataclass(frozen=True, slots=True)
class _Pulse:
    """What must be the same before and after: nodes with their totals, what they gave away, placement groups."""

    nodes: Listing
    groups: Listing
    given: Mapping[str, Given] | None
    stale_seconds: int | None

    def mark(self, resource: str) -> str:
        """A text that is equal where the two moments are."""
        totals = sorted(
            (str(row.get("node_id")), str(row.get("state")), _total(row, resource)) for row in self.nodes.rows
        )
        groups = sorted((str(row.get("placement_group_id")), str(row.get("state"))) for row in self.groups.rows)
        told = sorted((name, one.total, one.given, one.inside) for name, one in (self.given or {}).items())
        return json.dumps([totals, groups, told])

    def contradiction(self, resource: str) -> str:
        """What is of two moments within one pulse; empty where nothing is."""
        if self.given is None:
            return ""
        totals = {row.get("node_id"): _total(row, resource) for row in self.nodes.rows if row.get("state") == "ALIVE"}
        for node_id, total in totals.items():
            told = self.given.get(str(node_id))
            if told is None or (total is not None and told.total != total):
                return f"the status does not have node {node_id} as the list of nodes has it"
            if not 0 <= told.used <= told.given <= told.total:
                return f"node {node_id} gave away more than it has"
        return ""


def _total(row: Row, resource: str) -> int | None:
    """What a node has of `resource`; None for a node that cannot be read, whose problem is told elsewhere."""
    try:
        return parts(row["resources_total"].get(resource, 0), resource)
    except (BadInput, LookupError, AttributeError, TypeError):
        return None


def read(dashboard: Dashboard, clock: Clock, resource: str) -> Answers:
    """Everything, once nodes, their totals and what they gave away are the same before and after it.

    Raises InconsistentSnapshot after a few tries, NotPermitted, SchedulerUnreachable.
    """

    def once() -> tuple[_Pulse, Answers, _Pulse]:
        taken_at = clock.now()
        before, rest = _pulse(dashboard, resource), _rest(dashboard)
        after = _pulse(dashboard, resource)
        return before, _answers(taken_at, after.mark(resource), after, rest), after

    def doubt(taken: tuple[_Pulse, Answers, _Pulse]) -> str:
        before, _, after = taken
        if before.mark(resource) != after.mark(resource):
            return "nodes, or what they gave away, changed while it was read"
        return after.contradiction(resource)

    return steady(once, doubt, dashboard.name, clock, pause_seconds=PAUSE_SECONDS)[1]


def _answers(taken_at: datetime, mark: str, pulse: _Pulse, rest: Mapping[str, Listing]) -> Answers:
    # Ray counts dead workers in the total of living ones, and they only date what runs.
    kinds = {"tasks": rest["tasks"], "actors": rest["actors"], "nodes": pulse.nodes, "placement_groups": pulse.groups}
    states = sorted(
        (str(row.get("submission_id") or row.get("job_id")), str(row.get("status"))) for row in rest["jobs"].rows
    )
    return Answers(
        taken_at=taken_at,
        version=hashlib.blake2b((mark + json.dumps(states)).encode(), digest_size=12).hexdigest(),
        jobs=rest["jobs"].rows,
        nodes=pulse.nodes.rows,
        tasks=rest["tasks"].rows,
        actors=rest["actors"].rows,
        groups=pulse.groups.rows,
        workers=rest["workers"].rows,
        given=pulse.given,
        missing={kind: one.missing_count for kind, one in kinds.items() if one.missing_count},
        stale_seconds=pulse.stale_seconds,
    )


def _pulse(dashboard: Dashboard, resource: str) -> _Pulse:
    nodes = dashboard.listing("nodes", [("state", "=", "ALIVE")])
    groups = dashboard.listing("placement_groups", [("state", "!=", "REMOVED")])
    told, at = dashboard.get("/api/cluster_status")
    status = (told.get("data") or {}).get("clusterStatus") if isinstance(told, Mapping) else None
    try:
        age = _age(status, at)
        is_old = age is not None and age > OLDEST_STATUS
        offered = None if is_old else given(status, resource)
    except (BadInput, LookupError, TypeError, AttributeError) as error:
        raise SchedulerUnreachable(f"{dashboard.name}/api/cluster_status: not understood: {error}") from None
    return _Pulse(nodes, groups, offered, int(age.total_seconds()) if age and is_old else None)


def _age(status: Any, at: datetime | None) -> timedelta | None:
    """How old the status is by the head's own clock; None where it does not say."""
    written = (status or {}).get("time")
    return at - (EPOCH + timedelta(seconds=written)) if at and written else None


def _rest(dashboard: Dashboard) -> Mapping[str, Listing]:
    told, _ = dashboard.get("/api/jobs/")
    if not isinstance(told, list):
        raise SchedulerUnreachable(f"{dashboard.name}/api/jobs/: answered no list of jobs")
    jobs = Listing([row for row in told if isinstance(row, Mapping)])
    drivers = sorted({str(row["job_id"]) for row in jobs.rows if row.get("job_id")})
    by_job = Split("job_id", drivers)
    unfinished = [("state", "!=", "FINISHED"), ("state", "!=", "FAILED")]
    return {
        "jobs": jobs,
        "tasks": dashboard.listing("tasks", unfinished, [Split("state", _WANTED_TASKS), by_job]),
        "actors": dashboard.listing("actors", [("state", "!=", "DEAD")], [Split("state", _WANTED_ACTORS), by_job]),
        "workers": dashboard.listing("workers", [("is_alive", "=", "True")]),
    }
