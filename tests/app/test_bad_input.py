"""Bad input costs only itself: a 4xx that names what was wrong, a count, and the rest of the batch on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi.routing import APIRoute

from gpuledger.app.encoding import to_arrow_stream
from gpuledger.app.http import create_app
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api, Served, a_reading, a_table, opened_api
from warehouse import queries

GOOD = to_arrow_stream(a_table("reading", a_reading()))
STATUS = "/v1/findings/{finding_id}/status"
WRITE = "/api/v1/write"

SPANS = (
    ({"from": "yesterday", "to": "2026-03-02"}, "from"),
    ({"from": "2026-03-02", "to": "noon"}, "to"),
    ({"from": "2026-03-02", "to": "2026-03-01"}, "to"),
    ({"from": "2026-03-02", "to": "2026-03-02"}, "to"),
    ({"from": "0001-01-01T00:00:00+14:00", "to": "2026-03-02"}, "from"),
    ({"from": "2026-03-02", "to": "9999-12-31T23:00:00-14:00"}, "to"),
    ({"from": "1970-01-01", "to": "2199-12-31"}, "to"),
)
HALVES = (({"from": "", "to": "2026-03-02"}, "from"), ({"from": "2026-03-02"}, "to"))
"""Half a window is wrong only where nothing is known yet."""

Case = tuple[str, str, dict[str, Any], int, str]
"""Route, address, request, and the status and field of the answer."""


def _spans(method: str, route: str, path: str, **more: str) -> Iterable[Case]:
    return [(f"{method} {route}", path, {"params": span | more}, 400, field) for span, field in SPANS]


def _ingest(content: Any, status: int, field: str, *, record: str = "reading", **headers: str) -> Case:
    given = {"x-batch-id": "b"} | {name.replace("_", "-"): value for name, value in headers.items()}
    request = {"content": content, "headers": given}
    return "POST /v1/ingest/{record}", f"/v1/ingest/{record}", request, status, field


def _query(name: str, field: str, **params: str) -> Case:
    status = 404 if field == "name" else 400
    return "GET /v1/queries/{name}", f"/v1/queries/{name}", {"params": params}, status, field


def _status(content: str | bytes, field: str) -> Case:
    return f"POST {STATUS}", "/v1/findings/f0/status", {"content": content}, 400, field


def _write(content: bytes, status: int, field: str, **headers: str) -> Case:
    given = {"content-type": "application/x-protobuf", "content-encoding": "snappy"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    return f"POST {WRITE}", WRITE, {"content": content, "headers": given}, status, field


def _changed(column: str, values: pa.Array) -> bytes:
    table = a_table("reading", a_reading())
    return to_arrow_stream(table.set_column(table.column_names.index(column), column, values))


def _two_batches_without_an_end() -> bytes:
    table = a_table("reading", a_reading())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
        writer.write_table(table)
    return bytes(sink.getvalue())[:-8]


WRITE_2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"


def _snappy(raw: bytes) -> bytes:
    return bytes(pa.compress(raw, codec="snappy", asbytes=True))


MARCH = {"from": "2026-03-01", "to": "2026-03-02"}
WINDOW = {"from_at": "2026-03-01", "to_at": "2026-03-02"}
READINGS = {"gpu_uuid": "GPU-0", **WINDOW}

CASES: tuple[Case, ...] = (
    _ingest(GOOD, 400, "batch_id", x_batch_id=""),
    _ingest(GOOD, 400, "batch_id", x_batch_id="x" * 129),
    _ingest(GOOD, 400, "record", record="no_such_record"),
    _ingest(b"", 400, "body"),
    _ingest(b"ts,node\n1,2\n", 400, "body"),
    _ingest(GOOD[: len(GOOD) // 2], 400, "body"),
    _ingest(GOOD[:-8], 400, "body"),
    _ingest(_two_batches_without_an_end(), 400, "body"),
    _ingest(GOOD[:200] + b"\xff" * 64 + GOOD[264:], 400, "body"),
    _ingest(GOOD, 415, "Content-Encoding", content_encoding="gzip"),
    _ingest(b"0" * (2**20 + 1), 413, "body"),
    _ingest(to_arrow_stream(pa.table({"ts": ["x"]})), 400, "ts"),
    _ingest(to_arrow_stream(a_table("reading", a_reading()).drop_columns(["node"])), 400, "node"),
    _ingest(to_arrow_stream(a_table("reading", a_reading()).append_column("color", pa.array(["red"]))), 400, "color"),
    _ingest(_changed("gpu_util_ratio", pa.array(["half"])), 400, "gpu_util_ratio"),
    _ingest(_changed("gpu_util_ratio", pa.array([[0.5]])), 400, "gpu_util_ratio"),
    _ingest(_changed("ts", pa.array([True])), 400, "ts"),
    _ingest(_changed("node", pa.array([b"\xff"], pa.binary())), 400, "node"),
    _query("no_such_query", "name"),
    _query("ledger_hour", "name"),
    _query("evidence_extent", "parameters", extra="1"),
    _query("ledger_rates", "parameters", from_at="2026-03-01"),
    _query("ledger_rates", "from_at", from_at="x", to_at="2026-03-02"),
    _query("ledger_by", "by", by="colour", **WINDOW),
    _query("ledger_series", "bucket", bucket="week", timezone="UTC", tenant="", **WINDOW),
    _query("ledger_series", "timezone", bucket="day", timezone="Mars/Olympus", tenant="", **WINDOW),
    _query("ledger_series", "timezone", bucket="day", timezone="../../etc/passwd", tenant="", **WINDOW),
    _query("ledger_series", "tenant", bucket="day", timezone="UTC", tenant="nobody", **WINDOW),
    _query("gpu_readings", "bucket_seconds", bucket_seconds="0", **READINGS),
    _query("gpu_readings", "bucket_seconds", bucket_seconds="-60", **READINGS),
    _query("gpu_readings", "bucket_seconds", bucket_seconds="1.5", **READINGS),
    _query("gpu_readings", "bucket_seconds", bucket_seconds="9" * 40, **READINGS),
    _query("gpu_list", "limit_count", text="", limit_count="-1"),
    _query("gpu_list", "text", text="x" * 4097, limit_count="1"),
    *_spans("GET", "/v1/ledger", "/v1/ledger"),
    ("GET /v1/ledger", "/v1/ledger", {"params": {"by": "colour"}}, 400, "by"),
    *_spans("GET", "/v1/quality", "/v1/quality"),
    ("GET /v1/quality", "/v1/quality", {"params": {"language": "fr"}}, 400, "language"),
    *_spans("GET", "/v1/basis-shift", "/v1/basis-shift"),
    (
        "GET /v1/basis-shift",
        "/v1/basis-shift",
        {"params": {"without": "gpu_util_ratio", "from": "2026-03-01", "to": "2026-03-02"}},
        400,
        "without",
    ),
    ("GET /v1/basis-shift", "/v1/basis-shift", {"params": {"from": "2026-03-01", "to": "2026-03-09"}}, 400, "to"),
    *_spans("POST", "/v1/ledger/build", "/v1/ledger/build"),
    *_spans("POST", "/v1/analyze/{rule}", "/v1/analyze/idle_allocation"),
    ("POST /v1/analyze/{rule}", "/v1/analyze/no_such_rule", {"params": WINDOW}, 404, "rule"),
    ("POST /v1/analyze/{rule}", "/v1/analyze/idle_allocation", {"params": {"speed": "1"}}, 400, "speed"),
    (
        "POST /v1/analyze/{rule}",
        "/v1/analyze/idle_allocation",
        {"params": {"min_idle_minutes": "nan"}},
        400,
        "min_idle_minutes",
    ),
    *_spans("POST", "/v1/recommend/{kind}", "/v1/recommend/move_quota"),
    ("POST /v1/recommend/{kind}", "/v1/recommend/no_such_kind", {}, 404, "kind"),
    ("POST /v1/recommend/{kind}", "/v1/recommend/move_quota", {"params": {"speed": "1"}}, 400, "speed"),
    *_spans("POST", "/v1/reports/{name}", "/v1/reports/weekly"),
    ("POST /v1/reports/{name}", "/v1/reports/no_such_report", {}, 400, "report"),
    ("POST /v1/reports/{name}", "/v1/reports/weekly", {"params": {"tenant": "nobody"}}, 400, "tenant"),
    ("POST /v1/reports/{name}", "/v1/reports/weekly", {"params": {"timezone": "Mars/Olympus"}}, 400, "timezone"),
    ("POST /v1/reports/{name}", "/v1/reports/weekly", {"params": {"language": "fr"}}, 400, "language"),
    ("GET /v1/findings", "/v1/findings", {"params": {"tenant": "nobody"}}, 400, "tenant"),
    ("GET /v1/findings/{finding_id}", "/v1/findings/f0", {}, 400, "finding_id"),
    ("GET /v1/findings/{finding_id}/history", "/v1/findings/f0/history", {}, 400, "finding_id"),
    ("GET /v1/findings/{finding_id}/explanation", "/v1/findings/f0/explanation", {}, 400, "finding_id"),
    ("POST /v1/policy/check", "/v1/policy/check", {"content": b"\xff"}, 400, "body"),
    ("POST /v1/reviews/sample", "/v1/reviews/sample", {"params": {"size": "many"}}, 400, "size"),
    ("POST /v1/reviews/verdicts", "/v1/reviews/verdicts", {"content": b"\xff"}, 400, "body"),
    ("GET /v1/placeable", "/v1/placeable", {"params": {"gpus": "x"}}, 400, "gpus"),
    ("GET /v1/placeable", "/v1/placeable", {"params": {"gang_level": "node"}}, 400, "gang_level"),
    ("GET /v1/fragmentation", "/v1/fragmentation", {"params": {"gang_level": "moon"}}, 400, "gang_level"),
    ("GET /v1/fragmentation", "/v1/fragmentation", {"params": {"gpus": "8"}}, 400, "gpus"),
    *_spans("GET", "/v1/money", "/v1/money"),
    ("GET /v1/money", "/v1/money", {"params": {"colour": "red", **MARCH}}, 400, "colour"),
    *_spans("GET", "/v1/health-figures", "/v1/health-figures"),
    _status("", "body"),
    _status("{", "body"),
    _status("[1]", "body"),
    _status(b"\xff\xfe", "body"),
    _status("[" * 100_000, "body"),
    _status('{"status": "exempted"}', "by"),
    _status('{"status": "exempted", "by": null}', "by"),
    _status('{"status": "exempted", "by": ""}', "by"),
    _status('{"status": "exempted", "by": "%s"}' % ("x" * 129), "by"),
    _status(r'{"status": "exempted", "by": "\ud800"}', "body"),
    _status('{"status": "ongoing", "by": "  "}', "by"),
    _status(r'{"status": "ongoing", "by": "ann\u0000"}', "by"),
    _status(r'{"status": "ongoing", "by": "ann\u202enimda"}', "by"),
    _status('{"status": "ongoing", "by": "ann", "owner": " "}', "owner"),
    _status(r'{"status": "ongoing", "by": "ann", "owner": "li\nwei"}', "owner"),
    _status('{"status": 7, "by": "ann"}', "status"),
    _status('{"status": "resolved", "by": "ann"}', "status"),
    _status('{"status": "exempted", "by": "ann"}', "expires_at"),
    _status('{"status": "acknowledged", "by": "ann"}', "finding_id"),
    (f"POST {STATUS}", "/v1/findings/f0/status", {"content": b"0" * (2**20 + 1)}, 413, "body"),
    _write(b"\x00", 415, "Content-Encoding", content_encoding="gzip"),
    _write(b"\x00", 415, "Content-Encoding", content_encoding=""),
    _write(b"\x00", 415, "Content-Type", content_type="application/json"),
    _write(b"\x00", 415, "Content-Type", content_type="application/x-protobuf;proto=io.prometheus.write.v3.Request"),
    _write(b"", 400, "body"),
    _write(b"\xff" * 20, 400, "body"),
    _write(b"\x05", 400, "body"),
    _write(b"\x08\x04abc", 400, "body"),
    _write(_snappy(b"\x0a\x05abc"), 400, "body"),
    _write(_snappy(b"\x0b\x00"), 400, "body"),
    _write(_snappy(b"\x0a\x03\x12\x09a"), 400, "body"),
    _write(_snappy(b"\x0a\x00"), 400, "timeseries"),
    _write(_snappy(b"\x2a\x00"), 400, "body", content_type=WRITE_2),
    _write(bytes.fromhex("8080808001"), 413, "body"),
    _write(b"0" * (2**20 + 1), 413, "body"),
)

TAKES_NOTHING = {
    "GET /healthz",
    "GET /readyz",
    "GET /metrics",
    "GET /v1/queries",
    "GET /v1/recommendations",
    "GET /v1/rules",
    "GET /v1/policy",
    "GET /v1/precision",
    "POST /v1/check",
}
"""Routes that read nothing of the request, so that nothing can be wrong with it."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with opened_api(tmp_path_factory.mktemp("small"), FakeClock(NOW), max_body_bytes=2**20) as api:
        assert api.put("reading", a_table("reading", a_reading()), "first").status_code == 200
        yield api


