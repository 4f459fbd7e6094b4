"""From records to faults and runs: what is recognised, when, and that nothing late or repeated changes it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from analyzers.health.figures import health_figures
from analyzers.health.runs import runs
from gpuledger.model import Window
from warehouse import Warehouse

BEGIN = datetime(2026, 3, 2, tzinfo=UTC)
DAY = Window(BEGIN, BEGIN + timedelta(days=1))


def _at(hours: float) -> datetime:
    return BEGIN + timedelta(hours=hours)


def _reading(minute: float, **values: Any) -> dict[str, Any]:
    row = {"ts": BEGIN + timedelta(minutes=minute), "node": "n0", "gpu_uuid": "g0", "source": "dcgm"}
    return {**row, "interval_seconds": 60.0, "gpu_util_ratio": 0.5, **values}


def _told(house: Warehouse) -> list[tuple[str, str, float, int]]:
    rows = house.query("fault_list", from_at=DAY.from_at, to_at=DAY.to_at).to_pylist()
    minutes = [(row["ts"] - BEGIN) / timedelta(minutes=1) for row in rows]
    return [(row["kind"], row["code"], minute, row["event_count"]) for row, minute in zip(rows, minutes, strict=True)]


def test_counters_are_faults_by_their_rise_and_a_fall_is_a_reset(house: Warehouse, put: Callable[..., None]) -> None:
    counts = [3, 3, 5, 5, None, 5, 2, 2, 0, 0]
    put("reading", *[_reading(10 * i, ecc_uncorrected_count=count) for i, count in enumerate(counts)])
    assert house.recognise_faults(DAY) == 2
    # 3 at first says nothing of when; +2 at minute 20; reset with 2 since at minute 60; a reset to none is no error.
    assert _told(house) == [("ecc_uncorrected", "", 20.0, 2), ("ecc_uncorrected", "", 60.0, 2)]


def test_a_counter_is_of_the_vendor_of_its_card(house: Warehouse, put: Callable[..., None]) -> None:
    for number, model in enumerate(("Ascend 910B", "MI300X", "H100", "Accelerator X")):
        gpu = {"gpu_uuid": f"g{number}", "model": model}
        put("reading", *[_reading(10 * i, **gpu, ecc_uncorrected_count=count) for i, count in enumerate([0, 2])])
    house.recognise_faults(DAY)
    rows = house.query("fault_list", from_at=DAY.from_at, to_at=DAY.to_at).to_pylist()
    vendors = {row["gpu_uuid"]: row["vendor"] for row in rows}
    assert vendors == {"g0": "ascend", "g1": "amd", "g2": "nvidia", "g3": "nvidia"}


def test_remapped_rows_are_never_reset(house: Warehouse, put: Callable[..., None]) -> None:
    put("reading", *[_reading(10 * i, row_remap_uncorrectable_count=n) for i, n in enumerate([1, 2, 1, 1])])
    put("reading", *[_reading(10 * i, gpu_uuid="g1", row_remap_failure=n) for i, n in enumerate([0, 1, 1, 1])])
    house.recognise_faults(DAY)
    assert sorted(_told(house)) == [("row_remap_failure", "", 10.0, 1), ("row_remap_pending", "", 10.0, 1)]


def test_a_sticky_xid_is_an_edge_across_windows_gaps_and_sources(house: Warehouse, put: Callable[..., None]) -> None:
    put("reading", *[_reading(i, xid_code=0 if i < 5 else 79) for i in range(10)])
    assert house.recognise_faults(Window(BEGIN, _at(0.1))) == 1
    put("reading", *[_reading(300 + i, xid_code=79) for i in range(10)])  # nobody read it for hours
    assert house.recognise_faults(Window(_at(5), _at(6))) == 0
    event = {"node": "n0", "gpu_uuid": "g0", "kind": "xid", "code": "79", "source": "kernel", "count": 1}
    put("fault_event", {**event, "ts": BEGIN + timedelta(minutes=4.5)})
    assert house.recognise_faults(DAY) == 0
    assert [row[:3] for row in _told(house)] == [("xid", "79", 5.0)]
    (row,) = house.query("fault_list", from_at=DAY.from_at, to_at=DAY.to_at).to_pylist()
    assert row["sources"] == ["dcgm", "kernel"]
    assert row["is_told"]


def test_a_code_that_changes_is_another_fault_and_slices_repeat_the_card(
    house: Warehouse, put: Callable[..., None]
) -> None:
    codes = [0, 31, 31, 79, 79]
    put("reading", *[_reading(10 * i, xid_code=code) for i, code in enumerate(codes)])
    put("reading", *[_reading(10 * i, xid_code=code, slice_id="1") for i, code in enumerate(codes)])
    house.recognise_faults(DAY)
    assert _told(house) == [("xid", "31", 10.0, 1), ("xid", "79", 30.0, 1)]


def test_readings_that_come_late_move_an_edge_when_the_hours_are_built(
    house: Warehouse, put: Callable[..., None]
) -> None:
    put("reading", _reading(0, xid_code=0), _reading(50, xid_code=79))
    assert house.recognise_faults(DAY) == 1
    put("reading", *[_reading(i, xid_code=79) for i in range(20, 50)])
    house.build_ledger(DAY, until_at=DAY.to_at)
    assert [row[:3] for row in _told(house)] == [("xid", "79", 20.0)]
    before = _told(house)
    house.build_ledger(DAY, until_at=DAY.to_at)
    house.recognise_faults(DAY)
    assert _told(house) == before


@pytest.mark.parametrize(
    ("told_at", "code", "expected"),
    [
        (30.0, "48", [("xid", "48", 30.0)]),  # told in the silence: what the gauge shows after it is the same
        (4.5, "48", [("xid", "48", 4.5)]),
        (4.0, "48", [("xid", "48", 4.0), ("xid", "48", 60.0)]),  # the gauge still showed none after that one
        (30.0, "79", [("xid", "79", 30.0), ("xid", "48", 60.0)]),  # another code is another fault
        (70.0, "48", [("xid", "48", 60.0), ("xid", "48", 70.0)]),  # told later: it came again
    ],
)
def test_a_code_that_a_gauge_shows_after_a_silence_is_the_fault_told_in_it(
    house: Warehouse, put: Callable[..., None], told_at: float, code: str, expected: list[tuple[str, str, float]]
) -> None:
    put("reading", *[_reading(i, xid_code=0) for i in range(5)])  # the last one at minute 4
    put("reading", *[_reading(60 + i, xid_code=48) for i in range(20)])
    event = {"node": "n0", "gpu_uuid": "g0", "kind": "xid", "code": code, "source": "kernel", "count": 1}
    put("fault_event", {**event, "ts": BEGIN + timedelta(minutes=told_at)})
    house.recognise_faults(DAY)
    assert [row[:3] for row in _told(house)] == expected
    house.build_ledger(DAY, until_at=DAY.to_at)
    assert [row[:3] for row in _told(house)] == expected


def test_a_fault_told_before_the_window_is_known_when_the_gauge_answers_again(
    house: Warehouse, put: Callable[..., None]
) -> None:
    event = {"node": "n0", "gpu_uuid": "g0", "kind": "xid", "code": "48", "source": "kernel", "count": 1}
    put("reading", _reading(10, xid_code=0))
    put("fault_event", {**event, "ts": BEGIN + timedelta(minutes=20)})
    assert house.recognise_faults(Window(BEGIN, _at(0.5))) == 1
    put("reading", *[_reading(40 + i, xid_code=48) for i in range(10)])
    assert house.recognise_faults(Window(_at(0.5), _at(1))) == 0
    assert _told(house) == [("xid", "48", 20.0, 1)]


def test_conditions_tell_lost_cards_and_fatal_codes(house: Warehouse, put: Callable[..., None]) -> None:
    put("asset", {"gpu_uuid": "g0", "node": "n7", "status": "in_service", "from_at": BEGIN})
    gpu = {"subject_kind": "gpu", "subject": "g0", "source": "scheduler"}
    put("condition", {**gpu, "condition": "gpu_lost", "from_at": _at(1), "reason": "XID 79"})
    put("condition", {**gpu, "condition": "fatal_xid", "from_at": _at(2), "reason": "XID 48"})
    put("condition", {**gpu, "condition": "fatal_xid", "from_at": _at(3), "reason": "broken"})
    house.recognise_faults(DAY)
    assert [row[:3] for row in _told(house)] == [("gpu_lost", "", 60.0), ("xid", "48", 120.0)]
    rows = house.query("fault_list", from_at=DAY.from_at, to_at=DAY.to_at).to_pylist()
    assert {row["node"] for row in rows} == {"n7"}


F2 = [(0.5, 0.75, 6.0), (6.25, 6.5, 17.0), (17.0, 17.25, 24.0)]
"""Started, ready, ended, in hours: F2's day."""


