"""What happened to workloads while they were Kueue's, as it dates them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from gpuledger.model import WorkloadEvent
from schedulers.kueue.conditions import Condition
from schedulers.kueue.jobs import Job
from schedulers.rows import SnapshotRows

_PLAIN = (("Admitted", "admitted"), ("PodsReady", "ready"), ("Requeued", "requeued"))
_VICTIM_OF = re.compile(r"accommodate a workload \(UID: ([\w-]+)")
_PATH = re.compile(r"preemptor path: /?(?:[^;/\s]+/)*([^;/\s]+)")


def events_of(group: Sequence[Job], by_uid: Mapping[str, str], rows: SnapshotRows) -> list[WorkloadEvent]:
    """Events of the objects of one workload, one for each key. `by_uid` are ids of all workloads."""
    found = [event for job in group for event in _events(job, by_uid, rows)]
    return list({(one.ts, one.kind, one.pod): one for one in found}.values())


def _events(job: Job, by_uid: Mapping[str, str], rows: SnapshotRows) -> Iterator[WorkloadEvent]:
    for kind, event in _PLAIN:
        if condition := job.now(kind):
            yield from _event(job, condition, event)
    evicted, preempted = job.now("Evicted"), job.now("Preempted")
    if preempted:
        yield from _event(job, preempted, "preempted", _beneficiary(preempted, by_uid, rows))
    if evicted and evicted.reason != "Preempted":
        yield from _event(job, evicted, "evicted")
    elif evicted and not preempted:
        yield from _event(job, evicted, "preempted", _beneficiary(evicted, by_uid, rows))


def _event(job: Job, condition: Condition, kind: str, beneficiary: str | None = None) -> Iterator[WorkloadEvent]:
    if condition.since is not None:
        yield WorkloadEvent(
            workload_id=job.id,
            ts=condition.since,
            kind=kind,
            pod=job.pod,
            reason=condition.reason or None,
            beneficiary=beneficiary,
        )


def _beneficiary(condition: Condition, by_uid: Mapping[str, str], rows: SnapshotRows) -> str | None:
    """For whom it had to go: the workload where its object is still there, else its queue."""
    uid, path = _VICTIM_OF.search(condition.message), _PATH.search(condition.message)
    if uid and uid[1] in by_uid:
        return by_uid[uid[1]]
    return rows.named(path[1]) if path and path[1] != "UNKNOWN" else None
