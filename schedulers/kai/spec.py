"""What one KAI queue says of itself.

In its spec -1 is unlimited and what is unset is 0, CPU is in millicores and memory in 10^6 bytes. Its status is written
as Kubernetes writes amounts: cores and bytes, whatever the schema's description says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from gpuledger.errors import BadInput
from schedulers.kubernetes.pods import Object, meta
from schedulers.kubernetes.quantities import quantity

GPU = "nvidia.com/gpu"
UNLIMITED = -1.0

_SCALES: Mapping[str, tuple[str, float]] = {"gpu": (GPU, 1.0), "cpu": ("cpu", 1e-3), "memory": ("memory", 1e6)}
"""The spec's names: the cluster's, and the factor to its unit."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a queue may have of one resource, in the resource's unit. None: no such limit."""

    quota: float | None
    limit: float | None
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """One queue: its shares, and its status. A name that is not in its status was not reported."""

    name: str
    parent: str | None = None
    shares: Mapping[str, Share] = field(default_factory=dict)
    allocated: Mapping[str, float] = field(default_factory=dict)
    requested: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, queue: Object) -> Self:
        """From the object. Raises BadInput for what is no amount, KeyError without a name."""
        spec, status = queue.get("spec") or {}, queue.get("status") or {}
        given = spec.get("resources") or {}
        return cls(
            name=meta(queue)["name"],
            parent=spec.get("parentQueue") or None,
            shares={resource: _share(given.get(key) or {}, key, factor) for key, (resource, factor) in _SCALES.items()},
            allocated=_amounts(status.get("allocated"), "status.allocated"),
            requested=_amounts(status.get("requested"), "status.requested"),
        )

    def contradictions(self) -> Iterator[str]:
        """What is wrong with its limits, in words."""
        for resource, share in self.shares.items():
            if share.limit is None:
                continue
            if share.quota is None:
                yield f"{resource}: quota is unlimited, limit {share.limit:g}"
            elif share.quota > share.limit:
                unset = "; a limit that is not set is 0" if share.limit == 0 else ""
                yield f"{resource}: quota {share.quota:g} over limit {share.limit:g}{unset}"


def _share(given: Object, key: str, factor: float) -> Share:
    def amount(name: str) -> float | None:
        value = quantity(given.get(name) or 0, f"spec.resources.{key}.{name}")
        if value == UNLIMITED:
            return None
        if value < 0:
            raise BadInput(f"spec.resources.{key}.{name}", f"{value:g} is no amount")
        return value * factor

    return Share(
        amount("quota"),
        amount("limit"),
        max(0.0, quantity(given.get("overQuotaWeight") or 0, f"spec.resources.{key}.overQuotaWeight")),
    )


def _amounts(given: Any, place: str) -> dict[str, float]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadInput(place, "is no list of resources")
    return {name: quantity(value, f"{place}.{name}") for name, value in given.items()}


def over_parents(specs: Mapping[str, QueueSpec]) -> Iterator[tuple[str, str]]:
    """(queue, words) for each parent whose children's quotas add up to more than its own: KAI only warns of that."""
    for name, children in sorted(children_of(specs).items()):
        for resource, own in specs[name].shares.items():
            quotas = [specs[child].shares[resource].quota for child in children]
            total = sum(quota for quota in quotas if quota is not None)
            if own.quota is not None and total > own.quota:
                yield name, f"{resource}: quota {own.quota:g}, its children's add up to {total:g}"


def parent_of(name: str, specs: Mapping[str, QueueSpec]) -> str | None:
    """The queue above; None for one at the top, and where it is not there."""
    above = specs[name].parent
    return above if above in specs else None


def children_of(specs: Mapping[str, QueueSpec]) -> Mapping[str, Sequence[str]]:
    """The queues below each queue that has any."""
    found: dict[str, list[str]] = {}
    for name in specs:
        if (above := parent_of(name, specs)) is not None:
            found.setdefault(above, []).append(name)
    return found
