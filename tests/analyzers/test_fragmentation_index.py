"""The index of a whole fleet at once: B1 with its neighbours, equal to one node at a time and to SQL."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers import fgd
from analyzers.fragmentation.cluster import read_cluster
from analyzers.fragmentation.index import fragment_milli
from analyzers.fragmentation.shapes import (
    WEIGHTINGS,
    Classes,
    class_counts,
    read_shapes,
    weight_matrix,
    weights,
    weights_of_cut,
)
from analyzers.fragmentation.snapshot import indexes, take_snapshot
from warehouse import Warehouse

AT = datetime(2026, 3, 2, tzinfo=UTC)
MODELS = (None, "T4", "P100")


def _classes(tasks: Sequence[fgd.TaskClass]) -> Classes:
    return Classes(
        cpu_milli=np.array([task.cpu_milli for task in tasks], dtype=float),
        gpu_milli=np.array([task.gpu_milli for task in tasks], dtype=float),
        num_gpu=np.array([task.num_gpu for task in tasks], dtype=np.int64),
        model_set=["|".join(sorted(task.models)) or None for task in tasks],
        pods=np.array([task.weight for task in tasks], dtype=float),
    )


def _fragments(nodes: Sequence[fgd.NodeState], tasks: Sequence[fgd.TaskClass]) -> list[float]:
    """F_n(M) of each node, weights as given, worked out for all nodes at once."""
    free = np.zeros((len(nodes), max(len(node.gpu_free_milli) for node in nodes)))
    for row, node in enumerate(nodes):
        free[row, : len(node.gpu_free_milli)] = node.gpu_free_milli
    cpu = np.array([node.cpu_free_milli for node in nodes], dtype=float)
    accepted = np.array([[not task.models or node.model in task.models for task in tasks] for node in nodes])
    classes = _classes(tasks)
    found: list[float] = fragment_milli(free, cpu, accepted, classes, classes.pods[None, :])[:, 0].tolist()
    return found


B1 = (
    fgd.TaskClass(cpu_milli=4000, gpu_milli=1000, num_gpu=1, weight=0.4),
    fgd.TaskClass(cpu_milli=2000, gpu_milli=500, num_gpu=1, weight=0.3),
    fgd.TaskClass(cpu_milli=16000, gpu_milli=1000, num_gpu=4, weight=0.2),
    fgd.TaskClass(cpu_milli=8000, gpu_milli=0, num_gpu=0, weight=0.1),
)
NODES = (
    fgd.NodeState(node="n1", cpu_free_milli=8000, gpu_free_milli=(1000, 500, 300, 0)),
    fgd.NodeState(node="n2", cpu_free_milli=2000, gpu_free_milli=(1000, 1000, 1000, 1000)),
    fgd.NodeState(node="n3", cpu_free_milli=32000, gpu_free_milli=(1000, 1000, 1000, 1000)),
    fgd.NodeState(node="n4", cpu_free_milli=64000, gpu_free_milli=(0, 0, 0, 0)),
)


def test_b1_for_all_nodes_at_once() -> None:
    found = _fragments(NODES, B1)
    assert found == pytest.approx([950, 2800, 400, 0])
    assert sum(found) / sum(sum(node.gpu_free_milli) for node in NODES) == pytest.approx(0.423469, abs=5e-7)
    assert sum(found) / 16000 == pytest.approx(0.259375)
    alone = [fgd.TaskClass(**{**_fields(task), "weight": task.weight / 0.9}) for task in B1[:3]]
    assert sum(_fragments(NODES, alone)) == pytest.approx(3522.222, abs=1e-3)
    assert sum(_fragments(NODES, alone)) / 9800 == pytest.approx(0.35941, abs=5e-6)


def _fields(task: fgd.TaskClass) -> dict[str, Any]:
    return {name: getattr(task, name) for name in fgd.TaskClass.__dataclass_fields__}


@pytest.mark.parametrize(
    ("cpu", "free", "milli"),
    [
        (8000, (1000, 500, 300, 0), 950),
        (7999, (1000, 500, 300, 0), 950),  # the CPU-only class fails otherwise, and books the same
        (4000, (1000, 500, 300, 0), 950),
        (3999, (1000, 500, 300, 0), 0.4 * 1800 + 0.3 * 300 + 0.2 * 1800 + 0.1 * 1800),
        (8000, (1000, 499, 300, 0), 0.4 * 799 + 0.3 * 799 + 0.2 * 1799 + 0.1 * 1799),
        (8000, (999, 500, 300, 0), 0.4 * 1799 + 0.3 * 300 + 0.2 * 1799 + 0.1 * 1799),
        (8000, (1000, 1000, 1000, 999), 0.4 * 999 + 0.2 * 3999 + 0.1 * 3999),
        (8000, (1000, 1000, 1000, 1000), 0.2 * 4000 + 0.1 * 4000),
        (15999, (1000, 1000, 1000, 1000), 0.2 * 4000 + 0.1 * 4000),
        (16000, (1000, 1000, 1000, 1000), 0.1 * 4000),
    ],
)
def test_b1_at_its_boundaries(cpu: int, free: tuple[int, ...], milli: float) -> None:
    node = fgd.NodeState(node="n", cpu_free_milli=cpu, gpu_free_milli=free)
    assert fgd.fragment_milli(node, B1) == pytest.approx(milli)
    assert _fragments([node], B1) == pytest.approx([milli])


def test_b1_scores_beside_their_neighbours() -> None:
    assert [fgd.score(delta) for delta in (-350, 700, 850)] == [58, 33, 29]
    assert [fgd.score(delta) for delta in (-364, -363, -323, -322)] == [59, 58, 58, 57]


def test_upstream_cases_at_once(shared: Path) -> None:
    document = json.loads((shared / "fixtures" / "fgd_cases.json").read_text())
    checked = 0
    for name, rows in document["class_lists"].items():
        tasks = [
            fgd.TaskClass(
                **{key: row[key] for key in ("cpu_milli", "gpu_milli", "num_gpu")},
                models=frozenset(row["models"]),
                weight=row["percent"] / 100,
            )
            for row in rows
        ]
        cases = [case for case in document["cases"] if case["class_list"] == name]
        nodes = [
            fgd.NodeState(
                node=case["name"],
                cpu_free_milli=case["node"]["cpu_free_milli"],
                gpu_free_milli=tuple(case["node"]["gpu_free_milli"]),
                model=case["node"]["model"],
            )
            for case in cases
        ]
        assert _fragments(nodes, tasks) == pytest.approx([case["expected_f_milli"] for case in cases], abs=0.01)
        checked += len(cases)
    assert checked == 7


CLASS = st.builds(
    fgd.TaskClass,
    cpu_milli=st.sampled_from([0, 1000, 4000, 16000]),
    gpu_milli=st.sampled_from([0, 1, 250, 460, 500, 1000]),
    num_gpu=st.sampled_from([0, 1, 2, 4]),
    models=st.sampled_from([frozenset(), frozenset({"T4"}), frozenset({"T4", "A10"})]),
    weight=st.integers(0, 50).map(float),
)
NODE = st.builds(
    fgd.NodeState,
    node=st.just("n"),
    cpu_free_milli=st.sampled_from([0, 999, 1000, 3999, 4000, 64000]),
    gpu_free_milli=st.lists(st.sampled_from([0, 1, 250, 459, 460, 500, 1000]), min_size=1, max_size=8).map(tuple),
    model=st.sampled_from(MODELS),
)


@given(nodes=st.lists(NODE, min_size=1, max_size=6), tasks=st.lists(CLASS, min_size=1, max_size=8))
def test_all_nodes_at_once_equal_one_at_a_time(nodes: list[fgd.NodeState], tasks: list[fgd.TaskClass]) -> None:
    assert _fragments(nodes, tasks) == pytest.approx([fgd.fragment_milli(node, tasks) for node in nodes], abs=1e-6)


@given(tasks=st.lists(CLASS, min_size=1, max_size=12))
def test_weights_add_up_to_one_or_nothing_counts(tasks: list[fgd.TaskClass]) -> None:
    classes = _classes(tasks)
    for name in WEIGHTINGS:
        found = weights(classes, name)
        assert (found >= 0).all()
        assert found.sum() == pytest.approx(1.0 if class_counts(classes)[name] else 0.0)
    asked = classes.demand_milli
    large = asked >= 0.01 * asked.sum()
    assert (weights_of_cut(classes, 0.6)[large & (asked > 0)] > 0).all(), "a cut lost a class that asks for 1 %"


def test_a_cut_keeps_a_rare_class_that_asks_for_much() -> None:
    tasks = [
        fgd.TaskClass(cpu_milli=0, gpu_milli=1000, num_gpu=1, weight=960),
        fgd.TaskClass(cpu_milli=0, gpu_milli=1000, num_gpu=8, weight=2),
        fgd.TaskClass(cpu_milli=0, gpu_milli=100, num_gpu=1, weight=38),
    ]
    classes = _classes(tasks)
    assert (weights(classes, "published") > 0).tolist() == [True, False, False]
    asked = classes.demand_milli / classes.demand_milli.sum()
    assert asked[1] == pytest.approx(16 / 979.8)
    assert (weights_of_cut(classes, 0.95) > 0).tolist() == [True, True, False]


def test_fleet_equals_sql_under_every_weighting(
    house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    for node in NODES:
        put_node(node.node, list(node.gpu_free_milli), cpu_free=node.cpu_free_milli, at=AT)
    put_node("m1", [1000, 460, 459], cpu_free=6000, model="T4", at=AT)
    put_classes(
        [(c.cpu_milli, c.gpu_milli, c.num_gpu, None, round(10 * c.weight)) for c in B1]
        + [(6000, 460, 1, "P100|T4", 3), (0, 1000, 8, "A10", 1), (6001, 10, 1, None, 40)],
        at=AT,
    )
    cluster = read_cluster(house, AT)
    found = indexes(cluster, read_shapes(house, AT))["typical"].fragment_gpus
    for column, weighting in enumerate(WEIGHTINGS):
        rows = house.query("fragmentation_index", weighting=weighting, at=AT, history_days=None).to_pylist()
        assert cluster.node.tolist() == [row["node"] for row in rows]
        assert found[:, column] == pytest.approx([row["fragment_gpus"] for row in rows]), weighting
    assert weight_matrix(indexes(cluster, read_shapes(house, AT))["typical"].classes).shape == (4, 7)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_fleets_equal_sql(data: st.DataObject) -> None:
    nodes = data.draw(st.lists(NODE, min_size=1, max_size=4))
    tasks = data.draw(st.lists(CLASS, min_size=1, max_size=6))
    with Warehouse.open(None) as house:
        _put(house, nodes, tasks)
        cluster = read_cluster(house, AT)
        index = indexes(cluster, read_shapes(house, AT))["typical"]
        for column, weighting in enumerate(WEIGHTINGS):
            rows = house.query("fragmentation_index", weighting=weighting, at=AT, history_days=None).to_pylist()
            expected = [row["fragment_gpus"] for row in rows]
            if class_counts(index.classes)[weighting]:
                assert index.fragment_gpus[:, column] == pytest.approx(expected, abs=1e-6), weighting
            else:
                assert set(expected) == {None}


def _put(house: Warehouse, nodes: Sequence[fgd.NodeState], tasks: Sequence[fgd.TaskClass]) -> None:
    """Straight into the tables: the index is what is tested, not the way in."""
    with house.writing() as cursor:
        for place, node in enumerate(nodes):
            name = f"n{place}"
            cursor.execute(
                "insert into node by name select $node as node, 'c' as cluster, 'p' as pool, $model as model, "
                "$count as gpu_count, $cpu as cpu_milli, $at::timestamptz as from_at",
                {"node": name, "model": node.model, "count": 8, "cpu": node.cpu_free_milli, "at": AT},
            )
            for slot, free in enumerate(node.gpu_free_milli):
                about = {"card": f"{name}/{slot}", "node": name, "slot": slot, "at": AT}
                cursor.execute(
                    "insert into asset by name select $card as gpu_uuid, $node as node, $slot as slot, 'p' as pool, "
                    "'in_service' as status, 'declared' as origin, $at::timestamptz as from_at",
                    about,
                )
                cursor.execute(
                    "insert into allocation by name select $card as allocation_id, 'w' as workload_id, 'p' as pod, "
                    "$node as node, $card as gpu_uuid, '' as slice_id, $share as share, 0 as cpu_milli, "
                    "0 as memory_mib, $at::timestamptz as started_at",
                    {"card": about["card"], "node": name, "at": AT, "share": 1 - free / 1000},
                )
        for place, task in enumerate(tasks):
            cursor.execute(
                "insert into workload by name select $id as workload_id, 'batch' as kind, 'other' as stage, "
                "'' as tenant, '' as queue, $at::timestamptz as submitted_at, $pods as pod_count, $num as num_gpu, "
                "$milli as gpu_milli, $cpu as cpu_milli, 0 as memory_mib, $models as model_set, 0 as min_replicas, "
                "0 as priority, false as is_gang, '' as scheduler, '' as namespace, 'pending' as status, 0 as attempt",
                {
                    "id": f"w{place}",
                    "at": AT,
                    "pods": round(task.weight),
                    "num": task.num_gpu,
                    "milli": task.gpu_milli,
                    "cpu": task.cpu_milli,
                    "models": "|".join(sorted(task.models)) or None,
                },
            )


def test_what_waits_is_measured_beside_what_is_typical(
    house: Warehouse, put: Callable[..., None], put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    put_node("n", [1000], at=AT)
    put_classes([(0, 1000, 1, None, 3)], at=AT)  # they run since an hour
    taken = take_snapshot(house, AT)
    assert taken.indexes["typical"].total("demand") == 0
    assert taken.indexes["pending"].total("demand") is None
    assert taken.indexes["pending"].by_cut is None
    put(
        "workload",
        {
            "workload_id": "w",
            "submitted_at": AT,
            "pod_count": 1,
            "num_gpu": 2,
            "gpu_milli": 1000,
            "cpu_milli": 0,
            "memory_mib": 0,
        },
    )
    taken = take_snapshot(house, AT)
    assert taken.indexes["pending"].total("demand") == pytest.approx(1.0)
    assert taken.indexes["typical"].total("demand") == pytest.approx(2 / 5)
    assert taken.indexes["typical"].total("pods") == pytest.approx(1 / 4)


def test_model_names_are_the_same_however_they_are_spelt(
    house: Warehouse, put_node: Callable[..., None], put_classes: Callable[..., None]
) -> None:
    put_node("n", [1000], model="NVIDIA H100 80GB HBM3", at=AT)
    put_classes([(0, 1000, 1, "H100", 1)], at=AT)
    assert take_snapshot(house, AT).indexes["typical"].total("demand") == 0
