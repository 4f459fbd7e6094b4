"""Reads a cluster whose work Kueue admits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from gpuledger.errors import SchedulerUnreachable
from schedulers.kubernetes.client import Api, Refused
from schedulers.kubernetes.core import is_whole
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.family import KubernetesFamily
from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.options import KubernetesOptions
from schedulers.kubernetes.pods import Object, meta, name_of
from schedulers.kueue.cards import Cards
from schedulers.kueue.holdings import Holdings, works_of
from schedulers.kueue.jobs import read_jobs
from schedulers.kueue.kinds import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    KINDS,
    LOCAL_QUEUES,
    POSITIONS,
    RIGHTS,
    VISIBILITY_GROUP,
    WORKLOADS,
)
from schedulers.kueue.levels import tell_levels
from schedulers.kueue.queue_rows import Books
from schedulers.kueue.quotas import Queues, read_queues
from schedulers.kueue.versions import VERSIONS
from schedulers.kueue.waiting import Judge
from schedulers.kueue.work_rows import Works
from schedulers.rights import Right
from schedulers.rows import SnapshotRows

PAGE_WORKLOADS = 1000
"""Waiting workloads asked for at once: the most that Kueue gives unasked."""


class KueueOptions(KubernetesOptions):
    """Options of the adapter for Kueue."""

    positions: bool = Field(
        default=True, description="Ask the visibility API for places in queues, where it is installed."
    )


class Kueue(KubernetesFamily):
    """Kueue beside the core of Kubernetes: ClusterQueues, cohorts, LocalQueues, workloads and their waits."""

    name: ClassVar[str] = "kueue"
    kinds: ClassVar[tuple[Kind, ...]] = KINDS
    rights: ClassVar[tuple[Right, ...]] = RIGHTS
    from_kind: ClassVar[Mapping[str, tuple[str, ...]]] = {
        CLUSTER_QUEUES.key: ("queue", "quota", "queue_resource", "queue_state"),
        LOCAL_QUEUES.key: ("queue", "queue_resource"),
        WORKLOADS.key: ("workload", "wait", "workload_event"),
    }
    options_class: ClassVar[type[KubernetesOptions]] = KueueOptions

    def enrich(self, moment: Moment, core: CoreFacts, rows: SnapshotRows) -> None:
        queues = read_queues(moment, rows)
        jobs = read_jobs(moment, core, queues, rows)
        cards = Cards(core, queues)
        judge = Judge(queues, dict(_controllers(moment, rows)), dict(_positions(moment)))
        states = Works(core, queues, judge, cards).add(jobs)
        tell_levels(moment, core, rows)
        _requeue(core, queues, {job.id for job in jobs})
        if not moment.has(CLUSTER_QUEUES):
            return
        denied = {what for what, _ in moment.scope.denied}
        jobs_were_read = moment.has(WORKLOADS) and not moment.scope.namespaces
        holdings = Holdings(
            queues,
            cards,
            works_of(core, queues, jobs),
            jobs_were_read=jobs_were_read,
            pods_were_read=is_whole(moment) and jobs_were_read,
        )
        holdings.count(jobs, {subject: state.status for subject, state in states.items()})
        Books(rows, core.rules, queues, cards, holdings, cohorts_are_known=COHORTS.key not in denied).add()
        holdings.complain(rows)
        rows.listed("queue", "quota", "queue_resource")

    def extra(self, api: Api, moment: Moment) -> Mapping[str, Sequence[Object]]:
        """Lists of waiting workloads in their order, of the queues that have any; none where they are not to be had."""
        waiting = [
            name_of(queue)
            for queue in moment.of(CLUSTER_QUEUES)
            if (queue.get("status") or {}).get("pendingWorkloads") != 0
        ]
        if not waiting or not getattr(self.options, "positions", False):
            return {}
        for version in VERSIONS:
            try:
                return {POSITIONS: [item for name in waiting for item in self._pending(api, version, name)]}
            except SchedulerUnreachable:
                return {}
            except Refused as error:
                if error.status != 404:
                    return {}
        return {}

    def _pending(self, api: Api, version: str, queue: str) -> Iterator[Object]:
        path, offset = f"/apis/{VISIBILITY_GROUP}/{version}/clusterqueues/{queue}/pendingworkloads", 0
        while True:
            answer: Any = api.get(path, self._clock.sleep, limit=PAGE_WORKLOADS, offset=offset)
            items = answer.get("items") or ()
            yield from items
            offset += len(items)
            if len(items) < PAGE_WORKLOADS:
                return


def _controllers(moment: Moment, rows: SnapshotRows) -> Iterator[tuple[str, str]]:
    for check in moment.of(CHECKS):
        with rows.sparing(name_of(check)):
            yield name_of(check), check["spec"]["controllerName"]


def _positions(moment: Moment) -> Iterator[tuple[str, int]]:
    """Places in the ClusterQueue, from 0, by "namespace/name". Kueue listed deleted workloads at times: no matter."""
    for item in moment.of(POSITIONS):
        if isinstance(place := item.get("positionInClusterQueue"), int) and meta(item).get("name"):
            yield name_of(item), place


def _requeue(core: CoreFacts, queues: Queues, done: Collection[str]) -> None:
    """Pods name their LocalQueue; records name the ClusterQueue behind it, or none where there is none."""
    for workload_id, workload in core.workloads.items():
        if workload.queue and workload_id not in done:
            door = queues.local.get(f"{workload.namespace}/{workload.queue}")
            is_known = door is not None and door.queue in queues.queues
            behind = core.rows.named(door.queue) if door and is_known else ""
            core.workloads[workload_id] = replace(workload, queue=behind)
