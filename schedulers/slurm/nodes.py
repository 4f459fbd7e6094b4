"""What nodes have, gave away and have left, and what takes them out of use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuledger.model import Condition, Node, NodeState, SchedulerNode, canonical_model
from schedulers.rows import SnapshotRows
from schedulers.slurm.facts import Facts, Host, Reservation
from schedulers.slurm.holding import Bounds
from schedulers.slurm.names import hosts as named_hosts
from schedulers.slurm.tres import Gres, gres, is_slice, share_of

OUT = frozenset(
    {
        "DOWN", "ERROR", "FAIL", "FAILING", "INVAL", "INVALID_REG", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN",
        "POWER_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_UP", "REBOOT_ISSUED", "UNKNOWN", "FUTURE", "LOST",
    }
)  # fmt: skip
"""States and flags of a node that runs nothing new because it is not there."""
CLOSED = frozenset({"DRAIN", "DRAINED", "DRAINING", "DRNG", "MAINT", "MAINTENANCE", "RESERVED", "BLOCKED"})
"""States and flags of a node that is there and takes no new work of everybody."""
_DRAINED = frozenset({"DRAIN", "DRAINED", "DRAINING", "DRNG", "MAINT", "MAINTENANCE"})


_PARTS = frozenset({"gres_shard", "gres_mps"})
"""Resources that are parts of cards which are counted beside them."""


@dataclass(frozen=True, slots=True)
class HostGpus:
    """The GPUs of a node. `used` by resource as the node itself says; None where it does not."""

    host: Host
    capacity: Mapping[str, float]
    drained: Mapping[str, float]
    used: Mapping[str, float] | None
    model: str | None
    cards: float
    problem: str = ""
    is_ready: bool = True
    is_schedulable: bool = True

    @property
    def free(self) -> float:
        """GPUs that a new job could get."""
        return sum(self.free_of(name) for name in self.capacity if name not in _PARTS)

    def free_of(self, resource: str) -> float:
        """As `free`, of one resource."""
        if not (self.is_ready and self.is_schedulable):
            return 0.0
        return max(0.0, self.allocatable(resource) - self.allocated(resource))

    def allocatable(self, resource: str) -> float:
        """What may be given away of `resource`."""
        return max(0.0, self.capacity[resource] - self.drained.get(resource, 0.0))

    def allocated(self, resource: str) -> float:
        """What was given away, as the node says."""
        return min(self.capacity[resource], (self.used or {}).get(resource, 0.0))

    @property
    def used_gpus(self) -> float | None:
        """All GPUs that the node says it gave away; None where it does not say."""
        if self.used is None:
            return None
        return sum(count for name, count in self.used.items() if name not in _PARTS)


def resource_of(one: Gres) -> str:
    """The name in records: whole cards of any type are `gres_gpu`, slices have their type in it."""
    if one.kind == "gpu" and is_slice(one.type):
        return f"gres_gpu_{one.type.replace('.', '_').replace('-', '_').replace('+', '_')}"
    return f"gres_{one.kind}"


def _amounts(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in gres(text):
        found[resource_of(one)] = found.get(resource_of(one), 0.0) + one.count
    return found


def host_gpus(host: Host) -> HostGpus:
    """What `host` says of its GPUs."""
    told = [one for one in gres(host.gres) if one.kind == "gpu"]
    types = sorted({one.type for one in told if one.type and not is_slice(one.type)})
    cards = sum(one.count * (share_of(one.type) or 0.0) for one in told)
    return HostGpus(
        host=host,
        capacity=_amounts(host.gres),
        drained=_amounts(host.gres_drained),
        used=_amounts(host.gres_used) if host.gres_used else None,
        model=canonical_model(types[0].replace("_", " ")) if len(types) == 1 else None,
        cards=cards,
        problem=_problem(host),
        is_ready=not host.states & OUT,
        is_schedulable=not host.states & (OUT | CLOSED),
    )


def _problem(host: Host) -> str:
    flags = sorted(host.states & (OUT | CLOSED))
    if not flags:
        return ""
    return "+".join(flags) + (f": {host.reason}" if host.reason and host.reason.lower() != "none" else "")


def write_nodes(facts: Facts, nodes: Sequence[HostGpus], rows: SnapshotRows) -> None:
    """Records of every node: nodes without a GPU too, for they may be the inventory's."""
    rows.listed("node", "scheduler_node", "node_state", "condition")
    for one in nodes:
        host = one.host
        leaf, spine = facts.places.get(host.name, (None, None))
        rows.add(
            Node(
                node=host.name,
                cluster=rows.cluster,
                pool=host.partitions[0] if host.partitions else "default",
                model=one.model,
                gpu_count=round(one.cards),
                cpu_milli=None if host.cpus is None else host.cpus * 1000,
                memory_mib=host.memory_mib,
                leaf=leaf,
                spine=spine,
                from_at=rows.taken_at,
            )
        )
        rows.add(
            SchedulerNode(
                scheduler=rows.scheduler, node=host.name, gpu_count=round(_offered(one)), from_at=rows.taken_at
            )
        )
        rows.add(*(_state(one, resource, leaf, rows) for resource in sorted(one.capacity)))
        rows.add(*_conditions(one, facts.reservations, rows.taken_at))


