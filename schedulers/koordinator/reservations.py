"""Cards that are set aside (Reservation), and pods that are moved (PodMigrationJob)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpuledger.model import WorkloadEvent
from schedulers.cards import Cards
from schedulers.koordinator.kinds import DEFAULT_QUOTA, QUOTA, amounts, labels_of
from schedulers.koordinator.worth import worth
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.pods import Object, name_of
from schedulers.kubernetes.times import instant


@dataclass(slots=True)
class Reserved:
    """What is set aside and held by nobody, in cards: by node, and by quota."""

    by_node: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    by_quota: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def reserved(core: CoreFacts, cards: Cards, reservations: Sequence[Object]) -> Reserved:
    """Available reservations less what their owners took of them: that is counted with the pods that hold it."""
    found = Reserved()
    for one in reservations:
        with core.rows.sparing(name_of(one), "queue"):
            status = one.get("status") or {}
            if status.get("phase") != "Available":
                continue
            node = status.get("nodeName") or ""
            total = worth(amounts(status.get("allocatable") or {}, "status.allocatable"), cards, node) or 0.0
            taken = worth(amounts(status.get("allocated") or {}, "status.allocated"), cards, node) or 0.0
            left = max(0.0, total - taken)
            found.by_node[node] += left
            found.by_quota[_quota_of(one)] += left
    return found


def _quota_of(reservation: Object) -> str:
    template = (reservation.get("spec") or {}).get("template") or {}
    name = f"{QUOTA}/name"
    return labels_of(reservation).get(name) or labels_of(template).get(name) or DEFAULT_QUOTA


def migration_rows(core: CoreFacts, jobs: Sequence[Object]) -> None:
    """Adds an event for each pod that a PodMigrationJob moved away, and for those that had to make room for it."""
    for job in jobs:
        with core.rows.sparing(name_of(job)):
            status = job.get("status") or {}
            told = {one.get("type"): one for one in status.get("conditions") or () if one.get("status") == "True"}
            moved = job["spec"]["podRef"]
            if evicted := told.get("Eviction"):
                core.rows.add(_event(core, moved, "evicted", evicted, None))
            if room := told.get("Preemption"):
                beneficiary = _workload_of(core, moved)
                for victim in status.get("preemptedPodsRef") or ():
                    core.rows.add(_event(core, victim, "preempted", room, beneficiary))


def _event(core: CoreFacts, pod: Object, kind: str, condition: Object, beneficiary: str | None) -> WorkloadEvent:
    return WorkloadEvent(
        workload_id=_workload_of(core, pod),
        ts=instant(condition.get("lastTransitionTime"), "lastTransitionTime") or core.rows.taken_at,
        kind=kind,
        pod=pod["name"],
        reason=condition.get("reason") or condition.get("type"),
        beneficiary=beneficiary,
    )


def _workload_of(core: CoreFacts, reference: Object) -> str:
    """The workload of a pod that may be gone: then what its name says."""
    pod = core.pods_by_uid.get(str(reference.get("uid")))
    if pod is not None:
        return core.workload_of(pod)
    return core.whose(reference["namespace"], reference["name"], {}).workload_id
