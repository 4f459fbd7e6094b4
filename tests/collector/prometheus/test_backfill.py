"""From answers to records: the shared answers row by row, their twins, pods, partial answers, changing series."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from collector.exposition import Series
from collector.prometheus.answer import parse
from collector.prometheus.backfill import ROWS_PER_TABLE, Backfill, Request
from collector.prometheus.client import QueryClient
from collector.prometheus.columns import SeriesMemory, changes
from collector.prometheus.families import Window
from collector.prometheus.plan import Chunk, instant
from gpuledger.errors import SourceError
from gpuledger.model import RECORDS, arrow_schema
from gpuledger.testing import FakeClock
from tests.collector.prometheus.stub import Stub, error, matrix, serving

EXPECTED = Path(__file__).resolve().parents[2] / "expected" / "prometheus"
NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
UTIL, TEMP, FREE, USED = (f"DCGM_FI_DEV_{name}" for name in ("GPU_UTIL", "GPU_TEMP", "FB_FREE", "FB_USED"))
BEGIN = 1_718_000_010
"""2024-06-10T06:13:30Z: where a step of 30 s begins."""


def a_backfill(url: str = "http://metrics.example", *, names: tuple[str, ...] = (UTIL,), **more: Any) -> Backfill:
    client = QueryClient(url, clock=FakeClock(NOW), attempts=1)
    step = more.pop("step_ms", 30_000)
    is_raw = more.pop("is_raw", True)
    request = Request(names=names, window=Window(step, is_closed=True), is_raw=is_raw, seen_at=NOW, **more)
    return Backfill(client, request)


@pytest.fixture
def backfill():
    made = a_backfill()
    yield made
    made._client.close()


def steps(count: int, *, begin: int = BEGIN, step: int = 30) -> Chunk:
    return Chunk(begin * 1000, (begin + step * (count - 1)) * 1000, step * 1000)


def rows(tables) -> dict[str, list[dict[str, Any]]]:
    """By record: what each row says, times as text, without what it leaves out."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record, table in tables:
        assert table.schema.equals(arrow_schema(record))
        for row in table.to_pylist():
            said = {name: value for name, value in row.items() if value is not None}
            said = {name: v.isoformat() if isinstance(v, datetime) else v for name, v in said.items()}
            found.setdefault(record, []).append(said)
    for record, kept in found.items():
        kept.sort(key=lambda row: [str(row.get(name)) for name in RECORDS[record].key])
    return found


def expected(name: str) -> Mapping[str, Any]:
    return json.loads((EXPECTED / f"{name}.json").read_text(encoding="utf-8"))


def test_the_shared_vector_with_exported_labels(shared, backfill) -> None:
    answer = parse((shared / "fixtures/exposition/prom_query_exported_labels.json").read_bytes())
    chunk = Chunk(1_717_999_970_123, 1_717_999_970_123, 30_000)
    assert rows(backfill.records(chunk, {TEMP: answer})) == expected("exported_labels")


def test_the_shared_range_with_a_warning(shared, backfill) -> None:
    held = json.loads((shared / "fixtures/exposition/prom_query_range_and_errors.json").read_text())
    answer = parse(json.dumps(held["range_ok"]).encode())
    chunk = Chunk(1_717_999_970_000, 1_718_000_090_000, 30_000)
    assert rows(backfill.records(chunk, {UTIL: answer})) == expected("range_ok")


def test_exported_labels_beat_the_exporters_own_pod(backfill) -> None:
    """The twin of the shared vector: one card, two pods, and a series that shows nothing but the exporter."""
    own = {"UUID": "GPU-x", "Hostname": "n1", "pod": "exporter-1", "namespace": "mon"}
    held = [
        ({**own, "exported_pod": "a", "exported_namespace": "red"}, [(BEGIN + 30, "40")]),
        ({**own, "exported_pod": "b", "exported_namespace": "blue"}, [(BEGIN + 30, "NaN")]),
        (own, [(BEGIN + 30, "+Inf")]),
    ]
    found = rows(backfill.records(steps(1), {TEMP: parse(matrix(held))}))
    (reading,) = found["reading"]
    assert reading["ts"] == "2024-06-10T06:13:30+00:00"
    assert (reading["gpu_temp_celsius"], reading["quality_flags"]) == (40.0, 5)
    assert [(row["namespace"], row["pod"], row["share"]) for row in found["holding"]] == [
        ("blue", "b", 0.5),
        ("red", "a", 0.5),
    ]


