"""What Kueue's API calls the same thing in its versions, and the forms in which it writes where pods were placed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.pods import Object

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")
"""Those that we understand, the best first."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Where a version keeps what others keep elsewhere; each is a path of keys."""

    cohort: tuple[str, ...] = ("spec", "cohortName")
    local_usage: tuple[str, ...] = ("status", "flavorsUsage")
    priority_class: tuple[str, ...] = ("spec", "priorityClassRef", "name")


FIELDS: Mapping[str, Fields] = MappingProxyType(
    {
        "v1beta2": Fields(),
        "v1beta1": Fields(
            cohort=("spec", "cohort"),
            local_usage=("status", "flavorUsage"),
            priority_class=("spec", "priorityClassName"),
        ),
    }
)


def fields_of(moment: Moment, kind: Kind) -> Fields:
    """The field names of the version in which `kind` was read."""
    return FIELDS.get(moment.served.get(kind.key, "").rpartition("/")[2], FIELDS[VERSIONS[0]])


def at(thing: Object, path: Sequence[str]) -> object:
    """What stands at `path`; None where nothing does."""
    found: object = thing
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def places(assignment: Object) -> Iterator[tuple[str, int]]:
    """Where pods of a set were placed: (domain, pods), the domain's values from the widest level down ("b1/r2/n3").

    v1beta1 lists domains; v1beta2 writes slices, whose values and counts are one for all domains or one for each.
    """
    for domain in assignment.get("domains") or ():
        yield "/".join(domain["values"]), domain["count"]
    for part in assignment.get("slices") or ():
        number = part["domainCount"]
        levels = [_values(level, number) for level in part["valuesPerLevel"]]
        counts = part["podCounts"]
        pods = counts.get("individual") or [counts["universal"]] * number
        yield from zip(map("/".join, zip(*levels, strict=True)), pods, strict=True)


def _values(level: Object, number: int) -> Sequence[str]:
    if "universal" in level:
        return [level["universal"]] * number
    individual = level["individual"]
    prefix, suffix = individual.get("prefix") or "", individual.get("suffix") or ""
    return [f"{prefix}{root}{suffix}" for root in individual["roots"]]
