"""What one Volcano queue says of itself, and what its limits mean under the plugin that shares out the queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from gpuledger.errors import BadInput
from schedulers.kubernetes.names import counts_gpus
from schedulers.kubernetes.pods import Object, meta
from schedulers.kubernetes.quantities import quantity
from schedulers.volcano.kinds import ROOT
from schedulers.volcano.plugin import Sharing

Amounts = Mapping[str, float]

STATUSES: Mapping[str, str] = {"Open": "open", "Closed": "closed", "Closing": "draining"}


def amounts_of(given: Any, field_name: str) -> dict[str, float]:
    """A list of resources as numbers in their own units. Raises BadInput for what is no list of quantities."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise BadInput(field_name, "is no list of resources")
    return {name: quantity(amount, f"{field_name}.{name}") for name, amount in given.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """One queue. Of each list of resources: a name that is not there is not limited, or not reported."""

    name: str
    parent: str | None = None
    status: str = "unknown"
    weight: float = 1.0
    capability: Amounts = field(default_factory=dict)
    deserved: Amounts = field(default_factory=dict)
    guarantee: Amounts = field(default_factory=dict)
    allocated: Amounts = field(default_factory=dict)
    reserved: Amounts = field(default_factory=dict)

    @classmethod
    def of(cls, queue: Object) -> Self:
        """From the object. Raises BadInput for what is no quantity, KeyError without a name."""
        spec, status = queue.get("spec") or {}, queue.get("status") or {}
        return cls(
            name=meta(queue)["name"],
            parent=spec.get("parent") or None,
            status=STATUSES.get(status.get("state") or "", "unknown"),
            weight=quantity(spec.get("weight") or 1, "spec.weight"),
            capability=amounts_of(spec.get("capability"), "spec.capability"),
            deserved=amounts_of(spec.get("deserved"), "spec.deserved"),
            guarantee=amounts_of((spec.get("guarantee") or {}).get("resource"), "spec.guarantee.resource"),
            allocated=amounts_of(status.get("allocated"), "status.allocated"),
            reserved=amounts_of((status.get("reservation") or {}).get("resource"), "status.reservation.resource"),
        )

    @property
    def resources(self) -> set[str]:
        """Every resource that it names."""
        return {*self.capability, *self.deserved, *self.guarantee, *self.allocated, *self.reserved}

    def nominal(self, resource: str, sharing: Sharing) -> float | None:
        """What of `resource` is the queue's own: deserved, but not over its capability and not under its guarantee.

        None: no such limit. Under `capacity` a GPU resource that a queue does not deserve is lent to it at most, any of
        it may be taken back at once: none is its own. The root queue owns what is there.
        """
        if sharing is Sharing.PROPORTION or (self.name == ROOT and resource not in self.deserved):
            return None
        if resource not in self.deserved:
            owns_none = sharing is Sharing.CAPACITY and counts_gpus(resource)
            return self.guarantee.get(resource, 0.0) if owns_none else None
        own = min(self.deserved[resource], self.capability.get(resource, self.deserved[resource]))
        return max(own, self.guarantee.get(resource, 0.0))

    def is_nominal_told(self, sharing: Sharing) -> bool:
        """Whether its nominal is known; not so where `deserved` is unset and nobody said what that means."""
        return sharing is not Sharing.UNKNOWN or self.name == ROOT or any(map(counts_gpus, self.deserved))

    def contradictions(self, sharing: Sharing) -> Iterator[str]:
        """What is wrong with its limits, in words."""
        for resource, amount in sorted(self.deserved.items()):
            limit = self.capability.get(resource)
            if limit is not None and amount > limit:
                yield f"{resource}: deserved {amount:g} over capability {limit:g}; {limit:g} counts"
            if self.guarantee.get(resource, 0.0) > amount:
                yield f"{resource}: guarantee {self.guarantee[resource]:g} over deserved {amount:g}"
            if sharing is Sharing.PROPORTION and counts_gpus(resource):
                yield f"{resource}: deserved {amount:g} means nothing, the plugin is proportion"
        for resource, amount in sorted(self.guarantee.items()):
            limit = self.capability.get(resource)
            if limit is not None and amount > limit:
                yield f"{resource}: guarantee {amount:g} over capability {limit:g}"


def over_parents(specs: Mapping[str, QueueSpec]) -> Iterator[tuple[str, str]]:
    """(queue, words) for each parent whose children deserve, or are guaranteed, more than itself."""
    for name, children in sorted(children_of(specs).items()):
        for what in ("deserved", "guarantee"):
            own: Amounts = getattr(specs[name], what)
            for resource, amount in sorted(own.items()):
                total = sum(getattr(specs[child], what).get(resource, 0.0) for child in children)
                if total > amount:
                    yield name, f"{resource}: {what} {amount:g}, its children's add up to {total:g}"


def parent_of(spec: QueueSpec, specs: Mapping[str, QueueSpec]) -> str | None:
    """The queue above it: the one it names, else the root where there is one. None where that is not there."""
    if spec.name == ROOT:
        return None
    above = spec.parent or ROOT
    return above if above in specs else None


def children_of(specs: Mapping[str, QueueSpec]) -> Mapping[str, Sequence[str]]:
    """The queues below each queue that has any."""
    found: dict[str, list[str]] = {}
    for spec in specs.values():
        if (above := parent_of(spec, specs)) is not None:
            found.setdefault(above, []).append(spec.name)
    return found
