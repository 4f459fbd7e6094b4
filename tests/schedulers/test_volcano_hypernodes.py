"""Volcano's hyper nodes: where nodes stand, by name, by pattern, by label, and tier above tier."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpuledger.ports import SchedulerSnapshot
from tests.schedulers.volcano_objects import Object, complaints, mapped, node, queue


def hyper(name: str, tier: int, *members: Object) -> Object:
    return {
        "apiVersion": "topology.volcano.sh/v1alpha1",
        "kind": "HyperNode",
        "metadata": {"name": name},
        "spec": {"tier": tier, "members": list(members)},
    }


def named(name: str, kind: str = "Node") -> Object:
    return {"type": kind, "selector": {"exactMatch": {"name": name}}}


def matching(pattern: str, kind: str = "Node") -> Object:
    return {"type": kind, "selector": {"regexMatch": {"pattern": pattern}}}


def labelled(*terms: Object, **labels: str) -> Object:
    return {"type": "Node", "selector": {"labelMatch": {"matchLabels": labels, "matchExpressions": list(terms)}}}


def _stands(snapshot: SchedulerSnapshot) -> dict[str, dict[str, Any]]:
    rows = snapshot.records["node_state"].to_pylist()
    return {row["node"]: json.loads(row["topology"] or "{}") for row in rows}


def test_nodes_stand_below_every_tier_above_them() -> None:
    nodes = [node(f"gpu-{n}", 8, {"rack": "r2"} if n == 4 else {}) for n in range(1, 6)]
    tree = [
        hyper("s0", 1, named("gpu-1"), matching("^gpu-[23]$")),
        hyper("s1", 1, labelled(rack="r2")),
        hyper("s2", 2, matching("^s[01]$", "HyperNode")),
    ]
    snapshot = mapped(*nodes, *tree, queue("q"))
    assert _stands(snapshot) == {
        "gpu-1": {"tier-1": "s0", "tier-2": "s2"},
        "gpu-2": {"tier-1": "s0", "tier-2": "s2"},
        "gpu-3": {"tier-1": "s0", "tier-2": "s2"},
        "gpu-4": {"tier-1": "s1", "tier-2": "s2"},
        "gpu-5": {},
    }
    places = {row["node"]: (row["leaf"], row["spine"]) for row in snapshot.records["node"].to_pylist()}
    assert places["gpu-4"] == ("s1", "s2")
    assert places["gpu-5"] == (None, None)


def test_labels_of_the_network_come_first() -> None:
    label = {"network.topology.nvidia.com/leaf": "leaf-9"}
    snapshot = mapped(node("n1", 8, label), hyper("s0", 1, named("n1")), queue("q"))
    assert snapshot.records["node"].to_pylist()[0]["leaf"] == "leaf-9"
    assert _stands(snapshot)["n1"] == {"leaf": "leaf-9", "tier-1": "s0"}


@pytest.mark.parametrize(
    ("operator", "values", "found"),
    [
        ("In", ["a", "b"], {"n1"}),
        ("NotIn", ["a"], {"n2"}),
        ("Exists", [], {"n1"}),
        ("DoesNotExist", [], {"n2"}),
    ],
)
def test_label_terms(operator: str, values: list[str], found: set[str]) -> None:
    term = {"key": "row", "operator": operator, **({"values": values} if values else {})}
    snapshot = mapped(node("n1", 8, {"row": "a"}), node("n2"), hyper("s0", 1, labelled(term)), queue("q"))
    assert {name for name, stands in _stands(snapshot).items() if stands} == found


def test_hyper_nodes_in_a_ring_do_not_run_for_ever() -> None:
    ring = [
        hyper("a", 1, named("n1"), named("b", "HyperNode")),
        hyper("b", 2, named("a", "HyperNode")),
    ]
    assert _stands(mapped(node("n1"), *ring, queue("q")))["n1"] == {"tier-1": "a", "tier-2": "b"}


def test_a_pattern_that_is_none_costs_its_hyper_node() -> None:
    snapshot = mapped(node("n1"), hyper("bad", 1, matching("(")), hyper("s0", 1, named("n1")), queue("q"))
    assert _stands(snapshot)["n1"] == {"tier-1": "s0"}
    assert complaints(snapshot, "unreadable_object")[0][0] == "hypernode/bad"
