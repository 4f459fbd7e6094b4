"""From Volcano's pod groups to what queues hold and to workloads that wait."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gpuledger.attribution import Attribution
from gpuledger.model import Wait, Workload, WorkloadEvent
from schedulers.cards import Cards
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.names import counts_gpus, parts_gpus
from schedulers.kubernetes.pods import Object, created_at, holds_node, meta, name_of
from schedulers.kubernetes.times import instant
from schedulers.queue_work import QueueWork
from schedulers.volcano.devices import held_cards
from schedulers.volcano.groups import PodGroup, shape_of, whose_group
from schedulers.volcano.spec import QueueSpec
from schedulers.volcano.waiting import Events, wait_of

MAX_PER_POD = 1024

_ENDS: Mapping[str, str] = {
    "Completed": "finished",
    "Failed": "failed",
    "Aborted": "cancelled",
    "Terminated": "cancelled",
    "Restarting": "requeued",
}
"""What a state of a Volcano job says has happened, at its last transition."""

_KINDS_OF_SHORTAGE = frozenset({"exceeds_max", "health", "fragmentation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMapping:
    """Takes pod groups in one by one. `work` is what the queues hold and wait for, by queue.

    `free_gpus` are those of `nvidia.com/gpu` that are free on all nodes together; 0 where that is not known.
    """

    core: CoreFacts
    cards: Cards
    specs: Mapping[str, QueueSpec]
    events: Events
    free_gpus: float = 0.0
    work: dict[str, QueueWork] = field(default_factory=dict)

    def take(self, group: PodGroup) -> None:
        """One group. Raises BadInput for what is no quantity or no time."""
        wanted = group.wanted() if group.is_waiting else {}
        count = None if wanted is None else self.cards.count(wanted)
        gpus = None if count is None or count.is_partial else count.gpus or 0.0
        work = self.work.setdefault(group.queue, QueueWork())
        work.want({name: amount for name, amount in wanted.items() if _is_of_gpus(name)} if wanted else wanted, gpus)
        for pod in group.pods:
            self._hold(pod, work)
        for workload_id in self._workloads(group):
            self._place(workload_id, group)
            if group.is_waiting and self.core.workloads[workload_id].status != "running":
                self._wait(workload_id, group, gpus)
            self._job_event(workload_id, group.job)

    def _hold(self, pod: Object, work: QueueWork) -> None:
        if not holds_node(pod) or not self.core.gpus_of(pod):
            return
        held = {name: count for name, count in self.core.requests_of(pod).items() if _is_of_gpus(name)}
        work.hold(held, held_cards(pod, self.core))

    def _workloads(self, group: PodGroup) -> Iterator[str]:
        """The workloads with GPUs that the group's pods belong to; of a group without pods the one that it will be."""
        if group.pods:
            yield from sorted({self.core.workload_of(pod) for pod in group.pods} & self.core.workloads.keys())
            return
        whose = whose_group(group, self.core)
        if whose is None or not group.is_waiting:
            return
        if whose.workload_id in self.core.workloads or self._announce(whose, group):
            yield whose.workload_id

    def _announce(self, whose: Attribution, group: PodGroup) -> bool:
        """A job that was not let in has no pods yet: its workload is known by what it will ask for."""
        shape = shape_of(group.job, self.core) if group.job is not None else None
        submitted = created_at(group.job or group.given)
        if shape is None or submitted is None:
            return False
        gpus = sum(amount for name, amount in shape.most.items() if self.core.counts(name))
        self.core.workloads[whose.workload_id] = Workload(
            workload_id=whose.workload_id,
            name=whose.name,
            kind=whose.kind,
            stage=whose.stage,
            tenant=whose.tenant,
            user=whose.user,
            submitted_at=submitted,
            pod_count=shape.count,
            num_gpu=min(MAX_PER_POD, round(gpus)),
            gpu_milli=1000,
            cpu_milli=round(shape.most.get("cpu", 0.0) * 1000),
            memory_mib=int(shape.most.get("memory", 0.0) // 2**20),
            is_gang=whose.is_gang,
            scheduler=self.core.rows.scheduler,
            namespace=meta(group.given)["namespace"],
            status="pending",
            eligible_at=submitted,
        )
        self.core.rows.add(WorkloadEvent(workload_id=whose.workload_id, ts=submitted, kind="submitted"))
        return True

    def _place(self, workload_id: str, group: PodGroup) -> None:
        known = self.core.workloads[workload_id]
        named = (group.given.get("spec") or {}).get("priorityClassName") or ""
        self.core.workloads[workload_id] = replace(
            known,
            queue=self.core.rows.named(group.queue) if group.queue in self.specs else "",
            is_gang=known.is_gang or group.min_member > 1,
            min_replicas=group.min_member,
            priority=self.core.priorities.get(named, known.priority),
        )

    def _wait(self, workload_id: str, group: PodGroup, gpus: float | None) -> None:
        core_wait = self.core.main_wait(workload_id)
        wait = wait_of(group, self.events, self.specs.get(group.queue), workload_id, self.core.rows.taken_at)
        wait = self._refined(replace(wait, gpus=gpus), core_wait)
        status = "admitted" if group.phase == "Inqueue" else "pending"
        self.core.unsay(workload_id, status)
        self.core.say(wait, "held" if wait.cause == "held" else status)

    def _refined(self, wait: Wait, core_wait: Wait | None) -> Wait:
        """Where the scheduler says that GPUs are short: whether they are more than any node has, broken, or scattered.

        Of one pod Kubernetes' part knows it; a gang's cards may be scattered though each pod would fit.
        """
        if wait.cause != "capacity":
            return wait
        if core_wait is not None and core_wait.cause in _KINDS_OF_SHORTAGE:
            return replace(wait, cause=core_wait.cause, message=core_wait.message)
        is_apart = wait.gpus and self.free_gpus >= wait.gpus
        return replace(wait, cause="fragmentation") if is_apart else wait

    def _job_event(self, workload_id: str, job: Object | None) -> None:
        state = ((job or {}).get("status") or {}).get("state") or {}
        kind = _ENDS.get(state.get("phase") or "")
        at = instant(state.get("lastTransitionTime"), "status.state.lastTransitionTime")
        if kind and at:
            self.core.rows.add(WorkloadEvent(workload_id=workload_id, ts=at, kind=kind, reason=state.get("reason")))


def evictions(core: CoreFacts, events: Events) -> None:
    """Adds the events by which Volcano told that a pod had to go, for pods that are still, or again, there."""
    pods = {name_of(pod): pod for pod in core.pods_by_uid.values()}
    for (kind, name), said in events.items():
        pod = pods.get(name) if kind == "Pod" else None
        for one in said if pod is not None else ():
            if one.reason == "Evict" and one.at and pod is not None and core.workload_of(pod) in core.workloads:
                core.rows.add(
                    WorkloadEvent(
                        workload_id=core.workload_of(pod),
                        ts=one.at,
                        kind="preempted" if "preempt" in one.message else "evicted",
                        pod=meta(pod)["name"],
                        reason=one.message or one.reason,
                    )
                )


def _is_of_gpus(resource: str) -> bool:
    return counts_gpus(resource) or parts_gpus(resource)
