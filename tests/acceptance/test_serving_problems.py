"""Faults that people reported of servers of models (028, 103), from the published input to what is said of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from analyzers.rules.idle_allocation import IdleAllocation
from analyzers.rules.low_activity import LowActivity
from collector.serving import Target, parse
from collector.sources.vllm import DIALECT
from gpuledger.model import Window, to_table
from tests.acceptance.house import problem
from tests.warehouse.judged import AT, MINUTE, Judged

HOURS = 6
TOTAL_BYTES = 80e9
WINDOW = Window(AT, AT + timedelta(hours=HOURS))


@pytest.fixture
def ledger() -> Iterator[Judged]:
    judged = Judged()
    yield judged
    judged.house.close()


def hold(ledger: Judged, one: dict[str, Any], kind: str) -> None:
    """One pod of the published input on a card of its own, its memory and utilization, and what its server counted."""
    pod, minutes = one["pod"], one["hours"] * 60
    common = {"workload_id": pod, "kind": kind, "submitted_at": AT, "pod_count": 1, "num_gpu": one["gpus"]}
    ledger.put("workload", {**common, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0})
    ledger.hold(f"card-{pod}", minutes=minutes, workload_id=pod, pod=pod)
    values = {"gpu_util_ratio": one["util_mean"] / 100, "fb_used_bytes": TOTAL_BYTES * one["fb_pct"] / 100}
    ledger.read(f"card-{pod}", 0, minutes, fb_total_bytes=TOTAL_BYTES, **values)
    if kind == "inference":
        rose = one["req_per_s"] * 60
        engine = {"source": "vllm", "target": pod, "pod": pod, "model_name": "m", "interval_seconds": 60.0}
        told = ({"ts": AT + i * MINUTE, "finished_requests": rose * i} for i in range(minutes + 1))
        ledger.put("engine_reading", *({**engine, **row} for row in told))


# 103: a service and a notebook, both with their memory full and little computing.
def test_full_memory_alone_neither_clears_nor_convicts(ledger: Judged) -> None:
    service, notebook = json.loads(problem("103-serving-vs-notebook.json"))
    hold(ledger, service, "inference")
    hold(ledger, notebook, "notebook")
    ledger.build(HOURS * 60)
    (idle,) = IdleAllocation().run(ledger.house, WINDOW, {}).findings
    (low,) = LowActivity().run(ledger.house, WINDOW, {}).findings
    assert (idle.subject_id, idle.cause_code, idle.action_code) == ("nb-b", "never_used", "notify")
    assert idle.gpu_hours_wasted == pytest.approx(6.0)
    told = {fact["metric"]: fact["value"] for fact in idle.evidence}
    assert (told["fb_used_ratio"], told["gpu_util_ratio"]) == (pytest.approx(0.95), 0.0)
    assert (low.subject_id, low.cause_code, low.action_code) == ("svc-a", "low_serving", "share_or_scale_down")
    assert (low.gpu_hours_wasted, low.guardrails["never"]) == (0.0, "stop")
    told = {fact["metric"]: fact["value"] for fact in low.evidence}
    assert (told["requests_per_second"], told["gpu_util_ratio"]) == (pytest.approx(0.4), pytest.approx(0.03))


# 028: two engines of one server, as one service.
def test_the_published_engines_are_added_up(ledger: Judged) -> None:
    page = problem("028-vllm-two-engines.prom").encode()
    seen = parse(page, AT, Target(DIALECT, name="t", workload_id="w")).others["engine_reading"]
    assert not ledger.house.ingest("engine_reading", to_table("engine_reading", seen), "b").rejected
    asked = {"from_at": AT, "to_at": AT + timedelta(hours=1), "bucket_seconds": 3600}
    (row,) = ledger.house.query("service_activity", **asked).to_pylist()
    assert row["running_requests"] == 8.0
    assert (row["kv_cache_used_mean_ratio"], row["kv_cache_used_max_ratio"]) == (0.5, 0.9)
