"""What services were asked for and gave, and what it cost: engines into services, counters into rates, hand-worked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from collector.serving import Target, parse
from collector.sources.vllm import DIALECT
from gpuledger.model import to_table
from tests.warehouse.judged import AT, H100, MINUTE, Judged

HOUR = timedelta(hours=1)


@pytest.fixture
def ledger() -> Iterator[Judged]:
    judged = Judged()
    yield judged
    judged.house.close()


def tell(ledger: Judged, told: Mapping[float, Mapping[str, Any]], **changed: Any) -> None:
    """What an engine of pod `p` of service `w` told at minutes after AT."""
    common = {"source": "vllm", "target": "t", "pod": "p", "workload_id": "w", "interval_seconds": 60.0, **changed}
    ledger.put("engine_reading", *({**common, "ts": AT + minute * MINUTE, **values} for minute, values in told.items()))


def rising(minutes: range, **per_minute: float) -> dict[float, dict[str, Any]]:
    """Counters that rise by so much each minute."""
    return {minute: {name: 1000 + by * minute for name, by in per_minute.items()} for minute in minutes}


def activity(ledger: Judged, *, hours: float = 1, bucket: int = 3600) -> list[dict[str, Any]]:
    asked = {"from_at": AT, "to_at": AT + hours * HOUR, "bucket_seconds": bucket}
    rows: list[dict[str, Any]] = ledger.house.query("service_activity", **asked).to_pylist()
    return rows


def one(ledger: Judged) -> dict[str, Any]:
    (row,) = activity(ledger)
    return row


# 028: two engines of one server.
def test_engines_of_a_server_are_added_up(ledger: Judged) -> None:
    page = "".join(
        f'vllm:num_requests_running{{engine="{engine}",model_name="llm-a"}} {running}\n'
        f'vllm:kv_cache_usage_perc{{engine="{engine}",model_name="llm-a"}} {cache}\n'
        for engine, running, cache in ((0, 3.0, 0.9), (1, 5.0, 0.1))
    )
    seen = parse(page.encode(), AT, Target(DIALECT, name="t", workload_id="w")).others["engine_reading"]
    assert not ledger.house.ingest("engine_reading", to_table("engine_reading", seen), "b").rejected
    row = one(ledger)
    assert (row["running_requests"], row["engine_count"], row["replica_count"]) == (8.0, 2, 1)
    assert (row["kv_cache_used_mean_ratio"], row["kv_cache_used_max_ratio"]) == (0.5, 0.9)


def test_counters_become_rates_and_means(ledger: Judged) -> None:
    """In 59 minutes: 600 and 300 tokens a minute are 15 a second; 3 s for 6 first tokens are half a second each."""
    tell(ledger, rising(range(60), generation_tokens=600, first_token_seconds=2, first_token_count=4))
    tell(ledger, rising(range(60), generation_tokens=300, first_token_seconds=1, first_token_count=2), pod="q")
    row = one(ledger)
    assert row["generation_tokens_per_second"] == pytest.approx(15.0)
    assert (row["first_token_seconds"], row["replica_count"]) == (pytest.approx(0.5), 2)
    # Nothing but first tokens tells of requests: six a minute.
    assert row["requests_per_second"] == pytest.approx(0.1)
    assert (row["prompt_tokens_per_second"], row["output_token_seconds"], row["queue_seconds"]) == (None, None, None)


def test_a_replica_that_was_there_for_half_of_the_time_counts_half(ledger: Judged) -> None:
    tell(ledger, {minute: {"running_requests": 4.0} for minute in range(60)})
    tell(ledger, {minute: {"running_requests": 4.0} for minute in range(30)}, pod="q")
    assert one(ledger)["running_requests"] == 6.0


def test_a_server_that_began_anew_loses_nothing_that_it_counted(ledger: Judged) -> None:
    """1000 and 1060, then 20 and 80: 60 + 20 + 60 in three minutes."""
    told = {0: 1000.0, 1: 1060.0, 2: 20.0, 3: 80.0}
    tell(ledger, {minute: {"prompt_tokens": tokens} for minute, tokens in told.items()})
    assert one(ledger)["prompt_tokens_per_second"] == pytest.approx(140 / 180)


@pytest.mark.parametrize(("again", "rate"), [(4, 1.0), (5, 1.0)])
def test_what_came_in_a_silence_is_in_no_rate(ledger: Judged, again: int, rate: float) -> None:
    """A reading after three minutes goes on; after four the rise is left out together with its time."""
    told = {0: 1000.0, 1: 1060.0, again: 1060.0 + (180.0 if again == 4 else 9e6)}
    tell(ledger, {minute: {"prompt_tokens": tokens} for minute, tokens in told.items()})
    assert one(ledger)["prompt_tokens_per_second"] == pytest.approx(rate)


@pytest.mark.parametrize(
    ("running", "figure"),
    [(0.0, 0.0), (3.0, 86.5), (None, None)],
    ids=["it held its last value", "it works", "nobody knows"],
)
def test_a_servers_own_figure_counts_while_requests_run(
    ledger: Judged, running: float | None, figure: float | None
) -> None:
    tell(ledger, {0: {"generation_tokens_per_second": 86.5, "running_requests": running}})
    assert one(ledger)["generation_tokens_per_second"] == figure


def test_counters_of_a_server_stand_before_the_figures_of_its_engines(ledger: Judged) -> None:
    """SGLang counts tokens once for all engines (with engine 0), and each engine has a figure of its own."""
    figure = {"running_requests": 1.0, "generation_tokens_per_second": 500.0}
    told = rising(range(10), generation_tokens=600)
    tell(ledger, {minute: {**values, **figure} for minute, values in told.items()}, source="sglang")
    tell(ledger, dict.fromkeys(range(10), figure), source="sglang", engine="1")
    row = one(ledger)
    assert (row["generation_tokens_per_second"], row["running_requests"]) == (pytest.approx(10.0), 2.0)


def test_prefill_and_decode_are_rows_of_their_own(ledger: Judged) -> None:
    tell(ledger, rising(range(10), finished_requests=60, prompt_tokens=6000), role="prefill")
    tell(ledger, rising(range(10), finished_requests=60, generation_tokens=600), role="decode", target="u", pod="d")
    rows = {row["role"]: row for row in activity(ledger)}
    assert {role: row["requests_per_second"] for role, row in rows.items()} == {
        "prefill": pytest.approx(1.0),
        "decode": pytest.approx(1.0),
    }
    assert rows["prefill"]["prompt_tokens_per_second"] == pytest.approx(100.0)
    assert rows["decode"]["prompt_tokens_per_second"] is None


def test_buckets_of_minutes(ledger: Judged) -> None:
    tell(ledger, rising(range(-1, 3), finished_requests=6))
    rows = activity(ledger, bucket=60)
    assert [(row["bucket_at"] - AT) / MINUTE for row in rows] == [0, 1, 2]
    assert [row["requests_per_second"] for row in rows] == pytest.approx([0.1, 0.1, 0.1])


def test_what_a_scheduler_told_of_the_load_stands_beside_it(ledger: Judged) -> None:
    load = {"duration_seconds": 300.0, "demand_gpus": 5.0, "ready_replicas": 3, "requests_per_second": 7.0}
    ledger.put("service_load", *({"ts": AT, "workload_id": workload, **load} for workload in ("v", "w")))
    tell(ledger, rising(range(10), finished_requests=60))
    rows = {row["workload_id"]: row for row in activity(ledger)}
    assert {workload: row["demand_gpus"] for workload, row in rows.items()} == {"v": 5.0, "w": 5.0}
    assert {workload: row["requests_per_second"] for workload, row in rows.items()} == {"v": 7.0, "w": pytest.approx(1)}
    assert {workload: row["replica_count"] for workload, row in rows.items()} == {"v": 0, "w": 1}


def test_whose_an_engine_is(ledger: Judged) -> None:
    ledger.put("pod", {"uid": "1", "namespace": "a", "pod": "known", "workload_id": "by-pod", "seen_at": AT})
    ledger.hold("g", pod="held", workload_id="by-card")
    told: dict[float, dict[str, Any]] = {0: {"running_requests": 1.0}}
    tell(ledger, told, workload_id="declared")
    tell(ledger, told, workload_id="", namespace="a", pod="known")
    tell(ledger, told, workload_id="", pod="held")
    tell(ledger, told, workload_id="", namespace="a", pod="nobody")
    tell(ledger, told, workload_id="", pod="", target="vllm:h:8000/metrics")
    assert [row["workload_id"] for row in activity(ledger)] == [
        "a/nobody",
        "by-card",
        "by-pod",
        "declared",
        "vllm:h:8000/metrics",
    ]


class TestCost:
    """Service `w` holds two cards for an hour, at 10 an hour each."""

    ASKED: Mapping[str, Any] = {"price_basis": "amortised", "currency": "CNY", "from_at": AT, "to_at": AT + HOUR}

    @pytest.fixture
    def priced(self, ledger: Judged) -> Judged:
        ledger.hold("g", "h")
        for card in ("g", "h"):
            ledger.read(card, 0, 60, sm_active_ratio=0.6, gpu_util_ratio=0.9, power_watts=400.0)
        ledger.put(
            "price",
            {
                "model": "",
                "tenant": "",
                "basis": "amortised",
                "price_per_gpu_hour": 10.0,
                "currency": "CNY",
                "from_at": AT,
            },
        )
        ledger.build()
        return ledger

    def test_requests_and_tokens_cost_all_that_the_service_held(self, priced: Judged) -> None:
        """From a minute before the hour on: 60 minutes of 10 requests and 500 tokens are 600 and 30,000."""
        tell(priced, rising(range(-1, 60), finished_requests=10, generation_tokens=500))
        (row,) = priced.house.query("serving_cost", **self.ASKED).to_pylist()
        assert (row["model"], row["service_count"], row["gpu_hours"]) == (H100, 1, 2.0)
        assert (row["request_count"], row["generation_token_count"], row["prompt_token_count"]) == (600, 30000, None)
        assert row["gpu_hours_per_1000_requests"] == pytest.approx(2 / 0.6)
        assert row["amount_per_1000_requests"] == pytest.approx(20 / 0.6)
        assert row["gpu_hours_per_1000_tokens"] == pytest.approx(2 / 30)
        assert row["amount_per_1000_tokens"] == pytest.approx(20 / 30)

    def test_prefill_and_decode_count_a_request_once(self, priced: Judged) -> None:
        tell(priced, rising(range(-1, 60), finished_requests=10), role="prefill")
        tell(priced, rising(range(-1, 60), finished_requests=10), role="decode", target="u")
        (row,) = priced.house.query("serving_cost", **self.ASKED).to_pylist()
        assert row["request_count"] == 600

    def test_without_a_request_nothing_has_a_cost(self, priced: Judged) -> None:
        tell(priced, rising(range(-1, 60), finished_requests=0))
        (row,) = priced.house.query("serving_cost", **self.ASKED).to_pylist()
        assert (row["request_count"], row["gpu_hours_per_1000_requests"]) == (0, None)
        assert (row["generation_token_count"], row["amount_per_1000_tokens"]) == (None, None)

    def test_without_a_price_there_are_hours_and_no_amount(self, priced: Judged) -> None:
        tell(priced, rising(range(-1, 60), finished_requests=10))
        (row,) = priced.house.query("serving_cost", **{**self.ASKED, "price_basis": "list"}).to_pylist()
        assert row["amount_per_1000_requests"] is None
        assert row["gpu_hours_per_1000_requests"] == pytest.approx(2 / 0.6)
