"""Writes the simulated cluster's objects as time goes on: at each minute only what changed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from gpuledger.app.simulated_cluster import core_objects as core
from gpuledger.app.simulated_cluster.facts import Facts, Object, Work, namespace_of
from gpuledger.app.simulated_cluster.kueue_objects import API, KueueObjects, workload_name
from gpuledger.simulate import Simulation
from gpuledger.simulate.pods import OBJECT_MINUTES
from schedulers.fakes.apiserver import Store

Ident = tuple[str, str, str, str]
"""API version, kind, namespace, name."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An object that should be there: `state` is all of it that can change, `make` builds it."""

    ident: Ident
    state: Hashable
    make: Callable[[], Object]


class SimulatedCluster:
    """A simulation in a store of the fake kube-apiserver, as of the minute that it was moved to.

    With `definitions` (Kueue's published CustomResourceDefinitions) the queues and workloads are there too. Completed
    pods stay for an hour. What a node or pod says is dated by the script; `advance` moves forward only.
    """

    def __init__(self, simulation: Simulation, store: Store, *, definitions: Sequence[Mapping[str, Any]] = ()) -> None:
        self.facts = Facts(simulation)
        self.store = store
        self.minute: int | None = None
        self._written: dict[Ident, Hashable] = {}
        self._kueue: KueueObjects | None = None
        for definition in definitions:
            store.define(definition)
        if definitions:
            self._kueue = KueueObjects(self.facts)

    def advance(self, at: datetime) -> int:
        """Bring the cluster to `at`, through every minute at which something happened; gives the number of writes."""
        target = int((at - self.facts.spec.start_at).total_seconds() // 60)
        minutes = self.facts.minutes
        first = target if self.minute is None else self.minute
        due = [minute for minute in minutes[bisect_right(minutes, first) :] if minute <= target]
        count = 0
        for minute in [*due, *([target] if self.minute is None else [])]:
            count += self._write(minute)
        self.minute = target
        return count

    def _write(self, minute: int) -> int:
        wanted = {each.ident: each for each in self._wanted(minute)}
        gone = [ident for ident in self._written if ident not in wanted]
        changed = [each for each in wanted.values() if self._is_news(each)]
        for ident in gone:
            self._remove(ident)
        for each in changed:
            self.store.put(each.make())
            self._written[each.ident] = each.state
        return len(gone) + len(changed)

    def _is_news(self, wanted: Wanted) -> bool:
        return wanted.ident not in self._written or self._written[wanted.ident] != wanted.state

    def _remove(self, ident: Ident) -> None:
        api_version, kind, namespace, name = ident
        metadata = {"namespace": namespace, "name": name} if namespace else {"name": name}
        self.store.remove({"apiVersion": api_version, "kind": kind, "metadata": metadata})
        del self._written[ident]

    def _wanted(self, minute: int) -> Iterator[Wanted]:
        facts = self.facts
        for name in core.NAMESPACE_NAMES:
            yield Wanted(("v1", "Namespace", "", name), None, partial(core.namespace, facts, name))
        for host in facts.hosts:
            state = core.node_state(facts, host, minute)
            yield Wanted(("v1", "Node", "", host.name), state, partial(core.node, facts, host, state))
        yield from self._pods(minute)
        used = core.quota_used(facts.works, minute)
        ident = ("v1", "ResourceQuota", core.QUOTA_NAMESPACE, core.QUOTA_NAME)
        yield Wanted(ident, used, partial(core.quota, facts, used))
        if self._kueue is not None:
            yield from self._queues(self._kueue, minute)

    def _pods(self, minute: int) -> Iterator[Wanted]:
        facts = self.facts
        there = [run for run in facts.runs if run.start <= minute < run.listed_until]
        # Who leaves is written before who comes, so that no card is held twice at any version.
        for is_over in (True, False):
            for run in (run for run in there if (minute >= run.end) is is_over):
                make = partial(core.pod, facts, run, is_over=is_over)
                yield Wanted(("v1", "Pod", run.namespace, run.name), is_over, make)
        for job, hold in core.cpu_holds(facts, minute):
            is_over = minute >= hold.end
            make = partial(core.cpu_pod, facts, job, hold, is_over=is_over)
            yield Wanted(("v1", "Pod", namespace_of(job), hold.pod), is_over, make)

    def _queues(self, kueue: KueueObjects, minute: int) -> Iterator[Wanted]:
        for item in kueue.fixed():
            ident = (API, item["kind"], "", item["metadata"]["name"])
            yield Wanted(ident, None, partial(dict, item))
        by_door: dict[tuple[str, str], list[Work]] = {door: [] for door in kueue.doors}
        for work in self.facts.works:
            stage = _stage(work, minute)
            if stage is None:
                continue
            by_door[namespace_of(work.job), work.job.team].append(work)
            make = partial(kueue.workload, work, stage)
            yield Wanted((API, "Workload", namespace_of(work.job), workload_name(work.job)), stage, make)
        for team in kueue.teams:
            works = [work for door, own in by_door.items() if door[1] == team for work in own]
            yield self._queue(kueue, minute, works, ("", team))
        for door, works in by_door.items():
            yield self._queue(kueue, minute, works, door)

    def _queue(self, kueue: KueueObjects, minute: int, works: list[Work], door: tuple[str, str]) -> Wanted:
        running = [work for work in works if work.is_running(minute)]
        used, waiting = kueue.usage(running), sum(work.waits(minute) for work in works)
        state = (tuple(sorted(used.items())), waiting, len(running))
        namespace, team = door
        if namespace:
            make = partial(kueue.local_queue, door, used, waiting, len(running))
            return Wanted((API, "LocalQueue", namespace, team), state, make)
        make = partial(kueue.cluster_queue, team, used, waiting, len(running))
        return Wanted((API, "ClusterQueue", "", team), state, make)


def _stage(work: Work, minute: int) -> str | None:
    """Where a job stands; None where it has no object. A job that was withdrawn is deleted, one that ran stays."""
    if work.waits(minute):
        return "waiting"
    if work.is_running(minute):
        return "running"
    is_kept = work.runs and work.end <= minute < work.end + OBJECT_MINUTES
    return "over" if is_kept else None