def _refused(api: Api, template: str) -> dict[str, float]:
    return {
        sample.labels["field"]: sample.value
        for metric in api.service.metrics.registry.collect()
        if metric.name == "gpuledger_bad_requests"
        for sample in metric.samples
        if sample.name.endswith("_total") and sample.labels["endpoint"] == template
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[4]}")
def test_bad_request_names_the_field_and_is_counted(small: Api, case: Case) -> None:
    route, path, request, status, field = case
    method, template = route.split(" ")
    before = _refused(small, template)
    answer = small.http.request(method, path, **request)
    assert (answer.status_code, answer.json()["field"]) == (status, field), answer.text
    assert len(answer.json()["reason"]) > 5
    after = _refused(small, template)
    assert [name for name in after if after[name] == before.get(name, 0) + 1] in ([field], ["other"])
    assert f'gpuledger_bad_requests_total{{endpoint="{template}"' in small.http.get("/metrics").text
    assert small.count("reading") == 1


@pytest.mark.parametrize(("span", "field"), HALVES)
def test_half_a_window_of_an_empty_warehouse_is_refused(api: Api, span: dict[str, str], field: str) -> None:
    for method, path in (
        ("GET", "/v1/ledger"),
        ("POST", "/v1/analyze/idle_allocation"),
        ("POST", "/v1/recommend/move_quota"),
        ("POST", "/v1/reports/weekly"),
    ):
        answer = api.http.request(method, path, params=span)
        assert (answer.status_code, answer.json()["field"]) == (400, field)
    assert api.http.post("/v1/ledger/build", params=span).json()["spans"] == 0


