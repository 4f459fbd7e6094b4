"""Kubernetes' own gangs: PodGroups of scheduling.k8s.io, where a cluster has them.

Pods name their group in `spec.schedulingGroup.podGroupName` (v1beta1 and later) or by `spec.workloadRef` (v1alpha1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuledger.model import Wait
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.pods import Object, condition_of, meta, name_of
from schedulers.kubernetes.times import instant
from schedulers.kubernetes.words import verdicts
from schedulers.reasons import Told, root


def _group_of(pod: Object) -> tuple[str, str] | None:
    """("PodGroup" or "Workload", its name) as the pod says."""
    spec = pod.get("spec") or {}
    group = (spec.get("schedulingGroup") or {}).get("podGroupName")
    if group:
        return "PodGroup", str(group)
    workload = (spec.get("workloadRef") or {}).get("name")
    return ("Workload", str(workload)) if workload else None


def _least(given: Object) -> int | None:
    """How many pods must start together; None where they need not."""
    spec = given.get("spec") or {}
    policies = [spec.get("schedulingPolicy") or {}, *(one.get("policy") or {} for one in spec.get("podGroups") or ())]
    policies += [one.get("schedulingPolicy") or {} for one in spec.get("podGroupTemplates") or ()]
    counts = [int(policy["gang"].get("minCount") or 0) for policy in policies if policy.get("gang")]
    return sum(counts) if counts else None


def mark_gangs(core: CoreFacts, groups: Sequence[Object], workloads: Iterable[Object]) -> None:
    """Say of workloads whose pods are in a gang that they are, and how many pods must start together.

    What keeps a group from being placed is one more thing in the way of a workload that waits.
    """
    blocked = {name_of(one): told for one in groups if (told := condition_of(one, "PodGroupInitiallyScheduled"))}
    least: Mapping[tuple[str, str], int | None] = {
        **{("PodGroup", name_of(one)): _least(one) for one in groups},
        **{("Workload", name_of(one)): _least(one) for one in workloads},
    }
    for workload_id, pods in core.pods_by_workload.items():
        names = {(found[0], f"{meta(pod)['namespace']}/{found[1]}") for pod in pods if (found := _group_of(pod))}
        counts = [count for name in names if (count := least.get(name)) is not None]
        if counts and workload_id in core.workloads:
            known = core.workloads[workload_id]
            pod_count = max(known.pod_count, sum(counts))
            core.workloads[workload_id] = replace(known, is_gang=True, min_replicas=sum(counts), pod_count=pod_count)
            for kind, name in names:
                if kind == "PodGroup" and name in blocked:
                    _say_blocked(core, workload_id, blocked[name])


def _say_blocked(core: CoreFacts, workload_id: str, condition: Object) -> None:
    known = core.workloads[workload_id]
    if condition.get("status") != "False" or known.status not in ("pending", "admitted", "held"):
        return
    reason, message = str(condition.get("reason") or ""), str(condition.get("message") or "")
    main = root(one.told for one in verdicts(reason, message))
    if main is None or main.cause == "unknown":
        main = Told("gang", reason, message)
    since = instant(condition.get("lastTransitionTime"), "lastTransitionTime") or core.rows.taken_at
    wait = Wait(workload_id=workload_id, from_at=since, cause=main.cause, reason=reason, message=message or None)
    core.say(wait, known.status)
