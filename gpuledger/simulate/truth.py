"""What was planted, from the script alone.

`truth` gives one Arrow table (truth.parquet):

| column | meaning |
|---|---|
| kind | "waste": should be found; "advice", "health": should be told, outside waste; "lookalike": must not be accused |
| rule | the rule that it is about; of no rule's name: stalled, tidal, fault, or "none" |
| cause | the script's word for what happened |
| subject_kind | workload, gpu, node, service or tenant |
| subject_id | workload_id, gpu_uuid, node, or tenant |
| pod | the pod, where the row is about one |
| gpu_uuid | the card; null for services and tenants |
| tenant | who held it; null for free cards |
| from_at, until_at | the stretch, clipped to the span |
| gpu_hours | share of a card times hours; of dips only the dips, of work only what is no dip. Quota rows count quota |
| note | what it is in words |

Rows of waste never overlap on a share of a card, apart from quota rows, which are another currency, and rows of rule
"tidal", which say by how much a service that spreads its load is too large at night (its cards are lookalikes for
idle_allocation). Idle replicas above a service's floor are rule idle_allocation, cause tidal_idle. Rule "none" is waste
that no rule can see.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from gpuledger.simulate.demand import team_steps
from gpuledger.simulate.free import free_spans
from gpuledger.simulate.script import Hold, Job, Mark, Phase, Script
from gpuledger.simulate.shapes import FREE, Shape

TRUTH_SCHEMA = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("rule", pa.string(), nullable=False),
        pa.field("cause", pa.string(), nullable=False),
        pa.field("subject_kind", pa.string(), nullable=False),
        pa.field("subject_id", pa.string(), nullable=False),
        pa.field("pod", pa.string()),
        pa.field("gpu_uuid", pa.string()),
        pa.field("tenant", pa.string()),
        pa.field("from_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("until_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("gpu_hours", pa.float64(), nullable=False),
        pa.field("note", pa.string(), nullable=False),
    ]
)

BLIND = Mark("lookalike", "idle_allocation", "exporter_silent", "the exporter did not answer: nothing is known")
USABLE = Mark("lookalike", "fragmentation", "free_usable", "free, and something that waits would fit")
FAULT = Mark("waste", "fault", "", "out of use")
OVERSIZED = Mark("waste", "tidal", "overprovisioned_at_night", "replicas beyond what the night needs")


class _Row(NamedTuple):
    mark: Mark
    cause: str
    subject: tuple[str, str]
    pod: str | None
    gpu_uuid: str | None
    tenant: str | None
    span: tuple[int, int]
    gpu_hours: float


def truth(script: Script) -> pa.Table:
    """Everything planted in the span of `script`."""
    end = script.spec.end_minute
    rows = [
        *_phase_rows(script, end),
        *_blind_rows(script, end),
        *_free_rows(script, end),
        *_fault_rows(script, end),
        *_ailment_rows(script, end),
        *_service_rows(script, end),
        *_quota_rows(script, end),
    ]
    rows.sort(key=lambda row: (row.span, row.subject, row.gpu_uuid or "", row.cause, row.pod or ""))
    at = script.spec.instant
    columns = {
        "kind": [row.mark.kind for row in rows],
        "rule": [row.mark.rule for row in rows],
        "cause": [row.cause for row in rows],
        "subject_kind": [row.subject[0] for row in rows],
        "subject_id": [row.subject[1] for row in rows],
        "pod": [row.pod for row in rows],
        "gpu_uuid": [row.gpu_uuid for row in rows],
        "tenant": [row.tenant for row in rows],
        "from_at": [at(row.span[0]) for row in rows],
        "until_at": [at(row.span[1]) for row in rows],
        "gpu_hours": [row.gpu_hours for row in rows],
        "note": [row.mark.note for row in rows],
    }
    return pa.table(columns, schema=TRUTH_SCHEMA)


def _phase_rows(script: Script, end: int) -> Iterator[_Row]:
    for job in script.jobs:
        for hold in job.holds:
            whole = Phase(hold.ready, hold.end, FREE)
            marked = [(phase, mark) for phase in hold.phases for mark in (phase.mark, *phase.also)]
            for phase, mark in [*marked, *((whole, mark) for mark in hold.marks)]:
                row = mark and _phase_row(script, (job, hold, phase), mark, end)
                if row:
                    yield row


def _phase_row(script: Script, what: tuple[Job, Hold, Phase], mark: Mark, end: int) -> _Row | None:
    job, hold, phase = what
    begin, stop = max(phase.start, 0), min(phase.end, end)
    if begin >= stop or hold.card is None:
        return None
    dips = _dip_minutes(phase.shape, begin, stop)
    minutes = dips if mark.dips_only else stop - begin - (dips if mark.work_only else 0)
    if not minutes:
        return None
    uuid = script.fleet.cards[hold.card].gpu_uuid
    subject = ("workload", job.workload_id)
    hours = hold.share * minutes / 60
    return _Row(mark, mark.cause, subject, hold.pod, uuid, job.team, (begin, stop), hours)


def _dip_minutes(shape: Shape, begin: int, end: int) -> int:
    if not shape.dip_every:
        return 0
    return int(np.count_nonzero((np.arange(begin, end) - shape.dip_offset) % shape.dip_every < shape.dip_for))


def _blind_rows(script: Script, end: int) -> Iterator[_Row]:
    for silent in script.silent_exporters:
        for job in script.jobs:
            for hold in job.holds:
                begin, stop = max(silent.start, hold.start), min(silent.end, hold.end, end)
                if hold.host == silent.host and hold.card is not None and begin < stop:
                    uuid = script.fleet.cards[hold.card].gpu_uuid
                    hours = hold.share * (stop - begin) / 60
                    subject = ("workload", job.workload_id)
                    yield _Row(BLIND, BLIND.cause, subject, hold.pod, uuid, job.team, (begin, stop), hours)


def _free_rows(script: Script, end: int) -> Iterator[_Row]:
    stranded = {
        cause: Mark("waste", "fragmentation", cause, note)
        for cause, note in (
            ("cpu", "CPU-only pods hold the CPUs that its pods would need"),
            ("insufficient_whole", "only whole-node pods wait, and the host is partly held"),
        )
    }
    for span in free_spans(script, 0, end):
        mark = USABLE if span.cause is None else stranded[span.cause]
        uuid = script.fleet.cards[span.card].gpu_uuid
        hours = span.share * (span.end - span.start) / 60
        yield _Row(mark, mark.cause, ("gpu", uuid), None, uuid, None, (span.start, span.end), hours)


def _fault_rows(script: Script, end: int) -> Iterator[_Row]:
    for outage in script.outages:
        begin, stop = max(outage.start, 0), min(outage.end, end)
        if outage.condition == "spare" or begin >= stop:
            continue
        for card in outage.cards:
            uuid = script.fleet.cards[card].gpu_uuid
            hours = (stop - begin) / 60
            yield _Row(FAULT, outage.condition, ("gpu", uuid), None, uuid, None, (begin, stop), hours)


def _ailment_rows(script: Script, end: int) -> Iterator[_Row]:
    """What a card shows, as a stretch of a minute at its beginning: such a row has no GPU-hours."""
    for ailment in script.ailments:
        if ailment.mark is not None and 0 <= ailment.start < end:
            uuid = script.fleet.cards[ailment.card].gpu_uuid
            span = (ailment.start, ailment.start + 1)
            yield _Row(ailment.mark, ailment.mark.cause, ("gpu", uuid), None, uuid, None, span, 0.0)
    for host, begin, stop, mark in script.host_marks:
        name = script.fleet.hosts[host].name
        yield _Row(mark, mark.cause, ("node", name), None, None, None, (begin, min(stop, end)), 0.0)


def _service_rows(script: Script, end: int) -> Iterator[_Row]:
    for name, team, span, gpus in script.over_provided:
        begin, stop = max(span.start, 0), min(span.end, end)
        if begin < stop:
            hours = gpus * (stop - begin) / 60
            yield _Row(OVERSIZED, OVERSIZED.cause, ("service", name), None, None, team, (begin, stop), hours)


def _quota_rows(script: Script, end: int) -> Iterator[_Row]:
    quotas = script.quotas
    for team, nominal in quotas.nominal.items():
        steps = team_steps(script, team, 0, end)
        spare = float((np.maximum(nominal - steps.demand, 0) * steps.hours).sum())
        unmet = float((np.maximum(steps.demand - nominal, 0) * steps.hours).sum())
        if team == quotas.underused:
            mark, hours = Mark("waste", "quota_balance", "underused", "a large quota and little demand"), spare
        elif team == quotas.blocked:
            mark, hours = Mark("waste", "quota_balance", "blocked", "demand beyond the quota, day after day"), unmet
        else:
            mark, hours = Mark("lookalike", "quota_balance", "well_used", "uses most of its quota"), spare
        yield _Row(mark, mark.cause, ("tenant", team), None, None, team, (0, end), hours)
        if unmet and team not in (quotas.underused, quotas.blocked):
            peak = Mark("lookalike", "quota_balance", "short_burst", "demand beyond the quota for an hour or so")
            yield _Row(peak, peak.cause, ("tenant", team), None, None, team, (0, end), unmet)
