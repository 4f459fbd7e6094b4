"""The words that every part of gpuledger shares."""

from gpuledger.model.fabric import LinkReading
from gpuledger.model.gpu_models import GPU_MODELS, GpuModel, canonical_model, slice_share, vendor_of
from gpuledger.model.health import FaultEvent
from gpuledger.model.inventory import Asset, Condition, Node, NodeState, SchedulerNode
from gpuledger.model.judgement import Finding, Move, QuotaChange, Recommendation
from gpuledger.model.money import Conversion, Price
from gpuledger.model.progress import Checkpoint, JobModel, JobStep, WorkloadPhase
from gpuledger.model.records import RECORDS, RecordType, arrow_schema, complete, to_table
from gpuledger.model.serving import EngineReading
from gpuledger.model.telemetry import Holding, QualityEvent, Reading, SourceRead
from gpuledger.model.vocabulary import BOTTLENECKS, PENDING_CAUSES, WASTE_STATES, Blame, QualityFlag, State
from gpuledger.model.window import Window
from gpuledger.model.work import (
    Allocation,
    Pod,
    Queue,
    QueueResource,
    QueueState,
    Quota,
    ServiceLoad,
    Tenant,
    Wait,
    Workload,
    WorkloadEvent,
)

__all__ = [
    "BOTTLENECKS",
    "GPU_MODELS",
    "PENDING_CAUSES",
    "RECORDS",
    "WASTE_STATES",
    "Allocation",
    "Asset",
    "Blame",
    "Checkpoint",
    "Condition",
    "Conversion",
    "EngineReading",
    "FaultEvent",
    "Finding",
    "GpuModel",
    "Holding",
    "JobModel",
    "JobStep",
    "LinkReading",
    "Move",
    "Node",
    "NodeState",
    "Pod",
    "Price",
    "QualityEvent",
    "QualityFlag",
    "Queue",
    "QueueResource",
    "QueueState",
    "Quota",
    "QuotaChange",
    "Reading",
    "Recommendation",
    "RecordType",
    "SchedulerNode",
    "ServiceLoad",
    "SourceRead",
    "State",
    "Tenant",
    "Wait",
    "Window",
    "Workload",
    "WorkloadEvent",
    "WorkloadPhase",
    "arrow_schema",
    "canonical_model",
    "complete",
    "slice_share",
    "to_table",
    "vendor_of",
]
