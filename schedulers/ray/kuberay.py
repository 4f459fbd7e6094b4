"""KubeRay: Ray clusters, jobs and services of a Kubernetes cluster, as their objects tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from gpuledger.model import Wait, Workload, WorkloadEvent
from schedulers.cards import Cards
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.family import KubernetesFamily
from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.pods import ENDED, name_of, phase_of
from schedulers.ray.clusters import QUEUE_LABEL, REASONS, Asked, Group, asked_by
from schedulers.reasons import Told
from schedulers.rights import Right
from schedulers.rows import SnapshotRows

VERSIONS = ("v1", "v1alpha1")
CLUSTERS = Kind("ray.io", "rayclusters", VERSIONS)
JOBS = Kind("ray.io", "rayjobs", VERSIONS)
SERVICES = Kind("ray.io", "rayservices", VERSIONS)
KINDS: Mapping[str, Kind] = {"RayCluster": CLUSTERS, "RayJob": JOBS, "RayService": SERVICES}
_WORK = ("workload", "wait", "workload_event")


class KubeRay(KubernetesFamily):
    """Kubernetes with KubeRay (ray.io). What runs inside a cluster is told by its own dashboard: adapter `ray`."""

    name: ClassVar[str] = "kuberay"
    kinds: ClassVar[tuple[Kind, ...]] = (CLUSTERS, JOBS, SERVICES)
    rights: ClassVar[tuple[Right, ...]] = (Right("ray.io", ("rayclusters", "rayjobs", "rayservices")),)
    from_kind: ClassVar[Mapping[str, tuple[str, ...]]] = {kind.key: _WORK for kind in KINDS.values()}
    has_queues = False

    def enrich(self, moment: Moment, core: CoreFacts, rows: SnapshotRows) -> None:
        """Every object that is a workload: what it asks for beyond its pods, where it stands, since when."""
        cards, dated = Cards(core), {}
        for kind_name, kind in KINDS.items():
            for one in moment.of(kind):
                with rows.sparing(rows.named(f"{kind_name} {name_of(one)}")):
                    asked = asked_by(kind_name, one)
                    work = None if asked is None else _Work(core, cards, asked)
                    if work is not None and work.add():
                        dated[work.workload_id] = work.events()
        events = rows.of("workload_event")
        events[:] = [row for row in events if row.kind != "submitted" or row.workload_id not in dated]
        events += [row for found in dated.values() for row in found]


class _Work:
    """One workload and its rows."""

    def __init__(self, core: CoreFacts, cards: Cards, asked: Asked) -> None:
        self._core = core
        self._cards = cards
        self._asked = asked
        self._whose = core.whose(asked.namespace, asked.name, asked.all_labels)
        self.workload_id = self._whose.workload_id
        self._with_gpus = [group for group in asked.groups if self._gpus(group)]

    def _gpus(self, group: Group) -> float:
        return self._cards.count(group.requests).gpus or 0.0

    def add(self) -> bool:
        """Replace the row that the core made of its pods, or make one for work that has none.

        False, and nothing done, for work without GPUs.
        """
        known = self._core.workloads.get(self.workload_id)
        if known is None and not self._with_gpus:
            return False
        self._core.workloads[self.workload_id] = self._workload(known)
        if self._ending(known):
            self._core.unsay(self.workload_id, self._asked.ending)
        elif known is None or known.status != "running":
            self._say_why()
        return True

    def _ending(self, known: Workload | None) -> str:
        """How it ended; empty while pods of it run: a job that is over may leave its cluster."""
        return "" if known is not None and known.status == "running" else self._asked.ending

    def _workload(self, known: Workload | None) -> Workload:
        asked, whose, ending = self._asked, self._whose, self._ending(known)
        if known is None:
            known = Workload(
                workload_id=self.workload_id,
                name=whose.name,
                kind=whose.kind,
                stage=whose.stage,
                tenant=whose.tenant,
                user=whose.user,
                queue=whose.queue,
                submitted_at=asked.submitted_at,
                pod_count=1,
                num_gpu=0,
                gpu_milli=1000,
                cpu_milli=0,
                memory_mib=0,
                scheduler=self._core.rows.scheduler,
                namespace=asked.namespace,
                status="pending",
            )
        wanted = sum(group.wanted for group in self._with_gpus)
        status = ending or known.status
        updated = replace(
            known,
            submitted_at=min(known.submitted_at, asked.submitted_at),
            started_at=known.started_at or asked.started_at,
            ended_at=asked.ended_at or known.ended_at if ending else known.ended_at,
            pod_count=max(known.pod_count, wanted, 1),
            min_replicas=sum(group.least for group in self._with_gpus),
            eligible_at=None if asked.is_suspended else known.eligible_at or asked.submitted_at,
            status=status,
        )
        return self._shaped(updated)

    def _shaped(self, known: Workload) -> Workload:
        """With the shape of the group with most GPUs a pod; what its pods say counts where they say more."""
        largest = max(self._with_gpus, key=self._gpus, default=None)
        if largest is None or round(self._gpus(largest)) <= known.num_gpu:
            return known
        return replace(
            known,
            num_gpu=round(self._gpus(largest)),
            cpu_milli=round(largest.requests.get("cpu", 0.0) * 1000),
            memory_mib=int(largest.requests.get("memory", 0.0) // 2**20),
        )

    def _say_why(self) -> None:
        """What KubeRay has to say of work that does not run; its pods may say something more specific."""
        asked, pods = self._asked, self._core.pods_by_workload.get(self.workload_id, ())
        live = [pod for pod in pods if phase_of(pod) not in ENDED]
        if asked.is_suspended:
            told = Told("quota" if QUEUE_LABEL in asked.labels else "held", "Suspended", asked.state)
        else:
            told = REASONS.tell(asked.state, asked.message)
            if live and told.cause in ("scheduler", "unknown"):
                return
        wanted = sum(self._gpus(group) * group.wanted for group in self._with_gpus)
        wait = Wait(
            workload_id=self.workload_id,
            from_at=min(asked.since or asked.submitted_at, self._core.rows.taken_at),
            cause=told.cause,
            reason=told.reason,
            message=told.message or None,
            gpus=wanted,
            pods=sum(group.wanted for group in self._with_gpus) or None,
        )
        self._core.say(wait, "held" if told.cause == "held" else "pending")

    def events(self) -> list[WorkloadEvent]:
        """What KubeRay dates. The core has the start of the first pod already, where there is one."""
        asked, known = self._asked, self._core.workloads[self.workload_id]
        has_start = any(self._core.pods_by_workload.get(self.workload_id, ()))
        dated = (
            ("submitted", known.submitted_at),
            ("admitted", asked.admitted_at),
            ("started", None if has_start else asked.started_at),
            ("suspended", asked.since if asked.is_suspended and asked.admitted_at else None),
            (asked.ending, asked.ended_at),
        )
        return [
            WorkloadEvent(
                workload_id=self.workload_id,
                ts=at,
                kind=kind,
                reason=asked.state if kind in (asked.ending, "suspended") else None,
            )
            for kind, at in dated
            if kind and at
        ]
