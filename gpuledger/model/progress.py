"""What work says of its own progress: steps, the model it trains, its phases and its checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, measure, quantity
from gpuledger.model.vocabulary import PHASES, PRECISIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep:
    """A step that one rank of a job ended at `ts`. Grain: (`workload_id`, `rank`, `ts`).

    `tokens` are those of the whole job in the step. `step_seconds` is wall time; `compute_seconds` the rank's own work
    before the collective (synchronous ranks show equal wall times). `gpu_uuid` is the rank's card, where it says so.
    `model_flops_per_gpu_second` is what the trainer itself works out (Megatron's TFLOP/s/GPU), by its own formula.
    """

    ts: datetime
    workload_id: str
    rank: int = quantity("count", low=0)
    step: int = quantity("count", low=0)
    gpu_uuid: str | None = None
    tokens: float | None = measure("tokens", low=0)
    step_seconds: float | None = measure("seconds", low=0)
    compute_seconds: float | None = measure("seconds", low=0)
    model_flops_per_gpu_second: float | None = measure("FLOP/s", low=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobModel:
    """What a job declares of the model it trains. Grain: (`workload_id`); a later record replaces it.

    `active_parameters` are those that a token passes through; `layers`, `hidden_size` and `sequence_tokens` add the
    attention term where all three are known. `parallelism` is how many GPUs one replica of the model needs. A job whose
    steps tell `model_flops_per_gpu_second` may leave the parameters out: then that counts, against `precision`'s peak.
    """

    workload_id: str
    active_parameters: float | None = measure("count", low=1)
    layers: int | None = measure("count", low=0)
    hidden_size: int | None = measure("count", low=0)
    sequence_tokens: int | None = measure("tokens", low=0)
    precision: str = choice(PRECISIONS, default="bf16")
    parallelism: int | None = measure("count", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadPhase:
    """What a job, or one pod of it, was doing during [`from_at`, `until_at`). Grain: (`workload_id`, `pod`, `from_at`).

    `pod` is empty for all of them. In a phase of QUIET_PHASES cards may be quiet without being idle.
    """

    workload_id: str
    pod: str = ""
    phase: str = choice(PHASES)
    from_at: datetime
    until_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was complete at `ts`: what was done before is kept. Grain: (`workload_id`, `ts`).

    `blocking_seconds` is how long training stood still for it.
    """

    ts: datetime
    workload_id: str
    step: int | None = measure("count", low=0)
    blocking_seconds: float | None = measure("seconds", low=0)