@pytest.mark.parametrize(("is_raw", "claimed"), [(True, [0, 5, 6]), (False, [5, 6])])
def test_pods_that_follow_each_other_within_a_step_do_not_contest_a_card(is_raw: bool, claimed: list[int]) -> None:
    """Pods a and b share step 0 alone, b and c two steps: the first is a change of hands, the second is not."""
    held = [
        ({"UUID": "GPU-x", "pod": name, "namespace": "red"}, [(BEGIN + 30 * (step + 1), "40") for step in spans])
        for name, spans in (("a", [0]), ("b", [0, 1, 2, 3, 4, 5, 6]), ("c", [5, 6, 7]))
    ]
    made = a_backfill(is_raw=is_raw)
    found = rows(made.records(steps(8), {UTIL: parse(matrix(held))}))
    made._client.close()
    assert [event["ts"] for event in found["quality_event"]] == [
        instant((BEGIN + 30 * step) * 1000).isoformat() for step in claimed
    ]


def test_metrics_of_one_instant_make_one_reading(backfill) -> None:
    labels = {"UUID": "GPU-x", "Hostname": "n1"}
    times = [BEGIN + 30, BEGIN + 60]
    answers = {
        UTIL: parse(matrix([(labels, [(times[0], "50"), (times[1], "60")])])),
        USED: parse(matrix([({**labels, "__name__": USED}, [(times[0], "1024")])])),
        FREE: parse(matrix([(labels, [(times[0], "3072")])])),
    }
    first, second = rows(backfill.records(steps(2), answers))["reading"]
    assert (first["gpu_util_ratio"], first["fb_used_bytes"], first["fb_total_bytes"]) == (0.5, 2**30, 4 * 2**30)
    assert (second["gpu_util_ratio"], "fb_used_bytes" in second) == (0.6, False)


def test_series_without_a_card_bring_no_rows(backfill) -> None:
    answer = parse(matrix([({"instance": "n1:9400"}, [(BEGIN + 30, "50")])]))
    assert rows(backfill.records(steps(1), {UTIL: answer})) == {}


def test_large_chunks_come_in_several_tables(backfill) -> None:
    count = ROWS_PER_TABLE // 2 + 1
    values = [(BEGIN + 30 * (number + 1), "50") for number in range(count)]
    held = [({"UUID": uuid, "Hostname": "n"}, values) for uuid in ("GPU-1", "GPU-2")]
    tables = list(backfill.records(steps(count), {UTIL: parse(matrix(held))}))
    assert [table.num_rows for record, table in tables if record == "reading"] == [ROWS_PER_TABLE, 2]


def test_pods_and_nodes_come_from_kube_state_metrics(backfill) -> None:
    pod = {"namespace": "red", "pod": "train-0", "uid": "u1"}
    asked = {**pod, "container": "main", "resource": "nvidia_com_gpu", "unit": "integer", "node": "n1"}
    ran = [(BEGIN + 60 * number, "1") for number in range(1, 4)]
    answers = {
        "kube_pod_container_resource_requests": [(asked, [(at, "2") for at, _ in [*ran, (BEGIN + 240, "")]])],
        "kube_pod_info": [({**pod, "node": "n1", "created_by_kind": "Job", "created_by_name": "train"}, ran)],
        "kube_pod_start_time": [(pod, [(at, str(BEGIN - 100)) for at, _ in ran])],
        "kube_pod_status_phase": [
            ({**pod, "phase": "Running"}, ran),
            ({**pod, "phase": "Succeeded"}, [(BEGIN + 240, "1")]),
        ],
    }
    chunk = steps(8)
    found = rows(backfill.records(chunk, {name: parse(matrix(held)) for name, held in answers.items()}))
    (row,) = found["pod"]
    assert (row["uid"], row["gpu_count"], row["resource"], row["node"]) == ("u1", 2.0, "nvidia_com_gpu", "n1")
    assert (row["owner_kind"], row["owner_name"], row["phase"]) == ("Job", "train", "Succeeded")
    assert row["started_at"] == instant((BEGIN - 100) * 1000).isoformat()
    assert row["ended_at"] == instant((BEGIN + 180) * 1000).isoformat()  # the step in which it was first seen over


