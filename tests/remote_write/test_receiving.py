"""What a sender is told, and what is on disk by then."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collector.remote_write.messages import message_class
from gpuledger.errors import WarehouseError
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api, a_reading, a_table
from tests.remote_write.writing import PATH, STALE, V1, V2, card, pack, post, post_block, request_1, request_2, rows

MS = int(NOW.timestamp() * 1000)
FIVE = b"\x80\x80\x80\x80\x01"


def _count(api: Api, outcome: str, reason: str = "") -> float:
    return api.metric("gpuledger_remote_write_samples_total", outcome=outcome, reason=reason)


@pytest.mark.parametrize(("kind", "request_of"), [(V1, request_1), (V2, request_2)])
def test_a_sample_is_on_disk_before_the_answer(api: Api, kind: str, request_of: Callable[..., bytes]) -> None:
    answer = post(api.http, request_of([(card(0), [(MS, 40.0), (MS + 1, STALE)]), (card(1), [(MS, 50.0)])]), kind)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers["X-Prometheus-Remote-Write-Samples-Written"] == "3"
    assert answer.headers["X-Prometheus-Remote-Write-Histograms-Written"] == "0"
    assert answer.headers["X-Prometheus-Remote-Write-Exemplars-Written"] == "0"
    assert [(row["value"], row["ts"]) for row in rows(api, "sample")] == [(40.0, NOW), (50.0, NOW)]
    written = rows(api, "series")
    assert [json.loads(row["labels"])["UUID"] for row in written] == [row["gpu_uuid"] for row in written]
    assert {(row["name"], row["target"], row["source"], row["node"]) for row in written} == {
        ("DCGM_FI_DEV_GPU_UTIL", "dcgm/n0:9400", "remote_write", "n0")
    }


def test_a_build_knows_what_was_written_just_before(api: Api) -> None:
    at = MS - 3_600_000
    assert post(api.http, request_1([(card(0), [(at, 40.0)])])).status_code == 204
    assert api.http.post("/v1/ledger/build").json()["spans"] > 0
    assert [row["gpu_util_ratio"] for row in rows(api, "reading")] == [0.4]


@pytest.mark.parametrize("kind", ["application/x-protobuf;proto=prometheus.WriteRequest", f"{V1}; charset=utf-8"])
def test_the_content_type_may_name_version_1(api: Api, kind: str) -> None:
    assert post(api.http, request_1([(card(0), [(MS, 1.0)])]), kind).status_code == 204
    assert api.count("sample") == 1


def test_an_empty_request_and_metadata_alone_are_taken(api: Api) -> None:
    assert post_block(api.http, b"\x00").status_code == 204
    assert post(api.http, b"\x1a\x04\x08\x02\x12\x00").status_code == 204
    assert post(api.http, b"", V2).status_code == 204


def _problem(folder: Path, name: str) -> Any:
    return json.loads((folder / "problems" / name).read_text(encoding="utf-8"))


def _mixed(given: Any) -> bytes:
    return request_1([(one["labels"], one["samples"]) for one in given["timeseries"]])


MIXED = {
    "timeseries": [
        {"labels": card(0), "samples": [[MS, 40], [MS + 60_000, 41], [MS + 60_000, 41], [MS + 60_000, 99]]},
        {"labels": card(1), "samples": [[MS, 7], [MS - 90_000, 39]]},
    ]
}


def _send_twice(api: Api, given: Any) -> None:
    for _ in range(2):
        answer = post(api.http, _mixed(given))
        assert answer.status_code == 204
        assert answer.headers["X-Prometheus-Remote-Write-Samples-Written"] == "5"
        assert _count(api, "stored") == 4
        assert api.count("sample") == 4
    assert (_count(api, "conflicting"), _count(api, "repeated")) == (2, 6)


def test_a_mixed_request_sent_twice(api: Api) -> None:
    _send_twice(api, MIXED)
    assert sorted(row["value"] for row in rows(api, "sample")) == [7, 39, 40, 41]


def test_problem_032(shared: Path, make_api: Callable[..., Api], clock: FakeClock) -> None:
    clock.instant = datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
    api = make_api()
    _send_twice(api, _problem(shared, "032-remote-write-mixed-batch.json"))
    assert sorted(row["value"] for row in rows(api, "sample")) == [7, 39, 40, 41]
    api.service.assemble()
    assert sorted(row["gpu_util_ratio"] for row in rows(api, "reading")) == [0.07, 0.39, 0.40, 0.41]
    assert {(row["kind"], row["count"]) for row in rows(api, "quality_event")} >= {
        ("conflicting_sample", 2),
        ("repeated_sample", 6),
    }


def test_a_repeat_of_a_value_that_is_no_number_is_a_repeat(api: Api) -> None:
    for _ in range(2):
        assert post(api.http, request_1([(card(0), [(MS, math.nan)])])).status_code == 204
    assert (_count(api, "stored"), _count(api, "repeated"), _count(api, "conflicting")) == (1, 1, 0)


def _send_times(api: Api, times: list[int]) -> None:
    answer = post(api.http, request_1([(card(0), [(at, 1.0) for at in times])]))
    assert answer.status_code == 400
    told = answer.json()
    assert (told["stored"], told["refused"]) == (3, {"in the future": 1, "too old": 1})
    assert answer.headers["X-Prometheus-Remote-Write-Samples-Written"] == "3"
    assert (_count(api, "refused", "in the future"), _count(api, "refused", "too old")) == (1, 1)
    assert api.count("sample") == 3
    assert api.service.assemble() == 3
    assert max(row["ts"] for row in rows(api, "reading")) == api.service.clock.now() + timedelta(minutes=9)


def test_times_far_off_cost_their_sample(api: Api) -> None:
    _send_times(api, [MS, MS + 30_000, MS + 540_000, MS + 7 * 86_400_000, MS // 1000])


def test_problem_033(shared: Path, make_api: Callable[..., Api], clock: FakeClock) -> None:
    given = _problem(shared, "033-future-and-1970.json")
    clock.instant = datetime.fromisoformat(given["receiver_now"])
    _send_times(make_api(), given["samples_ms"])


HOSTILE = ('x"} or up{job="', "'; DROP TABLE gpu_samples; --", "a' OR '1'='1", "%_")


def _check_hostile(api: Api, labels: list[tuple[str, float]]) -> None:
    tables = set(_tables(api))
    series = [
        (card(number, Hostname="n0", exported_namespace=namespace, exported_pod="p"), [(MS, value)])
        for number, (namespace, value) in enumerate(labels)
    ]
    for kind, request_of in ((V1, request_1), (V2, request_2)):
        assert post(api.http, request_of(series), kind).status_code == 204
    assert api.service.assemble() == 4
    assert set(_tables(api)) == tables
    for namespace, value in labels:
        with api.service.warehouse.reading() as cursor:
            found = cursor.execute(
                "select reading.gpu_util_ratio from reading join holding using (gpu_uuid, ts) where namespace = $one",
                {"one": namespace},
            ).fetchall()
        assert found == [(value / 100,)]


def _tables(api: Api) -> list[str]:
    with api.service.warehouse.reading() as cursor:
        return [row[0] for row in cursor.execute("select table_name from duckdb_tables()").fetchall()]


def test_hostile_labels_are_labels(api: Api) -> None:
    _check_hostile(api, list(zip(HOSTILE, (10.0, 20.0, 30.0, 40.0), strict=True)))


def test_problem_163(api: Api, shared: Path) -> None:
    page = (shared / "problems" / "163-label-injection.prom").read_text(encoding="utf-8")
    found = re.findall(r'exported_namespace="((?:[^"\\]|\\.)*)".*\} (\d+)', page)
    labels = [(namespace.replace('\\"', '"'), float(value)) for namespace, value in found]
    assert [namespace for namespace, _ in labels] == list(HOSTILE)
    _check_hostile(api, labels)


def test_compressed_bodies_of_other_kinds_are_not_unpacked(api: Api) -> None:
    bomb = gzip.compress(bytes(64 * 2**20))
    for encoding in ("gzip", "zstd", "identity", ""):
        answer = post_block(api.http, bomb, **{"content-encoding": encoding})
        assert (answer.status_code, answer.json()["field"]) == (415, "Content-Encoding")
    assert post_block(api.http, bomb).status_code in (400, 413)


def test_too_large_bodies_are_counted(make_api: Callable[..., Api]) -> None:
    api = make_api(remote_write_decoded_bytes=2**20)
    assert post_block(api.http, FIVE).status_code == 413
    assert post(api.http, request_1([(card(0), [(MS, 1.0)])]) + b"\x1a\x80\x80\x40" + bytes(2**20)).status_code == 413
    assert api.metric("gpuledger_rejected_too_large_total", endpoint=PATH) == 2
    assert post(api.http, request_1([(card(0), [(MS, 1.0)])])).status_code == 204


def test_histograms_are_refused_and_the_rest_is_kept(api: Api) -> None:
    message = message_class("Request1").FromString(
        request_1([(card(0), [(MS, 1.0)]), (card(1), [(MS, 2.0)]), (card(2), [(MS, 3.0)])])
    )
    message.timeseries[1].histograms.append(b"\x08\x01")
    answer = post(api.http, message.SerializeToString())
    assert (answer.status_code, answer.json()["refused"]) == (400, {"native histogram": 2})
    assert sorted(row["value"] for row in rows(api, "sample")) == [1, 3]


def test_the_token_is_wanted(make_api: Callable[..., Api]) -> None:
    api = make_api(token="secret")
    raw = request_1([(card(0), [(MS, 1.0)])])
    assert post(api.http, raw).status_code == 401
    assert post(api.http, raw, authorization="Bearer wrong").status_code == 401
    assert api.count("sample") == 0
    assert post(api.http, raw, authorization="Bearer secret").status_code == 204


def test_what_cannot_be_kept_now_may_be_sent_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = request_1([(card(0), [(MS, 1.0)])])

    def full(*_: object) -> None:
        raise WarehouseError("could not write: no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(api.service.samples, "_keep", full)
        answer = post(api.http, raw)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert api.count("series") == api.count("sample") == 0
    assert post(api.http, raw).status_code == 204
    assert api.count("series") == api.count("sample") == 1


def test_too_many_waiting_requests_are_told_to_come_again(make_api: Callable[..., Api]) -> None:
    api = make_api(remote_write_waiting=1)
    raw = request_1([(card(0), [(MS, 1.0)])])
    with api.service.receiver._turn():
        answer = post(api.http, raw)
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
        assert post_block(api.http, FIVE).status_code == 413  # said at once, whoever waits
    assert post(api.http, raw).status_code == 204


def test_one_target_s_flood_of_series_costs_no_other_target(make_api: Callable[..., Api], clock: FakeClock) -> None:
    api = make_api(remote_write_series_per_target=50)
    healthy = [(card(number, instance="good:9400"), [(MS, 1.0)]) for number in range(40)]
    flood = [(card(0, instance="bad:9400", pod=f"p{number}"), [(MS, 1.0)]) for number in range(3000)]
    for begin in range(0, 3000, 1000):
        answer = post(api.http, request_1(flood[begin : begin + 1000] + healthy[begin // 100 : begin // 100 + 20]))
        assert answer.status_code == 400
    assert _count(api, "refused", "too many series") == 2950
    series = rows(api, "series")
    assert sum(row["target"] == "dcgm/good:9400" for row in series) == 40
    assert sum(row["target"] == "dcgm/bad:9400" for row in series) == 50
    api.service.assemble()
    assert [
        (row["kind"], row["subject"], row["count"])
        for row in rows(api, "quality_event")
        if row["kind"] == "too_many_series"
    ] == [("too_many_series", "dcgm/bad:9400", 2950)]
    # Labels that change with time are no flood: what was not written for long makes room.
    clock.advance(601)
    later = [(card(0, instance="bad:9400", pod=f"q{number}"), [(MS, 1.0)]) for number in range(50)]
    assert post(api.http, request_1(later)).status_code == 204


def test_a_record_ingested_under_the_name_of_a_round_changes_nothing(api: Api) -> None:
    assert api.put("reading", a_table("reading", a_reading(9)), "samples/1").status_code == 200
    assert post(api.http, request_1([(card(0), [(MS, 1.0)])])).status_code == 204
    assert api.service.assemble() == 1
    assert api.put("reading", a_table("reading", a_reading(9)), "samples/1").json()["duplicate"] is True


def test_a_block_may_be_packed_by_anybody(api: Api) -> None:
    raw = request_1([(card(0), [(MS, 1.0)])])
    literal = bytes([len(raw) & 0x7F | 0x80, len(raw) >> 7]) + bytes([60 << 2, len(raw) - 1]) + raw
    assert len(raw) < 256
    assert post_block(api.http, literal).status_code == 204
    assert pack(raw) != literal
    assert api.count("sample") == 1
