"""Who wants and holds GPUs: tenants, queues, quotas, workloads, allocations and load."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, measure, quantity
from gpuledger.model.vocabulary import STAGES, WORKLOAD_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """Who pays: one node of a dated tree (division, department, team, user). Grain: (`tenant`, `from_at`)."""

    tenant: str
    parent: str | None = None
    display_name: str | None = None
    from_at: datetime
    until_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Where work waits. Queues of one `cohort` may borrow from each other. Grain: (`queue`)."""

    queue: str
    tenant: str
    cohort: str | None = None
    scheduler: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a queue may use of one flavor (GPU model; empty: any), with dates. Grain: (`queue`, `flavor`, `from_at`).

    Unset limits are None ("unlimited"), which is not zero. `guarantee_gpus` is the floor that no move may cross.
    """

    queue: str
    tenant: str
    flavor: str = ""
    nominal_gpus: float = quantity("GPUs", high=1e7)
    borrowing_limit_gpus: float | None = measure("GPUs", low=0)
    lending_limit_gpus: float | None = measure("GPUs", low=0)
    guarantee_gpus: float = 0.0
    weight: float = 1.0
    from_at: datetime
    until_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A job, service or notebook, and the shape it asks for. Grain: (`workload_id`); a later record replaces it.

    `num_gpu` GPUs a pod, `gpu_milli` thousandths of each (1000 = a whole card; 0 GPUs = CPU only).
    `model_set` lists accepted models, separated by "|"; None accepts all. Pods of a gang start together.
    """

    workload_id: str
    name: str | None = None
    kind: str = choice(WORKLOAD_KINDS, default="unknown")
    stage: str = choice(STAGES, default="other")
    tenant: str = ""
    user: str | None = None
    queue: str = ""
    submitted_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    pod_count: int = quantity("count", low=0, high=1_000_000)
    num_gpu: int = quantity("count", high=1024)
    gpu_milli: int = quantity("milli-GPU", high=1000)
    cpu_milli: int = quantity("milli-CPU")
    memory_mib: int = quantity("MiB")
    model_set: str | None = None
    min_replicas: int = 0
    priority: int = 0
    is_gang: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """A pod's hold on one GPU or slice during [`started_at`, `ended_at`). Grain: (`allocation_id`).

    A later record replaces an earlier one.

    `share` is the part of the physical GPU. `gpu_uuid` is None for a pod that holds only CPU; its CPU and memory
    (`cpu_milli`, `memory_mib`: this allocation's part of the pod's) still fill the node.
    """

    allocation_id: str
    workload_id: str
    pod: str
    node: str
    gpu_uuid: str | None = None
    slice_id: str = ""
    share: float = quantity("share", high=1.0)
    cpu_milli: int = 0
    memory_mib: int = 0
    started_at: datetime
    ready_at: datetime | None = None
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """A Kubernetes pod that asks for GPUs, as the API or kube-state-metrics knows it. Grain: (`uid`).

    Says when a pod really ran and whose it is; which card it sits on is said by sightings (`Holding`) or allocations.
    A later record fills in what it knows and keeps what it does not. `gpu_count` counts `resource`
    (`nvidia_com_gpu`, `nvidia_com_mig_1g_10gb`, ...) over its containers. `labels` is a JSON object. `workload_id`
    follows from labels and owner by the attribution rules; `ended_at` is when its containers ended, which may be long
    before the object is deleted. `seen_at` is when it was last listed.
    """

    uid: str
    cluster: str = "default"
    namespace: str
    pod: str
    node: str | None = None
    workload_id: str | None = None
    gpu_count: float | None = measure("count", low=0, high=100_000)
    resource: str | None = None
    phase: str | None = None
    owner_kind: str | None = None
    owner_name: str | None = None
    labels: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    seen_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What a queue ran and what waited, constant during [`ts`, `ts` + `duration_seconds`). Grain: (`queue`, `ts`)."""

    ts: datetime
    queue: str
    tenant: str
    duration_seconds: float = quantity("seconds", low=0.001, high=31 * 86_400)
    nominal_gpus: float | None = measure("GPUs", low=0)
    running_gpus: float = quantity("GPUs")
    pending_gpus: float = quantity("GPUs")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLoad:
    """What a service was asked to do during [`ts`, `ts` + `duration_seconds`). Grain: (`workload_id`, `ts`)."""

    ts: datetime
    workload_id: str
    duration_seconds: float = quantity("seconds", low=0.001, high=31 * 86_400)
    requests_per_second: float | None = measure("1/second", low=0)
    demand_gpus: float | None = measure("GPUs", low=0)
    ready_replicas: int | None = measure("count", low=0)
