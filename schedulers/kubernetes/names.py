"""Names of GPU resources: Kubernetes' spelling, and the one that records share with kube-state-metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from gpuledger.attribution.resources import is_gpu, is_part, is_shared, shared

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_]")


@lru_cache(maxsize=4096)
def underscored(resource: str) -> str:
    """The name as records say it: `nvidia.com/mig-1g.10gb` is `nvidia_com_mig_1g_10gb`."""
    return _ILLEGAL.sub("_", resource)


@lru_cache(maxsize=4096)
def counts_gpus(resource: str) -> bool:
    """Whether `resource`, in either spelling, counts GPUs, slices of them or shares in them."""
    return is_gpu(underscored(resource))


@lru_cache(maxsize=4096)
def parts_gpus(resource: str) -> bool:
    """Whether `resource`, in either spelling, says how much of each card is meant (HAMi's gpumem, gpucores)."""
    return is_part(underscored(resource))


def main_resource(requests: Mapping[str, float], gpus: Iterable[str]) -> tuple[str, float] | None:
    """The GPU resource of a pod as records spell it (the largest of several) and how many; None without any.

    A pod that says how much of its cards it wants holds shares of them, not the cards.
    """
    found = {underscored(name): requests[name] for name in gpus if requests.get(name, 0) > 0}
    if not found:
        return None
    name = min(found, key=lambda one: (-found[one], one))
    asked = (underscored(other) for other, count in requests.items() if count > 0)
    return (shared(name) if is_shared(name, asked) else name), found[name]
