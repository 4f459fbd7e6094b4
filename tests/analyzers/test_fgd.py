"""The FGD index: worked example B1, upstream's seven cases, and SQL against Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.fgd import NodeState, Placement, TaskClass, best_placement, fragment_milli, placements, score
from gpuledger.model import RECORDS, to_table
from gpuledger.testing import FakeClock
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)

B1 = (
    TaskClass(cpu_milli=4000, gpu_milli=1000, num_gpu=1, weight=0.4),
    TaskClass(cpu_milli=2000, gpu_milli=500, num_gpu=1, weight=0.3),
    TaskClass(cpu_milli=16000, gpu_milli=1000, num_gpu=4, weight=0.2),
    TaskClass(cpu_milli=8000, gpu_milli=0, num_gpu=0, weight=0.1),
)
N1 = NodeState(node="n1", cpu_free_milli=8000, gpu_free_milli=(1000, 500, 300, 0))
N2 = NodeState(node="n2", cpu_free_milli=2000, gpu_free_milli=(1000, 1000, 1000, 1000))
N3 = NodeState(node="n3", cpu_free_milli=32000, gpu_free_milli=(1000, 1000, 1000, 1000))
N4 = NodeState(node="n4", cpu_free_milli=64000, gpu_free_milli=(0, 0, 0, 0))
NODES = (N1, N2, N3, N4)


def test_b1_fragment_of_each_node() -> None:
    assert [fragment_milli(node, B1) for node in NODES] == pytest.approx([950, 2800, 400, 0])


def test_b1_over_gpu_classes_alone() -> None:
    alone = [
        TaskClass(cpu_milli=c.cpu_milli, gpu_milli=c.gpu_milli, num_gpu=c.num_gpu, weight=c.weight / 0.9)
        for c in B1[:3]
    ]
    assert sum(fragment_milli(node, alone) for node in NODES) == pytest.approx(3522.222, abs=1e-3)


def test_b1_placing_half_a_gpu() -> None:
    pod = B1[1]
    deltas: dict[str, list[tuple[tuple[int, ...], int, int]]] = {}
    for node in NODES:
        for placement in placements(node, B1, pod):
            facts = (placement.gpus, round(placement.delta_milli), placement.score)
            deltas.setdefault(placement.node, []).append(facts)
    assert ((1,), -350, 58) in deltas["n1"]
    assert deltas["n2"] == [((slot,), 700, 33) for slot in range(4)]
    assert deltas["n3"] == [((slot,), 850, 29) for slot in range(4)]
    assert "n4" not in deltas
    best = best_placement(NODES, B1, pod)
    assert best is not None
    assert best == Placement(node="n1", gpus=(1,), delta_milli=best.delta_milli, score=58)
    assert best.delta_milli == pytest.approx(-350)


def test_whole_gpus_are_taken_from_the_least_free_upward() -> None:
    node = NodeState(node="n", cpu_free_milli=9000, gpu_free_milli=(1000, 600, 1000, 700))
    pod = TaskClass(cpu_milli=0, gpu_milli=600, num_gpu=2)
    assert [placement.gpus for placement in placements(node, B1, pod)] == [(1, 3)]


def test_ties_go_to_the_smallest_name_and_the_lowest_gpu() -> None:
    twins = [NodeState(node=name, cpu_free_milli=9000, gpu_free_milli=(1000, 1000)) for name in ("b", "a")]
    found = best_placement(twins, B1, TaskClass(cpu_milli=0, gpu_milli=1000, num_gpu=1))
    assert found is not None
    assert (found.node, found.gpus) == ("a", (0,))


def test_score_is_50_for_no_change_and_stays_in_its_range() -> None:
    assert score(0) == 50
    assert (score(1e6), score(-1e6)) == (0, 100)


def _index(house: Warehouse, weighting: str = "all") -> dict[str, float]:
    rows = house.query("fragmentation_index", weighting=weighting, at=AT, history_days=None).to_pylist()
    return {row["node"]: row["fragment_gpus"] * 1000 for row in rows}


def _put_b1(put_node: Callable[..., None], put_classes: Callable[..., None]) -> None:
    for node in NODES:
        put_node(node.node, list(node.gpu_free_milli), cpu_free=node.cpu_free_milli, at=AT)
    put_classes([(c.cpu_milli, c.gpu_milli, c.num_gpu, None, round(10 * c.weight)) for c in B1], at=AT)


def test_b1_in_sql(house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]) -> None:
    _put_b1(put_node, put_classes)
    assert _index(house) == pytest.approx({"n1": 950, "n2": 2800, "n3": 400, "n4": 0})
    assert sum(_index(house, "pods").values()) == pytest.approx(3522.222, abs=1e-3)


def test_b1_as_rates(house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]) -> None:
    _put_b1(put_node, put_classes)
    rows = house.query("fragmentation_index", weighting="all", at=AT, history_days=None).to_pylist()
    fragmented, free, total = (sum(row[name] for row in rows) for name in ("fragment_gpus", "free_gpus", "gpu_count"))
    assert fragmented / free == pytest.approx(0.423469, abs=1e-6)
    assert fragmented / total == pytest.approx(0.259375, abs=1e-6)


def test_a_model_that_no_class_accepts_is_all_fragment(
    house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    put_node("right", [1000], model="T4", at=AT)
    put_node("wrong", [1000], model="A10", at=AT)
    put_node("unnamed", [1000], at=AT)
    put_classes([(0, 1000, 1, "P100|T4", 1)], at=AT)
    assert _index(house) == {"right": 0, "wrong": 1000, "unnamed": 1000}


def test_shapes_after_the_instant_and_before_the_history_do_not_count(
    house: Warehouse, put: Callable[..., None], put_node: Callable[..., None]
) -> None:
    put_node("n", [1000, 1000], at=AT)
    shape = {"pod_count": 1, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
    put("workload", {"workload_id": "old", "submitted_at": AT - timedelta(days=30), "num_gpu": 2, **shape})
    put("workload", {"workload_id": "late", "submitted_at": AT + timedelta(seconds=1), "num_gpu": 4, **shape})
    assert _index(house) == {"n": 0}
    rows = house.query("fragmentation_index", weighting="all", at=AT, history_days=28).to_pylist()
    assert (rows[0]["fragment_gpus"], rows[0]["class_count"]) == (None, 0)


def test_demand_weighs_what_a_class_asks_for(
    house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    put_node("n", [1000], at=AT)
    put_classes([(0, 1000, 8, None, 1), (0, 500, 1, None, 16)], at=AT)
    assert _index(house, "pods")["n"] == pytest.approx(1000 / 17)
    assert _index(house, "demand")["n"] == pytest.approx(500)
    assert _index(house, "published")["n"] == pytest.approx(1000 / 17)


def test_published_cut_drops_the_tail_past_95_percent(
    house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    put_node("n", [1000], at=AT)
    put_classes([(0, 1000, 1, None, 95), (0, 1000, 8, None, 5)], at=AT)
    assert _index(house, "published")["n"] == 0
    assert _index(house, "all")["n"] == pytest.approx(50)


def _state(case: dict[str, Any]) -> NodeState:
    node = case["node"]
    return NodeState(
        node=case["name"],
        cpu_free_milli=node["cpu_free_milli"],
        gpu_free_milli=tuple(node["gpu_free_milli"]),
        model=node["model"],
    )


def test_upstream_cases(
    shared: Path, house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    document = json.loads((shared / "fixtures" / "fgd_cases.json").read_text())
    assert len(document["cases"]) == 7
    for name, rows in document["class_lists"].items():
        classes = [
            TaskClass(
                cpu_milli=row["cpu_milli"],
                gpu_milli=row["gpu_milli"],
                num_gpu=row["num_gpu"],
                models=frozenset(row["models"]),
                weight=row["percent"] / 100,
            )
            for row in rows
        ]
        for case in (case for case in document["cases"] if case["class_list"] == name):
            assert fragment_milli(_state(case), classes) == pytest.approx(case["expected_f_milli"], abs=0.01), case[
                "name"
            ]


@pytest.mark.parametrize("name", ["gpu_only_35", "with_cpu_only_31", "single_class"])
def test_upstream_cases_in_sql(
    name: str, shared: Path, house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    document = json.loads((shared / "fixtures" / "fgd_cases.json").read_text())
    rows = document["class_lists"][name]
    put_classes(
        [
            (
                row["cpu_milli"],
                row["gpu_milli"],
                row["num_gpu"],
                "|".join(row["models"]) or None,
                round(100 * row["percent"]),
            )
            for row in rows
        ],
        at=AT,
    )
    cases = [case for case in document["cases"] if case["class_list"] == name]
    for case in cases:
        node = _state(case)
        put_node(node.node, list(node.gpu_free_milli), cpu_free=node.cpu_free_milli, model=node.model, at=AT)
    # The query renormalises; upstream uses the weights as given, which do not sum to exactly 1.
    scale = sum(row["percent"] for row in rows) / 100
    found = {node: milli * scale for node, milli in _index(house).items()}
    assert found == pytest.approx({case["name"]: case["expected_f_milli"] for case in cases}, abs=0.01)


CLASS = st.builds(
    TaskClass,
    cpu_milli=st.sampled_from([0, 1000, 4000, 16000]),
    gpu_milli=st.sampled_from([0, 1, 250, 460, 500, 1000]),
    num_gpu=st.sampled_from([1, 2, 4]),
    models=st.sampled_from([frozenset(), frozenset({"T4"}), frozenset({"T4", "A10"})]),
    weight=st.integers(1, 50).map(float),
)
NODE = st.builds(
    NodeState,
    node=st.just("n"),
    cpu_free_milli=st.sampled_from([0, 1000, 3999, 4000, 64000]),
    gpu_free_milli=st.lists(st.sampled_from([0, 1, 250, 459, 460, 500, 1000]), min_size=1, max_size=4).map(tuple),
    model=st.sampled_from([None, "T4", "P100"]),
)


@given(node=NODE, classes=st.lists(CLASS, min_size=1, max_size=5), total=st.floats(0.1, 10))
def test_fragments_never_exceed_what_is_free(node: NodeState, classes: Sequence[TaskClass], total: float) -> None:
    weight = sum(task.weight for task in classes)
    normal = [TaskClass(**{**_fields(task), "weight": task.weight / weight}) for task in classes]
    assert -1e-9 <= fragment_milli(node, normal) <= sum(node.gpu_free_milli) + 1e-6
    assert fragment_milli(node, normal) == pytest.approx(fragment_milli(node, normal[::-1]))


def _fields(task: TaskClass) -> dict[str, Any]:
    return {name: getattr(task, name) for name in TaskClass.__dataclass_fields__}


def _record(house: Warehouse, record: str, rows: list[dict[str, Any]]) -> None:
    if rows:
        made = [RECORDS[record].cls(**row) for row in rows]
        assert not house.ingest(record, to_table(record, made), f"{record}-{rows[0]}"[:128]).rejected


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_sql_and_python_agree(data: st.DataObject) -> None:
    nodes = [
        NodeState(node=f"n{i}", cpu_free_milli=one.cpu_free_milli, gpu_free_milli=one.gpu_free_milli, model=one.model)
        for i, one in enumerate(data.draw(st.lists(NODE, min_size=1, max_size=4)))
    ]
    classes = data.draw(st.lists(CLASS, min_size=1, max_size=6))
    order = data.draw(st.permutations(range(len(classes))))
    begin = AT - timedelta(days=1)
    with Warehouse.open(None, clock=FakeClock(AT)) as house:
        _record(
            house,
            "node",
            [
                {"node": n.node, "gpu_count": 4, "cpu_milli": n.cpu_free_milli, "model": n.model, "from_at": begin}
                for n in nodes
            ],
        )
        cards = [(n, i, free) for n in nodes for i, free in enumerate(n.gpu_free_milli)]
        _record(
            house,
            "asset",
            [
                {"gpu_uuid": f"{n.node}/{i}", "node": n.node, "status": "in_service", "from_at": begin}
                for n, i, _ in cards
            ],
        )
        held = {"workload_id": "w", "pod": "p", "started_at": begin}
        _record(
            house,
            "allocation",
            [
                {
                    "allocation_id": f"{n.node}/{i}",
                    "node": n.node,
                    "gpu_uuid": f"{n.node}/{i}",
                    "share": 1 - f / 1000,
                    **held,
                }
                for n, i, f in cards
            ],
        )
        _record(
            house,
            "workload",
            [
                {
                    "workload_id": f"w{i}",
                    "submitted_at": begin,
                    "pod_count": round(classes[i].weight),
                    "num_gpu": classes[i].num_gpu,
                    "gpu_milli": classes[i].gpu_milli,
                    "cpu_milli": classes[i].cpu_milli,
                    "memory_mib": 0,
                    "model_set": "|".join(sorted(classes[i].models)) or None,
                }
                for i in order
            ],
        )
        found = _index(house)
    weight = sum(task.weight for task in classes)
    expected = {n.node: fragment_milli(n, classes) / weight for n in nodes}
    assert found == pytest.approx(expected, abs=1e-6)
