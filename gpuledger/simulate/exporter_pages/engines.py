"""Pages of servers of models: vLLM's of a whole server, SGLang's of one that only prefills or only decodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuledger.simulate.pods import PodRun

REQUESTS_PER_SM = 20.0
"""Requests a second that one fully active card answers: a server's load is what its cards' activity was painted for."""
PROMPT_TOKENS, GENERATED_TOKENS = 600, 200
FIRST_TOKEN_SECONDS, OUTPUT_TOKEN_SECONDS, QUEUE_SECONDS = 0.4, 0.025, 0.05
REQUEST_SECONDS = QUEUE_SECONDS + FIRST_TOKEN_SECONDS + GENERATED_TOKENS * OUTPUT_TOKEN_SECONDS
MOST_REQUESTS = 128
ROLES = ("prefill", "decode")


@dataclass(frozen=True, slots=True)
class Served:
    """What a server answered since it began, and what it is asked for now; `number` is its replica's."""

    model: str
    number: int
    requests: int
    requests_per_second: float


def served(run: PodRun, second: int) -> Served:
    """What the server in the pod of `run` did up to `second` of the script, by the activity of its phases."""
    total, rate = 0.0, 0.0
    for hold in (hold for hold in run.job.holds if hold.pod == run.name):
        for phase in hold.phases:
            asked = REQUESTS_PER_SM * phase.shape.sm
            total += asked * max(0, min(second, phase.end * 60) - phase.start * 60)
            rate += asked if phase.start * 60 <= second < phase.end * 60 else 0.0
    number = int(run.name.removeprefix(f"{run.job.workload_id}-").partition("-")[0])
    return Served(run.job.workload_id, number, int(total), rate)


def vllm_page(told: Served) -> bytes:
    """The page of a vLLM server that does the whole of a request."""
    running = told.requests_per_second * REQUEST_SECONDS
    requests, generated = told.requests, told.requests * GENERATED_TOKENS
    values = {
        "num_requests_running": min(running, MOST_REQUESTS),
        "num_requests_waiting": max(0.0, running - MOST_REQUESTS),
        "kv_cache_usage_perc": min(1.0, running / MOST_REQUESTS),
        "prompt_tokens_total": requests * PROMPT_TOKENS,
        "generation_tokens_total": generated,
        **_means("time_to_first_token_seconds", requests, FIRST_TOKEN_SECONDS),
        **_means("inter_token_latency_seconds", generated, OUTPUT_TOKEN_SECONDS),
        **_means("request_queue_time_seconds", requests, QUEUE_SECONDS),
        **_means("e2e_request_latency_seconds", requests, REQUEST_SECONDS),
    }
    labels = f'engine="0",model_name="{told.model}"'
    ended = f'vllm:request_success_total{{finished_reason="stop",{labels}}} {requests}'
    return _page([*(f"vllm:{name}{{{labels}}} {value:.17g}" for name, value in values.items()), ended])


def sglang_page(told: Served) -> bytes:
    """The page of an SGLang server: the first replica of a service and every second after it prefill, others decode."""
    role = ROLES[told.number % len(ROLES)]
    requests, generated = told.requests, told.requests * GENERATED_TOKENS
    is_prefill = role == "prefill"
    busy_seconds = FIRST_TOKEN_SECONDS if is_prefill else GENERATED_TOKENS * OUTPUT_TOKEN_SECONDS
    running = told.requests_per_second * busy_seconds
    values = {
        "num_running_reqs": min(running, MOST_REQUESTS),
        "num_queue_reqs": max(0.0, running - MOST_REQUESTS),
        "token_usage": min(1.0, running / MOST_REQUESTS),
    }
    if is_prefill:
        values |= {
            "prompt_tokens_total": requests * PROMPT_TOKENS,
            **_means("time_to_first_token_seconds", requests, FIRST_TOKEN_SECONDS),
            **_means("queue_time_seconds", requests, QUEUE_SECONDS),
        }
    else:
        values |= {
            "num_requests_total": requests,
            "generation_tokens_total": generated,
            **_means("inter_token_latency_seconds", generated, OUTPUT_TOKEN_SECONDS),
        }
    labels = f'engine_type="{role}",model_name="{told.model}",pp_rank="0",tp_rank="0"'
    return _page(f"sglang:{name}{{{labels}}} {value:.17g}" for name, value in values.items())


def _means(name: str, count: float, mean: float) -> Mapping[str, float]:
    return {f"{name}_sum": count * mean, f"{name}_count": count}


def _page(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


SERVERS = {"vllm": vllm_page, "sglang": sglang_page}
"""Of a kind of server, its page."""
