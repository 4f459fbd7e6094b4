"""What ClusterQueues, Cohorts, LocalQueues and ResourceFlavors say, read into plain values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from gpuledger.errors import BadInput
from gpuledger.model import canonical_model
from schedulers.kubernetes.moment import Moment
from schedulers.kubernetes.pods import Object, meta, name_of
from schedulers.kubernetes.quantities import quantity
from schedulers.kueue.conditions import conditions_of
from schedulers.kueue.kinds import CLUSTER_QUEUES, COHORTS, FLAVORS, LOCAL_QUEUES
from schedulers.kueue.versions import at, fields_of
from schedulers.rows import SnapshotRows

Key = tuple[str, str]
"""(flavor, resource), both as the cluster spells them."""

Amounts = Mapping[Key, Fraction]

MODEL_LABEL = "nvidia.com/gpu.product"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Quota of one resource of one flavor; a limit of None is not set: any amount."""

    nominal: Fraction
    borrowing: Fraction | None
    lending: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A ClusterQueue or a Cohort. `reserved` and `used` are Kueue's own count; None: it does not tell."""

    name: str
    parent: str | None
    limits: Mapping[Key, Limits]
    weight: float = 1.0
    status: str = "open"
    labels: Mapping[str, str] = field(default_factory=dict)
    reserved: Amounts | None = None
    used: Amounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalQueue:
    """A namespace's door to a ClusterQueue."""

    namespace: str
    name: str
    queue: str
    status: str
    labels: Mapping[str, str]
    reserved: Amounts | None
    used: Amounts | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queues:
    """All of them as of one moment, by name (LocalQueues by "namespace/name"); models and labels of flavors."""

    queues: Mapping[str, Holder]
    cohorts: Mapping[str, Holder]
    local: Mapping[str, LocalQueue]
    models: Mapping[str, str | None]
    labels: Mapping[str, Mapping[str, str]]


@lru_cache(maxsize=16_384)
def exactly(amount: float) -> Fraction:
    """The number that was meant by a float: thousandths and millionths are exact."""
    return Fraction(amount).limit_denominator(1_000_000_000)


def exact(value: object, place: str) -> Fraction:
    """A quantity as an exact number. Raises BadInput naming `place` for anything else, and for what is below zero."""
    amount = exactly(quantity(value, place))
    if amount < 0:
        raise BadInput(place, "is below zero")
    return amount


def read_queues(moment: Moment, rows: SnapshotRows) -> Queues:
    """Everything that says who may use what. An object that cannot be understood becomes a problem of `rows`."""
    queues = {holder.name: holder for holder in _holders(moment, rows)}
    cohorts = {holder.name: holder for holder in _cohorts(moment, rows)}
    flavors = _flavors(moment, rows)
    named = [holder.parent for holder in (*queues.values(), *cohorts.values()) if holder.parent]
    for name in named:
        cohorts.setdefault(name, Holder(name=name, parent=None, limits={}))
    return Queues(
        queues=queues,
        cohorts=cohorts,
        local={f"{one.namespace}/{one.name}": one for one in _local(moment, rows)},
        models={name: canonical_model(labels.get(MODEL_LABEL)) for name, labels in flavors.items()},
        labels=flavors,
    )


def _flavors(moment: Moment, rows: SnapshotRows) -> Mapping[str, Mapping[str, str]]:
    """Labels that the nodes of each flavor have."""
    found = {}
    for thing in moment.of(FLAVORS):
        with rows.sparing(name_of(thing)):
            found[name_of(thing)] = (thing.get("spec") or {}).get("nodeLabels") or {}
    return found


def _holders(moment: Moment, rows: SnapshotRows) -> Iterator[Holder]:
    fields = fields_of(moment, CLUSTER_QUEUES)
    for thing in moment.of(CLUSTER_QUEUES):
        with rows.sparing(name_of(thing), "queue"):
            yield _holder(thing, at(thing, fields.cohort))


def _cohorts(moment: Moment, rows: SnapshotRows) -> Iterator[Holder]:
    for thing in moment.of(COHORTS):
        with rows.sparing(f"cohort:{name_of(thing)}", "queue"):
            yield _holder(thing, at(thing, ("spec", "parentName")))


def _holder(thing: Object, parent: object) -> Holder:
    spec, status = thing["spec"], thing.get("status") or {}
    weight = (spec.get("fairSharing") or {}).get("weight")
    return Holder(
        name=meta(thing)["name"],
        parent=str(parent) if parent else None,
        limits=_limits(spec.get("resourceGroups") or ()),
        weight=1.0 if weight is None else quantity(weight, "spec.fairSharing.weight"),
        status=_status(thing),
        labels=meta(thing).get("labels") or {},
        reserved=_amounts(status.get("flavorsReservation")),
        used=_amounts(status.get("flavorsUsage")),
    )


def _limits(groups: Sequence[Object]) -> Mapping[Key, Limits]:
    found = {}
    for group in groups:
        for flavor in group["flavors"]:
            for resource in flavor["resources"]:
                place = f"{flavor['name']}/{resource['name']}"
                found[flavor["name"], resource["name"]] = Limits(
                    nominal=exact(resource["nominalQuota"], f"{place} nominalQuota"),
                    borrowing=_maybe(resource.get("borrowingLimit"), f"{place} borrowingLimit"),
                    lending=_maybe(resource.get("lendingLimit"), f"{place} lendingLimit"),
                )
    return found


def _maybe(value: object, place: str) -> Fraction | None:
    return None if value is None else exact(value, place)


def _amounts(flavors: Sequence[Object] | None) -> Amounts | None:
    if flavors is None:
        return None
    return {
        (flavor["name"], resource["name"]): exact(resource["total"], f"{flavor['name']}/{resource['name']} total")
        for flavor in flavors
        for resource in flavor.get("resources") or ()
        if resource.get("total") is not None
    }


def _status(thing: Object) -> str:
    stop = thing["spec"].get("stopPolicy")
    if meta(thing).get("deletionTimestamp"):
        return "closed"
    if stop in ("Hold", "HoldAndDrain"):
        return "held" if stop == "Hold" else "draining"
    active = conditions_of(thing).get("Active")
    if active is None:
        return "unknown"
    return "open" if active.is_true else "closed"


def _local(moment: Moment, rows: SnapshotRows) -> Iterator[LocalQueue]:
    fields = fields_of(moment, LOCAL_QUEUES)
    for thing in moment.of(LOCAL_QUEUES):
        with rows.sparing(name_of(thing), "queue"):
            status = thing.get("status") or {}
            usage = at(thing, fields.local_usage)
            yield LocalQueue(
                namespace=meta(thing)["namespace"],
                name=meta(thing)["name"],
                queue=thing["spec"]["clusterQueue"],
                status=_status(thing),
                labels=meta(thing).get("labels") or {},
                reserved=_amounts(status.get("flavorsReservation")),
                used=_amounts(usage if isinstance(usage, list) else None),
            )
