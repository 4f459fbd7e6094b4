"""What pods hold in whole GPUs: slices, copies and shares are parts of one."""

from __future__ import annotations

import re

from gpuledger.attribution.resources import is_whole
from gpuledger.model import slice_share
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.hami import GPU, Asked
from schedulers.kubernetes.names import underscored
from schedulers.kubernetes.pods import Object, meta, node_of

_MIG = "nvidia.com/mig-"
_COPY = f"{GPU}.shared"
_CUT = re.compile(r"-MIG-(.+?)(?:-SHARED)?$")


def model_for(core: CoreFacts, node: str | None) -> str | None:
    """The GPU model of `node`; of a pod without one that of the cluster, where it has only one."""
    if node:
        return core.model_of_node.get(node)
    models = set(core.model_of_node.values())
    return models.pop() if len(models) == 1 else None


def card_mib(core: CoreFacts, node: str | None) -> float | None:
    """The memory of one card of `node` (any node, where none is given) in MiB; None where it is not told."""
    for name in [node] if node else core.nodes:
        found = core.nodes.get(name)
        if found is None:
            continue
        if cards := core.cards_of_node.get(name):
            return cards[0].memory_mib
        labelled = (meta(found).get("labels") or {}).get("nvidia.com/gpu.memory", "")
        if labelled.isdecimal():
            return float(labelled)
    return None


def copies(core: CoreFacts, node: str | None) -> int:
    """How many copies of each card `node` offers (time-slicing); 1 where it does not share cards."""
    found = core.nodes.get(node or "")
    labelled = (meta(found).get("labels") or {}).get("nvidia.com/gpu.replicas", "") if found else ""
    return max(1, int(labelled)) if labelled.isdecimal() else 1


def is_card(core: CoreFacts, resource: str, node: str) -> bool:
    """Whether `resource` on `node` is what its name says, and not copies, shares or slices under the cards' name."""
    if resource != GPU:
        return True
    has_copies = copies(core, node) > 1 and not _names_copies(core, node)
    return not (has_copies or core.cards_of_node.get(node) or _profile(core, node))


def _names_copies(core: CoreFacts, node: str | None) -> bool:
    """Whether copies have a name of their own on `node`: one that has the usual name is a card then."""
    found = core.nodes.get(node or "")
    return _COPY in ((found.get("status") or {}).get("capacity") or {}) if found else False


def _profile(core: CoreFacts, node: str | None) -> str | None:
    """The profile of the equal slices that `node` names as it would cards (MIG strategy single)."""
    found = core.nodes.get(node or "")
    product = (meta(found).get("labels") or {}).get("nvidia.com/gpu.product", "") if found else ""
    cut = _CUT.search(product)
    return cut[1] if cut else None


def _copies_of_slice(core: CoreFacts, resource: str, node: str | None) -> int:
    found = core.nodes.get(node or "")
    labelled = (meta(found).get("labels") or {}).get(f"{resource}.replicas", "") if found else ""
    return max(1, int(labelled)) if labelled.isdecimal() else 1


def of_resource(core: CoreFacts, resource: str, count: float, node: str | None) -> float | None:
    """`count` of a resource (the cluster's spelling) in whole GPUs; None where that cannot be told."""
    if resource.startswith(_MIG):
        plain = resource.removesuffix(".shared")
        share = slice_share(model_for(core, node), plain.removeprefix(_MIG))
        return None if share is None else count * share / _copies_of_slice(core, plain, node)
    if resource == _COPY or (resource == GPU and not _names_copies(core, node)):
        profile = _profile(core, node)
        share = slice_share(model_for(core, node), profile) if profile else 1.0
        return None if share is None else count * share / copies(core, node)
    return count if is_whole(underscored(resource)) or resource in core.gpu_resources else None


def of_pod(core: CoreFacts, pod: Object) -> float | None:
    """What `pod` holds or asks for in whole GPUs; None where part of it cannot be told."""
    requests, node = core.requests_of(pod), node_of(pod)
    asked = Asked.by(requests)
    if asked.cards and asked.is_shared:
        return asked.cards * asked.share(card_mib(core, node))
    parts = [of_resource(core, resource, count, node) for resource, count in core.gpus_of(pod).items()]
    known = [part for part in parts if part is not None]
    return sum(known) if parts and len(known) == len(parts) else None
