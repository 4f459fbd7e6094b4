"""The efficiency rules together: idle hours are claimed whole and once, and what people reported of idle rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from analyzers.efficiency import peak_flops
from analyzers.fitting import Fit, Need, smallest_fit
from analyzers.rules.gang_partial_idle import GangPartialIdle
from analyzers.rules.idle_allocation import IdleAllocation
from analyzers.rules.low_activity import LowActivity
from gpuledger.model import RECORDS, Reading, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
JOBS = ("job0", "job1", "job2", "job3")
AUDIT = "assert_no_double_claims"


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


def put(house: Warehouse, record: str, rows: Sequence[Any]) -> None:
    assert not house.ingest(record, to_table(record, rows), f"{record}-batch").rejected


def hold(house: Warehouse, pods: Sequence[tuple[str, str, str, str]], hours: float) -> None:
    """(workload, kind, pod, card): all of them for the whole window."""
    end = AT + timedelta(hours=hours)
    shape = {"pod_count": 1, "num_gpu": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    kinds = {workload: kind for workload, kind, _, _ in pods}
    times = {"started_at": AT, "ended_at": end}
    workload, allocation = RECORDS["workload"].cls, RECORDS["allocation"].cls
    put(
        house,
        "workload",
        [workload(workload_id=one, kind=kind, submitted_at=AT, **times, **shape) for one, kind in kinds.items()],
    )
    held = {"node": "n1", "share": 1.0, "ready_at": AT - timedelta(minutes=15), **times}
    rows = [
        allocation(allocation_id=f"a-{card}", workload_id=one, pod=pod, gpu_uuid=card, **held)
        for one, _, pod, card in pods
    ]
    put(house, "allocation", rows)


def reading(card: str, minute: int, util: float, *, memory_ratio: float | None = None) -> Reading:
    memory: dict[str, Any] = (
        {} if memory_ratio is None else {"fb_used_bytes": round(memory_ratio * 8e10), "fb_total_bytes": 80_000_000_000}
    )
    return Reading(
        ts=AT + minute * MINUTE,
        node="n1",
        gpu_uuid=card,
        source="s",
        interval_seconds=60,
        gpu_util_ratio=util,
        **memory,
    )


def build(house: Warehouse, hours: int) -> Window:
    window = Window(AT, AT + timedelta(hours=hours))
    assert house.build_ledger(window, until_at=window.to_at).violations == 0
    return window


def claimed(table: pa.Table | None) -> float:
    assert table is not None
    return float(pc.sum(table["gpu_hours"]).as_py() or 0.0)


def claimed_by_workload(*tables: pa.Table | None) -> dict[str, float]:
    rows = [row for table in tables if table is not None for row in table.to_pylist()]
    return {job: sum(row["gpu_hours"] for row in rows if row["workload_id"] == job) for job in JOBS}


def store(house: Warehouse, **tables: pa.Table) -> None:
    with house.writing() as cursor:
        for analyzer, table in tables.items():
            named = table.append_column("analyzer", pa.array([analyzer] * table.num_rows, pa.string()))
            cursor.register("staged", named)
            cursor.execute("insert into claim by name from staged")
            cursor.unregister("staged")


def timeline(rng: np.random.Generator, minutes: int, silent: float) -> list[str]:
    """Runs of idle, busy and silence of random length; `silent` is the part of runs that nobody reads."""
    states: list[str] = []
    while len(states) < minutes:
        kind = str(rng.choice(["idle", "busy", "silent"], p=[0.5, 0.5 - silent, silent]))
        length = int(rng.integers(1, 90 if kind == "idle" else 60 if kind == "busy" else 40))
        states += [kind] * length
    return states[:minutes]


@pytest.mark.parametrize("silent", [0.0, 0.15])
@pytest.mark.parametrize("seed", range(3))
def test_idle_hours_are_claimed_once_and_whole_where_all_was_read(house: Warehouse, seed: int, silent: float) -> None:
    """Idle shares beside ranks that nobody read may be anybody's finding: only those may stay unclaimed."""
    rng = np.random.default_rng(seed)
    pods = [
        (f"job{job}", "inference" if job == 3 else "training", f"p{job}-{rank // 2}", f"g{job}-{rank}")
        for job, ranks in enumerate((1, 2, 5, 4))
        for rank in range(ranks)
    ]
    hold(house, pods, hours=6)
    rows = [
        reading(card, minute, 0.0 if state == "idle" else 0.9)
        for *_, card in pods
        for minute, state in enumerate(timeline(rng, 360, silent))
        if state != "silent"
    ]
    put(house, "reading", rows)
    window = build(house, 6)
    spans = house.query("ledger_by", by="workload", from_at=window.from_at, to_at=window.to_at).to_pylist()
    idle = {row["key"]: row["gpu_hours"] for row in spans if row["state"] == "alloc_idle"}
    whole, partial = IdleAllocation().claims(house, window, {}), GangPartialIdle().claims(house, window, {})
    got = claimed_by_workload(whole, partial)
    assert idle["job0"] == pytest.approx(got["job0"], abs=1e-6)
    assert all(got[job] <= hours + 1e-6 for job, hours in idle.items())
    if not silent:
        assert got == pytest.approx(idle, abs=1e-6)
    by_hour = [Window(AT + timedelta(hours=i), AT + timedelta(hours=i + 1)) for i in range(6)]
    assert sum(claimed(IdleAllocation().claims(house, one, {})) for one in by_hour) == pytest.approx(claimed(whole))
    assert sum(claimed(GangPartialIdle().claims(house, one, {})) for one in by_hour) == pytest.approx(claimed(partial))
    store(house, idle_allocation=whole, gang_partial_idle=partial)
    assert house.query(AUDIT, from_at=window.from_at, to_at=window.to_at).num_rows == 0


