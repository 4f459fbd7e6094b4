"""What exists: nodes, cards, their conditions, and what a scheduler believes it has."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, measure, quantity
from gpuledger.model.vocabulary import ASSET_STATUSES, CONDITIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host during [`from_at`, `until_at`). Grain: (`node`, `from_at`)."""

    node: str
    cluster: str = "default"
    pool: str = "default"
    model: str | None = None
    gpu_count: int = quantity("count", high=1024)
    cpu_milli: int | None = measure("milli-CPU", low=0)
    memory_mib: int | None = measure("MiB", low=0)
    leaf: str | None = None
    spine: str | None = None
    nvl_domain: str | None = None
    from_at: datetime
    until_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One physical card with one status during [`from_at`, `until_at`). Grain: (`gpu_uuid`, `from_at`).

    A GPU is identified by UUID, never by index; `slot` is where it sits and may change.
    `origin` is `declared` (an assets list), `imported` (a trace) or `inferred` (seen by telemetry or a scheduler).
    """

    gpu_uuid: str
    node: str
    slot: int | None = measure("count", low=0)
    model: str | None = None
    pool: str = "default"
    status: str = choice(ASSET_STATUSES)
    origin: str = choice(("declared", "imported", "inferred"), default="declared")
    from_at: datetime
    until_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A dated fact that takes a node or GPU out of use or sets it aside. Grain: (`subject`, `condition`, `from_at`)."""

    subject_kind: str = choice(("node", "gpu"))
    subject: str
    condition: str = choice(CONDITIONS)
    from_at: datetime
    until_at: datetime | None = None
    reason: str | None = None
    source: str = "scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerNode:
    """How many GPUs a scheduler believes a node offers, with dates. Grain: (`scheduler`, `node`, `from_at`)."""

    scheduler: str
    node: str
    gpu_count: int = quantity("count", high=1024)
    from_at: datetime
    until_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """What a scheduler has and gave away of one GPU resource of a node, from `from_at` on.

    Grain: (`scheduler`, `node`, `resource`, `from_at`). In units of `resource` (spelt `nvidia_com_gpu`, `gres_gpu`:
    cards, slices or replicas). `capacity` is what is there, `allocatable` what may be given away (unhealthy devices
    left out), `allocated` what was; `free` is what a new pod could get of it: 0 on a node that takes none.
    """

    scheduler: str
    node: str
    resource: str
    capacity: float = quantity("count")
    allocatable: float | None = measure("count", low=0)
    allocated: float = quantity("count")
    free: float = quantity("count")
    is_ready: bool = True
    is_schedulable: bool = True
    reason: str | None = None
    topology: str | None = None
    from_at: datetime
    until_at: datetime | None = None
