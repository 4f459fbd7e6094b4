"""The words that every part of gpuledger shares."""

from gpuledger.model.gpu_models import GPU_MODELS, GpuModel, canonical_model, slice_share
from gpuledger.model.inventory import Asset, Condition, Node, SchedulerNode
from gpuledger.model.judgement import Finding, QuotaChange, Recommendation
from gpuledger.model.records import RECORDS, RecordType, arrow_schema, complete, to_table
from gpuledger.model.telemetry import Holding, QualityEvent, Reading, SourceRead
from gpuledger.model.vocabulary import WASTE_STATES, QualityFlag, State
from gpuledger.model.window import Window
from gpuledger.model.work import Allocation, Pod, Queue, QueueState, Quota, ServiceLoad, Tenant, Workload

__all__ = [
    "GPU_MODELS",
    "RECORDS",
    "WASTE_STATES",
    "Allocation",
    "Asset",
    "Condition",
    "Finding",
    "GpuModel",
    "Holding",
    "Node",
    "Pod",
    "QualityEvent",
    "QualityFlag",
    "Queue",
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
    "Window",
    "Workload",
    "arrow_schema",
    "canonical_model",
    "complete",
    "slice_share",
    "to_table",
]
