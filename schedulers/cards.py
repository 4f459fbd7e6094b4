"""How many whole cards an amount of GPU resources is, of a queue as well as of a pod."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuledger.attribution.resources import is_whole
from gpuledger.errors import BadInput
from schedulers.kubernetes.equivalents import of_resource
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.names import underscored
from schedulers.kubernetes.pods import Object
from schedulers.kubernetes.quantities import quantity

SHARES = frozenset({"volcano.sh/vgpu-number", "volcano.sh/gpu-number"})
"""They count parts of cards of which the name does not say how large they are."""


@dataclass(frozen=True, slots=True)
class Amount:
    """So many whole cards (`gpus`; None: nothing of it was named), and whether some of it could not be counted."""

    gpus: float | None = None
    is_partial: bool = False


@dataclass(slots=True)
class Cards:
    """What one of a GPU resource is worth, by the nodes that offer it."""

    core: CoreFacts
    _everywhere: dict[str, float | None] = field(default_factory=dict)
    _offered: set[str] | None = None

    def share(self, resource: str, node: str | None = None) -> float | None:
        """The part of a card that one of `resource` is, on `node` or wherever it is offered.

        None where that is not known, or not the same on all nodes that offer it.
        """
        if resource in SHARES:
            return None
        if node is not None and node in self.core.nodes:
            return of_resource(self.core, resource, 1.0, node)
        if resource not in self._everywhere:
            self._everywhere[resource] = self._share_anywhere(resource)
        return self._everywhere[resource]

    def count(self, amounts: Mapping[str, float], node: str | None = None) -> Amount:
        """All GPU resources of `amounts` as whole cards; what has no known share is left out and makes it partial."""
        gpus, is_partial = None, False
        for resource, amount in amounts.items():
            if not self.core.counts(resource):
                continue
            share = self.share(resource, node)
            if share is None:
                is_partial = is_partial or amount > 0
            else:
                gpus = (gpus or 0.0) + amount * share
        return Amount(gpus, is_partial)

    def offered(self) -> set[str]:
        """The resources that count GPUs on any node, in the cluster's spelling."""
        if self._offered is None:
            amounts = [(node.get("status") or {}).get("capacity") or {} for node in self.core.nodes.values()]
            self._offered = {resource for one in amounts for resource in one if self.core.counts(resource)}
        return self._offered

    def _share_anywhere(self, resource: str) -> float | None:
        shares = {
            of_resource(self.core, resource, 1.0, name)
            for name, node in self.core.nodes.items()
            if _offers(node, resource)
        }
        if not shares:
            return 1.0 if is_whole(underscored(resource)) or resource in self.core.gpu_resources else None
        return shares.pop() if len(shares) == 1 else None


def _offers(node: Object, resource: str) -> bool:
    offered = ((node.get("status") or {}).get("allocatable") or {}).get(resource)
    try:
        return offered is not None and quantity(offered, resource) > 0
    except BadInput:
        return False
