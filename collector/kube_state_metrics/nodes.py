"""What nodes have (capacity) and what the scheduler may give away (allocatable), as dated records.

Only where the number of physical cards can be told: `nvidia_com_gpu` counts copies under time-slicing and nothing at
all on a card cut into slices. There the label `nvidia.com/gpu.count` says it, where labels of nodes are exported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeVar

from collector.exposition import Series
from gpuledger.attribution import Labels
from gpuledger.attribution.resources import cards, is_gpu
from gpuledger.model import Node, SchedulerNode

NODE_METRICS = frozenset({"kube_node_status_capacity", "kube_node_status_allocatable", "kube_node_labels"})

_Record = TypeVar("_Record", Node, SchedulerNode)


@dataclass(slots=True)
class _NodeFacts:
    capacity: dict[str, float] = field(default_factory=dict)
    allocatable: dict[str, float] = field(default_factory=dict)
    labels: Labels = field(default_factory=lambda: Labels({}))
    seen_at: datetime | None = None

    def cards(self, offered: Mapping[str, float]) -> int | None:
        """How many physical cards `offered` are; None where that cannot be told."""
        there, gpus = ({name: n for name, n in book.items() if is_gpu(name)} for book in (self.capacity, offered))
        return cards(there, gpus, self.labels.get)


class NodeBook:
    """Remembers what nodes said and gives the records that changed."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._scheduler = f"kubernetes/{cluster}"
        self._facts: dict[str, _NodeFacts] = {}
        self._nodes: dict[str, Node] = {}
        self._offers: dict[str, SchedulerNode] = {}
        self._touched: set[str] = set()

    def note(self, series: Series, value: float, at: datetime) -> None:
        """One sample of `NODE_METRICS`."""
        name = series.labels.get("exported_node") or series.labels.get("node")
        if not name:
            return
        facts = self._facts.setdefault(name, _NodeFacts())
        facts.seen_at = max(at, facts.seen_at or at)
        self._touched.add(name)
        if series.name == "kube_node_labels":
            facts.labels = Labels({key: text for key, text in series.labels.items() if key.startswith("label_")})
        else:
            book = facts.capacity if series.name.endswith("capacity") else facts.allocatable
            book[series.labels.get("resource", "")] = value

    def changed(self, heard_since: datetime | None) -> tuple[list[Node], list[SchedulerNode]]:
        """The records that are new or end, since the last call.

        A node of which nothing was heard since `heard_since` offers nothing from then on. Nothing ends where no node
        was heard of at all: the source has not read the API yet, or does not show nodes.
        """
        nodes: list[Node] = []
        offers: list[SchedulerNode] = []
        for name in sorted(self._touched):
            facts = self._facts[name]
            _add(nodes, self._nodes, name, self._node(name, facts))
            _add(offers, self._offers, name, self._offer(name, facts))
        if self._touched and heard_since is not None:
            left = [name for name, facts in self._facts.items() if facts.seen_at and facts.seen_at < heard_since]
            for name in left:
                nodes += [replace(node, until_at=heard_since) for node in [self._nodes.pop(name, None)] if node]
                offers += [replace(offer, until_at=heard_since) for offer in [self._offers.pop(name, None)] if offer]
                del self._facts[name]
        self._touched = set()
        return nodes, offers

    def _node(self, name: str, facts: _NodeFacts) -> Node | None:
        count = facts.cards(facts.capacity)
        if count is None or facts.seen_at is None:
            return None
        cpu, memory = facts.capacity.get("cpu"), facts.capacity.get("memory")
        return Node(
            node=name,
            cluster=self._cluster,
            model=facts.labels.get("nvidia.com/gpu.product"),
            gpu_count=count,
            cpu_milli=None if cpu is None else round(cpu * 1000),
            memory_mib=None if memory is None else int(memory // 2**20),
            from_at=facts.seen_at,
        )

    def _offer(self, name: str, facts: _NodeFacts) -> SchedulerNode | None:
        count = facts.cards(facts.allocatable)
        if count is None or facts.seen_at is None:
            return None
        return SchedulerNode(scheduler=self._scheduler, node=name, gpu_count=count, from_at=facts.seen_at)


def _add(rows: list[_Record], known: dict[str, _Record], name: str, new: _Record | None) -> None:
    """Put `new` into `rows` where it says something else than before, and end what stood there."""
    old = known.get(name)
    if new is None or (old is not None and replace(new, from_at=old.from_at) == old):
        return
    if old is not None and new.from_at > old.from_at:
        rows.append(replace(old, until_at=new.from_at))
    known[name] = new
    rows.append(new)
