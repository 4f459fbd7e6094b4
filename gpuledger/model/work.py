"""Who wants and holds GPUs: tenants, queues, quotas, workloads, allocations and load."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, measure, quantity
from gpuledger.model.vocabulary import (
    PENDING_CAUSES,
    QUEUE_STATUSES,
    STAGES,
    WORKLOAD_EVENTS,
    WORKLOAD_KINDS,
    WORKLOAD_STATUSES,
)


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
    """Where work waits. Queues of one `cohort` may borrow from each other. Grain: (`queue`).

    `parent` is the queue (or cohort) above it. Names are those of the scheduler; those of a cluster with a name of its
    own begin with "<cluster>/". `scheduler` is "<adapter>" or "<adapter>/<cluster>".
    """

    queue: str
    tenant: str
    cohort: str | None = None
    scheduler: str = "default"
    parent: str | None = None
    status: str = choice(QUEUE_STATUSES, default="open")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What a queue may use of one flavor (GPU model; empty: any), with dates. Grain: (`queue`, `flavor`, `from_at`).

    In whole GPUs. None is "no such limit": unlimited, as the scheduler means what is unset. Zero is a limit of zero.
    What the scheduler should have told and did not is None and named in `not_reported` ("nominal_gpus|limit_gpus").
    `nominal_gpus` is what is the queue's own, `limit_gpus` the most that it may ever hold, borrowed included;
    `guarantee_gpus` is the floor that no move may cross.
    """

    queue: str
    tenant: str
    flavor: str = ""
    nominal_gpus: float | None = measure("GPUs", low=0, high=1e7)
    borrowing_limit_gpus: float | None = measure("GPUs", low=0)
    lending_limit_gpus: float | None = measure("GPUs", low=0)
    limit_gpus: float | None = measure("GPUs", low=0)
    guarantee_gpus: float = 0.0
    weight: float = 1.0
    not_reported: str = ""
    from_at: datetime
    until_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueResource:
    """What a scheduler says of one resource of a queue, in its own unit, from `from_at` on.

    Grain: (`queue`, `flavor`, `resource`, `from_at`).

    `resource` is spelt as in the cluster (`nvidia.com/gpu`, `volcano.sh/vgpu-memory`, `cpu`, `gres/gpu`). None of
    `nominal` and `limit` is "no such limit", of the others "not reported"; `lent` and `borrowed` are the scheduler's
    own figures, or follow from them as the adapter's page says. `nominal`, `limit`, `used`, `borrowed`, `lent` and
    `pending` are different things and never added.
    """

    queue: str
    flavor: str = ""
    resource: str
    nominal: float | None = measure("resource units", low=0)
    limit: float | None = measure("resource units", low=0)
    used: float | None = measure("resource units", low=0)
    reserved: float | None = measure("resource units", low=0)
    borrowed: float | None = measure("resource units", low=0)
    lent: float | None = measure("resource units", low=0)
    pending: float | None = measure("resource units", low=0)
    from_at: datetime
    until_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A job, service or notebook, and the shape it asks for. Grain: (`workload_id`); a later record replaces it.

    Where a scheduler starts a job again after it ran (Slurm's requeue), each attempt is a workload of its own.
    `eligible_at` is when nothing but the scheduler was in its way any more (dependencies met, begin time reached, no
    hold); None: not known, or not yet. `pending_cause` is the mapped cause, `pending_reason` the scheduler's own words.
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
    scheduler: str = ""
    namespace: str = ""
    status: str = choice(WORKLOAD_STATUSES, default="unknown")
    eligible_at: datetime | None = None
    attempt: int = 0
    pending_cause: str | None = choice(tuple(PENDING_CAUSES), default=None)
    pending_reason: str | None = None


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
    """What a scheduler placed on one node, to run there with GPUs. Grain: (`uid`).

    A Kubernetes pod, the part of a Slurm job on one node, a Ray worker, a YARN container.

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
    """What a queue ran and what waited, constant during [`ts`, `ts` + `duration_seconds`). Grain: (`queue`, `ts`).

    In whole GPUs; None: not reported. `running_gpus` are those that its work holds, `borrowed_gpus` the part of them
    beyond its own quota that is others', `lent_gpus` what others hold of its own, `reserved_gpus` what is set aside
    for work that does not hold it (yet).
    """

    ts: datetime
    queue: str
    tenant: str
    duration_seconds: float = quantity("seconds", low=0.001, high=31 * 86_400)
    nominal_gpus: float | None = measure("GPUs", low=0)
    running_gpus: float = quantity("GPUs")
    pending_gpus: float | None = measure("GPUs", low=0)
    borrowed_gpus: float | None = measure("GPUs", low=0)
    lent_gpus: float | None = measure("GPUs", low=0)
    reserved_gpus: float | None = measure("GPUs", low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """Why a workload waited during [`from_at`, `until_at`), as its scheduler said. Grain: (`workload_id`, `from_at`).

    `cause` is one of PENDING_CAUSES; `reason` and `message` are the scheduler's words. `pods` of `pod_count` are
    blocked by it (a gang waits for its least fitting member); None: not told.
    """

    workload_id: str
    from_at: datetime
    until_at: datetime | None = None
    cause: str = choice(tuple(PENDING_CAUSES))
    reason: str = ""
    message: str | None = None
    gpus: float | None = measure("GPUs", low=0)
    pods: int | None = measure("count", low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadEvent:
    """A moment in a workload's life, as its scheduler dates it. Grain: (`workload_id`, `ts`, `kind`, `pod`).

    `reason` is the scheduler's word for it; `beneficiary` the workload or queue that a preemption made room for.
    """

    workload_id: str
    ts: datetime
    kind: str = choice(WORKLOAD_EVENTS)
    pod: str = ""
    reason: str | None = None
    beneficiary: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLoad:
    """What a service was asked to do during [`ts`, `ts` + `duration_seconds`). Grain: (`workload_id`, `ts`)."""

    ts: datetime
    workload_id: str
    duration_seconds: float = quantity("seconds", low=0.001, high=31 * 86_400)
    requests_per_second: float | None = measure("1/second", low=0)
    demand_gpus: float | None = measure("GPUs", low=0)
    ready_replicas: int | None = measure("count", low=0)
