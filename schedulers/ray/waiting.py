"""Why a task, an actor or a bundle waits: Ray's word for it, and for "pending" what its nodes have left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from schedulers.ray.amounts import Parts, fits
from schedulers.ray.told import Given, RayNode, camel
from schedulers.ray.units import Unit
from schedulers.reasons import Reasons, Told

REASONS = Reasons.of(
    (
        (r"^INFEASIBLE", "exceeds_max"),
        (r"^(PENDING_ARGS_AVAIL|DEPENDENCIES_UNREADY)", "dependency"),
        (r"^(PENDING_ARGS_FETCH|GETTING_AND_PINNING_ARGS|SUBMITTED_TO_WORKER)", "startup"),
        (r"^PENDING_OBJ_STORE_MEM_AVAIL", "cpu_mem"),
        (r"^PENDING: .*runtime environment", "startup"),
        (r"^PENDING: .*waiting for resources", "capacity"),
        (r"^(PENDING_NODE_ASSIGNMENT|PENDING_CREATION|RESTARTING|QUEUED|SCHEDULING_STARTED)", "capacity"),
        (r"^(NO_RESOURCES|FAILED_TO_COMMIT_RESOURCES|PENDING|PREPARED|RESCHEDULING)$|^(NO_R|FAILED_TO_C)", "capacity"),
    )
)
"""Ray's states of tasks, actors, placement groups and jobs. `capacity` is only that something is short of something."""

NOT_YET = frozenset({"PENDING_ARGS_AVAIL", "DEPENDENCIES_UNREADY"})
"""These wait for other tasks of their job, not for the scheduler."""


@dataclass(frozen=True, slots=True)
class Room:
    """What the nodes have, and what they have left of it.

    `free` is by node id. Where `knows_all` is not set, it is known of `resource` alone.
    """

    resource: str
    totals: Mapping[str, Parts]
    free: Mapping[str, Parts]
    knows_all: bool

    @classmethod
    def of(cls, resource: str, nodes: Iterable[RayNode], given: Mapping[str, Given], *, knows_all: bool) -> Room:
        """From nodes and what they gave away. The head camel-cases names of resources, so we do."""
        totals = {node.node_id: _camelled(node.total) for node in nodes}
        left = {name: {camel(resource): one.total - one.given} for name, one in given.items() if name in totals}
        free = {name: {**given[name].free, **parts} for name, parts in left.items()}
        return cls(camel(resource), totals, free, knows_all)

    def cause(self, unit: Unit) -> str:
        """What `unit` is short of: one of PENDING_CAUSES."""
        demand = _camelled(unit.demand)
        if not any(fits(demand, total) for total in self.totals.values()):
            return "exceeds_max"
        gpus = demand.get(self.resource, 0)
        if not self.knows_all:
            demand = {self.resource: gpus}
        if any(fits(demand, left) for left in self.free.values()) and unit.together is None:
            return _nothing_short(unit)
        return self._shortage(gpus, _camelled(unit.together or unit.demand).get(self.resource, 0))

    def _shortage(self, gpus: int, together: int) -> str:
        left = [parts.get(self.resource, 0) for parts in self.free.values()]
        if not gpus:
            return "cpu_mem"
        if sum(left) < together:
            return "capacity"
        return "cpu_mem" if max(left, default=0) >= together else "fragmentation"


def _camelled(demand: Parts) -> Parts:
    return {camel(name): amount for name, amount in demand.items()}


def _nothing_short(unit: Unit) -> str:
    if unit.has_selector:
        return "placement"
    return "startup" if unit.state == "PENDING_CREATION" else "scheduler"


def told(unit: Unit, room: Room, message: str = "") -> Told:
    """Why `unit` waits, in Ray's words and ours."""
    said = REASONS.tell(unit.state, message)
    return Told(room.cause(unit), unit.state, message) if said.cause == "capacity" else said
