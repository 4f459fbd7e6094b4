"""Nodes: what they have, whether they take work, where they stand, and what of them is free."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpuledger.attribution.resources import cards, shared
from gpuledger.model import Condition, Node, NodeState, SchedulerNode, canonical_model
from schedulers.kubernetes.claims import Device, Devices
from schedulers.kubernetes.equivalents import is_card
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.hami import cards_of
from schedulers.kubernetes.names import underscored
from schedulers.kubernetes.pods import Object, condition_of, holds_node, meta, name_of, node_of
from schedulers.kubernetes.quantities import quantity
from schedulers.kubernetes.times import instant

_CORDON = "node.kubernetes.io/unschedulable"
_FAULT = re.compile(r"fault|unhealthy|quarantin|repair|remediat|xid|broken", re.IGNORECASE)
"""A cordon beside a taint of such a name is for a fault; any other is for maintenance."""


@dataclass(slots=True)
class NodeFacts:
    """One node's GPUs by resource (the cluster's spelling), and whether it takes work (`reason`: why not)."""

    name: str
    capacity: dict[str, float]
    allocatable: dict[str, float]
    is_ready: bool
    is_cordoned: bool
    reason: str | None
    topology: dict[str, str]
    allocated: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def takes_work(self) -> bool:
        """Whether a new pod could be put there."""
        return self.is_ready and not self.is_cordoned

    def free(self, resource: str) -> float:
        """What a new pod could get of it."""
        return max(0.0, self.allocatable.get(resource, 0.0) - self.allocated[resource]) if self.takes_work else 0.0

    def free_if_mended(self, resource: str) -> float:
        """What a new pod could get if the node were whole and took work."""
        return max(0.0, self.capacity.get(resource, 0.0) - self.allocated[resource])


def _amounts(node: Object, book: str) -> dict[str, float]:
    given: Mapping[str, object] = (node.get("status") or {}).get(book) or {}
    return {name: quantity(amount, f"status.{book}[{name}]") for name, amount in given.items()}


def _cards(core: CoreFacts, there: Mapping[str, float], offered: Mapping[str, float], node: Object) -> int | None:
    there, offered = ({underscored(name): count for name, count in amounts.items()} for amounts in (there, offered))
    labels: Mapping[str, str] = meta(node).get("labels") or {}
    return cards(there, offered, labels.get, {underscored(name) for name in core.gpu_resources})


def node_rows(core: CoreFacts, topology: Mapping[str, tuple[str, ...]], devices: Devices) -> dict[str, NodeFacts]:
    """Adds `node`, `scheduler_node` and `condition` rows; gives what is known of the nodes that have GPUs."""
    facts = {}
    for name, node in core.nodes.items():
        with core.rows.sparing(name, "node"):
            found = _facts(core, node, topology)
            claimable = devices.cards_of(name)
            _inventory(core, node, found, claimable)
            if found.capacity or found.allocatable or claimable:
                facts[name] = found
    return facts


def _facts(core: CoreFacts, node: Object, topology: Mapping[str, tuple[str, ...]]) -> NodeFacts:
    labels: Mapping[str, str] = meta(node).get("labels") or {}
    ready = condition_of(node, "Ready")
    is_ready = ready is None or ready.get("status") == "True"
    is_cordoned = bool((node.get("spec") or {}).get("unschedulable"))
    words = [] if is_ready or ready is None else [f"NotReady: {ready.get('reason') or ready.get('status')}"]
    levels = {level: next((labels[one] for one in names if labels.get(one)), "") for level, names in topology.items()}
    return NodeFacts(
        name=name_of(node),
        capacity={name: count for name, count in _amounts(node, "capacity").items() if core.counts(name)},
        allocatable={name: count for name, count in _amounts(node, "allocatable").items() if core.counts(name)},
        is_ready=is_ready,
        is_cordoned=is_cordoned,
        reason="; ".join([*words, *(["cordoned"] if is_cordoned else [])]) or None,
        topology={level: value for level, value in levels.items() if value},
    )


def _inventory(core: CoreFacts, node: Object, facts: NodeFacts, claimable: Sequence[Device]) -> None:
    labels: Mapping[str, str] = meta(node).get("labels") or {}
    registered = cards_of(node)
    if registered:
        core.cards_of_node[facts.name] = registered
    model = canonical_model(labels.get("nvidia.com/gpu.product") or (registered[0].model if registered else None))
    count, offered = (_cards(core, facts.capacity, one, node) for one in (facts.capacity, facts.allocatable))
    if registered:
        count, offered = len(registered), sum(card.is_healthy for card in registered)
    elif claimable and not count:
        count, offered = len(claimable), sum(not device.is_tainted for device in claimable)
        model = model or claimable[0].model
    if model:
        core.model_of_node[facts.name] = model
    if count is not None:
        core.gpu_count_of_node[facts.name] = count
        core.rows.add(_node(core, node, facts, count, model))
    if offered is not None:
        at = core.rows.taken_at
        core.rows.add(SchedulerNode(scheduler=core.rows.scheduler, node=facts.name, gpu_count=offered, from_at=at))
    core.rows.add(*_conditions(core, node, facts))


def _node(core: CoreFacts, node: Object, facts: NodeFacts, cards: int, model: str | None) -> Node:
    amounts = _amounts(node, "capacity")
    cpu, memory = amounts.get("cpu"), amounts.get("memory")
    return Node(
        node=facts.name,
        cluster=core.rows.cluster,
        model=model,
        gpu_count=cards,
        cpu_milli=None if cpu is None else round(cpu * 1000),
        memory_mib=None if memory is None else int(memory // 2**20),
        leaf=facts.topology.get("leaf"),
        spine=facts.topology.get("spine"),
        nvl_domain=facts.topology.get("nvl_domain"),
        from_at=core.rows.taken_at,
    )


def _conditions(core: CoreFacts, node: Object, facts: NodeFacts) -> list[Condition]:
    found = []
    ready = condition_of(node, "Ready")
    if ready is not None and not facts.is_ready:
        words = ": ".join(text for text in (ready.get("reason"), ready.get("message")) if text)
        found.append(_condition(core, facts, "not_ready", ready.get("lastTransitionTime"), words))
    if facts.is_cordoned:
        taints = (node.get("spec") or {}).get("taints") or ()
        faults = [one.get("key", "") for one in taints if _FAULT.search(one.get("key", ""))]
        since = next((one.get("timeAdded") for one in taints if one.get("key") == _CORDON), None)
        found.append(_condition(core, facts, "cordoned_fault" if faults else "drain", since, ", ".join(faults)))
    return found


def _condition(core: CoreFacts, facts: NodeFacts, condition: str, since: object, words: str) -> Condition:
    at: datetime = instant(since, "time of a condition") or core.rows.taken_at
    return Condition(
        subject_kind="node", subject=facts.name, condition=condition, from_at=at, reason=words or facts.reason
    )


def allocate(core: CoreFacts, nodes: Mapping[str, NodeFacts]) -> None:
    """Count what bound pods hold of each node's GPUs."""
    for pod in core.pods_by_uid.values():
        if holds_node(pod) and (facts := nodes.get(node_of(pod) or "")):
            with core.rows.sparing(name_of(pod)):
                for resource, count in core.gpus_of(pod).items():
                    facts.allocated[resource] += count


