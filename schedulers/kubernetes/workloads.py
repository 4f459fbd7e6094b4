"""Pods with GPUs as records, and the workloads that they make up."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpuledger.model import Pod, Workload, WorkloadEvent
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.names import main_resource
from schedulers.kubernetes.pods import (
    Object,
    condition_of,
    created_at,
    ended_at,
    meta,
    name_of,
    node_of,
    owner_of,
    phase_of,
    started_at,
    uid_of,
)
from schedulers.kubernetes.times import instant

CLAIM = "resourceclaim"
"""The resource of a pod that holds devices by claims, as kube-state-metrics' reader says it."""

MAX_PER_POD = 1024


@dataclass(slots=True)
class Member:
    """A pod with GPUs, its row, and the object that it was made from."""

    row: Pod
    pod: Object
    cpu_milli: int
    memory_mib: int

    @property
    def submitted_at(self) -> datetime:
        """When it was made, else when it began, else now."""
        return self.row.created_at or self.row.started_at or self.row.seen_at


def claims_devices(pod: Object) -> bool:
    """Whether it asks for devices by claims (DRA)."""
    return bool((pod.get("spec") or {}).get("resourceClaims"))


def _may_claim_gpus(core: CoreFacts, pod: Object) -> bool:
    """Whether it claims GPUs, or devices of which nobody can say what they are."""
    return claims_devices(pod) and core.claimed.get(uid_of(pod, core.rows.cluster)) != 0


def pod_rows(core: CoreFacts, gone: Sequence[tuple[Object, datetime]]) -> dict[str, list[Member]]:
    """Adds a `pod` row for each pod that asks for GPUs; gives the members of each workload.

    `gone` are pods that were deleted, with the instant at which that was heard.
    """
    members: dict[str, list[Member]] = {}
    for pod, gone_at in (*((pod, None) for pod in core.pods_by_uid.values()), *gone):
        with core.rows.sparing(name_of(pod)):
            asked = main_resource(core.requests_of(pod), core.gpus_of(pod))
            if asked is None and not _may_claim_gpus(core, pod):
                continue
            member = _member(core, pod, asked, gone_at)
            core.rows.add(member.row)
            members.setdefault(core.workload_of(pod), []).append(member)
            if gone_at is None:
                core.pods_by_workload[core.workload_of(pod)].append(pod)
    return members


def _member(core: CoreFacts, pod: Object, asked: tuple[str, float] | None, gone_at: datetime | None) -> Member:
    named, owner, requests = meta(pod), owner_of(pod), core.requests_of(pod)
    labels = named.get("labels") or {}
    row = Pod(
        uid=uid_of(pod, core.rows.cluster),
        cluster=core.rows.cluster,
        namespace=named["namespace"],
        pod=named["name"],
        node=node_of(pod),
        workload_id=core.workload_of(pod),
        gpu_count=asked[1] if asked else core.claimed.get(uid_of(pod, core.rows.cluster)),
        resource=asked[0] if asked else CLAIM,
        phase=phase_of(pod),
        owner_kind=owner.kind if owner else None,
        owner_name=owner.name if owner else None,
        labels=json.dumps(labels, ensure_ascii=False, sort_keys=True) if labels else None,
        created_at=created_at(pod),
        started_at=started_at(pod),
        ended_at=ended_at(pod, gone_at),
        seen_at=gone_at or core.rows.taken_at,
    )
    memory = int(requests.get("memory", 0.0) // 2**20)
    return Member(row, pod, cpu_milli=round(requests.get("cpu", 0.0) * 1000), memory_mib=memory)


def workload_rows(core: CoreFacts, members: dict[str, list[Member]]) -> None:
    """Fills `core.workloads` and adds the events that pods date."""
    for workload_id, group in members.items():
        with core.rows.sparing(workload_id):
            core.workloads[workload_id] = _workload(core, workload_id, group)
            _events(core, core.workloads[workload_id], group)


def _workload(core: CoreFacts, workload_id: str, group: Sequence[Member]) -> Workload:
    newest = max(group, key=lambda member: member.submitted_at)
    whose = core.attribution_of(newest.pod)
    ends = [member.row.ended_at for member in group]
    live = sum(end is None for end in ends)
    gated = any((member.pod.get("spec") or {}).get("schedulingGates") for member in group)
    submitted = min(member.submitted_at for member in group)
    return Workload(
        workload_id=workload_id,
        name=whose.name,
        kind=whose.kind,
        stage=whose.stage,
        tenant=whose.tenant,
        user=whose.user,
        queue=whose.queue,
        submitted_at=submitted,
        started_at=min((member.row.started_at for member in group if member.row.started_at), default=None),
        ended_at=None if live else max(end for end in ends if end),
        pod_count=max(live, 1),
        num_gpu=min(MAX_PER_POD, max(round(member.row.gpu_count or 0.0) for member in group)),
        gpu_milli=1000,
        cpu_milli=max(member.cpu_milli for member in group),
        memory_mib=max(member.memory_mib for member in group),
        is_gang=whose.is_gang,
        priority=max(_priority(core, member.pod) for member in group),
        scheduler=core.rows.scheduler,
        namespace=newest.row.namespace,
        status=_status(group),
        eligible_at=None if gated else submitted,
    )


def _priority(core: CoreFacts, pod: Object) -> int:
    spec = pod.get("spec") or {}
    if isinstance(spec.get("priority"), int):
        return int(spec["priority"])
    return core.priorities.get(spec.get("priorityClassName") or "", 0)


def _status(group: Sequence[Member]) -> str:
    """What the pods make of it: it runs while one of them does; over, it is what its last pod became."""
    live = [member for member in group if member.row.ended_at is None]
    if any(member.row.phase in ("Running", "Unknown") for member in live):
        return "running"
    if live:
        return "admitted" if all(member.row.node for member in live) else "pending"
    last = max(group, key=lambda member: member.row.ended_at or member.submitted_at)
    if _disrupted(last.pod) == "preempted":
        return "preempted"
    return {"Succeeded": "finished", "Failed": "failed"}.get(last.row.phase or "", "cancelled")


def _disrupted(pod: Object) -> str | None:
    """The kind of event where the pod had to make room or to leave; None where it had not."""
    told = condition_of(pod, "DisruptionTarget")
    if told is None or told.get("status") != "True":
        return None
    return "preempted" if told.get("reason") == "PreemptionByScheduler" else "evicted"


def _events(core: CoreFacts, workload: Workload, group: Sequence[Member]) -> None:
    key = workload.workload_id
    core.rows.add(WorkloadEvent(workload_id=key, ts=workload.submitted_at, kind="submitted"))
    if workload.started_at:
        core.rows.add(WorkloadEvent(workload_id=key, ts=workload.started_at, kind="started"))
    for member in group:
        if kind := _disrupted(member.pod):
            told = condition_of(member.pod, "DisruptionTarget") or {}
            at = instant(told.get("lastTransitionTime"), "lastTransitionTime") or core.rows.taken_at
            core.rows.add(
                WorkloadEvent(workload_id=key, ts=at, kind=kind, pod=member.row.pod, reason=told.get("reason"))
            )
    if workload.ended_at and workload.status in ("finished", "failed", "cancelled"):
        core.rows.add(WorkloadEvent(workload_id=key, ts=workload.ended_at, kind=workload.status))
