"""SGLang: the page of one server (port 30000, with `--enable-metrics`) is one source of what its engines do.

Data-parallel ranks are engines of their own; of the tensor, pipeline and expert ranks that compute one together the
first one speaks for all. What the server counts before it hands requests out (tokens, finished requests, waiting
times) has no rank and stands with engine 0.
"""

from __future__ import annotations

from collector.serving import Dialect, EngineSource, Metric, Shape
from collector.serving.metrics import histogram

DIALECT = Dialect(
    source="sglang",
    prefixes=("sglang:", "sglang_"),
    engine_label="dp_rank",
    role_label="engine_type",
    rank_labels=("pp_rank", "tp_rank", "moe_ep_rank"),
    metrics=(
        Metric("num_running_reqs", "running_requests", Shape.GAUGE),
        Metric("num_queue_reqs", "waiting_requests", Shape.GAUGE),
        Metric("token_usage", "kv_cache_used_ratio", Shape.RATIO),
        Metric("cache_hit_rate", "prefix_cache_hit_ratio", Shape.RATIO),
        Metric("gen_throughput", "generation_tokens_per_second", Shape.GAUGE),
        Metric("prompt_tokens_total", "prompt_tokens", Shape.COUNTER),
        Metric("generation_tokens_total", "generation_tokens", Shape.COUNTER),
        Metric("num_requests_total", "finished_requests", Shape.COUNTER),
        Metric("num_retracted_requests_total", "preempted_requests", Shape.COUNTER),
        *histogram("time_to_first_token_seconds", "first_token"),
        *histogram("inter_token_latency_seconds", "output_token"),
        *histogram("time_per_output_token_seconds", "output_token", "inter_token_latency_seconds"),
        *histogram("queue_time_seconds", "queue"),
        *histogram("e2e_request_latency_seconds", "request"),
    ),
)


class SglangSource(EngineSource):
    """Reads one SGLang server. Options: those of every server of models (`EngineSource`)."""

    dialect = DIALECT
