"""vLLM: the page of one server (port 8000, path /metrics) is one source of what its engines do.

Names of vLLM 0 and 1 are both known; a server in between gives some twice, and the newer one counts.
"""

from __future__ import annotations

from collector.serving import Dialect, EngineSource, Metric, Shape
from collector.serving.metrics import histogram

DIALECT = Dialect(
    source="vllm",
    prefixes=("vllm:", "vllm_"),
    engine_label="engine",
    metrics=(
        Metric("num_requests_running", "running_requests", Shape.GAUGE),
        Metric("num_requests_waiting", "waiting_requests", Shape.GAUGE),
        Metric("kv_cache_usage_perc", "kv_cache_used_ratio", Shape.RATIO),
        Metric("gpu_cache_usage_perc", "kv_cache_used_ratio", Shape.RATIO, "kv_cache_usage_perc"),
        Metric("avg_generation_throughput_toks_per_s", "generation_tokens_per_second", Shape.GAUGE),
        Metric("prompt_tokens_total", "prompt_tokens", Shape.COUNTER),
        Metric("generation_tokens_total", "generation_tokens", Shape.COUNTER),
        Metric("request_success_total", "finished_requests", Shape.COUNTER),
        Metric("num_preemptions_total", "preempted_requests", Shape.COUNTER),
        *histogram("time_to_first_token_seconds", "first_token"),
        *histogram("inter_token_latency_seconds", "output_token"),
        *histogram("time_per_output_token_seconds", "output_token", "inter_token_latency_seconds"),
        *histogram("request_queue_time_seconds", "queue"),
        *histogram("e2e_request_latency_seconds", "request"),
    ),
)


class VllmSource(EngineSource):
    """Reads one vLLM server. Options: those of every server of models (`EngineSource`)."""

    dialect = DIALECT
