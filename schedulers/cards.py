"""How many whole cards a number of GPU resources is: slices and copies by what the nodes say that offer them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuledger.attribution.resources import SHARED_CARD, WHOLE_CARD, is_whole
from gpuledger.errors import BadInput
from gpuledger.model import slice_share
from schedulers.kubernetes.names import counts_gpus, underscored
from schedulers.kubernetes.pods import Object, meta
from schedulers.kubernetes.quantities import quantity

_SLICE = "/mig-"
_REPLICAS = "nvidia.com/gpu.replicas"
_MEMORY = "nvidia.com/gpu.memory"


@dataclass(frozen=True, slots=True)
class Amount:
    """So many whole cards (`gpus`; None: nothing of it was named), and whether some of it could not be counted."""

    gpus: float | None = None
    is_partial: bool = False


@dataclass(slots=True)
class Cards:
    """What one of a GPU resource is worth, by the nodes that offer it."""

    nodes: Mapping[str, Object]
    models: Mapping[str, str]
    _everywhere: dict[str, float | None] = field(default_factory=dict)

    def share(self, resource: str, node: str | None = None) -> float | None:
        """The part of a card that one of `resource` is, on `node` or wherever it is offered.

        None where that is not known, or not the same on all nodes that offer it.
        """
        if node is not None and node in self.nodes:
            return self._share_on(resource, node)
        if resource not in self._everywhere:
            self._everywhere[resource] = self._share_anywhere(resource)
        return self._everywhere[resource]

    def count(self, amounts: Mapping[str, float], node: str | None = None) -> Amount:
        """All GPU resources of `amounts` as whole cards; what has no known share is left out and makes it partial."""
        gpus, is_partial = None, False
        for resource, amount in amounts.items():
            if not counts_gpus(resource):
                continue
            share = self.share(resource, node)
            if share is None:
                is_partial = is_partial or amount > 0
            else:
                gpus = (gpus or 0.0) + amount * share
        return Amount(gpus, is_partial)

    def card_mib(self, node: str | None) -> float | None:
        """The memory of each card of `node` in MiB, as its labels say; None where they do not."""
        told = (meta(self.nodes.get(node or "", {})).get("labels") or {}).get(_MEMORY, "")
        return float(told) if told.isdecimal() and int(told) > 0 else None

    def _share_anywhere(self, resource: str) -> float | None:
        shares = {self._share_on(resource, name) for name, node in self.nodes.items() if _offers(node, resource)}
        if not shares:
            return 1.0 if is_whole(underscored(resource)) else None
        return shares.pop() if len(shares) == 1 else None

    def _share_on(self, resource: str, node: str) -> float | None:
        name = underscored(resource)
        if name in (WHOLE_CARD, SHARED_CARD):
            copies = (meta(self.nodes[node]).get("labels") or {}).get(_REPLICAS, "1")
            return 1.0 / max(1, int(copies)) if copies.isdecimal() else None
        if is_whole(name):
            return 1.0
        _, is_slice, profile = resource.partition(_SLICE)
        return slice_share(self.models.get(node), profile) if is_slice else None


def _offers(node: Object, resource: str) -> bool:
    offered = ((node.get("status") or {}).get("allocatable") or {}).get(resource)
    try:
        return offered is not None and quantity(offered, resource) > 0
    except BadInput:
        return False