def state_rows(core: CoreFacts, nodes: Mapping[str, NodeFacts]) -> None:
    """Adds a `node_state` row for each GPU resource that a node has, or that its pods hold.

    Copies and shares that have the name of cards are named as shared: nobody is to add them up as cards.
    """
    for name, facts in nodes.items():
        topology = json.dumps(facts.topology, ensure_ascii=False, sort_keys=True) if facts.topology else None
        for resource in sorted({*facts.capacity, *facts.allocatable, *facts.allocated}):
            core.rows.add(
                NodeState(
                    scheduler=core.rows.scheduler,
                    node=name,
                    resource=underscored(resource) if is_card(core, resource, name) else shared(underscored(resource)),
                    capacity=facts.capacity.get(resource, 0.0),
                    allocatable=facts.allocatable.get(resource, 0.0),
                    allocated=facts.allocated[resource],
                    free=facts.free(resource),
                    is_ready=facts.is_ready,
                    is_schedulable=not facts.is_cordoned,
                    reason=facts.reason,
                    topology=topology,
                    from_at=core.rows.taken_at,
                )
            )


def claim_state_rows(core: CoreFacts, nodes: Mapping[str, NodeFacts], devices: Devices) -> None:
    """Adds a `node_state` row for each node and driver of devices that are claimed; `resource` is the driver.

    In cards: a card of which any part is given away is not free, and counts as allocated by that part.
    """
    held = devices.held()
    listed = ((name, driver) for name, drivers in devices.by_node.items() for driver in drivers if name)
    for name, driver in sorted(listed):
        cards = [device for device in devices.by_node[name][driver] if device.is_card]
        facts = nodes.get(name)
        takes_work = facts is None or facts.takes_work
        free = sum(not card.is_tainted and not held.get(card.card or "") for card in cards)
        core.rows.add(
            NodeState(
                scheduler=core.rows.scheduler,
                node=name,
                resource=underscored(driver),
                capacity=float(len(cards)),
                allocatable=float(sum(not card.is_tainted for card in cards)),
                allocated=sum(held.get(card.card or "", 0.0) for card in cards),
                free=float(free) if takes_work else 0.0,
                is_ready=facts is None or facts.is_ready,
                is_schedulable=facts is None or not facts.is_cordoned,
                reason=facts.reason if facts else None,
                from_at=core.rows.taken_at,
            )
        )
