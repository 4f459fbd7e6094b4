"""Pods of the script as a Kubernetes cluster knows them: identity, life, what they hold, and who sees them for longer.

A pod's labels stay on an exporter's page for up to `linger_minutes` after its end, and its object stays in the API
for an hour, as `Succeeded`.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from gpuledger.model import Pod, to_table
from gpuledger.simulate.painting import Spans, device_of
from gpuledger.simulate.script import Hold, Job, Script

NAMESPACES = {"training": "train", "inference": "serve", "notebook": "dev", "batch": "batch"}
CLUSTER = "shanghai"
CONTAINER = "main"
OBJECT_MINUTES = 60
"""For how long a completed pod's object stays."""
OWNER_KINDS = {"training": "Job", "batch": "Job", "inference": "StatefulSet", "notebook": "StatefulSet"}


@dataclass(frozen=True, slots=True)
class PodRun:
    """One pod from `start` to `end`, in minutes. `devices` are positions in the fleet's list.

    Its labels are shown until `shown_until`, its object until `listed_until`.
    """

    uid: str
    namespace: str
    name: str
    job: Job
    host: int
    start: int
    end: int
    shown_until: int
    devices: tuple[int, ...]
    share: float

    @property
    def listed_until(self) -> int:
        """When the object is deleted."""
        return self.end + OBJECT_MINUTES

    def resource(self, script: Script) -> str:
        """The resource it asks for, as kube-state-metrics writes it."""
        part = script.fleet.devices[self.devices[0]].slice
        if part is not None:
            return script.fleet.hosts[self.host].hardware.part_resource(part)
        return "nvidia_com_gpu_shared" if self.share < 1 else "nvidia_com_gpu"


def pod_runs(script: Script) -> list[PodRun]:
    """Every pod that holds a card or slice, in the order of the script."""
    grouped: dict[tuple[str, int], tuple[Job, list[Hold]]] = {}
    for job in script.jobs:
        for hold in job.holds:
            if hold.card is not None:
                grouped.setdefault((hold.pod, hold.start), (job, []))[1].append(hold)
    rng = script.rng(40)
    longest = script.spec.linger_minutes
    lingers = rng.integers(1, longest + 1, len(grouped)) if longest else np.zeros(len(grouped), np.int64)
    return [_run(script, *held, int(more)) for held, more in zip(grouped.values(), lingers, strict=True)]


def _run(script: Script, job: Job, holds: list[Hold], lingers: int) -> PodRun:
    first = holds[0]
    devices = [device for hold in holds if (device := device_of(script, hold)) is not None]
    return PodRun(
        uid=str(uuid.uuid5(uuid.NAMESPACE_OID, f"{script.spec.seed}/{first.pod}/{first.start}")),
        namespace=NAMESPACES.get(job.kind, "default"),
        name=first.pod,
        job=job,
        host=first.host,
        start=first.start,
        end=first.end,
        shown_until=first.end + lingers,
        devices=tuple(devices),
        share=first.share,
    )


def shown_spans(runs: list[PodRun]) -> Spans:
    """For each device and pod: when its labels are shown."""
    return Spans.of([(device, run.start, run.shown_until, 1) for run in runs for device in run.devices])


def pod_records(script: Script, runs: list[PodRun], now: int, since: int | None = None) -> pa.Table:
    """Pods as the API knew them at minute `now`; with `since`, only those that changed after it."""
    known = [run for run in runs if run.start <= now]
    if since is not None:
        known = [run for run in known if since < run.start <= now or since < run.end <= now]
    return to_table("pod", (_record(script, run, now) for run in known))


def _record(script: Script, run: PodRun, now: int) -> Pod:
    at = script.spec.instant
    is_over = run.end <= now
    return Pod(
        uid=run.uid,
        cluster=CLUSTER,
        namespace=run.namespace,
        pod=run.name,
        node=script.fleet.hosts[run.host].name,
        workload_id=run.job.workload_id,
        gpu_count=float(len(run.devices)),
        resource=run.resource(script),
        phase="Succeeded" if is_over else "Running",
        owner_kind=OWNER_KINDS.get(run.job.kind, "Job"),
        owner_name=run.job.workload_id,
        created_at=at(run.start),
        started_at=at(run.start),
        ended_at=at(run.end) if is_over else None,
        seen_at=at(min(now, run.listed_until)),
    )


def held_hours(script: Script, runs: list[PodRun], begin: int, end: int) -> pa.Table:
    """What each pod really held in [`begin`, `end`): a row for each pod and device, in GPU-hours.

    A card that pods share in time is divided equally among those that are there; HAMi gives each its part.
    """
    rows = []
    by_device: dict[int, list[PodRun]] = {}
    for run in runs:
        for device in run.devices:
            if run.start < end and run.end > begin:
                by_device.setdefault(device, []).append(run)
    for device, own in sorted(by_device.items()):
        part = script.fleet.devices[device]
        weight = 1.0 if part.slice is None else part.slice.share
        is_given = bool(script.fleet.host_of(part.card).hardware.sharing)
        minutes = _given(own, begin, end) if is_given else _divided(own, begin, end)
        gpu_uuid = script.fleet.cards[part.card].gpu_uuid
        rows += [(run, gpu_uuid, part.slice, weight * minutes[run.uid] / 60) for run in own]
    return pa.table(
        {
            "workload_id": [run.job.workload_id for run, *_ in rows],
            "namespace": [run.namespace for run, *_ in rows],
            "pod": [run.name for run, *_ in rows],
            "uid": [run.uid for run, *_ in rows],
            "gpu_uuid": [gpu_uuid for _, gpu_uuid, _, _ in rows],
            "slice_id": [part.slice_id if part else "" for *_, part, _ in rows],
            "gpu_hours": [hours for *_, hours in rows],
        }
    )


def _given(runs: list[PodRun], begin: int, end: int) -> dict[str, float]:
    """Minutes of each of `runs` (by uid) on one device, times the part of it that the pod was given."""
    return {run.uid: run.share * (min(run.end, end) - max(run.start, begin)) for run in runs}


def _divided(runs: list[PodRun], begin: int, end: int) -> dict[str, float]:
    """Minutes of each of `runs` (by uid) on one device, divided among those that are there at the same time."""
    edges = sorted({begin, end, *(min(max(edge, begin), end) for run in runs for edge in (run.start, run.end))})
    minutes: dict[str, float] = {}
    for left, right in pairwise(edges):
        there = [run for run in runs if run.start <= left and run.end >= right]
        for run in there:
            minutes[run.uid] = minutes.get(run.uid, 0.0) + (right - left) / len(there)
    return minutes