def _offered(one: HostGpus) -> float:
    drained = sum(count for name, count in one.drained.items() if name == "gres_gpu")
    return max(0.0, one.cards - drained)


def _state(one: HostGpus, resource: str, leaf: str | None, rows: SnapshotRows) -> NodeState:
    return NodeState(
        scheduler=rows.scheduler,
        node=one.host.name,
        resource=resource,
        capacity=one.capacity[resource],
        allocatable=one.allocatable(resource),
        allocated=one.allocated(resource),
        free=one.free_of(resource),
        is_ready=one.is_ready,
        is_schedulable=one.is_schedulable,
        reason=one.problem or None,
        topology=leaf,
        from_at=rows.taken_at,
    )


def _conditions(one: HostGpus, reservations: Iterable[Reservation], now: datetime) -> Iterable[Condition]:
    """Out of use as a whole: not there, or closed and empty. A node that drains still works for its jobs."""
    states = one.host.states
    begin = min(one.host.reason_at or now, now)
    if states & OUT:
        yield _condition(one, "not_ready", begin)
    elif states & _DRAINED and not one.used_gpus:
        begin = min(now, max(begin, one.host.busy_at or begin))
        if states & {"MAINT", "MAINTENANCE"} and not one.host.reason_at:
            starts = [r.start_at for r in reservations if "MAINT" in r.flags and one.host.name in named_hosts(r.nodes)]
            begin = min(now, max((start for start in starts if start and start <= now), default=now))
        yield _condition(one, "drain", begin)


def _condition(one: HostGpus, condition: str, begin: datetime) -> Condition:
    return Condition(
        subject_kind="node",
        subject=one.host.name,
        condition=condition,
        from_at=begin,
        reason=one.problem or None,
        source="scheduler",
    )


def doubt(nodes: Sequence[HostGpus], jobs: Bounds) -> str:
    """Why jobs and nodes are not of one moment: a node that gave away other GPUs than jobs have there; "" if none."""
    known = {one.host.name for one in nodes}
    for name in jobs.least:
        # Where something was not understood, that may be this node.
        if name not in known and not jobs.is_open:
            return f"a job runs on {name}, which is no node"
    for one in nodes:
        used, name = one.used_gpus, one.host.name
        least = jobs.least.get(name, 0.0)
        if used is not None and not jobs.allow(name, used):
            return f"{name} gave {used:g} GPUs away, its jobs have {least:g}"
        if least > sum(count for resource, count in one.capacity.items() if resource not in _PARTS):
            return f"the jobs on {name} have {least:g} GPUs, more than it has"
    return ""
