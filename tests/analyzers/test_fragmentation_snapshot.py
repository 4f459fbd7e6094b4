"""A snapshot of fragmentation: it agrees with the ledger, its parts add up, and what blocks beside it is told apart."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.fragmentation.causes import CAUSES, asi_stranded
from analyzers.fragmentation.snapshot import Snapshot, take_snapshot
from gpuledger.model import RECORDS, Window, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)
BEFORE = AT - timedelta(days=1)
HOUR = timedelta(hours=1)


def _build(house: Warehouse, at: datetime = AT) -> None:
    assert house.build_ledger(Window(at, at + HOUR), until_at=at + HOUR).violations == 0


def _blocks(taken: Snapshot) -> dict[str, float]:
    return dict(taken.free_gpus_by_block().select("name", "gpus").iter_rows())


def _work(workload_id: str, **fields: Any) -> dict[str, Any]:
    shape = {"pod_count": 1, "num_gpu": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    return {"workload_id": workload_id, "submitted_at": BEFORE, **shape, **fields}


@pytest.fixture
def fleet(house: Warehouse, put: Callable[..., None], put_node: Callable[..., None]) -> Callable[..., Snapshot]:
    """Four nodes of two cards in two leaves, the second card of each held by queue q; then work that waits."""

    def take(*works: dict[str, Any], quota: dict[str, Any] | None = None, **options: Any) -> Snapshot:
        for place, leaf in enumerate(("l1", "l1", "l2", "l2")):
            put_node(f"n{place}", [1000, 0], model="H100", at=AT, leaf=leaf)
        put("workload", _work("w", submitted_at=BEFORE - HOUR, started_at=BEFORE, pod_count=4, queue="q"), *works)
        put("queue", {"queue": "q", "tenant": ""})
        if quota is not None:
            put("quota", {"queue": "q", "tenant": "", "from_at": BEFORE, **quota})
        _build(house)
        return take_snapshot(house, AT, **options)

    return take


def _random_fleet(seed: int, waiting: int) -> dict[str, list[dict[str, Any]]]:
    """Thirty nodes with shares taken, CPU and memory short here and there, and shapes that wait or are usual."""
    rng = np.random.default_rng(seed)
    records: dict[str, list[dict[str, Any]]] = {"node": [], "asset": [], "allocation": [], "workload": []}
    for place in range(30):
        name, model = f"n{place:02}", [None, "T4", "NVIDIA H100 80GB HBM3"][rng.integers(3)]
        cards, cpu = int(rng.choice([2, 4])), [None, 16000, 64000][rng.integers(3)]
        about = {"gpu_count": cards, "cpu_milli": cpu, "memory_mib": int(rng.choice([8192, 65536]))}
        records["node"].append({"node": name, "model": model, "pool": f"p{place % 2}", "from_at": BEFORE, **about})
        for slot in range(cards):
            card = f"{name}/{slot}"
            records["asset"].append(
                {"gpu_uuid": card, "node": name, "slot": slot, "model": model, "pool": f"p{place % 2}",
                 "status": "in_service", "from_at": BEFORE}
            )  # fmt: skip
            share = float(rng.choice([0, 0, 0.25, 0.5, 0.75, 1]))
            if share:
                records["allocation"].append(
                    {"allocation_id": card, "workload_id": "w", "pod": card, "node": name, "gpu_uuid": card,
                     "share": share, "started_at": BEFORE,
                     "cpu_milli": int(rng.choice([0, 6000])), "memory_mib": int(rng.choice([0, 4000]))}
                )  # fmt: skip
    for place in range(5):
        is_waiting = place < waiting
        records["workload"].append(
            _work(
                f"x{place}",
                submitted_at=BEFORE,
                started_at=None if is_waiting else AT - HOUR,
                num_gpu=int(rng.choice([1, 1, 2, 4, 8])),
                gpu_milli=int(rng.choice([250, 500, 600, 1000])),
                cpu_milli=int(rng.choice([0, 8000, 32000])),
                memory_mib=int(rng.choice([0, 7000, 40000])),
                model_set=[None, None, "T4", "H100", "A10"][rng.integers(5)],
            )
        )
    return records


def _agreed_causes(seed: int, waiting: int) -> set[str]:
    """The causes of one random fleet, after both ways to them have been compared."""
    with Warehouse.open(None, clock=FakeClock(AT + timedelta(days=1))) as house:
        for record, rows in _random_fleet(seed, waiting).items():
            made = [RECORDS[record].cls(**row) for row in rows]
            assert not house.ingest(record, to_table(record, made), record).rejected
        _build(house)
        taken = take_snapshot(house, AT + timedelta(minutes=30))
        spans = house.query("fragmentation_claims", from_at=AT, to_at=AT + HOUR)
    cluster = taken.cluster
    is_free = cluster.free_gpus > 0
    causes = dict(zip(cluster.card[is_free], taken.physical_cause[is_free], strict=True))
    assert causes == dict(zip(cluster.card[is_free], cluster.ledger_cause[is_free], strict=True))
    told: dict[str, float] = {}
    for cause, hours in zip(spans["cause"].to_pylist(), spans["gpu_hours"].to_pylist(), strict=True):
        told[cause] = told.get(cause, 0.0) + hours
    stranded = taken.stranded_gpus().group_by("name").agg(pl.col("gpus").sum())
    assert dict(stranded.iter_rows()) == pytest.approx(told)
    blocks = taken.free_gpus_by_block()
    for pool in ("p0", "p1"):
        of_pool = cluster.free_gpus[cluster.pool[cluster.card_node] == pool].sum()
        assert blocks.filter(pl.col("pool") == pool)["gpus"].sum() == pytest.approx(of_pool, abs=1e-9)
    return set(causes.values())


def test_its_physical_causes_are_the_ledgers() -> None:
    found = [_agreed_causes(seed, waiting) for seed, waiting in ((13, 2), (7, 1), (10, 0))]
    assert set().union(*found) == set(CAUSES), "a comparison shows little of a cause that never came up"


def test_it_sees_what_only_the_ledger_knows(
    house: Warehouse, put: Callable[..., None], put_node: Callable[..., None]
) -> None:
    put_node("n", [1000, 1000], at=AT)
    seen = [{"ts": AT + timedelta(seconds=30 * i), "namespace": "a", "pod": "p", "source": "dcgm"} for i in range(120)]
    put(
        "holding", *({**one, "node": "n", "gpu_uuid": "n/gpu0", "share": 1.0, "interval_seconds": 30.0} for one in seen)
    )
    before = take_snapshot(house, AT + timedelta(minutes=30))
    assert before.cluster.free_gpus.tolist() == [1.0, 1.0], "without a ledger allocations are all that is known"
    _build(house)
    assert take_snapshot(house, AT + timedelta(minutes=30)).cluster.free_gpus.tolist() == [0.0, 1.0]
    assert take_snapshot(house, AT + HOUR).cluster.free_gpus.tolist() == [0.0, 1.0], "the ledger's end stands for after"
    assert take_snapshot(house, AT + timedelta(hours=3)).cluster.free_gpus.tolist() == [1.0, 1.0]


def test_work_over_its_quota_blocks_what_would_hold_it(fleet: Callable[..., Snapshot]) -> None:
    taken = fleet(_work("x", queue="q"), quota={"nominal_gpus": 4.0, "borrowing_limit_gpus": 0.0})
    assert _blocks(taken) == {"quota": 4.0}
    assert set(taken.physical_cause) == {""}, "quota is beside the physical causes, never among them"


@pytest.mark.parametrize(
    ("quota", "blocks"),
    [
        ({"nominal_gpus": 5.0, "borrowing_limit_gpus": 0.0}, {"usable": 4.0}),  # 4 held + 1 asked is exactly the limit
        ({"nominal_gpus": 4.99, "borrowing_limit_gpus": 0.0}, {"quota": 4.0}),
        ({"nominal_gpus": 4.0, "borrowing_limit_gpus": 1.0}, {"usable": 4.0}),
        ({"nominal_gpus": 4.0, "borrowing_limit_gpus": 9.0, "limit_gpus": 4.5}, {"quota": 4.0}),
        ({"nominal_gpus": 4.0}, {"usable": 4.0}),  # may borrow without limit
        ({"borrowing_limit_gpus": 0.0}, {"usable": 4.0}),  # the nominal quota is not known, or there is none
        (None, {"usable": 4.0}),
    ],
)
def test_quota_at_its_boundary(
    fleet: Callable[..., Snapshot], quota: dict[str, Any] | None, blocks: dict[str, float]
) -> None:
    assert _blocks(fleet(_work("x", queue="q"), quota=quota)) == blocks


def test_one_work_within_its_quota_is_enough(fleet: Callable[..., Snapshot]) -> None:
    over = {"nominal_gpus": 4.0, "borrowing_limit_gpus": 0.0}
    assert _blocks(fleet(_work("x", queue="q"), _work("y", queue="other"), quota=over)) == {"usable": 4.0}


def test_a_gang_that_fits_but_not_in_one_leaf(fleet: Callable[..., Snapshot]) -> None:
    gang = _work("x", pod_count=3, is_gang=True)
    assert _blocks(fleet(gang, gang_level="leaf")) == {"topology": 4.0}


@pytest.mark.parametrize(
    ("gang", "level"),
    [
        ({"pod_count": 2, "is_gang": True}, "leaf"),  # fits in one
        ({"pod_count": 3, "is_gang": True}, None),  # nobody says that it needs one
        ({"pod_count": 3, "is_gang": True}, "cluster"),
        ({"pod_count": 3, "is_gang": False}, "leaf"),
        ({"pod_count": 5, "is_gang": True}, "leaf"),  # would not fit anywhere: capacity, not topology
        ({"pod_count": 3, "is_gang": True}, "nvl_domain"),  # nobody named the domains
    ],
)
def test_topology_at_its_boundary(fleet: Callable[..., Snapshot], gang: dict[str, Any], level: str | None) -> None:
    assert _blocks(fleet(_work("x", **gang), gang_level=level)) == {"usable": 4.0}


def test_a_scheduler_that_says_topology_is_believed(fleet: Callable[..., Snapshot], put: Callable[..., None]) -> None:
    put("wait", {"workload_id": "x", "from_at": BEFORE, "cause": "topology"})
    assert _blocks(fleet(_work("x", pod_count=2, is_gang=True))) == {"topology": 4.0}


def test_of_quota_and_topology_the_later_failure_names_the_block(fleet: Callable[..., Snapshot]) -> None:
    over = {"nominal_gpus": 4.0, "borrowing_limit_gpus": 0.0}
    gang = _work("x", pod_count=3, is_gang=True, queue="other")
    assert _blocks(fleet(_work("y", queue="q"), gang, quota=over, gang_level="leaf")) == {"topology": 4.0}


def test_a_gang_over_quota_and_split_is_over_quota(fleet: Callable[..., Snapshot]) -> None:
    over = {"nominal_gpus": 6.0, "borrowing_limit_gpus": 0.0}
    gang = _work("x", pod_count=3, is_gang=True, queue="q")
    assert _blocks(fleet(gang, quota=over, gang_level="leaf")) == {"quota": 4.0}


@pytest.mark.parametrize(
    ("profiles", "blocks"),
    [
        ((1, 1, 1, 1), {"usable": 1 + 3 / 7}),  # four of 1g may stand in one half
        ((3, 1), {"usable": 1, "mig_placement": 3 / 7}),  # the 1g stands in the half that the 3g leaves
    ],
)
def test_a_slice_without_a_place(
    house: Warehouse,
    put: Callable[..., None],
    put_node: Callable[..., None],
    profiles: tuple[int, ...],
    blocks: dict[str, float],
) -> None:
    put_node("n", [1000, 1000], model="A100", at=AT)
    held = {"workload_id": "w", "pod": "p", "node": "n", "gpu_uuid": "n/gpu0", "started_at": BEFORE}
    seen = {"ts": AT, "node": "n", "gpu_uuid": "n/gpu0", "source": "dcgm", "interval_seconds": 30.0}
    for place, compute in enumerate(profiles):
        put("allocation", {**held, "allocation_id": f"a{place}", "slice_id": str(place), "share": compute / 7})
        put("reading", {**seen, "slice_id": str(place), "slice_profile": f"{compute}g.{compute}0gb"})
    put("workload", _work("x", gpu_milli=429))
    _build(house)
    assert _blocks(take_snapshot(house, AT)) == pytest.approx(blocks)


ASI = [
    # idle, CPU enough, memory enough: insufficient CPU, memory, whole, fractional; for a shape of 4 GPUs
    (5.5, True, True, (0, 0, 0, 0.5)),
    (4.0, True, True, (0, 0, 0, 0)),
    (3.999, True, True, (0, 0, 3, 0.999)),
    (0.5, True, True, (0, 0, 0, 0.5)),
    (0.0, True, True, (0, 0, 0, 0)),
    (5.5, False, True, (4, 0, 0, 1.5)),
    (4.0, False, True, (4, 0, 0, 0)),
    (3.5, False, True, (3.5, 0, 0, 0)),
    (3.5, False, False, (3.5, 0, 0, 0)),
    (3.5, True, False, (0, 3.5, 0, 0)),
    (8.0, True, False, (0, 4, 0, 4)),
]


def test_stranded_as_asi_counts_it() -> None:
    idle, cpu, memory, expected = zip(*ASI, strict=True)
    found = asi_stranded(np.array(idle), gpus=4, is_cpu_enough=np.array(cpu), is_memory_enough=np.array(memory))
    assert list(found) == ["insufficient_cpu", "insufficient_memory", "insufficient_whole", "fractional"]
    assert np.stack(list(found.values())).T.tolist() == [pytest.approx(row) for row in expected]


@given(idle=st.floats(0, 16), gpus=st.integers(1, 8), cpu=st.booleans(), memory=st.booleans())
def test_asi_never_strands_more_than_is_idle(idle: float, gpus: int, cpu: bool, memory: bool) -> None:
    found = asi_stranded(
        np.array([idle]), gpus=gpus, is_cpu_enough=np.array([cpu]), is_memory_enough=np.array([memory])
    )
    total = sum(float(part[0]) for part in found.values())
    assert all(part[0] >= 0 for part in found.values())
    is_host = cpu and memory and np.floor(idle + 1e-9) >= gpus
    assert total == pytest.approx(idle - np.floor(idle + 1e-9) if is_host else idle, abs=1e-6)
