"""Pods and gangs as Koordinator sees them: their quota, their shape, what it said when it did not place them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from gpuledger.model import Wait
from schedulers.koordinator.devices import shape
from schedulers.koordinator.kinds import CARD, DEFAULT_QUOTA, QUOTA, annotation, labels_of
from schedulers.koordinator.quotas import Elastic
from schedulers.kubernetes.equivalents import of_pod
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.pods import Object, condition_of, holds_node, meta, name_of, phase_of
from schedulers.kubernetes.times import instant
from schedulers.reasons import Reasons, Told

REASONS = Reasons.of(
    (
        (r"insufficient quotas|quota not enough|exceedDimensions", "quota"),
        (r"Reservation\(s\) (is|are|insufficient|didn't match|exceed)", "reservation"),
        (r"Insufficient gpu (memory|shared memory)", "gpu_memory"),
        (r"network topology|NUMA Topology|gpu partition", "topology"),
        (r"Insufficient (rdma|fpga) devices", "cpu_mem"),
        (r"Insufficient \w+ devices|no available devices", "capacity"),
    )
)
"""What only Koordinator says; the core knows the rest."""

GROUP_LABELS = ("pod-group.scheduling.sigs.k8s.io", "pod-group.scheduling.sigs.k8s.io/name")
GANG = "gang.scheduling.koordinator.sh"


@dataclass(slots=True)
class Wishes:
    """GPUs of pods by quota: held, and waited for."""

    held: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    waiting: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def quota_finder(quotas: Sequence[Elastic], objects: Iterable[Object]) -> Mapping[str, str]:
    """The quota of each namespace whose pods need not name one: as its annotation says, else the one that is in it."""
    found: dict[str, str] = {}
    for quota in sorted(quotas, key=lambda one: one.name):
        found.setdefault(quota.namespace, quota.name)
    known = {quota.name for quota in quotas}
    for one in objects:
        name = str(meta(one).get("name"))
        told = annotation(one, f"{QUOTA}/namespaces") if name in known else None
        if isinstance(told, list):
            found.update({str(namespace): name for namespace in told})
    return found


def quota_of(pod: Object, namespaces: Mapping[str, str]) -> str:
    """The quota that a pod is counted in, as Koordinator finds it."""
    return labels_of(pod).get(f"{QUOTA}/name") or namespaces.get(meta(pod)["namespace"]) or DEFAULT_QUOTA


def wishes(core: CoreFacts, namespaces: Mapping[str, str], names: frozenset[str]) -> Wishes:
    """Counts pods by quota, and says in their workloads which queue they are of, and their shape."""
    found = Wishes()
    for workload_id, pods in core.pods_by_workload.items():
        for pod in pods:
            with core.rows.sparing(name_of(pod)):
                quota, gpus = quota_of(pod, namespaces), of_pod(core, pod) or 0.0
                if holds_node(pod):
                    found.held[quota] += gpus
                elif phase_of(pod) == "Pending":
                    found.waiting[quota] += gpus
                _say_queue(core, workload_id, pod, quota if quota in names else "")
    return found


def _say_queue(core: CoreFacts, workload_id: str, pod: Object, quota: str) -> None:
    known = core.workloads.get(workload_id)
    if known is None:
        return
    cards, milli = shape(pod, core) or (known.num_gpu, known.gpu_milli)
    queue = core.rows.named(quota) if quota else ""
    core.workloads[workload_id] = replace(known, queue=queue, num_gpu=cards, gpu_milli=milli)


def mark_gangs(core: CoreFacts, groups: Sequence[Object]) -> None:
    """Say of workloads whose pods are in a gang that they start together, and how many at least."""
    least = {name_of(one): int((one.get("spec") or {}).get("minMember") or 0) for one in groups}
    for workload_id, pods in core.pods_by_workload.items():
        counts = [count for pod in pods for count in [_least(pod, least)] if count]
        known = core.workloads.get(workload_id)
        if counts and known:
            total = max(counts)
            core.workloads[workload_id] = replace(
                known, is_gang=True, min_replicas=total, pod_count=max(known.pod_count, total)
            )


def _least(pod: Object, groups: Mapping[str, int]) -> int:
    """How many pods of its gang must start together; 0 for a pod of none."""
    named, namespace = meta(pod), meta(pod)["namespace"]
    annotations = named.get("annotations") or {}
    group = next((labels_of(pod)[key] for key in GROUP_LABELS if labels_of(pod).get(key)), None)
    group = group or annotations.get(f"{GANG}/name")
    if group is None:
        return 0
    written = annotations.get(f"{GANG}/min-available") or labels_of(pod).get(f"{GROUP_LABELS[0]}/min-available") or ""
    return groups.get(f"{namespace}/{group}") or (int(written) if written.isdecimal() else 0)


def say_why(core: CoreFacts, limits: Mapping[str, float | None], namespaces: Mapping[str, str]) -> None:
    """Add what Koordinator said of pods that wait. `limits` are the most GPUs of each quota and those above it."""
    for workload_id, pods in core.pods_by_workload.items():
        known = core.workloads.get(workload_id)
        if known is None or known.status not in ("pending", "held"):
            continue
        for pod in pods:
            with core.rows.sparing(name_of(pod)):
                told = condition_of(pod, "PodScheduled")
                if told is None or told.get("status") != "False":
                    continue
                limit = limits.get(quota_of(pod, namespaces))
                found = _meaning(told, core.requests_of(pod).get(CARD, 0.0), limit)
                if found.cause != "unknown":
                    since = instant(told.get("lastTransitionTime"), "lastTransitionTime") or core.rows.taken_at
                    core.say(_wait(core, workload_id, pods, found, since))


def _meaning(condition: Object, gpus: float, limit: float | None) -> Told:
    found = REASONS.tell(str(condition.get("reason") or ""), str(condition.get("message") or ""))
    never = found.cause == "quota" and limit is not None and gpus > limit
    return Told("exceeds_max", found.reason, found.message) if never else found


def _wait(core: CoreFacts, workload_id: str, pods: Sequence[Object], told: Told, since: datetime) -> Wait:
    waiting = [pod for pod in pods if not holds_node(pod)]
    gpus = [count for pod in waiting for count in [of_pod(core, pod)] if count is not None]
    return Wait(
        workload_id=workload_id,
        from_at=since,
        cause=told.cause,
        reason=told.reason,
        message=told.message or None,
        gpus=sum(gpus) if len(gpus) == len(waiting) else None,
        pods=len(waiting),
    )
