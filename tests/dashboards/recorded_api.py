"""What a recorded service's API says: findings, precision, gangs that fit, two judgements, money, health."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

LEVELS = ("node", "leaf", "cluster")
SIZES = (1, 8, 64)
JSON_COLUMNS = ("evidence", "action_params", "data_quality")


def findings(rows: list[dict[str, Any]], hostile: str, end: datetime) -> list[dict[str, Any]]:
    """The API's list: rows of `finding_list` as JSON gives them, advice and a fault, in every status."""
    statuses = ("new", "ongoing", "acknowledged", "disputed", "exempted", "resolved")
    parts = {"confidence_parts": {"coverage": 0.97, "contradiction": 1.0, "sharing": 0.5, "age": 1.0}}
    told = []
    for number, row in enumerate(rows):
        whole = {**row, **{name: json.loads(row[name]) for name in JSON_COLUMNS}, "data_quality": parts}
        whole |= {"category": "quota" if row["analyzer"] == "quota_balance" else "waste", "gpu_hours_lost": 0.0}
        whole |= {"severity": "warning", "status": statuses[number % len(statuses)], "owner": hostile}
        told.append(whole)
    base = {**told[0], "gpu_hours_wasted": 0.0, "gpu_hours_recoverable": 0.0, "tenant": "ads"}
    low = {"finding_id": "advice", "analyzer": "low_activity", "category": "advice", "gpu_hours_observed": 120.0}
    told.append({**base, **low, "cause_code": "util_lies", "action_code": "increase_batch"})
    jobs = [{"workload_id": "job-7 <b>", "gang_gpus": 16.0}, {"workload_id": "job-8", "gang_gpus": None}]
    fault = {"analyzer": "hardware_fault", "category": "health", "severity": "critical", "gpu_hours_lost": 96.5}
    fault |= {"subject_id": "GPU-00/xid 79", "cause_code": "hw_fatal", "action_params": {"node": hostile, "jobs": jobs}}
    told.append({**base, **fault, "finding_id": "fault"})
    lemon = {"analyzer": "lemon_node", "category": "health", "subject_kind": "node", "subject_id": "node-07"}
    told.append({**base, **lemon, "finding_id": "lemon", "gpu_hours_lost": 12.0, "cause_code": "lemon_node"})
    slow = {"analyzer": "throttling", "category": "health", "gpu_hours_lost": 3.2, "cause_code": "thermal"}
    told.append({**base, **slow, "finding_id": "slow"})
    for row in told:
        row |= {name: row[name].isoformat().replace("+00:00", "Z") for name in ("window_start", "window_end")}
        row["found_at"] = end.isoformat()
    return told


def precision(hostile: str) -> dict[str, Any]:
    """One rule that may notify, one that is too often wrong, one that nobody judged; a kind with a hostile name."""
    rows = (
        ("idle_allocation", "training", "nvidia", 40, 38, 1, 38 / 39, 0.865, 0.9994, ""),
        ("idle_allocation", hostile, "", 4, 3, 1, 0.75, 0.194, 0.994, "below_precision"),
        ("fragmentation", "", "nvidia", 9, 0, 0, None, 0.0, 1.0, "not_reviewed"),
    )
    names = ("rule", "kind", "vendor", "finding_count", "right_count", "wrong_count", "precision", "low", "high")
    strata = [
        {**dict(zip(names, row[:-1], strict=True)), "silent_because": row[-1], "may_notify": not row[-1]}
        for row in rows
    ]
    said = {
        "rule": "idle_allocation",
        "kind": "training",
        "vendor": "nvidia",
        "confirmed_count": 7,
        "disputed_count": 2,
    }
    least = {"notifications": "reviewed", "minimum_precision": 0.95, "minimum_judged": 20}
    return {**least, "strata": strata, "owners": [said], "rules": [], "overall": {}}


