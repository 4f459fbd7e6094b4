"""What the core cannot know of nodes: the cards of a Device, what reservations keep, the network's layers."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuledger.model import Node, NodeState, SchedulerNode, canonical_model
from schedulers.koordinator.devices import Card, DeviceBook
from schedulers.koordinator.kinds import CARD, labels_of
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.names import underscored
from schedulers.kubernetes.pods import Object, condition_of, holds_node, name_of, node_of
from schedulers.rows import SnapshotRows

MODEL = "node.koordinator.sh/gpu-model"


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of the network: the labels of nodes that say where in it they stand, and the layer above."""

    name: str
    labels: tuple[str, ...]
    above: str | None


def layers_of(topologies: Iterable[Object], rows: SnapshotRows) -> list[Layer]:
    """The layers of a ClusterNetworkTopology that nodes have labels for, those next to the nodes first."""
    found: list[Layer] = []
    for topology in topologies:
        with rows.sparing(name_of(topology), "target"):
            told = [
                Layer(one["topologyLayer"], tuple(one.get("labelKey") or ()), one.get("parentTopologyLayer"))
                for one in topology["spec"]["networkTopologySpec"]
            ]
            found = found or _upwards(told)
    return found


def _upwards(layers: Sequence[Layer]) -> list[Layer]:
    known = {layer.name: layer for layer in layers}
    parents = {layer.above for layer in layers}
    lowest = next((layer for layer in layers if layer.name not in parents), None)
    found: list[Layer] = []
    while lowest is not None and lowest not in found:
        found.append(lowest)
        lowest = known.get(lowest.above or "")
    return [layer for layer in found if layer.labels]


def inventory_rows(core: CoreFacts, book: DeviceBook, layers: Sequence[Layer]) -> None:
    """Put right, or add, the `node` and `scheduler_node` rows: cards as Devices say, places as the network does."""
    nodes, offers = core.rows.of("node"), core.rows.of("scheduler_node")
    rows: dict[str, Node] = {row.node: row for row in nodes}
    offered: dict[str, SchedulerNode] = {row.node: row for row in offers}
    for name, cards in book.cards.items():
        if name in core.nodes:
            known = rows.get(name) or _node(core, name)
            rows[name] = replace(known, gpu_count=len(cards))
            core.gpu_count_of_node[name] = len(cards)
            healthy = sum(card.is_healthy for card in cards.values())
            at = core.rows.taken_at
            offered[name] = SchedulerNode(scheduler=core.rows.scheduler, node=name, gpu_count=healthy, from_at=at)
    nodes[:] = [_placed(row, core.nodes[row.node], layers) for row in rows.values()]
    offers[:] = offered.values()


def _node(core: CoreFacts, name: str) -> Node:
    model = canonical_model(labels_of(core.nodes[name]).get(MODEL))
    return Node(node=name, cluster=core.rows.cluster, model=model, gpu_count=0, from_at=core.rows.taken_at)


def _levels(node: Object, layers: Sequence[Layer]) -> dict[str, str]:
    labels = labels_of(node)
    told = {layer.name: next((labels[key] for key in layer.labels if labels.get(key)), "") for layer in layers}
    return {name: value for name, value in told.items() if value}


def _placed(row: Node, node: Object, layers: Sequence[Layer]) -> Node:
    """The layer next to the nodes is the leaf, the one above it the spine, where labels did not say it already."""
    places = [*_levels(node, layers).values(), None, None]
    return replace(row, leaf=row.leaf or places[0], spine=row.spine or places[1])


def state_rows(core: CoreFacts, book: DeviceBook, reserved: Mapping[str, float], layers: Sequence[Layer]) -> None:
    """Put right, or add, the `node_state` rows of cards.

    Whole cards and parts of them come out of the same cards. `reserved` is by node what reservations keep from new pods
    and nobody uses yet.
    """
    states, resource = core.rows.of("node_state"), underscored(CARD)
    known: dict[str, NodeState] = {row.node: row for row in states if row.resource == resource}
    held = _held(core)
    for name, cards in book.cards.items():
        if name in core.nodes:
            row = known.get(name) or _state(core, name)
            known[name] = _with_cards(row, list(cards.values()), held[name])
    others = [row for row in states if row.resource != resource]
    kept = [replace(row, free=max(0.0, row.free - reserved.get(row.node, 0.0))) for row in known.values()]
    states[:] = [_on_network(row, core.nodes[row.node], layers) for row in (*others, *kept)]


def _held(core: CoreFacts) -> Mapping[str, float]:
    held: dict[str, float] = defaultdict(float)
    for pod in core.pods_by_uid.values():
        if holds_node(pod):
            held[node_of(pod) or ""] += core.requests_of(pod).get(CARD, 0.0)
    return held


def _state(core: CoreFacts, name: str) -> NodeState:
    ready = condition_of(core.nodes[name], "Ready")
    is_ready = ready is None or ready.get("status") == "True"
    return NodeState(
        scheduler=core.rows.scheduler,
        node=name,
        resource=underscored(CARD),
        capacity=0.0,
        allocated=0.0,
        free=0.0,
        is_ready=is_ready,
        is_schedulable=not (core.nodes[name].get("spec") or {}).get("unschedulable"),
        from_at=core.rows.taken_at,
    )


def _with_cards(row: NodeState, cards: Sequence[Card], held: float) -> NodeState:
    healthy = float(sum(card.is_healthy for card in cards))
    takes_work = row.is_ready and row.is_schedulable
    free = max(0.0, round(healthy - held, 6)) if takes_work else 0.0
    levels = json.loads(row.topology) if row.topology else {}
    for level in ("numa", "pcie"):
        groups: dict[str, list[int]] = defaultdict(list)
        for card in cards:
            groups[getattr(card, level)].append(card.minor)
        levels[level] = {name: sorted(minors) for name, minors in groups.items() if name}
    topology = json.dumps(levels, ensure_ascii=False, sort_keys=True)
    return replace(
        row,
        capacity=float(len(cards)),
        allocatable=healthy,
        allocated=round(held, 6),
        free=free,
        topology=topology,
    )


def _on_network(row: NodeState, node: Object, layers: Sequence[Layer]) -> NodeState:
    levels = _levels(node, layers)
    if not levels:
        return row
    told = json.loads(row.topology) if row.topology else {}
    return replace(row, topology=json.dumps({**told, **levels}, ensure_ascii=False, sort_keys=True))
