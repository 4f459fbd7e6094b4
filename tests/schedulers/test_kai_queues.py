"""KAI's queues: -1 is no limit, unset is none, and a status is in other units than a spec."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuledger.errors import ConfigError
from gpuledger.ports import SnapshotScope
from schedulers.kai.queues import units_of
from tests.schedulers.kai_objects import GPU, group, mapped, moment, node, pod, queue, reader
from tests.schedulers.volcano_objects import SHARED, complaints, gpus, rows


def _problem(name: str) -> Any:
    file = SHARED / "problems" / name
    if not file.exists():
        pytest.skip("../shared/problems is not there")
    return json.loads(file.read_text(encoding="utf-8"))


def _minus_one() -> list[dict[str, Any]]:
    return [
        {"name": "root", "parent": None, "quota": -1, "limit": -1, "allocated": 6},
        {"name": "team", "parent": "root", "quota": 4, "limit": -1, "allocated": 6},
        {"name": "other", "parent": "root", "quota": 2, "limit": 2, "allocated": 0},
    ]


@pytest.mark.parametrize("source", ["ours", "076-kai-minus-one.json"])
def test_minus_one_is_no_limit_and_never_a_number(source: str) -> None:
    given = _minus_one() if source == "ours" else _problem(source)
    queues = [
        queue(
            one["name"],
            {"quota": one["quota"], "limit": one["limit"], "overQuotaWeight": 1},
            parent=one["parent"],
            allocated={GPU: one["allocated"]},
        )
        for one in given
    ]
    held = [pod(f"p{n}", on="n1", **gpus(2)) for n in range(3)]
    snapshot = mapped(node("n1"), *queues, group(), *held)
    quotas, states = rows(snapshot, "quota"), rows(snapshot, "queue_state")
    assert {name: (row["nominal_gpus"], row["limit_gpus"]) for name, row in quotas.items()} == {
        "root": (None, None),
        "team": (4, None),
        "other": (2, 2),
    }
    assert sum(row["nominal_gpus"] for row in quotas.values() if row["nominal_gpus"] is not None) == 6
    assert {row["not_reported"] for row in quotas.values()} == {""}, "unlimited is not unreported"
    assert set(states) == {"team", "other"}, "root runs nothing of its own"
    assert (states["team"]["running_gpus"], states["team"]["borrowed_gpus"]) == (6, 2)
    assert states["other"]["nominal_gpus"] - states["other"]["running_gpus"] == 2
    used = {row["queue"]: (row["nominal"], row["used"], row["borrowed"]) for row in _of(snapshot, GPU)}
    assert used == {"root": (None, 6, None), "team": (4, 6, 2), "other": (2, 0, 0)}
    assert complaints(snapshot, "quota_mismatch") == []


def _of(snapshot: Any, resource: str) -> list[dict[str, Any]]:
    return [row for row in snapshot.records["queue_resource"].to_pylist() if row["resource"] == resource]


def test_what_is_unset_is_zero() -> None:
    snapshot = mapped(node("n1"), queue("team", {"quota": 4}), queue("bare"))
    quotas = rows(snapshot, "quota")
    assert (quotas["team"]["nominal_gpus"], quotas["team"]["limit_gpus"], quotas["team"]["weight"]) == (4, 0, 0)
    assert (quotas["bare"]["nominal_gpus"], quotas["bare"]["limit_gpus"]) == (0, 0)
    words = f"{GPU}: quota 4 over limit 0; a limit that is not set is 0"
    assert complaints(snapshot, "bad_quota") == [("team", words, 1)]


def test_spec_and_status_have_units_of_their_own() -> None:
    limits = {"quota": 4, "limit": 8, "overQuotaWeight": 2}
    team = queue(
        "team",
        limits,
        allocated={GPU: "2500m", "cpu": "3500m", "memory": "2Gi"},
        requested={GPU: 5, "cpu": "10", "memory": "4Gi"},
        cpu={"quota": 2000, "limit": -1},
        memory={"quota": 4096, "limit": 8192},
    )
    found = rows(mapped(node("n1"), team), "queue_resource")
    keys = ("nominal", "limit", "used", "borrowed", "pending")
    assert {name: tuple(row[key] for key in keys) for name, row in found.items()} == {
        GPU: (4, 8, 2.5, 0, 2.5),
        "cpu": (2, None, 3.5, 1.5, 6.5),
        "memory": (4.096e9, 8.192e9, 2**31, 0, 2**31),
    }


def test_a_key_that_a_status_lacks_is_not_reported() -> None:
    seen = moment(node("n1"), queue("team", {"quota": 4, "limit": -1}, requested={GPU: 3}))
    whole = reader().mapped(seen)
    assert rows(whole, "queue_resource")[GPU]["used"] == 0, "its pods hold none"
    assert rows(whole, "queue_resource")["cpu"]["used"] is None
    part = reader().mapped(replace(seen, scope=SnapshotScope(namespaces=("ml",), denied=(("pods", "forbidden"),))))
    assert rows(part, "queue_resource")[GPU]["used"] is None
    assert rows(part, "queue_state") == {}


def test_a_status_stands_in_where_pods_cannot_all_be_seen() -> None:
    team = queue("team", {"quota": 4, "limit": -1}, allocated={GPU: 3}, requested={GPU: 5})
    part = replace(moment(node("n1"), team), scope=SnapshotScope(namespaces=("ml",), denied=(("pods", "forbidden"),)))
    state = rows(reader().mapped(part), "queue_state")["team"]
    assert (state["running_gpus"], state["pending_gpus"], state["borrowed_gpus"]) == (3, 2, 0)


def test_a_tree_keeps_its_parents_and_says_when_children_have_more() -> None:
    tree = [
        queue("dept", {"quota": 8, "limit": -1}),
        queue("a", {"quota": 6, "limit": -1}, parent="dept"),
        queue("b", {"quota": 4, "limit": -1}, parent="dept"),
        queue("c", {"quota": -1, "limit": -1}, parent="dept"),
        queue("stray", {"quota": 1, "limit": 1}, parent="nowhere"),
    ]
    snapshot = mapped(node("n1"), *tree)
    assert {name: row["parent"] for name, row in rows(snapshot, "queue").items()} == {
        "dept": None,
        "a": "dept",
        "b": "dept",
        "c": "dept",
        "stray": None,
    }
    assert sorted(complaints(snapshot, "bad_quota")) == [
        ("dept", f"{GPU}: quota 8, its children's add up to 10", 1),
        ("stray", "its parent nowhere is not there", 1),
    ]


def test_a_status_that_differs_from_the_pods_is_said_and_the_pods_count() -> None:
    team = queue("team", {"quota": 4, "limit": 4}, allocated={GPU: 6})
    snapshot = mapped(node("n1"), team, group(), pod("p", on="n1", **gpus(5)))
    assert complaints(snapshot, "quota_mismatch") == [("team", "it reports 6 GPUs allocated, its pods hold 5", 1)]
    assert complaints(snapshot, "limit_not_enforced") == [("team", f"{GPU}: 6 of 4", 6)]
    assert rows(snapshot, "queue_state")["team"]["running_gpus"] == 5


@pytest.mark.parametrize(
    ("amounts", "units"),
    [
        ({}, None),
        ({"cpu": 4}, None),
        ({GPU: 2.5}, 2.5),
        ({GPU: 1, "nvidia.com/mig-3g.20gb": 2}, 7),
        ({"amd.com/gpu": 3}, 3),
    ],
)
def test_a_slice_counts_its_gs_against_the_quota(amounts: dict[str, float], units: float | None) -> None:
    assert units_of(amounts) == units


@pytest.mark.parametrize("wrong", [{"quota": -2}, {"quota": "many"}])
def test_a_queue_that_makes_no_sense_costs_itself(wrong: dict[str, Any]) -> None:
    snapshot = mapped(node("n1"), queue("bad", wrong), queue("team", {"quota": 2, "limit": -1}))
    assert set(rows(snapshot, "queue")) == {"team"}
    assert complaints(snapshot, "unreadable_object")[0][0] == "bad"


def test_names_carry_the_cluster() -> None:
    tree = [queue("dept", {"quota": 8, "limit": -1}), queue("team", {"quota": 6, "limit": -1}, parent="dept")]
    snapshot = reader("east").mapped(moment(node("n1"), *tree, group(), pod("p", **gpus(1))))
    assert rows(snapshot, "queue")["east/team"]["parent"] == "east/dept"
    assert rows(snapshot, "queue")["east/team"]["scheduler"] == "kai/east"
    assert rows(snapshot, "workload")["east/ml/p"]["queue"] == "east/team"


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(ConfigError, match="kai: reservation_namespace"):
        reader(reservation_namespace="x")
