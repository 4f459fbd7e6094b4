"""The table of records that may be sent to the warehouse: one name, one class, one key.

The Arrow schema of a record is derived from its dataclass, so that the collector, the ingest API
and the warehouse cannot disagree.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from operator import attrgetter
from typing import Any

import pyarrow as pa

from gpuledger.model import fabric, health, inventory, money, progress, serving, telemetry, work

_ARROW = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", tz="UTC"),
}


@dataclasses.dataclass(frozen=True, slots=True)
class RecordType:
    """A kind of record: its `name` (also its table's), its class, its key columns and the column that dates it.

    `is_stream` records are appended and bounded in time; the others are replaced by key. Of `is_filled` records the
    one seen last wins column by column, the others fill what it does not know (None); the order in which they come
    does not matter.
    """

    name: str
    cls: type[Any]
    key: tuple[str, ...]
    time_column: str
    is_stream: bool = False
    is_filled: bool = False


_TYPES = (
    RecordType("reading", telemetry.Reading, ("gpu_uuid", "slice_id", "ts", "source"), "ts", is_stream=True),
    RecordType("source_read", telemetry.SourceRead, ("node", "source", "ts"), "ts", is_stream=True),
    RecordType(
        "quality_event",
        telemetry.QualityEvent,
        ("ts", "source", "subject", "kind", "detail"),
        "ts",
        is_stream=True,
    ),
    RecordType("holding", telemetry.Holding, ("gpu_uuid", "slice_id", "namespace", "pod", "ts"), "ts", is_stream=True),
    RecordType("node", inventory.Node, ("node", "from_at"), "from_at"),
    RecordType("asset", inventory.Asset, ("gpu_uuid", "from_at"), "from_at"),
    RecordType("condition", inventory.Condition, ("subject", "condition", "from_at"), "from_at"),
    RecordType("scheduler_node", inventory.SchedulerNode, ("scheduler", "node", "from_at"), "from_at"),
    RecordType("node_state", inventory.NodeState, ("scheduler", "node", "resource", "from_at"), "from_at"),
    RecordType("tenant", work.Tenant, ("tenant", "from_at"), "from_at"),
    RecordType("queue", work.Queue, ("queue",), ""),
    RecordType("quota", work.Quota, ("queue", "flavor", "from_at"), "from_at"),
    RecordType("queue_resource", work.QueueResource, ("queue", "flavor", "resource", "from_at"), "from_at"),
    RecordType("workload", work.Workload, ("workload_id",), "submitted_at"),
    RecordType("allocation", work.Allocation, ("allocation_id",), "started_at"),
    RecordType("pod", work.Pod, ("uid",), "seen_at", is_filled=True),
    RecordType("wait", work.Wait, ("workload_id", "from_at"), "from_at"),
    RecordType("workload_event", work.WorkloadEvent, ("workload_id", "ts", "kind", "pod"), "ts"),
    RecordType("queue_state", work.QueueState, ("queue", "ts"), "ts", is_stream=True),
    RecordType("job_step", progress.JobStep, ("workload_id", "rank", "ts"), "ts", is_stream=True),
    RecordType("job_model", progress.JobModel, ("workload_id",), ""),
    RecordType("workload_phase", progress.WorkloadPhase, ("workload_id", "pod", "from_at"), "from_at"),
    RecordType("checkpoint", progress.Checkpoint, ("workload_id", "ts"), "ts", is_stream=True),
    RecordType("fault_event", health.FaultEvent, ("ts", "node", "gpu_uuid", "kind", "code"), "ts", is_stream=True),
    RecordType("link_reading", fabric.LinkReading, ("node", "device", "port", "source", "ts"), "ts", is_stream=True),
    RecordType("price", money.Price, ("model", "tenant", "basis", "from_at"), "from_at"),
    RecordType("conversion", money.Conversion, ("model", "basis", "from_at"), "from_at"),
    RecordType("service_load", work.ServiceLoad, ("workload_id", "ts"), "ts", is_stream=True),
    RecordType(
        "engine_reading",
        serving.EngineReading,
        ("target", "namespace", "pod", "model_name", "role", "engine", "ts"),
        "ts",
        is_stream=True,
    ),
)

RECORDS: Mapping[str, RecordType] = types.MappingProxyType({record.name: record for record in _TYPES})


def _arrow_field(field: dataclasses.Field[Any], hint: Any) -> pa.Field:
    options = typing.get_args(hint)
    nullable = type(None) in options
    base = next((option for option in options if option is not type(None)), hint)
    return pa.field(field.name, _ARROW[base], nullable=nullable)


@cache
def arrow_schema(name: str) -> pa.Schema:
    """The Arrow schema of record `name`: columns in the order of its class, times in UTC microseconds."""
    cls = RECORDS[name].cls
    hints = typing.get_type_hints(cls)
    return pa.schema([_arrow_field(field, hints[field.name]) for field in dataclasses.fields(cls)])


def to_table(name: str, rows: Iterable[Any]) -> pa.Table:
    """Records of class `RECORDS[name].cls` as one Arrow table."""
    schema = arrow_schema(name)
    given = list(rows)
    arrays = [pa.array(list(map(attrgetter(field.name), given)), field.type) for field in schema]
    return pa.table(arrays, schema=schema)


def complete(name: str, table: pa.Table) -> pa.Table:
    """`table` with the columns it lacks filled with their defaults, in schema order.

    Raises KeyError naming a required column that is absent.
    """
    schema = arrow_schema(name)
    columns = []
    for field in dataclasses.fields(RECORDS[name].cls):
        target = schema.field(field.name)
        if field.name in table.column_names:
            columns.append(table[field.name].cast(target.type))
        elif field.default is not dataclasses.MISSING:
            columns.append(pa.array([field.default] * table.num_rows, target.type))
        else:
            raise KeyError(field.name)
    return pa.table(columns, schema=schema)