def test_only_changes_are_kept_of_series_that_repeat_themselves() -> None:
    memory: SeriesMemory[Series] = SeriesMemory(lambda series: series)
    held = [
        ({"pod": "a"}, [(number, "1" if number < 50 else "0") for number in range(100)]),
        ({"pod": "b"}, [(7, "3")]),
    ]
    samples = memory.samples([("kube_pod_x", parse(matrix(held)))])
    found = [(series.labels["pod"], value, at.timestamp()) for series, value, at in changes(samples)]
    assert found == [("a", 1.0, 0.0), ("b", 3.0, 7.0), ("a", 0.0, 50.0), ("a", 0.0, 99.0)]


def test_a_full_memory_of_series_starts_afresh_and_stays_right() -> None:
    memory: SeriesMemory[str] = SeriesMemory(lambda series: series.labels["pod"], max_series=3)
    for number in range(50):
        held = [({"pod": f"p{number}-{place}"}, [(1, "1")]) for place in range(2)]
        samples = memory.samples([("m", parse(matrix(held)))])
        assert list(samples.meanings) == [f"p{number}-0", f"p{number}-1"]
        assert len(memory._known) <= 3


def test_a_chunk_whose_query_fails_gives_nothing() -> None:
    def refuse(times):
        return 422, error("execution", "query processing would load too many samples into memory")

    with serving(Stub({UTIL: [{"UUID": "GPU-x"}]}, refuse=refuse)) as stub:
        made = a_backfill(stub.url)
        with pytest.raises(SourceError, match="HTTP 422 execution: query processing would load"):
            next(made.read(steps(3)))
        (event,) = rows([("quality_event", made.gap(steps(3), "HTTP 422"))])["quality_event"]
        made._client.close()
    assert (event["kind"], event["count"], event["subject"]) == ("gap", 3, stub.url)
    assert event["detail"] == "2024-06-10T06:13:30+00:00/2024-06-10T06:15:00+00:00: HTTP 422"


def test_partial_answers_lower_the_grade_of_the_whole_chunk() -> None:
    series = {UTIL: [{"UUID": "GPU-x"}], TEMP: [{"UUID": "GPU-x"}]}
    with serving(Stub(series, extra={"warnings": ["store 10.0.0.7 is away"], "isPartial": True})) as stub:
        made = a_backfill(stub.url, names=(UTIL, TEMP))
        found = rows(made.read(steps(2)))
        made._client.close()
    assert [reading["quality_flags"] for reading in found["reading"]] == [8, 8]
    assert [(event["detail"], event["count"]) for event in found["quality_event"]] == [
        ("store 10.0.0.7 is away", 2),
        ("the answer is partial", 2),
    ]


def test_a_chunk_is_asked_for_at_the_ends_of_its_steps() -> None:
    with serving(Stub({UTIL: [{"UUID": "GPU-x"}]}, value=lambda at: 1 + (at - BEGIN) / 30)) as stub:
        made = a_backfill(stub.url)
        found = rows(made.read(steps(3)))["reading"]
        made._client.close()
    assert stub.ranges() == [(BEGIN + 30, BEGIN + 90, 30)]
    assert [(row["ts"], row["gpu_util_ratio"]) for row in found] == [
        ("2024-06-10T06:13:30+00:00", 0.01),
        ("2024-06-10T06:14:00+00:00", 0.02),
        ("2024-06-10T06:14:30+00:00", 0.03),
    ]
