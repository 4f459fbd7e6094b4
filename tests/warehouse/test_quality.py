"""How far the records of an hour can be trusted, against values worked out by hand."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collector.sources.dcgm import Target, parse
from gpuledger.model import Allocation, Asset, Holding, Pod, QualityEvent, Reading, SourceRead, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse, quality

AT = datetime(2026, 3, 2, 10, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
BATCHES = itertools.count()
PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"
Row = tuple[str, str, str, int]


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


def put(house: Warehouse, record: str, *rows: Any) -> None:
    assert not house.ingest(record, to_table(record, rows), f"b{next(BATCHES)}").rejected


def reading(at: datetime, card: str = "a", **values: Any) -> Reading:
    said: dict[str, Any] = {"source": "dcgm", "interval_seconds": 60.0, "gpu_util_ratio": 0.5} | values
    return Reading(ts=at, node="n1", gpu_uuid=f"GPU-{card}", **said)


def every_minute(count: int = 60, card: str = "a", *, start: datetime = AT, **values: Any) -> list[Reading]:
    return [reading(start + i * MINUTE, card, **values) for i in range(count)]


WHOLE: dict[str, Any] = {"sm_active_ratio": 0.4, "power_watts": 300.0, "fb_used_bytes": 2**30}


def built(house: Warehouse, hours: float = 1, start: datetime = AT) -> list[Row]:
    """(kind, subject, detail, count) of the window after it was worked out."""
    end = start + hours * HOUR
    with house.writing() as cursor:
        quality.build(cursor, start, end)
    return listed(house, start, end)


def listed(house: Warehouse, start: datetime, end: datetime) -> list[Row]:
    rows = house.query("quality_list", kind="", from_at=start, to_at=end, limit_count=10_000)
    return sorted((row["kind"], row["subject"], row["detail"], row["count"]) for row in rows.to_pylist())


def value_of(house: Warehouse, kind: str, hours: float = 1) -> list[float | None]:
    rows = house.query("quality_list", kind=kind, from_at=AT, to_at=AT + hours * HOUR, limit_count=100)
    return rows.column("value").to_pylist()


def test_an_hour_that_was_read_whole_has_no_row(house: Warehouse) -> None:
    put(house, "reading", *every_minute(**WHOLE))
    assert built(house) == []


# 006: profiling counters that stand at zero while everything else says that the card works.


def zero_page() -> bytes:
    lines = []
    for card in range(8):
        labels = f'UUID="GPU-{card}",Hostname="n1"'
        lines += [f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {99 + card % 2}", f"DCGM_FI_DEV_POWER_USAGE{{{labels}}} 640"]
        lines += [f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{labels}}} 0"]
    return "\n".join(lines).encode() + b"\n"


def check_silent_zero(house: Warehouse, page: bytes) -> None:
    seen = [parse(page, AT + i * MINUTE, Target()) for i in range(60)]
    put(house, "reading", *[r for one in seen for r in one.readings])
    put(house, "source_read", *[r for one in seen for r in one.reads])
    put(house, "quality_event", *[row for one in seen for row in one.others.get("quality_event", ())])
    house.build_ledger(Window(AT, AT + HOUR))
    flagged = [row for row in listed(house, AT, AT + HOUR) if row[0] == "contradiction"]
    assert len(flagged) == 8
    assert {row[3] for row in flagged} == {60}
    utils = [r.gpu_util_ratio for r in seen[0].readings if r.gpu_util_ratio is not None]
    assert sum(utils) / len(utils) == pytest.approx(0.995)
    states = house.query("ledger_by", by="state", from_at=AT, to_at=AT + HOUR).to_pylist()
    assert not [row for row in states if row["state"] == "alloc_idle"]


def test_counters_at_zero_under_load_are_flagged_on_every_card(house: Warehouse) -> None:
    check_silent_zero(house, zero_page())


def test_006_as_reported(house: Warehouse) -> None:
    if not PROBLEMS.is_dir():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    check_silent_zero(house, (PROBLEMS / "006-prof-silent-zero.prom").read_bytes())


def test_a_source_that_does_not_flag_is_judged_by_its_values(house: Warehouse) -> None:
    values = WHOLE | {"sm_active_ratio": 0.0, "gpu_util_ratio": 0.97}
    put(house, "reading", *every_minute(source="nvml", **values))
    assert built(house) == [("contradiction", "GPU-a", "", 60)]


# Coverage and staleness.


def test_missing_readings_are_counted_and_the_ratio_kept(house: Warehouse) -> None:
    put(house, "reading", *every_minute(30, **WHOLE), *every_minute(15, start=AT + 45 * MINUTE, **WHOLE))
    assert built(house) == [("low_coverage", "GPU-a", "", 15)]
    assert value_of(house, "low_coverage") == [0.75]


def test_a_card_that_is_not_read_any_more_is_stale_for_a_day(house: Warehouse) -> None:
    put(house, "reading", *every_minute(30, **WHOLE), *every_minute(60 * 27, "b", **WHOLE))
    rows = [row for row in built(house, 27) if row[1] == "GPU-a"]
    assert [row[0] for row in rows].count("stale") == 25
    assert [row[0] for row in rows].count("low_coverage") == 25
    ages = sorted(age for age in value_of(house, "stale", 27) if age is not None)
    assert ages[:2] == [31 * 60, 91 * 60]


def test_the_open_hour_is_judged_up_to_now(house: Warehouse) -> None:
    put(house, "reading", *every_minute(20, **WHOLE))
    assert built(house, 1 / 3) == []


def test_a_source_that_does_not_say_how_often_is_judged_by_its_spacing(house: Warehouse) -> None:
    times = [AT + 30 * i * timedelta(seconds=1) for i in range(120) if not 40 <= i < 70]
    put(house, "reading", *[reading(at, interval_seconds=None, source="remote_write", **WHOLE) for at in times])
    assert built(house) == [("low_coverage", "GPU-a", "", 30)]
    assert value_of(house, "low_coverage") == [0.75]


def test_returned_cards_and_sources_of_processes_are_not_expected(house: Warehouse) -> None:
    put(house, "reading", *every_minute(20, **WHOLE), *every_minute(20, "b", source="proc", **WHOLE))
    put(house, "source_read", SourceRead(ts=AT, node="n1", source="proc", scope="process", ok=True))
    put(house, "asset", *[
        Asset(gpu_uuid=f"GPU-{card}", node="n1", status=status, from_at=at)
        for card, status, at in (("a", "in_service", AT), ("a", "returned", AT + 20 * MINUTE), ("b", "in_service", AT))
    ])  # fmt: skip
    assert built(house) == []


# Metrics.


def test_metrics_that_would_say_more_are_named_by_node(house: Warehouse) -> None:
    put(house, "reading", *every_minute(), *every_minute(card="b", power_watts=80.0))
    assert built(house) == [
        ("missing_metric", "n1", "fb_used_bytes", 2),
        ("missing_metric", "n1", "power_watts", 1),
        ("missing_metric", "n1", "sm_active_ratio", 2),
    ]


def test_what_another_source_gives_is_not_missing(house: Warehouse) -> None:
    put(house, "reading", *every_minute(source="nvidia_smi"), *every_minute(**WHOLE))
    assert built(house) == []


def test_a_metric_that_was_there_has_vanished(house: Warehouse) -> None:
    more = WHOLE | {"tensor_active_ratio": 0.1}
    less = WHOLE | {"sm_active_ratio": None}
    put(house, "reading", *every_minute(**more), *every_minute(start=AT + HOUR, **less))
    expected = [("vanished_metric", "GPU-a", metric, 60) for metric in ("sm_active_ratio", "tensor_active_ratio")]
    assert built(house, 2) == expected
    assert built(house, 1, AT + HOUR) == expected


# What readers told, what failed, what was never seen.


def test_events_are_summed_by_hour_and_clocks_by_the_worst(house: Warehouse) -> None:
    def event(minute: int, kind: str, count: int, detail: str = "") -> QualityEvent:
        at = AT + minute * MINUTE
        return QualityEvent(
            ts=at, source="remote_write", subject_kind="target", subject="t", kind=kind, detail=detail, count=count
        )

    put(
        house, "quality_event", event(0, "clock_skew", 7), event(1, "clock_skew", 540), event(2, "clock_skew", 6),
        event(3, "refused_sample", 3, "too old"), event(4, "refused_sample", 4, "too old"),
        event(61, "refused_sample", 5, "too old"), event(5, "too_many_series", 305_000),
        event(6, "contradiction", 9),
    )  # fmt: skip
    put(house, "reading", *every_minute(120, **WHOLE))
    assert built(house, 2) == [
        ("clock_skew", "t", "", 3),
        ("refused_sample", "t", "too old", 5),
        ("refused_sample", "t", "too old", 7),
        ("too_many_series", "t", "", 305_000),
    ]
    assert value_of(house, "clock_skew") == [540]
    summary = house.query("quality_summary", from_at=AT, to_at=AT + 2 * HOUR).to_pylist()
    assert [(row["kind"], row["event_count"], row["hour_count"], row["worst_value"]) for row in summary] == [
        ("clock_skew", 3, 1, 540.0),
        ("refused_sample", 12, 2, None),
        ("too_many_series", 305_000, 1, None),
    ]


def test_reads_that_failed_are_gaps_with_their_reason(house: Warehouse) -> None:
    def read(minute: int, error: str | None, skipped: int = 0) -> SourceRead:
        return SourceRead(
            ts=AT + minute * MINUTE, node="n1", source="dcgm", scope="device", ok=error is None,
            interval_seconds=60, skipped_lines=skipped, error=error,
        )  # fmt: skip

    put(house, "reading", *every_minute(**WHOLE))
    put(house, "source_read", read(0, None, 3), read(1, "HTTP 500"), read(2, "HTTP 500"), read(3, None, 4))
    assert built(house) == [("gap", "n1", "read failed: HTTP 500", 2), ("refused_line", "n1", "", 7)]
    assert value_of(house, "gap") == [120]


def test_slow_reads_are_named_with_their_interval(house: Warehouse) -> None:
    slow = [reading(AT + 5 * i * MINUTE, interval_seconds=300.0, **WHOLE) for i in range(12)]
    put(house, "reading", *slow)
    assert built(house) == [("slow_interval", "n1", "", 1)]
    assert value_of(house, "slow_interval") == [300]


def test_a_node_that_no_source_has_shown_is_named_and_not_called_bad(house: Warehouse) -> None:
    put(house, "reading", *every_minute(**WHOLE))
    put(house, "asset", *[
        Asset(gpu_uuid=f"GPU-{card}", node=node, status="in_service", from_at=AT - HOUR)
        for card, node in (("a", "n1"), ("x", "n2"), ("y", "n2"))
    ])  # fmt: skip
    assert built(house) == [("never_seen", "n2", "", 2)]


def test_a_fleet_of_which_nothing_was_read_is_no_fault(house: Warehouse) -> None:
    put(house, "asset", Asset(gpu_uuid="GPU-x", node="n2", status="in_service", from_at=AT))
    assert built(house) == []


def pods_on(node: str) -> Pod:
    return Pod(
        uid="u", namespace="ml", pod="p", node=node, gpu_count=1, phase="Running", started_at=AT, seen_at=AT + HOUR
    )


def test_pods_with_gpus_that_the_exporter_does_not_name(house: Warehouse) -> None:
    put(house, "reading", *every_minute(**WHOLE))
    put(house, "pod", pods_on("n1"))
    assert built(house) == [("missing_pod_labels", "n1", "", 1)]


@pytest.mark.parametrize("how", ["holding", "allocation", "nvml"])
def test_pods_that_are_known_otherwise_need_no_labels(house: Warehouse, how: str) -> None:
    put(house, "reading", *every_minute(source="nvml" if how == "nvml" else "dcgm", **WHOLE))
    put(house, "pod", pods_on("n1"))
    if how == "holding":
        put(house, "holding", Holding(
            ts=AT, node="n1", gpu_uuid="GPU-a", namespace="ml", pod="p", source="dcgm", share=1.0, interval_seconds=60,
        ))  # fmt: skip
    if how == "allocation":
        put(house, "allocation", Allocation(
            allocation_id="x", workload_id="w", pod="p", node="n1", gpu_uuid="GPU-a", share=1.0, started_at=AT,
        ))  # fmt: skip
    assert [row for row in built(house) if row[0] == "missing_pod_labels"] == []


def test_values_that_are_none_are_counted_by_card(house: Warehouse) -> None:
    rows = every_minute(57, **WHOLE) + every_minute(
        3, start=AT + 57 * MINUTE, invalid_count=2, quality_flags=1, **WHOLE
    )
    put(house, "reading", *rows)
    assert built(house) == [("rejected_value", "GPU-a", "", 6)]
    (row,) = house.query("quality_by_gpu", from_at=AT, to_at=AT + HOUR).to_pylist()
    assert (row["gpu_uuid"], row["kind"], row["event_count"]) == ("GPU-a", "rejected_value", 6)


def test_a_build_of_the_same_hours_changes_nothing(house: Warehouse) -> None:
    put(house, "reading", *every_minute(30, gpu_util_ratio=0.0))
    first = built(house)
    assert first
    for _ in range(2):
        house.build_ledger(Window(AT, AT + HOUR), until_at=AT + HOUR)
        assert listed(house, AT, AT + HOUR) == first


def test_when_each_source_was_last_read(house: Warehouse) -> None:
    put(house, "reading", *every_minute(30), *every_minute(10, "b", source="remote_write", interval_seconds=None))
    built(house)
    rows = house.query("source_last_read", from_at=AT, to_at=AT + HOUR).to_pylist()
    assert [(row["source"], row["gpu_count"], row["last_at"], row["interval_seconds"]) for row in rows] == [
        ("dcgm", 1, AT + 29 * MINUTE, 60),
        ("remote_write", 1, AT + 9 * MINUTE, 60),
    ]


# Two holders of one card.


def test_claims_that_the_ledger_finds_are_rows_unless_a_reader_told_them(house: Warehouse) -> None:
    def held(pod: str, card: str) -> Allocation:
        return Allocation(
            allocation_id=f"{pod}-{card}", workload_id=pod, pod=pod, node="n1", gpu_uuid=f"GPU-{card}", share=1.0,
            started_at=AT + 10 * MINUTE, ended_at=AT + 40 * MINUTE,
        )  # fmt: skip

    put(house, "reading", *every_minute(**WHOLE), *every_minute(card="b", **WHOLE))
    put(house, "allocation", held("p", "a"), held("q", "a"), held("p", "b"), held("q", "b"))
    put(house, "quality_event", QualityEvent(
        ts=AT, source="dcgm", subject_kind="gpu", subject="GPU-b", kind="double_claim", detail="ml/p, ml/q", count=2,
    ))  # fmt: skip
    assert built(house) == [("double_claim", "GPU-a", "", 2), ("double_claim", "GPU-b", "ml/p, ml/q", 2)]
    assert set(value_of(house, "double_claim")) == {1800, None}
