"""Nodes, what they gave away, and jobs, from the answers of a dashboard. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gpuledger.errors import BadInput
from schedulers.ray.amounts import Parts, demands, parts

Row = Mapping[str, Any]
Spare = Any
"""A function from a subject to a context that turns what is raised in it into a problem of that subject."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_GROUP_ID_LENGTH = 36


def instant(milliseconds: Any) -> datetime | None:
    """Ray's time as an instant; None for what is not set (0, or the largest number that it can write)."""
    if not isinstance(milliseconds, int | float) or not 0 < milliseconds < 2**53:
        return None
    return EPOCH + timedelta(milliseconds=milliseconds)


@dataclass(frozen=True, slots=True)
class RayNode:
    """A living node; `total` is what it has of every resource."""

    node_id: str
    name: str
    total: Parts
    labels: Mapping[str, str]
    started_at: datetime | None


@dataclass(frozen=True, slots=True)
class Given:
    """What a node has and gave away, from one document. `given` counts whole placement groups, `inside` what is in use.

    `reserved` is what placement groups set aside, whether something runs in them or not.
    """

    total: int
    given: int
    reserved: int
    inside: int
    free: Parts = field(default_factory=dict)

    @property
    def used(self) -> int:
        """What tasks and actors hold."""
        return self.given - self.reserved + self.inside


def nodes(rows: Iterable[Row], spare: Spare) -> list[RayNode]:
    """The living nodes."""
    found = []
    for row in rows:
        with sparing(spare, "node", row.get("node_id")):
            if row["state"] == "ALIVE":
                total = demands(row["resources_total"], "resources_total")
                found.append(
                    RayNode(
                        row["node_id"],
                        row.get("node_name") or row["node_ip"],
                        total,
                        row.get("labels") or {},
                        instant(row.get("start_time_ms")),
                    )
                )
    return found


def sparing(spare: Spare, kind: str, name: Any) -> AbstractContextManager[None]:
    """The context in which one object of Ray's costs only itself."""
    context: AbstractContextManager[None] = spare(f"{kind} {name}", "node" if kind == "node" else "workload")
    return context


def camel(name: str) -> str:
    """`name` as the dashboard's older pages write keys, data or not: `node_id` is `nodeId`."""
    first, *others = name.split("_")
    return first + "".join(part.title() for part in others)


def given(status: Row | None, resource: str) -> dict[str, Given] | None:
    """What every node gave away of `resource`, by node id, from the cluster's status; None where it does not say.

    Keys are camel-cased, those of placement groups too: `GPU_group_<id>` comes as `GPUGroup<Id>`, with capitals that
    the id does not have; one of a single bundle has the bundle's number before the id.
    """
    report = (status or {}).get("loadMetricsReport") or {}
    by_node = report.get("usageByNode")
    if not by_node:
        return None
    name = camel(resource)
    whole_group = re.compile(rf"{re.escape(name)}Group[0-9a-zA-Z]{{{_GROUP_ID_LENGTH}}}")
    found = {}
    for node_id, told in by_node.items():
        pairs = {key: (parts(pair[0], key), parts(pair[1], key)) for key, pair in told.items()}
        used, total = pairs.get(name, (0, 0))
        groups = [pair for key, pair in pairs.items() if whole_group.fullmatch(key)]
        free = {key: max(0, pair[1] - pair[0]) for key, pair in pairs.items() if "Group" not in key}
        found[node_id] = Given(total, used, sum(pair[1] for pair in groups), sum(pair[0] for pair in groups), free)
    return found


@dataclass(frozen=True, slots=True)
class Job:
    """A job: `owners` are the ids under which its tasks and actors know it, `key` what names its workload."""

    key: str
    owners: tuple[str, ...]
    status: str
    message: str
    metadata: Mapping[str, str]
    submitted_at: datetime
    ended_at: datetime | None
    driver_id: str | None


def job(row: Row) -> Job:
    """One job. Ray counts the ids of drivers from 1 again after a restart, so that these carry their start.

    Raises BadInput for one without an id or a start.
    """
    submission, driver = row.get("submission_id"), row.get("job_id")
    submitted_at = instant(row.get("start_time"))
    if submitted_at is None or not (submission or driver):
        raise BadInput("job", "has no id, or no start_time")
    return Job(
        submission or f"{driver}@{int(submitted_at.timestamp())}",
        tuple(one for one in (submission, driver) if one),
        row["status"],
        row.get("message") or "",
        {str(name): str(value) for name, value in (row.get("metadata") or {}).items()},
        submitted_at,
        instant(row.get("end_time")),
        driver,
    )


def driver_starts(workers: Iterable[Row]) -> Iterator[tuple[str, datetime]]:
    """(driver's job id, when its process began)."""
    for row in workers:
        at = instant(row.get("start_time_ms"))
        if row.get("worker_type") == "DRIVER" and at:
            yield str(row["worker_id"])[:8], at
