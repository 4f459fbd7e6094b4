"""Nodes of YARN and the records that they give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpuledger.errors import BadInput
from gpuledger.model import Condition, Node, NodeState, SchedulerNode
from schedulers.rows import SnapshotRows
from schedulers.yarn.answers import GPU, GPU_RECORD, Amounts, Json, amounts

_GONE = ("UNHEALTHY", "LOST", "REBOOTED", "NEW")


@dataclass(frozen=True, slots=True)
class YarnNode:
    """A NodeManager. `name` is its host, with the port where a host has several."""

    name: str
    state: str
    rack: str
    partition: str
    report: str
    total: Amounts
    used: Amounts


def nodes_of(told: Sequence[Json], wrong: dict[str, str] | None = None) -> list[YarnNode]:
    """Nodes; those that make no sense, or say nothing of their resources, are put into `wrong`."""
    wrong = {} if wrong is None else wrong
    hosts = Counter(str(one.get("nodeHostName")) for one in told)
    found = []
    for one in told:
        host, name = str(one.get("nodeHostName")), str(one.get("id"))
        try:
            found.append(_node(one, host if hosts[host] == 1 else name))
        except BadInput as error:
            wrong[host if hosts[host] == 1 else name] = str(error)
    return found


def _node(told: Json, name: str) -> YarnNode:
    used = amounts(told.get("usedResource"), "usedResource")
    left = amounts(told.get("availableResource"), "availableResource")
    everything = amounts(told.get("totalResource"), "totalResource")
    if everything is None and used is not None and left is not None:
        everything = {resource: used.get(resource, 0.0) + left[resource] for resource in left}
    if everything is None:
        raise BadInput("totalResource", "is not told")
    if used is None and told.get("state") in ("RUNNING", "DECOMMISSIONING"):
        raise BadInput("usedResource", "is not told")
    labels = told.get("nodeLabels")
    return YarnNode(
        name=name,
        state=str(told.get("state")),
        rack=str(told.get("rack") or ""),
        partition=str(labels[0]) if isinstance(labels, list) and labels else str(labels or ""),
        report=str(told.get("healthReport") or ""),
        total=everything,
        used=used or {},
    )


def add_node(node: YarnNode, rows: SnapshotRows) -> None:
    """A node's records. One that is lost holds nothing any more; one that takes no containers has nothing free."""
    at, cards = rows.taken_at, node.total.get(GPU, 0.0)
    used = node.used.get(GPU, 0.0)
    is_ready, is_leaving = node.state not in _GONE, node.state == "DECOMMISSIONING"
    rows.add(
        Node(
            node=node.name,
            cluster=rows.cluster,
            pool=node.partition or "default",
            gpu_count=int(cards),
            cpu_milli=round(1000 * node.total.get("vcores", 0.0)),
            memory_mib=round(node.total.get("memory-mb", 0.0)),
            leaf=None if node.rack in ("", "/default-rack") else node.rack,
            from_at=at,
        ),
        SchedulerNode(scheduler=rows.scheduler, node=node.name, gpu_count=int(cards), from_at=at),
    )
    if cards:
        rows.add(
            NodeState(
                scheduler=rows.scheduler,
                node=node.name,
                resource=GPU_RECORD,
                capacity=cards,
                allocatable=cards if is_ready else 0.0,
                allocated=used,
                free=cards - used if is_ready and not is_leaving else 0.0,
                is_ready=is_ready,
                is_schedulable=not is_leaving,
                reason=None if is_ready and not is_leaving else f"{node.state}: {node.report}".rstrip(": "),
                topology=node.rack or None,
                from_at=at,
            )
        )
    for condition, holds in (("not_ready", not is_ready), ("drain", is_leaving)):
        if holds:
            rows.add(
                Condition(
                    subject_kind="node",
                    subject=node.name,
                    condition=condition,
                    from_at=at,
                    reason=f"{node.state}: {node.report}".rstrip(": "),
                )
            )
