"""Findings for tests of what becomes of them: a rule that finds what it is told to, and cards that idled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

import pytest

from gpuledger import registry
from gpuledger.model import Finding, Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult
from tests.app.conftest import NOW, Api, a_reading, a_table

PLANTED: list[Finding] = []
MINUTE = timedelta(minutes=1)
HELD = Window(NOW - timedelta(hours=4), NOW - timedelta(hours=2))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlantedOptions:
    """None."""


class Planted:
    """A rule that finds what the test says."""

    name = "planted"
    version = 1
    options_class = PlantedOptions

    def run(
        self, runner: QueryRunner, window: Window, options: Mapping[str, Any], policy: Policy | None = None
    ) -> RuleResult:
        return RuleResult(findings=tuple(PLANTED))


def plant(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    """Make `planted` the only rule, and let it find `findings`."""
    table = cast("dict[str, str]", registry.RULES)
    for name in list(table):
        monkeypatch.delitem(table, name)
    monkeypatch.setitem(table, "planted", "tests.app.finding_fleet:Planted")
    PLANTED[:] = findings


def a_finding(subject: str = "a", **values: Any) -> Finding:
    fields: dict[str, Any] = {
        "analyzer": "planted",
        "rule_id": "planted",
        "rule_version": 1,
        "subject_kind": "job",
        "subject_id": subject,
        "tenant": "nlp",
        "user": "li",
        "kind": "training",
        "vendor": "nvidia",
        "window_start": NOW - timedelta(hours=5),
        "window_end": NOW,
        "gpu_hours_observed": 100.0,
        "gpu_hours_wasted": 100.0,
        "gpu_hours_recoverable": 100.0,
        "confidence": 0.9,
        "basis": "sm_active",
        "cause_code": "idle",
        "action_code": "notify",
        "is_open": True,
    }
    return Finding(**{**fields, **values})


def save(api: Api) -> None:
    """Run the planted rule and store what it finds."""
    api.service.analyze("planted", Window(NOW - timedelta(hours=6), NOW), {}, save=True)


def idle_cards(api: Api) -> None:
    """Two cards of a training job that were held for two hours and idled from their 30th minute to the 105th.

    The grace of 15 minutes after it was ready is over by then. The first half hour and the last quarter worked.
    """
    rows: list[dict[str, Any]] = [
        a_reading(
            card,
            at=HELD.from_at + minute * MINUTE,
            interval_seconds=60.0,
            sm_active_ratio=0.01 if 30 <= minute < 105 else 0.8,
            gpu_util_ratio=0.0 if 30 <= minute < 105 else 0.9,
            fb_used_bytes=40e9,
            fb_total_bytes=80e9,
            model="H100-SXM5-80GB",
        )
        for card in range(2)
        for minute in range(120)
    ]
    times = {"started_at": HELD.from_at, "ready_at": HELD.from_at, "ended_at": HELD.to_at}
    pod = {"workload_id": "ns/train", "pod": "ns/train-0", "node": "n0", "share": 1.0, **times}
    held = [{"allocation_id": f"a{card}", "gpu_uuid": f"GPU-{card}", **pod} for card in range(2)]
    asked = {"pod_count": 1, "num_gpu": 2, "gpu_milli": 1000, "cpu_milli": 1000, "memory_mib": 1024}
    work = {
        **asked,
        "workload_id": "ns/train",
        "tenant": "nlp",
        "user": "li",
        "kind": "training",
        "submitted_at": HELD.from_at,
    }
    assert api.put("reading", a_table("reading", *rows), "readings").status_code == 200
    assert (
        api.put("tenant", a_table("tenant", {"tenant": "nlp", "from_at": HELD.from_at}), "tenants").status_code == 200
    )
    assert api.put("workload", a_table("workload", work), "work").status_code == 200
    assert api.put("allocation", a_table("allocation", *held), "held").status_code == 200
    api.service.build_ledger(HELD)