@pytest.fixture
def put_f2(put: Callable[..., None]) -> Callable[..., None]:
    def put_all(checkpoints: tuple[float, ...], *, status: str = "finished") -> None:
        job = {"workload_id": "job", "kind": "training", "tenant": "a", "submitted_at": BEGIN, "pod_count": 2}
        put("workload", {**job, "num_gpu": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0, "status": status})
        put(
            "allocation",
            *[
                {
                    "allocation_id": f"{attempt}/{rank}",
                    "workload_id": "job",
                    "pod": f"p{rank}",
                    "node": f"n{rank}",
                    "gpu_uuid": f"g{rank}",
                    "share": 1.0,
                    "started_at": _at(started),
                    "ready_at": _at(ready),
                    "ended_at": _at(ended),
                }
                for attempt, (started, ready, ended) in enumerate(F2)
                for rank in range(2)
            ],
        )
        put("workload_event", *[{"workload_id": "job", "ts": _at(hours), "kind": "failed"} for hours in (6.0, 17.0)])
        if checkpoints:
            put("checkpoint", *[{"ts": _at(hours), "workload_id": "job"} for hours in checkpoints])

    return put_all


def _judged(house: Warehouse) -> tuple[Any, int]:
    rows = house.query("ettr_attempts", from_at=DAY.from_at, to_at=DAY.to_at).to_pylist()
    found, unjudged = runs(rows)
    return (found[0] if found else None), unjudged


