"""What RayCluster, RayJob and RayService say of themselves: the pods they want, where they stand. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuledger.errors import BadInput
from schedulers.kubernetes.pods import Object, condition_of, created_at, meta, owner_of, requests_of
from schedulers.kubernetes.times import instant
from schedulers.reasons import Reasons

OWNING = ("RayJob", "RayService", "RayCronJob")
"""Kinds that make clusters of their own; what such a cluster does is theirs."""

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"

REASONS = Reasons.of(
    (
        (r"exceeded quota|quota exceeded", "quota"),
        (r"^(FailedCreate\w*|ReplicaFailure|FailedReconcile\w*|ValidationFailed)", "own_config"),
        (r"^Suspend", "held"),
        (
            r"^(Initializing|New|Retrying|Waiting|RayClusterPodsProvisioning|HeadPodNotFound|Unknown|Pending)",
            "scheduler",
        ),
    )
)
"""States, reasons and messages of KubeRay. Why a pod is not placed is told by the pod."""


@dataclass(frozen=True, slots=True)
class Group:
    """Pods of one kind in a cluster: `wanted` now, `least` at least; `requests` of each."""

    wanted: int
    least: int
    requests: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A RayJob, a RayService, or a RayCluster of nobody: one workload.

    `state` is KubeRay's word; `ending` is the word of a workload's status once it is over, empty before. `since` is
    when the state began, where that is told. `admitted_at` is when KubeRay began to make its pods, `started_at` when
    its work began.
    """

    kind: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    groups: tuple[Group, ...]
    is_suspended: bool
    state: str
    message: str
    ending: str
    submitted_at: datetime
    admitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    since: datetime | None

    @property
    def all_labels(self) -> Mapping[str, str]:
        """Its labels, and those that KubeRay gives its pods: what whose work it is follows from."""
        return {**self.labels, "ray.io/originated-from-cr-name": self.name, "ray.io/originated-from-crd": self.kind}


def groups_of(spec: Object) -> Iterator[Group]:
    """The head and the groups of workers of a cluster's spec; a suspended group wants none. Raises BadInput."""
    head = spec.get("headGroupSpec") or {}
    yield Group(1, 1, _requests(head))
    for one in spec.get("workerGroupSpecs") or ():
        hosts = _count(one.get("numOfHosts"), 1)
        least = 0 if one.get("suspend") else _count(one.get("minReplicas"), 0)
        wanted = 0 if one.get("suspend") else _count(one.get("replicas"), least)
        most = _count(one.get("maxReplicas"), wanted)
        yield Group(min(max(wanted, least), most) * hosts, least * hosts, _requests(one))


def _requests(group: Object) -> Mapping[str, float]:
    return requests_of({"spec": (group.get("template") or {}).get("spec") or {}})


def _count(value: Any, missing: int) -> int:
    if value is None:
        return missing
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadInput("workerGroupSpecs", f"{value!r} is no number of pods")
    return min(value, 1_000_000)


def asked_by(kind: str, one: Object) -> Asked | None:
    """What an object asks for; None for a cluster that belongs to a RayJob or RayService. Raises BadInput."""
    owner = owner_of(one)
    if kind == "RayCluster" and owner is not None and owner.kind in OWNING:
        return None
    spec, status = one.get("spec") or {}, one.get("status") or {}
    cluster = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}.get(kind)
    state, message, ending = _standing(kind, status, one)
    begun = (status.get("rayJobInfo") or {}).get("startTime")
    started = instant(begun, "status.rayJobInfo.startTime") or _first_ready(status)
    submitted = created_at(one)
    if submitted is None:
        raise BadInput("metadata.creationTimestamp", "is missing")
    return Asked(
        kind=kind,
        namespace=meta(one)["namespace"],
        name=meta(one)["name"],
        labels=meta(one).get("labels") or {},
        groups=tuple(groups_of((spec.get(cluster) or {}) if cluster else spec)),
        is_suspended=bool(spec.get("suspend")),
        state=state,
        message=message,
        ending=ending,
        submitted_at=submitted,
        admitted_at=instant(status.get("startTime"), "status.startTime"),
        started_at=started,
        ended_at=instant(status.get("endTime"), "status.endTime") if ending else None,
        since=_since(one),
    )


def _standing(kind: str, status: Object, one: Object) -> tuple[str, str, str]:
    """(KubeRay's word, its message, the workload's status where it is over)."""
    if kind == "RayJob":
        state = str(status.get("jobDeploymentStatus") or "New")
        ending = {"Complete": "finished", "Failed": "failed", "ValidationFailed": "failed"}.get(state, "")
        if status.get("jobStatus") == "STOPPED" and ending:
            ending = "cancelled"
        return str(status.get("reason") or state), str(status.get("message") or ""), ending
    failure = condition_of(one, "ReplicaFailure") or condition_of(one, "RayClusterReplicaFailure")
    if failure is not None and failure.get("status") == "True":
        return str(failure.get("reason") or "ReplicaFailure"), str(failure.get("message") or ""), ""
    word = status.get("serviceStatus") if kind == "RayService" else status.get("state")
    return str(word or "New"), str(status.get("reason") or ""), ""


def _first_ready(status: Object) -> datetime | None:
    return instant((status.get("stateTransitionTimes") or {}).get("ready"), "status.stateTransitionTimes.ready")


def _since(one: Object) -> datetime | None:
    """When its newest condition that holds began."""
    told = (one.get("status") or {}).get("conditions") or ()
    times = [
        instant(each.get("lastTransitionTime"), "lastTransitionTime") for each in told if each.get("status") == "True"
    ]
    return max((at for at in times if at), default=None)
