"""A recorded client: answers the named queries that surfaces read, from a made-up fleet of 64 GPUs over 14 days."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from gpuledger.errors import QueryRefused
from tests.dashboards import recorded_api, recorded_queues

START = datetime(2026, 3, 2, tzinfo=UTC)
END = START + timedelta(days=14)
HOSTILE = "<script>alert(1)</script>'; DROP TABLE ledger_hour; -- [x](javascript:1) $a$ %_"
TENANTS = ("research", "search-ranking", "speech", "ads", "vision", "robotics", "infra", "训练平台", HOSTILE)
_GPUS = 64
_FREE = ("unavailable", "reserved_spare", "free_stranded", "free_usable")
_MIX = {
    "unavailable": 3.0,
    "reserved_spare": 2.0,
    "free_stranded": 3.5,
    "free_usable": 5.5,
    "alloc_starting": 1.2,
    "alloc_unknown": 2.4,
    "alloc_standby": 3.2,
    "alloc_idle": 9.1,
    "alloc_stalled": 2.2,
    "alloc_low": 7.6,
    "alloc_ungraded": 4.1,
}


def _hour(index: int) -> dict[str, float]:
    wave = 1 + 0.35 * math.sin(index / 24 * 2 * math.pi)
    hours = {
        state: value * (wave if state.startswith("free") or state == "alloc_idle" else 1)
        for state, value in _MIX.items()
    }
    hours["alloc_productive"] = _GPUS - sum(hours.values())
    return hours


def _hours(p: Mapping[str, Any]) -> list[tuple[datetime, str, str, float]]:
    rows = []
    for index in range(14 * 24):
        at = START + timedelta(hours=index)
        if p["from_at"] <= at < p["to_at"]:
            for state, hours in _hour(index).items():
                if state in _FREE:
                    rows.append((at, "", state, hours))
                else:
                    weights = [1 / (rank + 1) for rank in range(len(TENANTS))]
                    for tenant, weight in zip(TENANTS, weights, strict=True):
                        rows.append((at, tenant, state, hours * weight / sum(weights)))
    return rows


def _sums(pairs: list[tuple[Any, float]]) -> dict[Any, float]:
    found: dict[Any, float] = defaultdict(float)
    for key, value in pairs:
        found[key] += value
    return dict(found)


def _ledger_by(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    index = 2 if p["by"] == "state" else 1
    sums = _sums([((row[index], row[2]), row[3]) for row in _hours(p)])
    return [{"key": k, "state": s, "gpu_hours": v, "provisional_gpu_hours": v * 0.01} for (k, s), v in sums.items()]


def _ledger_series(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    zone = ZoneInfo(p["timezone"])

    def bucket(at: datetime) -> datetime:
        return at if p["bucket"] == "hour" else at.astimezone(zone).replace(hour=0).astimezone(UTC)

    sums = _sums([((bucket(at), s), v) for at, t, s, v in _hours(p) if p["tenant"] in {"", t}])
    return [{"bucket_at": at, "state": state, "gpu_hours": value} for (at, state), value in sums.items()]


def _ledger_tenants(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    states = ("productive", "low", "ungraded", "idle", "stalled", "unknown", "standby", "starting")
    sums = _sums([((row[1], row[2]), row[3]) for row in _hours(p)])
    rows = []
    for rank, tenant in enumerate(TENANTS):
        row = {f"{state}_gpu_hours": sums.get((tenant, f"alloc_{state}"), 0.0) for state in states}
        util = {"gpu_util_ratio": 0.4 + rank / 20, "sm_active_ratio": None if rank == 3 else 0.3 + rank / 30}
        if sums:
            rows.append({"tenant": tenant, "held_gpu_hours": sum(row.values()), **row, **util})
    return rows


def _ledger_rates(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    sums = _sums([(row[2], row[3]) for row in _hours(p)])
    total = sum(sums.values())
    held = sum(value for state, value in sums.items() if state.startswith("alloc"))
    free = sums.get("free_usable", 0.0) + sums.get("free_stranded", 0.0)
    usable = total - sums.get("unavailable", 0.0)
    rates = (
        ("allocation_rate", "分配率", "sum(alloc_*) / (inventory - unavailable)", "scheduler", held, usable),
        (
            "effective_utilization",
            "有效利用率",
            "alloc_productive / inventory",
            "SM activity",
            sums.get("alloc_productive", 0.0),
            total,
        ),
        ("vacancy", "空置率", "sum(free_*) / (inventory - unavailable)", "scheduler", free, usable),
        (
            "held_idle_rate",
            "空闲占卡率",
            "alloc_idle / sum(alloc_*)",
            "SM activity, power",
            sums.get("alloc_idle", 0.0),
            held,
        ),
        ("coverage", "数据覆盖率", "read hours / held hours", "reads", held * 0.982, held),
        ("MFU", "模型算力利用率", "declared FLOPs / peak FLOPs", "declared", 0.0, 0.0),
    )
    names = ("name", "name_zh", "formula", "basis", "numerator_gpu_hours", "denominator_gpu_hours")
    return [{**dict(zip(names, rate, strict=True)), "value": rate[4] / rate[5] if rate[5] else None} for rate in rates]


def _finding(index: int) -> dict[str, Any]:
    analyzer, cause, action = (
        ("idle_allocation", "no_process", "notify"),
        ("idle_allocation", "memory_held", "release"),
        ("fragmentation", "cpu", "adjust_shape"),
        ("quota_balance", "quota_imbalance", "move_quota"),
    )[index % 4]
    wasted = 420.0 / (index + 1)
    evidence = [
        {
            "metric": "sm_active_ratio",
            "value": 0.0123,
            "threshold": 0.05,
            "n_samples": 350,
            "coverage": 0.97,
            "query": "idle_stretches",
        },
        {
            "metric": "power_watts",
            "value": 71.5,
            "threshold": 164.5,
            "n_samples": 350,
            "coverage": 0.97,
            "query": "idle_stretches",
        },
    ]
    return {
        "finding_id": f"f{index:015d}",
        "analyzer": analyzer,
        "rule_id": analyzer,
        "rule_version": 1,
        "subject_kind": ("workload", "gpu", "node", "queue")[index % 4],
        "subject_id": f"subject-{index}",
        "tenant": TENANTS[index % len(TENANTS)],
        "user": "u",
        "window_start": END - timedelta(days=7),
        "window_end": END,
        "gpu_hours_observed": wasted * 2,
        "gpu_hours_wasted": wasted,
        "gpu_hours_recoverable": wasted * 0.8,
        "confidence": 0.9,
        "basis": "sm_active+power",
        "cause_code": cause,
        "action_code": action,
        "evidence": json.dumps(evidence),
        "action_params": "{}",
        "guardrails": "{}",
        "expected_gain": "{}",
        "data_quality": "{}",
        "found_at": END,
    }


def _finding_list(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [_finding(index) for index in range(18)]
    return [row for row in rows if p["analyzer"] in {"", row["analyzer"]} and p["tenant"] in {"", row["tenant"]}]


def _findings_by_cause(_: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [_finding(index) for index in range(18)]
    sums = _sums([((row["analyzer"], row["cause_code"]), row["gpu_hours_wasted"]) for row in rows])
    return [
        {"analyzer": analyzer, "cause_code": cause, "finding_count": 4, "gpu_hours_wasted": wasted}
        for (analyzer, cause), wasted in sums.items()
    ]


def _gpu_list(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = [
        {
            "gpu_uuid": f"GPU-{n:02d}{s}0c4e-77aa",
            "node": f"node-{n:02d}",
            "slot": s,
            "model": "H800",
            "pool": "a",
            "origin": "declared",
        }
        for n in range(8)
        for s in range(8)
    ]
    return [row for row in rows if p["text"] in str(row["gpu_uuid"]) or p["text"] in str(row["node"])][
        : p["limit_count"]
    ]


def _gpu_timeline(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    cycle = (
        "free_usable",
        "alloc_starting",
        "alloc_productive",
        "alloc_low",
        "alloc_productive",
        "alloc_idle",
        "alloc_unknown",
        "alloc_ungraded",
    )
    rows, at = [], p["from_at"]
    for index in range(200):
        until = min(at + timedelta(hours=1 + index % 5 * 2), p["to_at"])
        if at >= until:
            break
        state = cycle[index % len(cycle)]
        held = {
            "workload_id": "job-7 <b>",
            "tenant": HOSTILE,
            "gpu_util_ratio": 0.9,
            "sm_active_ratio": 0.6,
            "power_watts": 500.0,
        }
        free = dict.fromkeys(held) | {"workload_id": "", "tenant": ""}
        rows.append(
            {
                "from_at": at,
                "until_at": until,
                "slice_id": "",
                "state": state,
                "cause": "",
                "basis": "sm_active",
                "share": 1.0,
                **(held if state.startswith("alloc") else free),
            }
        )
        at = until
    return rows


def _gpu_readings(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows, at, index = [], p["from_at"], 0
    while at < p["to_at"]:
        util, sm = 0.5 + 0.4 * math.sin(index / 9), 0.4 + 0.3 * math.sin(index / 9)
        if not 100 < index < 130:
            rows.append(
                {
                    "bucket_at": at,
                    "slice_id": "",
                    "gpu_util_min": util - 0.1,
                    "gpu_util_max": util + 0.1,
                    "gpu_util_mean": util,
                    "sm_active_min": max(0.0, sm - 0.1),
                    "sm_active_max": sm + 0.1,
                    "sm_active_mean": sm,
                    "power_watts_mean": 200 + 400 * sm,
                    "fb_used_ratio_mean": 0.7,
                }
            )
        at, index = at + timedelta(seconds=p["bucket_seconds"]), index + 1
    return rows


def _inventory_differences(_: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = ("from_at", "until_at")
    span = dict(zip(names, (START, END), strict=True))
    return [
        {
            "kind": "not_in_telemetry",
            "subject": "GPU-99",
            "node": "node-07",
            "gpu_count": 1.0,
            **span,
            "detail": "no reading since 2026-03-02",
        },
        {
            "kind": "scheduler_count",
            "subject": "node-03",
            "node": "node-03",
            "gpu_count": 8.0,
            **span,
            "detail": HOSTILE,
        },
    ]


def _coverage_by_node(_: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"node": f"node-{n:02d}", "coverage_ratio": 1.0 if n else 0.871, "unknown_gpu_hours": 0.0 if n else 123.4}
        for n in range(8)
    ]


def _quality_summary(_: Mapping[str, Any]) -> list[dict[str, Any]]:
    counts = {"subject_count": 3, "event_count": 1234, "hour_count": 5, "worst_value": None}
    kinds = (("dcgm", "missing_metric"), (HOSTILE, "clock_skew"), ("", "never_seen"))
    return [{"source": source, "kind": kind, **counts, "last_at": END} for source, kind in kinds]


def _ledger_extent(_: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "from_at": START,
            "to_at": END,
            "gpu_count": _GPUS,
            "node_count": 8,
            "pool_count": 2,
            "final_until_at": END - timedelta(hours=2),
        }
    ]


QUERIES: Mapping[str, Callable[[Mapping[str, Any]], list[dict[str, Any]]]] = {
    "ledger_by": _ledger_by,
    "ledger_series": _ledger_series,
    "ledger_rates": _ledger_rates,
    "ledger_tenants": _ledger_tenants,
    "ledger_extent": _ledger_extent,
    "gpu_list": _gpu_list,
    "gpu_timeline": _gpu_timeline,
    "gpu_readings": _gpu_readings,
    "finding_list": _finding_list,
    "findings_by_category": lambda p: recorded_api.by_category(_finding_list({**p, "analyzer": ""})),
    "findings_by_cause": _findings_by_cause,
    "inventory_differences": _inventory_differences,
    "coverage_by_node": _coverage_by_node,
    "quality_summary": _quality_summary,
    "queue_usage": lambda p: recorded_queues.usage(p["at"], HOSTILE),
    "waits": lambda _: recorded_queues.waits(HOSTILE),
    "fragmentation_series": recorded_api.fragmentation,
    "fault_list": lambda p: recorded_api.faults(p, HOSTILE),
    "service_activity": lambda p: recorded_api.service_activity(p, HOSTILE),
    "fabric_by_node": lambda p: recorded_api.fabric_by_node(p, HOSTILE),
    "fabric_by_gang": lambda p: recorded_api.fabric_by_gang(p, HOSTILE),
    "money_currencies": lambda _: [{"currency": code, "price_count": 1} for code in ("CNY", "USD")],
    "money_by_finding": lambda _: [
        {"finding_id": f"f{n:015d}", "category": "waste", "tenant": TENANTS[0], "amount": 1000.0 * n or None}
        for n in range(4)
    ],
}

ANSWERS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "/v1/findings": lambda p: {"findings": _told(p)},
    "/v1/precision": lambda _: recorded_api.precision(HOSTILE),
    "/v1/placeable": lambda _: recorded_api.placeable(HOSTILE),
    "/v1/basis-shift": lambda _: recorded_api.basis_shift(),
    "/v1/money": lambda p: recorded_api.money(p, HOSTILE),
    "/v1/health-figures": lambda _: recorded_api.health_figures(),
}


def _told(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = recorded_api.findings([_finding(index) for index in range(18)], HOSTILE, END)
    return [row for row in rows if p.get("category", "") in {"", row["category"]}]


_NO_EXTENT = {"from_at": None, "to_at": None, "gpu_count": 0, "node_count": 0, "pool_count": 0, "final_until_at": None}


class RecordedClient:
    """The client: `is_empty` plays a service that holds nothing. Every call is remembered in `calls`."""

    def __init__(self, *, is_empty: bool = False, fails_with: Exception | None = None) -> None:
        self.is_empty, self.fails_with = is_empty, fails_with
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def query(self, name: str, /, **parameters: Any) -> pa.Table:
        """Rows of `name`, as an Arrow table."""
        self.calls.append((name, parameters))
        if self.fails_with is not None:
            raise self.fails_with
        if name not in QUERIES:
            raise QueryRefused(f"no query called {name}")
        if self.is_empty:
            return pa.Table.from_pylist([_NO_EXTENT] if name == "ledger_extent" else [])
        return pa.Table.from_pylist(QUERIES[name](parameters))

    def get(self, path: str, **parameters: Any) -> Any:
        """What the API answers at `path`. Of an empty service pages ask nothing that needs a ledger."""
        self.calls.append((path, parameters))
        if self.fails_with is not None:
            raise self.fails_with
        return ANSWERS[path](parameters)