def test_f2_from_records(house: Warehouse, put_f2: Callable[..., None]) -> None:
    put_f2((5.75, 16.5))
    run, _ = _judged(house)
    assert not run.is_bounded
    assert run.gpus == pytest.approx(2.0)
    assert run.best.ratio == pytest.approx(0.90625)
    assert run.best.ratio_without_queue == pytest.approx(21.75 / 23.25)
    assert run.best.lost_hours == pytest.approx(0.75)
    assert run.best.queue_hours == pytest.approx(0.75)
    assert run.requeue_hours == pytest.approx((0.25, 0.0))


def test_f2_without_checkpoints_is_bounded(house: Warehouse, put_f2: Callable[..., None]) -> None:
    put_f2(())
    run, _ = _judged(house)
    assert run.is_bounded
    assert run.best.ratio == pytest.approx(22.5 / 24)  # nothing lost
    assert run.worst.ratio == pytest.approx(20.5 / 24)  # an hour lost at each failure


def test_a_job_that_failed_at_its_end_keeps_only_what_it_saved(house: Warehouse, put_f2: Callable[..., None]) -> None:
    put_f2((5.75, 16.5, 23.0), status="failed")
    run, _ = _judged(house)
    assert run.best.lost_hours == pytest.approx(1.75)


def test_a_job_that_runs_is_judged_up_to_its_last_checkpoint(house: Warehouse, put: Callable[..., None]) -> None:
    job = {"kind": "training", "submitted_at": BEGIN, "pod_count": 1, "num_gpu": 1, "gpu_milli": 1000}
    for name in ("saves", "silent"):
        put("workload", {**job, "workload_id": name, "cpu_milli": 0, "memory_mib": 0, "status": "running"})
        held = {"allocation_id": name, "workload_id": name, "pod": name, "node": "n0", "gpu_uuid": f"g-{name}"}
        put("allocation", {**held, "share": 1.0, "started_at": _at(1), "ready_at": _at(2)})
    put("checkpoint", {"ts": _at(10), "workload_id": "saves"})
    run, unjudged = _judged(house)
    assert unjudged == 1
    assert run.workload_id == "saves"
    assert (run.best.wall_hours, run.best.productive_hours) == (pytest.approx(10.0), pytest.approx(8.0))


def test_figures_of_a_fleet(house: Warehouse, put: Callable[..., None], put_f2: Callable[..., None]) -> None:
    put_f2((5.75, 16.5))
    put("asset", *[{"gpu_uuid": f"g{i}", "node": f"n{i}", "model": "NVIDIA H100 80GB HBM3", "status": "in_service",
                    "from_at": BEGIN - timedelta(days=1)} for i in range(2)])  # fmt: skip
    event = {"node": "n0", "gpu_uuid": "g0", "kind": "xid", "source": "kernel", "count": 1}
    put("fault_event", {**event, "ts": _at(6), "code": "79"}, {**event, "ts": _at(8), "code": "31"})
    put("job_model", {"workload_id": "job", "active_parameters": 1e9})
    steps = [(_at(8), 1, 0.0), (_at(9), 2, 3.6e8), (_at(10), 3, 3.6e8)]
    put("job_step", *[{"ts": ts, "workload_id": "job", "rank": 0, "step": step, "tokens": tokens}
                      for ts, step, tokens in steps])  # fmt: skip
    house.build_ledger(DAY, until_at=DAY.to_at)
    figures = health_figures(house, DAY, sizes=(16,))
    # Both nodes held something in 24 of 24 hours: 2 node-days, and one failure (31 is the work's own).
    assert figures["mttf"]["failure_count"] == 1
    assert figures["mttf"]["node_days"] == pytest.approx(2.0)
    assert figures["mttf"]["modelled"][0]["hours"] == pytest.approx(24 / (2 * 0.5))
    assert figures["ettr"]["observed"]["ratio"] == pytest.approx(0.90625)
    assert figures["ettr"]["observed"]["wall_gpu_hours"] == pytest.approx(48.0)
    assert figures["ettr"]["inputs"]["checkpoint_hours"] == pytest.approx(10.75)
    assert [row["gpu_count"] for row in figures["ettr"]["expected"]] == [16]
    # 6 x 1e9 x 7.2e8 tokens over 2 hours on 2 cards of 989e12.
    assert figures["goodput"]["program"]["ratio"] == pytest.approx(6e9 * 7.2e8 / (2 * 989e12 * 7200))
    assert figures["goodput"]["runtime"]["ratio"] == pytest.approx(21.75 / 23.25)
    assert 0 < figures["goodput"]["scheduling"]["ratio"] <= 1


def test_an_empty_warehouse_knows_nothing_and_says_so(house: Warehouse) -> None:
    figures = health_figures(house, DAY)
    assert figures["mttf"]["failures_per_1000_node_days"] is None
    assert figures["mttf"]["modelled"] == []
    assert figures["ettr"]["observed"]["ratio"] is None
    assert figures["ettr"]["expected"] == []
    assert figures["goodput"]["ratio"] is None
