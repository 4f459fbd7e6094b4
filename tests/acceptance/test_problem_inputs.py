"""Faults that people reported of systems like this one, from the page or record to the ledger, with the right value.

Each input is written here in our own words; where the public recordings lie beside the checkout, they are read too.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from analyzers.rules.idle_allocation import IdleAllocation
from collector.sources.dcgm import Target, parse
from gpuledger.model import RECORDS, Reading, Window, to_table
from gpuledger.ports import Observation
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"


@pytest.fixture
def house() -> Iterator[Warehouse]:
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=2))) as opened:
        yield opened


@pytest.fixture
def problem() -> Callable[[str], bytes]:
    def read(name: str) -> bytes:
        if not PROBLEMS.is_dir():
            pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
        return (PROBLEMS / name).read_bytes()

    return read


def put(house: Warehouse, record: str, rows: Sequence[Any], batch: str = "b") -> None:
    result = house.ingest(record, to_table(record, rows), f"{record}-{batch}")
    assert not result.rejected


def scrape(house: Warehouse, page: bytes, minutes: int) -> Observation:
    """The same page, read every minute."""
    seen = [parse(page, AT + i * MINUTE, Target()) for i in range(minutes)]
    put(house, "reading", [reading for one in seen for reading in one.readings])
    put(house, "source_read", [read for one in seen for read in one.reads])
    put(house, "holding", [holding for one in seen for holding in one.holdings])
    return seen[0]


def states(house: Warehouse, by: str, hours: float) -> dict[tuple[str, str], float]:
    window = Window(AT, AT + timedelta(hours=hours))
    assert house.build_ledger(window).violations == 0
    rows = house.query("ledger_by", by=by, from_at=window.from_at, to_at=window.to_at).to_pylist()
    return {(row["key"], row["state"]): row["gpu_hours"] for row in rows}


def rate(house: Warehouse, name: str, hours: float) -> float | None:
    rows = house.query("ledger_rates", from_at=AT, to_at=AT + timedelta(hours=hours)).to_pylist()
    return next(row["value"] for row in rows if row["name"] == name)


def gauge(metric: str, labels: str, value: object) -> str:
    return f"{metric}{{{labels}}} {value}\n"


def lines(page: bytes) -> list[str]:
    return page.decode().splitlines()


# 001: rare utilization samples far above 100 are not measurements.


def outliers() -> list[float]:
    return [50.0] * 57 + [2619.0, 808334905.0, 4294967295.0]


def test_001_outliers_are_no_measurement(house: Warehouse) -> None:
    check_outliers(house, outliers())


def test_001_as_reported(house: Warehouse, problem: Callable[[str], bytes]) -> None:
    rows = list(csv.DictReader(lines(problem("001-util-outliers.csv"))))
    check_outliers(house, [float(row["value"]) for row in rows])


def check_outliers(house: Warehouse, values: list[float]) -> None:
    labels = 'UUID="GPU-a",Hostname="n"'
    seen = [
        parse(gauge("DCGM_FI_DEV_GPU_UTIL", labels, value).encode(), AT + i * MINUTE, Target())
        for i, value in enumerate(values)
    ]
    readings = [reading for one in seen for reading in one.readings]
    put(house, "reading", readings)
    used = [reading.gpu_util_ratio for reading in readings if reading.gpu_util_ratio is not None]
    assert (len(used), max(used)) == (57, 0.5)
    assert sum(used) / len(used) == pytest.approx(0.5)
    assert sum(reading.invalid_count for reading in readings) == 3
    row = house.query("gpu_readings", gpu_uuid="GPU-a", from_at=AT, to_at=AT + 60 * MINUTE, bucket_seconds=3600)
    assert row.select(["gpu_util_mean", "gpu_util_max"]).to_pylist() == [{"gpu_util_mean": 0.5, "gpu_util_max": 0.5}]
    hold(house, ["GPU-a"], node="n", hours=1)
    assert states(house, "state", 1)["alloc_ungraded", "alloc_ungraded"] == pytest.approx(57 / 60)
    assert rate(house, "coverage", 1) == pytest.approx(0.95)


# 002: codes that say "blank" are not numbers.


def test_002_blank_codes(house: Warehouse, problem: Callable[[str], bytes]) -> None:
    seen = scrape(house, problem("002-dcgm-blanks.prom"), 1)
    measured = {reading.gpu_uuid: reading for reading in seen.readings}
    assert measured["GPU-aaaa0002"].gpu_util_ratio == pytest.approx(0.37)
    assert measured["GPU-aaaa0002"].sm_active_ratio == pytest.approx(0.41)
    assert measured["GPU-aaaa0002"].pcie_tx_bytes_per_second == 67358889
    for blank in ("GPU-aaaa0000", "GPU-aaaa0001"):
        reading = measured[blank]
        assert (reading.gpu_util_ratio, reading.sm_active_ratio, reading.pcie_tx_bytes_per_second) == (None, None, None)
    used = [r.gpu_util_ratio for r in seen.readings if r.gpu_util_ratio is not None]
    assert sum(used) / len(used) == pytest.approx(0.37)


def test_002_blanks_leave_a_held_card_unknown(house: Warehouse) -> None:
    page = gauge("DCGM_FI_DEV_GPU_UTIL", 'UUID="g",Hostname="n",namespace="t",pod="p"', 2147483632).encode()
    scrape(house, page, 60)
    assert states(house, "state", 1) == {("alloc_unknown", "alloc_unknown"): pytest.approx(1.0)}


# 006: a profiling counter that is silently zero beside full utilization.


def silent_page() -> bytes:
    labels = [f'gpu="{i}",UUID="GPU-{i}",Hostname="n",modelName="NVIDIA H100 80GB HBM3"' for i in range(8)]
    held = 'namespace="t",pod="p"'
    return "".join(
        gauge("DCGM_FI_DEV_GPU_UTIL", f"{label},{held}", 99 + i % 2)
        + gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"{label},{held}", 0)
        + gauge("DCGM_FI_DEV_POWER_USAGE", f"{label},{held}", 640)
        for i, label in enumerate(labels)
    ).encode()


def test_006_silent_profiling_is_not_idle(house: Warehouse) -> None:
    seen = scrape(house, silent_page(), 60)
    assert sum(bool(reading.quality_flags & 2) for reading in seen.readings) == 8
    assert states(house, "state", 1) == {("alloc_ungraded", "alloc_ungraded"): pytest.approx(8.0)}
    assert rate(house, "gpu_util_of_held", 1) == pytest.approx(0.995)
    assert list(IdleAllocation().run(house, Window(AT, AT + timedelta(hours=1)), {}).findings) == []


def test_006_as_reported(problem: Callable[[str], bytes]) -> None:
    seen = parse(problem("006-prof-silent-zero.prom"), AT, Target())
    used = [reading.gpu_util_ratio for reading in seen.readings]
    assert sum(value for value in used if value is not None) / 8 == pytest.approx(0.995)
    assert sum(bool(reading.quality_flags & 2) for reading in seen.readings) == 8


def test_006_holds_without_the_collector(house: Warehouse) -> None:
    """The ledger does not believe such counters either, whoever sent them."""
    rows = [
        Reading(
            ts=AT + i * MINUTE,
            node="n",
            gpu_uuid="g",
            source="other",
            interval_seconds=60,
            gpu_util_ratio=0.99,
            sm_active_ratio=0.0,
            gr_engine_active_ratio=0.0,
            power_watts=640.0,
            model="H100",
        )
        for i in range(60)
    ]
    put(house, "reading", rows)
    hold(house, ["g"], node="n", hours=1)
    assert states(house, "state", 1) == {("alloc_ungraded", "alloc_ungraded"): pytest.approx(1.0)}


# 010: slices divide a card; parent and slices never add up to more than it.


def mig_page() -> bytes:
    card = 'gpu="0",UUID="GPU-mig",modelName="NVIDIA A100-SXM4-40GB",Hostname="n"'
    first = 'GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",exported_namespace="team-a",exported_pod="train-a"'
    second = 'GPU_I_PROFILE="4g.20gb",GPU_I_ID="2",exported_namespace="team-b",exported_pod="infer-b"'
    return (
        gauge("DCGM_FI_DEV_GPU_UTIL", f'{card},exported_pod=""', 0)
        + gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f'{card},exported_pod=""', 0.457143)
        + gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"{card},{first}", 0.8)
        + gauge("DCGM_FI_PROF_GR_ENGINE_ACTIVE", f"{card},{second}", 0.2)
    ).encode()


def test_010_slices_divide_a_card(house: Warehouse) -> None:
    check_slices(house, mig_page())


def test_010_as_reported(house: Warehouse, problem: Callable[[str], bytes]) -> None:
    check_slices(house, problem("010-mig-parent-and-slices.prom"))


def check_slices(house: Warehouse, page: bytes) -> None:
    seen = scrape(house, page, 120)
    by_tenant = states(house, "tenant", 2)
    held = {tenant: hours for (tenant, _), hours in by_tenant.items()}
    assert held == {"team-a": pytest.approx(2 * 3 / 7), "team-b": pytest.approx(2 * 4 / 7)}
    assert sum(held.values()) == pytest.approx(2.0)
    assert house.query("ledger_extent").column("gpu_count").to_pylist() == [1]
    assert not any(state == "alloc_idle" for _, state in by_tenant)
    shares = {holding.slice_id: holding.share for holding in seen.holdings}
    activity = sum(shares.get(r.slice_id, 0) * (r.gr_engine_active_ratio or 0) for r in seen.readings)
    assert activity == pytest.approx(0.457, abs=0.001)


# 012: with time-slicing each pod gets a copy of the whole card's reading.


def test_012_copies_are_one_card(house: Warehouse) -> None:
    pods = [
        f'UUID="GPU-t4",modelName="Tesla T4",Hostname="n",vgpu="{i}",namespace="team-{i}",pod="nb-{i}"'
        for i in range(4)
    ]
    page = "".join(gauge("DCGM_FI_DEV_POWER_USAGE", pod, 68) + gauge("DCGM_FI_DEV_GPU_UTIL", pod, 90) for pod in pods)
    check_copies(house, page.encode())


def test_012_as_reported(house: Warehouse, problem: Callable[[str], bytes]) -> None:
    check_copies(house, problem("012-timeslicing-copies.prom"))


def check_copies(house: Warehouse, page: bytes) -> None:
    seen = scrape(house, page, 60)
    assert [reading.power_watts for reading in seen.readings] == [68.0]
    by_tenant = states(house, "tenant", 1)
    assert len(by_tenant) == 4
    assert all(hours == pytest.approx(0.25) for hours in by_tenant.values())
    assert {state for _, state in by_tenant} == {"alloc_ungraded"}
    with house.writing() as cursor:
        bases = cursor.execute("select distinct basis from ledger_hour").fetchall()
    assert bases == [("gpu_util+power+shared_card",)]
    assert rate(house, "gpu_util_of_held", 1) == pytest.approx(0.9)


# 100 and 104: work that holds cards and runs nothing must not drop out.


def hold(house: Warehouse, cards: list[str], *, node: str, hours: float, job: str = "job") -> None:
    end = AT + timedelta(hours=hours)
    workload = {"workload_id": job, "submitted_at": AT, "started_at": AT, "ended_at": end, "kind": "batch"}
    shape = {"pod_count": 1, "num_gpu": len(cards), "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    put(house, "workload", [RECORDS["workload"].cls(**workload, **shape)], job)
    held = {"workload_id": job, "pod": job, "node": node, "share": 1.0, "started_at": AT, "ended_at": end}
    ready = AT - timedelta(minutes=10)  # what stands here is about idleness, not about the grace after a start
    rows = [
        RECORDS["allocation"].cls(allocation_id=f"{job}-{card}", gpu_uuid=card, ready_at=ready, **held)
        for card in cards
    ]
    put(house, "allocation", rows, f"{job}-{node}")


def answer(house: Warehouse, node: str, minutes: int, *, ok: bool) -> None:
    cls = RECORDS["source_read"].cls
    common = {"node": node, "source": "jobs", "scope": "process", "ok": ok, "interval_seconds": 60.0}
    put(house, "source_read", [cls(ts=AT + i * MINUTE, **common) for i in range(minutes)], node)


def busy(house: Warehouse, node: str, cards: list[str], minutes: int, util: float) -> None:
    rows = [
        Reading(ts=AT + i * MINUTE, node=node, gpu_uuid=card, source="jobs", interval_seconds=60, gpu_util_ratio=util)
        for i in range(minutes)
        for card in cards
    ]
    put(house, "reading", rows, node)


def jobs_of_100(house: Warehouse, hours: float, *, gpus: int, ok: bool) -> None:
    idle, working = [f"i{i}" for i in range(gpus)], [f"w{i}" for i in range(gpus)]
    hold(house, idle, node="a", hours=hours, job="800")
    hold(house, working, node="b", hours=hours, job="801")
    answer(house, "a", int(hours * 60), ok=ok)
    answer(house, "b", int(hours * 60), ok=True)
    busy(house, "b", working, int(hours * 60), 0.8)


def test_100_held_without_process(house: Warehouse) -> None:
    jobs_of_100(house, 3, gpus=8, ok=True)
    by_state = states(house, "state", 3)
    assert by_state["alloc_idle", "alloc_idle"] == pytest.approx(24.0)
    assert sum(by_state.values()) == pytest.approx(48.0)
    assert rate(house, "gpu_util_of_held", 3) == pytest.approx(0.4)
    found = IdleAllocation().run(house, Window(AT, AT + timedelta(hours=3)), {}).findings
    assert [f.subject_id for f in found] == ["800"]
    assert [f.gpu_hours_wasted for f in found] == pytest.approx([24.0])


def test_100_an_exporter_that_does_not_answer_makes_unknown(house: Warehouse) -> None:
    jobs_of_100(house, 3, gpus=8, ok=False)
    assert states(house, "state", 3)["alloc_unknown", "alloc_unknown"] == pytest.approx(24.0)
    assert rate(house, "gpu_util_of_held", 3) == pytest.approx(0.8)
    assert rate(house, "coverage", 3) == pytest.approx(0.5)
    assert list(IdleAllocation().run(house, Window(AT, AT + timedelta(hours=3)), {}).findings) == []


def test_100_as_reported(house: Warehouse, problem: Callable[[str], bytes]) -> None:
    jobs = json.loads(problem("100-held-without-process.json"))["jobs"]
    assert {job["jobid"] for job in jobs} == {800, 801}
    hours = (datetime.fromisoformat(jobs[0]["end"]) - datetime.fromisoformat(jobs[0]["start"])) / timedelta(hours=1)
    jobs_of_100(house, hours, gpus=jobs[0]["gpus"], ok=True)
    assert states(house, "state", hours)["alloc_idle", "alloc_idle"] == pytest.approx(24.0)


def two_nodes(house: Warehouse, rows: Sequence[Reading], *, sees_n2: bool) -> None:
    hold(house, ["n1-0", "n1-1"], node="n1", hours=1)
    hold(house, ["n2-0", "n2-1"], node="n2", hours=1)
    answer(house, "n1", 60, ok=True)
    answer(house, "n2", 60, ok=sees_n2)
    put(house, "reading", rows)


def rows_of_104(text: bytes) -> list[Reading]:
    given = list(csv.DictReader(lines(text)))
    first = [
        Reading(
            ts=AT,
            node=row["node"],
            gpu_uuid=f"{row['node']}-{row['gpu']}",
            source="jobs",
            interval_seconds=60,
            gpu_util_ratio=float(row["util"]) / 100,
        )
        for row in given
    ]
    return [replace(row, ts=AT + i * MINUTE) for i in range(60) for row in first]


SEEN_104 = b"ts,job,node,gpu,util\nx,mn-1,n1,0,100\nx,mn-1,n1,1,100\n"


def test_104_a_member_without_rows_counts_as_idle(house: Warehouse) -> None:
    two_nodes(house, rows_of_104(SEEN_104), sees_n2=True)
    assert states(house, "node", 1)["n2", "alloc_idle"] == pytest.approx(2.0)
    assert rate(house, "gpu_util_of_held", 1) == pytest.approx(0.5)


def test_104_a_member_that_could_not_be_seen_is_unknown(house: Warehouse) -> None:
    two_nodes(house, rows_of_104(SEEN_104), sees_n2=False)
    assert states(house, "node", 1)["n2", "alloc_unknown"] == pytest.approx(2.0)
    assert rate(house, "gpu_util_of_held", 1) == pytest.approx(1.0)
    assert rate(house, "coverage", 1) == pytest.approx(0.5)


def test_104_as_reported(house: Warehouse, problem: Callable[[str], bytes]) -> None:
    two_nodes(house, rows_of_104(problem("104-missing-node-in-mean.csv")), sees_n2=True)
    states(house, "node", 1)
    assert rate(house, "gpu_util_of_held", 1) == pytest.approx(0.5)


# 163: names are data, whatever they look like.


HOSTILE = ('x"} or up{job="', "'; DROP TABLE reading; --", "a' OR '1'='1", "%_")


def test_163_hostile_names_filter_themselves(house: Warehouse) -> None:
    escaped = [name.replace("\\", "\\\\").replace('"', '\\"') for name in HOSTILE]
    page = "".join(
        gauge(
            "DCGM_FI_DEV_GPU_UTIL",
            f'UUID="GPU-{i}",Hostname="n",exported_namespace="{name}",exported_pod="p"',
            10 * i + 10,
        )
        for i, name in enumerate(escaped)
    )
    check_hostile(house, page.encode())


def test_163_as_reported(house: Warehouse, problem: Callable[[str], bytes]) -> None:
    page = problem("163-label-injection.prom").replace(b"{UUID", b'{Hostname="n",UUID')
    check_hostile(house, page, tenants=(*HOSTILE[:1], "'; DROP TABLE gpu_samples; --", *HOSTILE[2:]))


def check_hostile(house: Warehouse, page: bytes, tenants: Sequence[str] = HOSTILE) -> None:
    scrape(house, page, 60)
    states(house, "tenant", 1)
    span = {"from_at": AT, "to_at": AT + timedelta(hours=1)}
    utils = {row["tenant"]: row["gpu_util_ratio"] for row in house.query("ledger_tenants", **span).to_pylist()}
    assert utils == {name: pytest.approx((10 * i + 10) / 100) for i, name in enumerate(tenants)}
    for tenant in tenants:
        rows = house.query("ledger_series", bucket="hour", timezone="UTC", tenant=tenant, **span).to_pylist()
        assert [row["gpu_hours"] for row in rows] == [pytest.approx(1.0)], tenant
    assert house.query("ledger_extent").column("gpu_count").to_pylist() == [4]
