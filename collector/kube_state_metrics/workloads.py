"""Workloads from their pods: when the first was submitted, whether any still runs, and what one of them asks for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from collector.kube_state_metrics.pods import PodFacts
from gpuledger.attribution import Attribution
from gpuledger.model import Pod, Workload

_MAX_PER_POD = 1024


@dataclass(slots=True)
class _Member:
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    gpus: float
    cpu_milli: int
    memory_mib: int


@dataclass(slots=True)
class _Group:
    whose: Attribution
    members: dict[str, _Member] = field(default_factory=dict)
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    most_pods: int = 0


class WorkloadBook:
    """Groups pods by workload and gives the workloads that changed."""

    def __init__(self) -> None:
        self._groups: dict[str, _Group] = {}
        self._of_pod: dict[str, str] = {}
        self._sent: dict[str, Workload] = {}
        self._touched: set[str] = set()
        self._closed: list[Workload] = []

    def note(self, facts: PodFacts, whose: Attribution, row: Pod) -> None:
        """A pod as it is now. Labels that came late may move it to another workload."""
        key = whose.workload_id
        if self._of_pod.get(facts.uid, key) != key:
            self._move(facts.uid)
        self._of_pod[facts.uid] = key
        group = self._groups.setdefault(key, _Group(whose))
        group.whose = whose
        submitted = row.created_at or row.started_at or row.seen_at
        known = group.members.get(facts.uid)
        group.members[facts.uid] = _Member(
            submitted_at=submitted if row.created_at or known is None else min(submitted, known.submitted_at),
            started_at=row.started_at,
            ended_at=row.ended_at,
            gpus=row.gpu_count or 0.0,
            cpu_milli=round(facts.asked("cpu") * 1000),
            memory_mib=int(facts.asked("memory") // 2**20),
        )
        self._touched.add(key)

    def forget(self, uid: str) -> None:
        """A pod that is gone; what it said of its workload's begin stays as long as the workload has pods."""
        key = self._of_pod.pop(uid, None)
        group = self._groups.get(key) if key else None
        if key is None or group is None:
            return
        group.members.pop(uid, None)
        if not group.members:
            del self._groups[key]
            self._sent.pop(key, None)
            self._touched.discard(key)

    def _move(self, uid: str) -> None:
        """A pod belongs elsewhere than was thought: a workload that it leaves empty never was, and must not wait."""
        sent = self._sent.get(self._of_pod[uid])
        self.forget(uid)
        if sent is not None and sent.workload_id not in self._groups:
            self._closed.append(replace(sent, ended_at=sent.started_at or sent.submitted_at))

    def changed(self) -> list[Workload]:
        """The workloads that say something else than when they were last given."""
        rows, self._closed = self._closed, []
        for key in sorted(self._touched & self._groups.keys()):
            row = _record(key, self._groups[key])
            if row != self._sent.get(key):
                self._sent[key] = row
                rows.append(row)
        self._touched = set()
        return rows


def _record(key: str, group: _Group) -> Workload:
    members, whose = list(group.members.values()), group.whose
    begins = [m.submitted_at for m in members]
    group.submitted_at = min([*begins, *([group.submitted_at] if group.submitted_at else [])])
    starts = [m.started_at for m in members if m.started_at]
    group.started_at = min([*starts, *([group.started_at] if group.started_at else [])], default=None)
    ends = [m.ended_at for m in members]
    live = sum(end is None for end in ends)
    group.most_pods = max(group.most_pods, live, 1)
    return Workload(
        workload_id=key,
        name=whose.name,
        kind=whose.kind,
        stage=whose.stage,
        tenant=whose.tenant,
        user=whose.user,
        queue=whose.queue,
        submitted_at=group.submitted_at,
        started_at=group.started_at,
        ended_at=None if live else max(end for end in ends if end),
        pod_count=group.most_pods,
        num_gpu=min(_MAX_PER_POD, max(round(m.gpus) for m in members)),
        gpu_milli=1000,
        cpu_milli=max(m.cpu_milli for m in members),
        memory_mib=max(m.memory_mib for m in members),
        is_gang=whose.is_gang,
    )
