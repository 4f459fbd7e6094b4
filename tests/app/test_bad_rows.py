"""Bad rows cost only themselves: they are named and counted, and the rest of their batch is on disk."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from gpuledger.model import RECORDS, arrow_schema
from tests.app.conftest import NOW, Api, a_reading, a_table

ROWS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("gpu_util_ratio", {"gpu_util_ratio": float("nan")}),
    ("gpu_util_ratio", {"gpu_util_ratio": float("inf")}),
    ("gpu_util_ratio", {"gpu_util_ratio": -0.01}),
    ("gpu_util_ratio", {"gpu_util_ratio": 1.01}),
    ("power_watts", {"power_watts": -1.0}),
    ("fb_used_bytes", {"fb_used_bytes": -(2**62)}),
    ("interval_seconds", {"interval_seconds": 0.0}),
    ("ts", {"ts": NOW + timedelta(seconds=601)}),
    ("ts", {"ts": NOW - timedelta(days=3651)}),
    ("seen_at", {"seen_at": NOW + timedelta(days=365 * 500)}),
    ("model", {"model": "x" * 10 * 2**20}),
    ("node", {"node": "节" * 2000}),
)


@pytest.mark.parametrize(("field", "values"), ROWS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_bad_row_costs_only_itself(api: Api, field: str, values: dict[str, Any]) -> None:
    rows = [a_reading(0), a_reading(1, **values), a_reading(2)]
    answer = api.put("reading", a_table("reading", *rows), "b")
    assert answer.status_code == 422
    told = answer.json()
    assert (told["accepted"], told["rejected_count"]) == (2, 1)
    assert [(row["row"], row["field"]) for row in told["rejected"]] == [(1, field)]
    assert api.count("reading") == 2
    assert api.metric("gpuledger_ingest_rejected_rows_total", record="reading", field=field) == 1
    again = api.put("reading", a_table("reading", *rows), "b")
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert api.metric("gpuledger_ingest_rejected_rows_total", record="reading", field=field) == 1
    assert api.http.get("/readyz").status_code == 200


def test_a_missing_required_value_costs_its_row(api: Api) -> None:
    table = a_table("reading", a_reading(0), a_reading(1))
    fields = [field.with_nullable(nullable=True) for field in table.schema]
    nodes = pa.chunked_array([pa.array(["n0", None])])
    holed = pa.table([nodes if field.name == "node" else table[field.name] for field in fields], pa.schema(fields))
    answer = api.put("reading", holed, "b").json()
    assert [(row["row"], row["field"], row["reason"]) for row in answer["rejected"]] == [(1, "node", "is required")]
    assert api.count("reading") == 1


def test_unknown_tenant_costs_its_row_where_tenants_are_declared(api: Api) -> None:
    def queue(name: str, tenant: str) -> dict[str, Any]:
        return {"queue": name, "tenant": tenant}

    assert api.put("queue", a_table("queue", queue("q0", "free")), "q0").status_code == 200
    api.put("tenant", a_table("tenant", {"tenant": "research", "from_at": NOW}), "t")
    answer = api.put("queue", a_table("queue", queue("q1", "research"), queue("q2", "reserach")), "q1")
    assert (answer.status_code, answer.json()["accepted"]) == (422, 1)
    assert answer.json()["rejected"][0]["field"] == "tenant"
    assert api.count("queue") == 2


def test_only_a_hundred_refused_rows_are_listed_and_all_are_counted(api: Api) -> None:
    rows = [a_reading(number, gpu_util_ratio=2.0) for number in range(250)]
    told = api.put("reading", a_table("reading", *rows, a_reading(999)), "b").json()
    assert (told["accepted"], told["rejected_count"], len(told["rejected"])) == (1, 250, 100)


EXTREMES: dict[str, dict[str, Any]] = {
    "allocation": {"allocation_id": "a", "workload_id": "w", "pod": "p", "node": "n", "share": 1.0, "started_at": NOW},
    "queue_state": {
        "ts": NOW,
        "queue": "q",
        "tenant": "",
        "duration_seconds": 60.0,
        "running_gpus": 1.0,
        "pending_gpus": 0.0,
    },
}


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        ("queue_state", "duration_seconds", 1e300),
        ("allocation", "started_at", NOW + timedelta(days=365 * 100)),
        ("allocation", "ended_at", NOW + timedelta(days=365 * 7000)),
        ("allocation", "started_at", NOW - timedelta(days=365 * 100)),
    ],
)
def test_no_row_makes_the_extent_of_evidence_unreadable(api: Api, record: str, field: str, value: Any) -> None:
    answer = api.put(record, a_table(record, EXTREMES[record] | {field: value}), "b")
    assert (answer.status_code, answer.json()["rejected"][0]["field"]) == (422, field)
    assert api.http.get("/readyz").status_code == 200
    assert api.http.get("/v1/ledger").status_code == 200


def test_times_that_python_cannot_hold_cost_only_their_row(api: Api) -> None:
    table = a_table(
        "asset", *({"gpu_uuid": f"G{i}", "node": "n", "status": "in_service", "from_at": NOW} for i in (0, 1))
    )
    times = pa.array([int(NOW.timestamp() * 1e6), 2**62], pa.int64()).cast(pa.timestamp("us", tz="UTC"))
    answer = api.put("asset", table.set_column(table.column_names.index("from_at"), "from_at", times), "b").json()
    assert (answer["accepted"], [row["field"] for row in answer["rejected"]]) == (1, ["from_at"])
    listed = api.http.get("/v1/queries/gpu_list", params={"text": "", "limit_count": "9"}).json()["rows"]
    assert [row["gpu_uuid"] for row in listed] == ["G0"]


@pytest.mark.parametrize("record", RECORDS)
def test_an_empty_batch_of_every_record_is_taken(api: Api, record: str) -> None:
    answer = api.put(record, arrow_schema(record).empty_table(), "b")
    assert (answer.status_code, answer.json()["accepted"]) == (200, 0)


def test_naive_times_and_a_refused_oldest_row_do_not_unsettle_the_service(api: Api) -> None:
    table = a_table("reading", a_reading(0), a_reading(1, at=NOW - timedelta(days=5000)))
    naive = table["ts"].cast(pa.timestamp("us"))
    assert api.put("reading", table.set_column(0, "ts", naive), "b").status_code == 422
    assert api.service.dirt.take(NOW, None, timedelta()) == NOW - timedelta(hours=2)


def test_one_batch_id_cannot_serve_two_records(api: Api) -> None:
    api.put("reading", a_table("reading", a_reading()), "b")
    answer = api.put(
        "asset", a_table("asset", {"gpu_uuid": "G", "node": "n", "status": "in_service", "from_at": NOW}), "b"
    )
    assert (answer.status_code, answer.json()["field"]) == (400, "batch_id")
    assert api.count("asset") == 0