def test_every_route_has_a_bad_request(api: Api) -> None:
    app = create_app(api.service)
    routes = {
        f"{method} {route.path}"
        for route in app.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    assert routes == {case[0] for case in CASES} | TAKES_NOTHING
    for route in TAKES_NOTHING:
        method, path = route.split(" ")
        assert api.http.request(method, path, params={"from": "x", "by": "x"}, content=b"\xff").status_code == 200


def test_unknown_paths_and_methods_are_named_and_counted(api: Api) -> None:
    assert api.http.get("/v2/ledger").json()["field"] == "path"
    assert api.http.delete("/v1/ledger").json()["field"] == "method"
    assert api.http.delete("/v1/ledger").status_code == 405
    assert api.metric("gpuledger_bad_requests_total", endpoint="unknown", field="path") == 1


JUNK = ("", "x", "-1", "0", "1e400", "nan", "2026-13-01", "9" * 400, "'; drop table reading; --", "\x00", "资源", "[]")


def test_no_parameter_of_any_query_breaks_the_service(api: Api) -> None:
    wrong: list[tuple[str, str, str, int]] = []
    good = dict.fromkeys(("from_at", "to_at", "at"), "2026-03-01T00:00:00Z")
    good |= {"by": "state", "bucket": "day", "timezone": "UTC", "bucket_seconds": "60", "limit_count": "5"}
    for query in queries.catalogue().values():
        for name in query.parameters if query.is_read else ():
            for junk in JUNK:
                given = {other: good.get(other, "1") for other in query.parameters} | {name: junk}
                answer = api.http.get(f"/v1/queries/{query.name}", params=given)
                if answer.status_code not in {200, 400}:
                    wrong.append((query.name, name, junk, answer.status_code))
    assert wrong == []
    assert api.count("reading") == 0


@pytest.fixture
def served(serve: Callable[..., Served], tmp_path: Path) -> Served:
    return serve(tmp_path / "real.duckdb", GPULEDGER_MAX_BODY_BYTES="65536")


def test_bad_requests_over_real_http(served: Served) -> None:
    with httpx.Client(base_url=served.url, trust_env=False) as http:

        def send(content: Any, **headers: str) -> httpx.Response:
            given = {"x-batch-id": "b"} | {name.replace("_", "-"): value for name, value in headers.items()}
            return http.post("/v1/ingest/reading", content=content, headers=given)

        def dribble() -> Iterable[bytes]:
            yield from [b"0" * 30_000] * 3

        assert send(GOOD, content_encoding="gzip").status_code == 415
        assert send(GOOD[:-8]).json()["field"] == "body"
        assert send(b"0" * 70_000).status_code == 413
        assert send(dribble()).status_code == 413
        assert send(GOOD, x_batch_id="x" * 129).json()["field"] == "batch_id"
        assert http.post("/v1/findings/f/status", content=b"{").json()["field"] == "body"
        assert http.get("/v1/ledger", params={"from": "x"}).json()["field"] == "from"
        counted = http.get("/metrics").text
        assert 'gpuledger_bad_requests_total{endpoint="/v1/ingest/{record}",field="body"} 3.0' in counted
        assert send(GOOD).json()["accepted"] == 1
