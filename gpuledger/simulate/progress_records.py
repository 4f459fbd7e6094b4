"""The records of what work and drivers tell: steps, models, phases, checkpoints and faults."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from gpuledger.model import Checkpoint, FaultEvent, JobModel, WorkloadPhase, complete, to_table
from gpuledger.simulate.progress import Progress, Stepping
from gpuledger.simulate.script import Ailment, Job, Script

CHECKPOINT_BLOCKING_SECONDS = 20.0


def progress_tables(script: Script, begin: int, end: int) -> Iterator[tuple[str, pa.Table]]:
    """(record, table) of what was told in minutes [`begin`, `end`); nothing of a record of which nothing was told."""
    telling = [(job, job.progress) for job in script.jobs if job.progress is not None and job.submit < end]
    tables = {
        "job_model": _models(telling, begin),
        "workload_phase": _phases(script, telling, begin, end),
        "checkpoint": _checkpoints(script, telling, begin, end),
        "fault_event": _faults(script, begin, end),
    }
    for record, table in tables.items():
        if table.num_rows:
            yield record, table
    steps = [
        _steps(script, job, stepping, begin, end)
        for job, progress in telling
        for stepping in progress.steps
        if stepping.start < end and stepping.end > begin
    ]
    if steps:
        yield "job_step", pa.concat_tables(steps)


def _models(telling: list[tuple[Job, Progress]], begin: int) -> pa.Table:
    return to_table(
        "job_model",
        (
            JobModel(workload_id=job.workload_id, active_parameters=progress.parameters)
            for job, progress in telling
            if progress.parameters and (job.start or 0) >= begin
        ),
    )


def _phases(script: Script, telling: list[tuple[Job, Progress]], begin: int, end: int) -> pa.Table:
    at = script.spec.instant
    return to_table(
        "workload_phase",
        (
            WorkloadPhase(
                workload_id=job.workload_id,
                pod="" if told.pod is None else f"{job.workload_id}-{told.pod}",
                phase=told.phase,
                from_at=at(told.start),
                until_at=at(told.end) if told.end <= end else None,
            )
            for job, progress in telling
            for told in progress.phases
            if told.start < end and told.end >= begin
        ),
    )


def _checkpoints(script: Script, telling: list[tuple[Job, Progress]], begin: int, end: int) -> pa.Table:
    return to_table(
        "checkpoint",
        (
            Checkpoint(
                ts=script.spec.instant(minute),
                workload_id=job.workload_id,
                blocking_seconds=CHECKPOINT_BLOCKING_SECONDS,
            )
            for job, progress in telling
            for minute in progress.checkpoints
            if begin <= minute < end
        ),
    )


def _faults(script: Script, begin: int, end: int) -> pa.Table:
    fleet = script.fleet
    return to_table(
        "fault_event",
        (
            FaultEvent(
                ts=script.spec.instant(ailment.start),
                node=fleet.host_of(ailment.card).name,
                gpu_uuid=fleet.cards[ailment.card].gpu_uuid,
                vendor=fleet.host_of(ailment.card).hardware.facts.vendor,
                kind=ailment.kind,
                code=_code(ailment),
                source="npu_exporter" if ailment.kind == "npu_fault" else "kernel_log",
                count=1,
            )
            for ailment in script.ailments
            if ailment.is_told and begin <= ailment.start < end
        ),
    )


def _code(ailment: Ailment) -> str:
    """The vendor's own code, as drivers and exporters write it."""
    if ailment.kind == "npu_fault":
        return f"{ailment.code:X}"
    return str(ailment.code) if ailment.kind == "xid" else ""


def _steps(script: Script, job: Job, stepping: Stepping, begin: int, end: int) -> pa.Table:
    """A row for each rank and step, the ranks of a step side by side."""
    length, first = stepping.step_seconds, stepping.start * 60.0
    count = int((stepping.end * 60 - first) // length)
    numbers = np.arange(1, count + 1)
    ends = first + numbers * length
    near = (ends >= begin * 60) & (ends < end * 60)
    numbers, ends, ranks = numbers[near], ends[near], len(job.holds)
    compute = np.full(ranks, length * stepping.compute_ratio)
    if stepping.slow_rank is not None:
        compute[stepping.slow_rank] *= stepping.slow_factor
    wobble = 1 + 0.01 * np.sin(np.repeat(numbers, ranks) + np.tile(np.arange(ranks), len(numbers)))
    start_us = int(script.spec.start_at.timestamp()) * 1_000_000
    times = pa.array(start_us + np.repeat(ends * 1e6, ranks).astype(np.int64)).cast(pa.timestamp("us", tz="UTC"))
    uuids = [script.fleet.cards[hold.card or 0].gpu_uuid for hold in job.holds]
    rows = len(numbers) * ranks
    return complete(
        "job_step",
        pa.table(
            {
                "ts": times,
                "workload_id": pa.array([job.workload_id] * rows, pa.string()),
                "rank": np.tile(np.arange(ranks), len(numbers)),
                "step": np.repeat(numbers, ranks),
                "gpu_uuid": pa.array(uuids * len(numbers), pa.string()),
                "tokens": np.full(rows, stepping.tokens),
                "step_seconds": np.full(rows, length),
                "compute_seconds": np.tile(compute, len(numbers)) * wobble,
            }
        ),
    )
