"""From the answers of one moment to records. Pure: the same answers give the same rows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpuledger.model import Node, NodeState, Queue, QueueResource, QueueState, Quota, SchedulerNode
from schedulers.ray.amounts import PER_UNIT, units
from schedulers.ray.jobs import QUEUE, Choices, JobRows
from schedulers.ray.reading import Answers
from schedulers.ray.told import Given, Job, RayNode, driver_starts, job, nodes
from schedulers.ray.units import Bundle, Unit, placed_bundles
from schedulers.ray.units import units as units_of
from schedulers.ray.waiting import Room
from schedulers.rows import INSTANT_SECONDS, SnapshotRows


@dataclass(slots=True)
class Mapper:
    """Adds the rows of one moment to `rows`."""

    answers: Answers
    rows: SnapshotRows
    choices: Choices
    _nodes: list[RayNode] = field(default_factory=list)
    _units: list[Unit] = field(default_factory=list)
    _bundles: list[Bundle] = field(default_factory=list)
    _given: Mapping[str, Given] = field(default_factory=dict)
    _names: Mapping[str, str] = field(default_factory=dict)
    lags: bool = False
    """Whether what nodes say and what tasks and actors hold are apart."""

    def add(self) -> None:
        """Everything that the answers tell."""
        answers, spare = self.answers, self.rows.sparing
        self._nodes = nodes(answers.nodes, spare)
        self._names = names(self._nodes, self.choices.node_label)
        self._units = units_of(answers.tasks, answers.actors, answers.groups, answers.workers, spare)
        self._bundles = placed_bundles(answers.groups, spare)
        worked_out = self._worked_out()
        self._given = worked_out if answers.given is None else answers.given
        self._add_nodes()
        waiting_gpus = self._add_jobs()
        self._add_queue(waiting_gpus)
        self._add_problems(sum(one.used for one in worked_out.values()))

    def _gpus(self, demand: Mapping[str, int]) -> int:
        return demand.get(self.choices.resource, 0)

    def _worked_out(self) -> dict[str, Given]:
        """What nodes gave away, by what holds it."""
        outside, inside, reserved = Counter[str](), Counter[str](), Counter[str]()
        for unit in self._units:
            if unit.holds and unit.node_id:
                (inside if unit.is_inside else outside)[unit.node_id] += self._gpus(unit.demand)
        for bundle in self._bundles:
            reserved[bundle.node_id] += self._gpus(bundle.demand)
        return {
            name: Given(self._gpus(node.total), outside[name] + reserved[name], reserved[name], inside[name])
            for node in self._nodes
            for name in (node.node_id,)
        }

    def _add_nodes(self) -> None:
        at, scheduler = self.rows.taken_at, self.rows.scheduler
        for node in self._nodes:
            gpus, given, name = self._gpus(node.total), self._given[node.node_id], self._names[node.node_id]
            if not self.choices.is_on_kubernetes:
                self.rows.add(self._node(node))
                self.rows.add(SchedulerNode(scheduler=scheduler, node=name, gpu_count=gpus // PER_UNIT, from_at=at))
            if gpus:
                free = max(0, gpus - given.given)
                self.rows.add(
                    NodeState(
                        scheduler=scheduler,
                        node=name,
                        resource=self.choices.counted,
                        capacity=units(gpus),
                        allocatable=units(gpus),
                        allocated=units(min(given.used, gpus - free)),
                        free=units(free),
                        from_at=at,
                    )
                )

    def _node(self, node: RayNode) -> Node:
        memory = node.total.get("memory")
        return Node(
            node=self._names[node.node_id],
            cluster=self.rows.cluster,
            model=model_of(node),
            gpu_count=self._gpus(node.total) // PER_UNIT,
            cpu_milli=node.total.get("CPU", 0) * 1000 // PER_UNIT,
            memory_mib=None if memory is None else memory // PER_UNIT // 2**20,
            from_at=self._clamped(node.started_at),
        )

    def _clamped(self, at: datetime | None) -> datetime:
        """Not after the snapshot: the head's clock may be before ours."""
        return min(at or self.rows.taken_at, self.rows.taken_at)

    def _add_jobs(self) -> int:
        """Workloads with their pods, waits and events. Gives what waits, in ten-thousandths of a GPU."""
        jobs: dict[str, Job] = {}
        owners: dict[str, str] = {}
        for row in self.answers.jobs:
            with self.rows.sparing(f"job {row.get('submission_id') or row.get('job_id')}"):
                one = job(row)
                jobs[one.key] = one
                owners.update(dict.fromkeys(one.owners, one.key))
        work: dict[str, list[Unit]] = defaultdict(list)
        for unit in self._units:
            work[owners.get(unit.owner, unit.owner)].append(unit)
        for key in work.keys() - jobs.keys():
            jobs[key] = self._unlisted(key, work[key])
        gangs = {owners.get(bundle.owner, bundle.owner) for bundle in self._bundles}
        starts = dict(driver_starts(self.answers.workers))
        room = Room.of(self.choices.resource, self._nodes, self._given, knows_all=self.answers.given is not None)
        waiting = 0
        for key in sorted(jobs):
            record = JobRows(self.rows, self.choices, jobs[key], work[key], key in gangs, starts)
            record.add(room, self._names)
            waiting += record.wanted_parts
        return waiting

    def _unlisted(self, key: str, work: Sequence[Unit]) -> Job:
        """A job that is not in the list of jobs and still holds something."""
        begun = [at for unit in work for at in (unit.since, unit.started_at) if at]
        begin = min(begun, default=self.rows.taken_at)
        return Job(key, (key,), "RUNNING", "", {}, begin, None, key)

    def _add_queue(self, waiting: int) -> None:
        """Ray has one queue for all and no quota: nothing is limited."""
        at, queue = self.rows.taken_at, self.rows.named(QUEUE)
        used = sum(one.used for one in self._given.values())
        reserved = sum(one.reserved for one in self._given.values())
        unused = sum(one.reserved - one.inside for one in self._given.values())
        self.rows.add(
            Queue(queue=queue, tenant="", scheduler=self.rows.scheduler),
            Quota(queue=queue, tenant="", from_at=at),
            QueueResource(
                queue=queue,
                resource=self.choices.resource,
                used=units(used),
                reserved=units(reserved),
                pending=units(waiting),
                from_at=at,
            ),
            QueueState(
                ts=at,
                queue=queue,
                tenant="",
                duration_seconds=INSTANT_SECONDS,
                running_gpus=units(used),
                pending_gpus=units(waiting),
                reserved_gpus=units(unused),
            ),
        )

    def _add_problems(self, held: int) -> None:
        for kind, count in self.answers.missing.items():
            self.rows.problem(
                "truncated_answer", self.rows.named(QUEUE), f"{kind}: not all rows", subject_kind="queue", count=count
            )
        if self.answers.stale_seconds is not None:
            detail = "the head does not renew its status any more; what nodes gave away is worked out from what runs"
            count = self.answers.stale_seconds
            self.rows.problem("stale", self.rows.named(QUEUE), detail, subject_kind="queue", count=count)
        used = sum(one.used for one in self._given.values())
        self.lags = used != held
        if self.lags:
            detail = f"nodes say {units(used):g} GPUs are in use, tasks and actors hold {units(held):g}"
            gap = math.ceil(abs(used - held) / PER_UNIT)
            self.rows.problem("quota_mismatch", self.rows.named(QUEUE), detail, subject_kind="queue", count=gap)


def names(living: Sequence[RayNode], label: str | None) -> dict[str, str]:
    """Node names by id: a label's value, else Ray's name; of several nodes of one name each gets part of its id."""
    found = {node.node_id: (node.labels.get(label) if label else None) or node.name for node in living}
    counts = Counter(found.values())
    return {node_id: f"{name}/{node_id[:8]}" if counts[name] > 1 else name for node_id, name in found.items()}


def model_of(node: RayNode) -> str | None:
    """The cards' model: a label, or the resource that Ray makes of it."""
    if model := node.labels.get("ray.io/accelerator-type"):
        return model
    prefix = "accelerator_type:"
    return next((name.removeprefix(prefix) for name in node.total if name.startswith(prefix)), None)