def test_the_audit_tells_what_is_claimed_twice_and_what_the_ledger_does_not_hold(house: Warehouse) -> None:
    hold(house, [("job", "training", "p", "g0")], hours=2)
    put(house, "reading", [reading("g0", minute, 0.0) for minute in range(120)])
    window = build(house, 2)
    claims = IdleAllocation().claims(house, window, {})
    twice = claims.slice(0, 1)
    store(house, idle_allocation=claims, gang_partial_idle=twice)
    told = house.query(AUDIT, from_at=window.from_at, to_at=window.to_at).to_pylist()
    assert [row["problem"] for row in told] == ["overlaps"]
    wrong = claims.slice(1, 1).set_column(claims.schema.get_field_index("state"), "state", pa.array(["alloc_stalled"]))
    store(house, stalled_allocation=wrong)
    told = house.query(AUDIT, from_at=window.from_at, to_at=window.to_at).to_pylist()
    assert sorted(row["problem"] for row in told) == ["exceeds_ledger", "overlaps", "overlaps"]


def test_100_and_104_idle_members_are_named(house: Warehouse) -> None:
    hold(house, [("mn-1", "batch", f"p{i // 2}", f"g{i}") for i in range(4)], hours=1)
    rows = [reading(f"g{i}", minute, 1.0 if i < 2 else 0.0) for i in range(4) for minute in range(60)]
    put(house, "reading", rows)
    window = build(house, 1)
    (found,) = GangPartialIdle().run(house, window, {}).findings
    assert found.gpu_hours_wasted == pytest.approx(2.0)
    assert [card["gpu_uuid"] for card in found.action_params["idle_cards"]] == ["g2", "g3"]
    assert list(IdleAllocation().run(house, window, {}).findings) == []


def test_103_a_service_with_full_memory_is_low_and_a_notebook_is_idle(house: Warehouse) -> None:
    hold(house, [("svc-a", "inference", "svc-a", "ga"), ("nb-b", "notebook", "nb-b", "gb")], hours=6)
    rows = [
        reading(card, minute, util, memory_ratio=0.95)
        for card, util in (("ga", 0.03), ("gb", 0.0))
        for minute in range(360)
    ]
    put(house, "reading", rows)
    window = build(house, 6)
    (idle,) = IdleAllocation().run(house, window, {}).findings
    assert (idle.subject_id, idle.action_code) == ("nb-b", "notify")
    assert idle.gpu_hours_wasted == pytest.approx(6.0)
    assert next(fact["value"] for fact in idle.evidence if fact["metric"] == "fb_used_ratio") == pytest.approx(0.95)
    (low,) = LowActivity().run(house, window, {}).findings
    assert (low.subject_id, low.cause_code, low.action_code) == ("svc-a", "low_serving", "share_or_scale_down")
    assert low.gpu_hours_wasted == 0


def test_peaks_by_precision() -> None:
    assert peak_flops("NVIDIA H100 80GB HBM3", "bf16") == 989e12
    assert peak_flops("H100", "fp8") == 1978e12
    assert peak_flops("A100", "tf32") == 156e12
    assert peak_flops("V100", "fp16") == 125e12
    for model, precision in (
        ("A100", "fp8"),
        ("V100", "bf16"),
        ("H100", "fp4"),
        ("H100", "fp32"),
        ("nobody's", "bf16"),
    ):
        assert peak_flops(model, precision) is None


def test_fits_from_slices_to_shares() -> None:
    def fit(**changed: Any) -> Fit | None:
        need = {"model": "H100", "card_count": 1, "memory_bytes": 8e9, "capacity_bytes": 80e9, "compute_ratio": 0.1}
        return smallest_fit(Need(**{**need, **changed}), headroom_ratio=0.0)

    assert fit() == Fit(how="mig", share=1 / 7, model="H100", compute_slices=1, memory_slices=1)
    assert fit(compute_ratio=1 / 7) == fit()
    more = fit(compute_ratio=0.15)
    assert more is not None
    assert (more.compute_slices, more.memory_slices) == (2, 2)
    several = fit(card_count=8, model="unknown", memory_bytes=30e9)
    assert several == Fit(how="fewer_cards", share=3 / 8, card_count=3)
    assert fit(model="unknown", memory_bytes=40e9) == Fit(how="share", share=0.5)
    assert fit(model="unknown", memory_bytes=40.1e9) is None