def placeable(hostile: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [
        {
            "pool": pool,
            "level": level,
            "gang_gpus": size,
            "slot_count": 64 // size,
            "free_gpus": 64,
            "frag_ratio": None if pool == hostile else 0.25,
            "largest_gang_gpus": 32,
            "domain_count": 4,
        }
        for pool in ("a", hostile)
        for level in LEVELS
        for size in SIZES
    ]
    return {"at": None, "placeable": rows}


def fragmentation(p: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of query `fragmentation_series`: more causes than a chart shows, and an index that is not always known."""
    free = (
        "usable",
        "quota",
        "topology",
        "mig_placement",
        "cpu",
        "memory",
        "fractional",
        "insufficient_whole",
        "model",
    )
    names = free if p["measure"] == "free" else ("demand", "pods", "all", "published")
    rows, at = [], p["from_at"]
    while at < p["to_at"]:
        hour = int(at.timestamp() // 3600)
        for number, name in enumerate(names):
            value = None if p["measure"] != "free" and hour % 24 == 3 else (hour + number) % 7 + number / 2
            rows.append({"hour_at": at, "pool": "a", "name": name, "value": value})
        at += timedelta(hours=1)
    return rows


def basis_shift() -> dict[str, Any]:
    cells = (
        ("alloc_productive", "alloc_ungraded", 512.5),
        ("alloc_low", "alloc_ungraded", 230.0),
        ("alloc_idle", "alloc_idle", 99.0),
    )
    states = {"alloc_productive": (512.5, 0.0), "alloc_low": (230.0, 0.0), "alloc_ungraded": (0.0, 742.5)}
    return {
        "without": ["sm_active_ratio"],
        "states": [
            {"state": state, "gpu_hours_with": told, "gpu_hours_without": other}
            for state, (told, other) in states.items()
        ],
        "matrix": [{"state_with": a, "state_without": b, "gpu_hours": hours} for a, b, hours in cells],
    }


def money(asked: Mapping[str, Any], hostile: str) -> dict[str, Any]:
    """Prices for one of two tenants; the book overlaps somewhere."""
    keys = {"tenant": ("ads", hostile), "state": ("alloc_idle", "free_usable")}.get(asked["by"], ("H100", ""))
    parts = {"overlapping_gpu_hours": 0.0, "other_currency_gpu_hours": 0.0}
    rows: list[dict[str, Any]] = [
        {
            "key": keys[0],
            "state": "alloc_idle",
            "gpu_hours": 100.0,
            "priced_gpu_hours": 100.0,
            "amount": 1234.5,
            **parts,
        },
        {"key": keys[1], "state": "free_usable", "gpu_hours": 50.0, "priced_gpu_hours": 0.0, "amount": None, **parts},
    ]
    unit: dict[str, Any] = {"workload_count": 1, "step_count": 600, "gpu_hours": 4.0, "gpu_hours_per_step": 4 / 600}
    unit |= {"amount_per_step": 0.0712, "token_count": None, "gpu_hours_per_1000_tokens": None}
    served = {"model": "H100", "request_count": 1200.0, "generation_token_count": 5e6, "amount_per_1000_requests": 3.5}
    served |= {"gpu_hours_per_1000_tokens": 0.0004, "amount_per_1000_tokens": None}
    converted = [{**row, "converted_gpu_hours": 317.0 if row["amount"] else None} for row in rows]
    return {
        "by": asked["by"],
        "price_basis": asked["price_basis"],
        "currency": asked.get("currency"),
        "rows": rows,
        "total": {"gpu_hours": 150.0, "priced_gpu_hours": 100.0, "amount": 1234.5},
        "unpriced": [{"model": "", "tenant": hostile, "reason": "no_price", "gpu_hours": 50.0}],
        "unit_costs": [{**unit, "model": "H100+A100", "amount_per_1000_tokens": None}],
        "serving_costs": [served],
        "converted": {"reference": "A100", "converted_gpu_hours": 317.0, "rows": converted},
        "book_problems": [{"problem": "overlap", "model": "", "tenant": hostile}],
    }


def faults(p: Mapping[str, Any], hostile: str) -> list[dict[str, Any]]:
    """Rows of query `fault_list`."""
    row = {
        "ts": p["from_at"] + timedelta(hours=1),
        "node": "node-01",
        "gpu_uuid": "GPU-00",
        "kind": "xid",
        "code": "79",
    }
    row |= {"event_count": 3, "sources": ["dcgm"], "detail": hostile, "vendor": "nvidia"}
    return [row, {**row, "gpu_uuid": "", "kind": "node_not_ready", "code": "", "sources": None, "detail": None}]


def fabric_by_node(p: Mapping[str, Any], hostile: str) -> list[dict[str, Any]]:
    """Rows of query `fabric_by_node`: a busy node in two hours, and one whose adapters tell their state only."""
    errors = {"link_downed_count": 2, "symbol_errors": 7, "received_errors": 0, "retransmits": None}
    rates = {"sent_bytes_per_second": 20e9, "received_bytes_per_second": 19.5e9, "use_ratio": 0.4}
    row = {"hour_at": p["from_at"], "node": "node-01", "port_count": 4, "active_port_count": 4, **rates, **errors}
    silent = {"node": hostile, "active_port_count": 0, **dict.fromkeys((*rates, *errors))}
    return [row, {**row, **silent}, {**row, "hour_at": p["to_at"], "sent_bytes_per_second": 25e9, "use_ratio": 0.5}]


def service_activity(p: Mapping[str, Any], hostile: str) -> list[dict[str, Any]]:
    """Rows of query `service_activity`: a service in two hours, prefill and decode apart, and an unread one."""
    row = {"workload_id": hostile, "role": "prefill", "bucket_at": p["from_at"], "requests_per_second": 4.0}
    row |= {"running_requests": 2.0, "waiting_requests": 0.0, "replica_count": 2, "engine_count": 2}
    row |= {"kv_cache_used_mean_ratio": 0.5, "kv_cache_used_max_ratio": 0.9, "prompt_tokens_per_second": 2400.0}
    row |= {"generation_tokens_per_second": None, "first_token_seconds": 0.4, "output_token_seconds": None}
    decode = {"role": "decode", "requests_per_second": None, "first_token_seconds": None, "output_token_seconds": 0.025}
    unread = {"workload_id": "unread", "role": "unified", "engine_count": 0, "requests_per_second": 9.0}
    later = {"bucket_at": p["to_at"], "requests_per_second": 5.0}
    return [row, {**row, **decode}, {**row, **unread}, {**row, **later}]


def fabric_by_gang(p: Mapping[str, Any], hostile: str) -> list[dict[str, Any]]:
    """Rows of query `fabric_by_gang`: one gang that shares a node, and one of whose nodes nothing was told."""
    row = {"hour_at": p["from_at"], "workload_id": hostile, "node_count": 2, "told_node_count": 2}
    row |= {"shared_node_count": 1, "sent_bytes_per_second": 1e9, "received_bytes_per_second": None}
    row |= {"link_downed_count": 0}
    return [row, {**row, "workload_id": "unseen", "told_node_count": 0, "sent_bytes_per_second": None}]


def health_figures() -> dict[str, Any]:
    """F3's rate; ETTR of runs of which some tell no checkpoints; two sizes, one of which would not progress."""
    rate = {"failures_per_1000_node_days": 6.5, "low_per_1000_node_days": 3.461, "high_per_1000_node_days": 11.115}
    expected = {"formula": "renewal", "young_interval_minutes": None}
    return {
        "mttf": {
            "failure_count": 13,
            "node_days": 2000.0,
            **rate,
            "modelled": [
                {"gpu_count": 2048, "hours": 14.4231, "low_hours": 8.43, "high_hours": 27.09},
                {"gpu_count": 131072, "hours": 0.2254, "low_hours": None, "high_hours": 0.42},
            ],
        },
        "ettr": {
            "observed": {"run_count": 4, "ratio": 0.90625, "ratio_without_queue": None, "low": 0.85, "high": 0.93},
            "expected": [
                {"gpu_count": 2048, "ratio": 0.9472, "is_valid": True, "no_progress": False, **expected},
                {"gpu_count": 131072, "ratio": 0.0, "is_valid": False, "no_progress": True, **expected},
            ],
            "inputs": {"is_checkpoint_interval_assumed": True},
        },
        "goodput": {"ratio": None},
    }


def by_category(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All of `rows` as one category, waste."""
    hours = {name: sum(row[f"gpu_hours_{name}"] for row in rows) for name in ("wasted", "observed")}
    told = {"finding_count": len(rows), "open_count": 3, "gpu_hours_lost": 0.0}
    return [{"category": "waste", **told, **{f"gpu_hours_{name}": value for name, value in hours.items()}}]
