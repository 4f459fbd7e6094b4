"""What servers of models say of themselves: requests, tokens, caches and waiting times of one engine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, interval, measure, ratio
from gpuledger.model.vocabulary import ENGINE_ROLES

_MOST_REQUESTS = 1e9
_MOST_COUNTED = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReading:
    """What one engine of a server of models told of itself at `ts`.

    Grain: (`target`, `namespace`, `pod`, `model_name`, `role`, `engine`, `ts`).

    An engine is a data-parallel replica inside a server: engines of a server are added up, the ranks that compute one
    engine together are not. `pod` and `namespace` (of `cluster`) say where the server runs, `workload_id` which service
    it is, where that was declared; empty: not told. Requests are those that run or wait at `ts`. Columns of tokens,
    requests and seconds below `generation_tokens_per_second` are counters since the server began, which may start anew;
    each `_seconds` counter goes with a `_count` and gives a mean only as the ratio of their increases.
    `generation_tokens_per_second` is the server's own figure, which may stand still when nothing runs: the counters are
    believed before it. None: not told, or no measurement.
    """

    ts: datetime
    source: str
    target: str
    cluster: str = "default"
    namespace: str = ""
    pod: str = ""
    workload_id: str = ""
    model_name: str = ""
    role: str = choice(ENGINE_ROLES, default="unified")
    engine: str = "0"
    interval_seconds: float | None = interval()
    running_requests: float | None = measure("requests", low=0, high=_MOST_REQUESTS)
    waiting_requests: float | None = measure("requests", low=0, high=_MOST_REQUESTS)
    kv_cache_used_ratio: float | None = ratio()
    prefix_cache_hit_ratio: float | None = ratio()
    generation_tokens_per_second: float | None = measure("tokens/second", low=0, high=1e12)
    prompt_tokens: float | None = measure("tokens", low=0, high=_MOST_COUNTED)
    generation_tokens: float | None = measure("tokens", low=0, high=_MOST_COUNTED)
    finished_requests: float | None = measure("requests", low=0, high=_MOST_COUNTED)
    preempted_requests: float | None = measure("requests", low=0, high=_MOST_COUNTED)
    first_token_seconds: float | None = measure("seconds", low=0, high=_MOST_COUNTED)
    first_token_count: float | None = measure("count", low=0, high=_MOST_COUNTED)
    output_token_seconds: float | None = measure("seconds", low=0, high=_MOST_COUNTED)
    output_token_count: float | None = measure("count", low=0, high=_MOST_COUNTED)
    queue_seconds: float | None = measure("seconds", low=0, high=_MOST_COUNTED)
    queue_count: float | None = measure("count", low=0, high=_MOST_COUNTED)
    request_seconds: float | None = measure("seconds", low=0, high=_MOST_COUNTED)
    request_count: float | None = measure("count", low=0, high=_MOST_COUNTED)
