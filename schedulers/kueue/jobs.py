"""What Kueue's Workload objects say, read into plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from typing import Any, TypeVar

from gpuledger.attribution import Attribution
from gpuledger.errors import BadInput
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.moment import Moment
from schedulers.kubernetes.pods import Object, created_at, meta, name_of, owner_of, requests_of
from schedulers.kueue.conditions import Condition, conditions_of
from schedulers.kueue.kinds import PRIORITIES, WORKLOADS
from schedulers.kueue.quotas import Key, Queues, exact, exactly
from schedulers.kueue.versions import Fields, at, fields_of, places
from schedulers.rows import SnapshotRows

Name = TypeVar("Name")

WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
"""On a pod: the Workload object that it runs for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSet:
    """Equal pods of a workload. `per_pod` is what one asks for; `reclaimable` are those that gave their quota back.

    `flavors` (by resource), `usage` (of `assigned` pods) and `placed` are there once quota was reserved.
    """

    name: str
    count: int
    reclaimable: int
    per_pod: Mapping[str, float]
    requested: Mapping[str, Fraction]
    flavors: Mapping[str, str] = field(default_factory=dict)
    usage: Mapping[str, Fraction] = field(default_factory=dict)
    assigned: int = 0
    placed: tuple[tuple[str, int], ...] = ()
    has_claims: bool = False

    @property
    def pods(self) -> int:
        """How many it wants: once quota was reserved those that it is for, which may be fewer (partial admission)."""
        return self.assigned or self.count

    @property
    def ledger(self) -> Mapping[Key, Fraction]:
        """What Kueue counts against its quota, less what it gave back."""
        if not self.assigned:
            return {}
        rest = Fraction(max(0, min(self.assigned, self.count - self.reclaimable)), self.assigned)
        return {
            (self.flavors[name], name): amount * rest for name, amount in self.usage.items() if name in self.flavors
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A Workload object.

    `queue` is its ClusterQueue, None where that cannot be told; `local` is "namespace/queue". `pod` is the one pod that
    it was made for, empty for all other work. `requested` is what it asks for of each resource; `ledger` what Kueue
    holds for it against quota: nothing before its quota was reserved, or after its end.
    """

    name: str
    namespace: str
    uid: str
    whose: Attribution
    created_at: datetime
    is_active: bool
    local: str
    queue: str | None
    priority: int
    conditions: Mapping[str, Condition]
    pod_sets: Sequence[PodSet]
    requested: Mapping[str, Fraction]
    ledger: Mapping[Key, Fraction]
    checks: Sequence[Object]
    evictions: int
    pod: str
    retry_at: str | None

    @property
    def id(self) -> str:
        """The workload's id in records."""
        return self.whose.workload_id

    @property
    def subject(self) -> str:
        """Namespace and name of the object."""
        return f"{self.namespace}/{self.name}"

    def now(self, kind: str) -> Condition | None:
        """The condition of type `kind`, where it is true."""
        found = self.conditions.get(kind)
        return found if found and found.is_true else None


def read_jobs(moment: Moment, core: CoreFacts, queues: Queues, rows: SnapshotRows) -> Sequence[Job]:
    """All Workload objects. One that cannot be understood becomes a problem of `rows`."""
    reading = _Reading(core, queues, fields_of(moment, WORKLOADS), _priorities(moment, rows), _annotated(core))
    return tuple(reading.jobs(moment.of(WORKLOADS), rows))


def _priorities(moment: Moment, rows: SnapshotRows) -> Mapping[str, int]:
    found = {}
    for thing in moment.of(PRIORITIES):
        with rows.sparing(name_of(thing)):
            found[meta(thing)["name"]] = int(thing["value"])
    return found


def _annotated(core: CoreFacts) -> Mapping[tuple[str, str], str]:
    """Workload ids of pods that name their Workload object, by its namespace and name."""
    found = {}
    for pod in core.pods_by_uid.values():
        if name := (meta(pod).get("annotations") or {}).get(WORKLOAD_ANNOTATION):
            found[meta(pod)["namespace"], name] = core.workload_of(pod)
    return found


@dataclass(frozen=True, slots=True)
class _Reading:
    core: CoreFacts
    queues: Queues
    fields: Fields
    priorities: Mapping[str, int]
    annotated: Mapping[tuple[str, str], str]

    def jobs(self, things: Sequence[Object], rows: SnapshotRows) -> Iterator[Job]:
        for thing in things:
            with rows.sparing(name_of(thing)):
                yield self.job(thing)

    def job(self, thing: Object) -> Job:
        spec, status, named = thing["spec"], thing.get("status") or {}, meta(thing)
        created = created_at(thing)
        if created is None:
            raise BadInput("metadata.creationTimestamp", "is not set")
        admission = status.get("admission") or {}
        local = f"{named['namespace']}/{spec.get('queueName') or ''}"
        door = self.queues.local.get(local)
        conditions, pod_sets = conditions_of(thing), tuple(_pod_sets(spec, status))
        counts = _is_true(conditions, "QuotaReserved") and not _is_true(conditions, "Finished")
        stats = (status.get("schedulingStats") or {}).get("evictions") or ()
        return Job(
            name=named["name"],
            namespace=named["namespace"],
            uid=named.get("uid") or "",
            whose=self.whose(thing),
            created_at=created,
            is_active=spec.get("active") is not False,
            local=local,
            queue=admission.get("clusterQueue") or (door.queue if door else None),
            priority=self.priority(thing),
            conditions=conditions,
            pod_sets=pod_sets,
            requested=total(pod_set.requested for pod_set in pod_sets),
            ledger=total(pod_set.ledger for pod_set in pod_sets) if counts else {},
            checks=status.get("admissionChecks") or (),
            evictions=sum(one["count"] for one in stats),
            pod=_pod_of(thing),
            retry_at=(status.get("requeueState") or {}).get("requeueAt"),
        )

    def whose(self, thing: Object) -> Attribution:
        """Whose its pods are, or will be: by its owner and the labels that its pods will have.

        The attribution rules read labels first, as they do for the pods; an owner that is a pod speaks for itself.
        """
        named = meta(thing)
        namespace = named["namespace"]
        references = named.get("ownerReferences") or ()
        for reference in references:
            pod = self.core.pods_by_uid.get(reference.get("uid") or "")
            if pod is not None and reference.get("kind") == "Pod":
                return self.core.attribution_of(pod)
        owner = owner_of(thing)
        if owner and (pods := self.core.pods_by_owner.get((owner.kind, namespace, owner.name))):
            return self.core.attribution_of(pods[0])
        name = owner.name if owner else named["name"]
        found = self.core.whose(namespace, name, _labels(thing), None if owner and owner.kind == "Pod" else owner)
        known = self.annotated.get((namespace, named["name"]))
        if known and known in self.core.workloads and found.workload_id not in self.core.workloads:
            return replace(found, workload_id=known)
        return found

    def priority(self, thing: Object) -> int:
        told = thing["spec"].get("priority")
        return int(told) if told is not None else self.priorities.get(str(at(thing, self.fields.priority_class)), 0)


def total(parts: Iterable[Mapping[Name, Fraction]]) -> dict[Name, Fraction]:
    """The sum of each thing that any part has."""
    found: dict[Name, Fraction] = {}
    for part in parts:
        for name, amount in part.items():
            found[name] = found[name] + amount if name in found else amount
    return found


def _pod_of(thing: Object) -> str:
    """The pod that it was made for, where that is one alone (a pod of a Deployment)."""
    owners = [(one.get("kind"), str(one["name"])) for one in meta(thing).get("ownerReferences") or ()]
    return owners[0][1] if len(owners) == 1 and owners[0][0] == "Pod" else ""


def _is_true(conditions: Mapping[str, Condition], kind: str) -> bool:
    return kind in conditions and conditions[kind].is_true


def _labels(thing: Object) -> Mapping[str, str]:
    """Labels that its pods will have; where its pod sets differ the first counts."""
    found: dict[str, str] = {}
    for pod_set in thing["spec"].get("podSets") or ():
        labels = ((pod_set.get("template") or {}).get("metadata") or {}).get("labels") or {}
        found = {**labels, **found}
    return found


def _pod_sets(spec: Object, status: Object) -> Iterator[PodSet]:
    admission = status.get("admission") or {}
    assigned = {one.get("name", "main"): one for one in admission.get("podSetAssignments") or ()}
    back = {one["name"]: int(one["count"]) for one in status.get("reclaimablePods") or ()}
    told = {one["name"]: one.get("resources") or {} for one in status.get("resourceRequests") or ()}
    for one in spec.get("podSets") or ():
        name, count = one.get("name", "main"), int(one.get("count", 1))
        per_pod = requests_of(one["template"])
        assignment: Mapping[str, Any] = assigned.get(name) or {}
        assigned_pods = int(assignment.get("count", count)) if assignment else 0
        template = {resource: exactly(amount) * (assigned_pods or count) for resource, amount in per_pod.items()}
        usage = {key: exact(value, f"{name} {key}") for key, value in (assignment.get("resourceUsage") or {}).items()}
        asked = {key: exact(value, f"{name} {key}") for key, value in told.get(name, {}).items()}
        yield PodSet(
            name=name,
            count=count,
            reclaimable=back.get(name, 0),
            per_pod=per_pod,
            requested=asked or template,
            flavors=assignment.get("flavors") or {},
            usage=usage,
            assigned=assigned_pods,
            placed=tuple(places(assignment.get("topologyAssignment") or {})),
            has_claims=bool((one["template"].get("spec") or {}).get("resourceClaims")),
        )
