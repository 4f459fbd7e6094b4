"""Pages of simulated servers of models: what their sources read from them, and when there is none."""

from __future__ import annotations

from datetime import timedelta
from http import HTTPStatus

import pytest

from collector.serving import Target, parse
from collector.sources.sglang import DIALECT as SGLANG
from collector.sources.vllm import DIALECT as VLLM
from gpuledger.errors import BadInput
from gpuledger.model import EngineReading
from gpuledger.simulate import FleetSpec, Simulation, simulate
from gpuledger.simulate.live import LiveServer
from gpuledger.testing import FakeClock

DIALECTS = {"vllm": VLLM, "sglang": SGLANG}


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return simulate(FleetSpec(nodes=7, days=1, seed=5, scenario="one_of_each"))


def engine(simulation: Simulation, pod: str, hour: float) -> EngineReading:
    at = simulation.spec.start_at + timedelta(hours=hour)
    run = next(run for run in simulation.servers(at) if run.name == pod)
    seen = parse(simulation.server_page(pod, at), at, Target(DIALECTS[run.job.server], name="t"))
    assert (seen.reads[0].ok, seen.reads[0].skipped_lines) == (True, 0)
    (reading,) = seen.others["engine_reading"]
    return reading


def pods(simulation: Simulation, style: str, server: str) -> list[str]:
    at = simulation.spec.start_at + timedelta(hours=16)
    return [run.name for run in simulation.servers(at) if style in run.name and run.job.server == server]


def test_a_trickle_is_a_request_in_five_seconds(simulation):
    """20 requests a second of a card that were fully active, times an activity of 1 %."""
    pod = pods(simulation, "trickle", "vllm")[0]
    first, then = (engine(simulation, pod, hour) for hour in (16, 17))
    assert (then.finished_requests or 0) - (first.finished_requests or 0) == pytest.approx(720, abs=1)
    assert (then.generation_tokens or 0) - (first.generation_tokens or 0) == pytest.approx(720 * 200, abs=200)
    assert then.first_token_seconds == pytest.approx(0.4 * (then.first_token_count or 0))


def test_a_replica_that_stands_by_counts_nothing(simulation):
    standing_by = pods(simulation, "concentrated", "vllm")[1]
    first, then = (engine(simulation, standing_by, hour) for hour in (16, 19))
    assert (then.running_requests, then.kv_cache_used_ratio) == (0.0, 0.0)
    assert then.finished_requests == first.finished_requests


def test_prefill_and_decode_are_servers_of_their_own(simulation):
    told = [engine(simulation, pod, 16) for pod in pods(simulation, "bright", "sglang")]
    assert [one.role for one in told] == ["prefill", "decode"] * 2
    assert [one.prompt_tokens is None for one in told] == [False, True] * 2
    assert [one.generation_tokens is None for one in told] == [True, False] * 2


def test_an_unknown_pod_has_no_page(simulation):
    at = simulation.spec.start_at + timedelta(hours=16)
    with pytest.raises(BadInput, match="pod"):
        simulation.server_page("nobody", at)
    pod = pods(simulation, "trickle", "vllm")[0]
    with LiveServer(simulation, "127.0.0.1:0", FakeClock(at)) as live:
        status, body = live.answer(f"/servers/{pod}/metrics")
        assert (status, body) == (HTTPStatus.OK, simulation.server_page(pod, at))
        assert live.answer("/servers/nobody/metrics")[0] == HTTPStatus.SERVICE_UNAVAILABLE
