"""Volcano's queues: what is their own, their limit, what is held, and what is not told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuledger.errors import ConfigError
from gpuledger.ports import SnapshotScope
from schedulers.volcano.plugin import Sharing, sharing_of
from tests.schedulers.volcano_objects import (
    CAPACITY,
    PROPORTION,
    SHARED,
    complaints,
    gpus,
    group,
    job,
    mapped,
    moment,
    node,
    pod,
    queue,
    reader,
    rows,
)

GPU = "nvidia.com/gpu"


def _problem(name: str) -> Any:
    file = SHARED / "problems" / name
    if not file.exists():
        pytest.skip("../shared/problems is not there")
    return json.loads(file.read_text(encoding="utf-8"))


def _deserved_over_capability() -> dict[str, Any]:
    return {
        "queue": {
            "name": "child-a",
            "parent": "root",
            "capability": {GPU: 4},
            "deserved": {GPU: 8},
            "allocated": {GPU: 3},
        }
    }


@pytest.mark.parametrize("source", ["ours", "077-volcano-deserved-over-capability.json"])
def test_deserved_over_capability_counts_as_the_capability(source: str) -> None:
    given = (_deserved_over_capability() if source == "ours" else _problem(source))["queue"]
    child = queue(
        given["name"],
        parent=given["parent"],
        allocated=given["allocated"],
        capability=given["capability"],
        deserved=given["deserved"],
    )
    held = [pod(f"p{n}", "g", on="n1", **gpus(1)) for n in range(3)]
    running = group("g", phase="Running", minMember=3)
    running["spec"]["queue"] = "child-a"
    snapshot = mapped(node("n1"), queue("root"), child, running, *held)
    quota, state = rows(snapshot, "quota")["child-a"], rows(snapshot, "queue_state")["child-a"]
    assert (quota["nominal_gpus"], quota["limit_gpus"], quota["not_reported"]) == (4, 4, "")
    assert (state["nominal_gpus"], state["running_gpus"], state["borrowed_gpus"]) == (4, 3, 0)
    assert state["nominal_gpus"] - state["running_gpus"] == 1
    assert complaints(snapshot, "bad_quota") == [("child-a", f"{GPU}: deserved 8 over capability 4; 4 counts", 1)]
    assert rows(snapshot, "queue")["child-a"]["parent"] == "root"
    assert complaints(snapshot, "quota_mismatch") == []


def _vgpu() -> dict[str, Any]:
    number, memory, cores = (f"volcano.sh/vgpu-{name}" for name in ("number", "memory", "cores"))
    return {
        "queue": {"capability": {number: 2, memory: 1, cores: 1}, "allocated": {number: 2}},
        "pods": [{"vgpu-number": 1, "vgpu-memory": 1024, "vgpu-cores": 10}] * 2,
    }


@pytest.mark.parametrize("source", ["ours", "078-volcano-vgpu-missing-keys.json"])
def test_what_a_queue_does_not_report_is_summed_over_its_pods(source: str) -> None:
    given = _vgpu() if source == "ours" else _problem(source)
    team = queue("team-a", capability=given["queue"]["capability"], allocated=given["queue"]["allocated"])
    held = [
        pod(f"p{n}", "g", on="n1", **{f"volcano.sh/{name}": str(count) for name, count in one.items()})
        for n, one in enumerate(given["pods"])
    ]
    card = node("n1", 0, {"nvidia.com/gpu.memory": "4096"}, **{"volcano.sh/vgpu-number": "10"})
    snapshot = mapped(card, team, group("g", phase="Running", minMember=1), *held)
    found = rows(snapshot, "queue_resource")
    used = {name: (row["used"], row["limit"]) for name, row in found.items()}
    assert used == {
        "volcano.sh/vgpu-number": (2, 2),
        "volcano.sh/vgpu-memory": (2048, 1),
        "volcano.sh/vgpu-cores": (20, 1),
    }
    assert complaints(snapshot, "limit_not_enforced") == [
        ("team-a", "volcano.sh/vgpu-cores: 20 of 1 (by its pods, it reports none)", 20),
        ("team-a", "volcano.sh/vgpu-memory: 2048 of 1 (by its pods, it reports none)", 2048),
    ]
    assert rows(snapshot, "queue_state")["team-a"]["running_gpus"] == 0.5, "two pods of a quarter of a 4,096 MiB card"


def test_a_missing_key_is_not_reported_where_pods_cannot_be_seen() -> None:
    seen = moment(node("n1"), queue("team-a", capability={GPU: 4, "cpu": 8}, allocated={"cpu": "6"}))
    part = replace(seen, scope=SnapshotScope(namespaces=("ml",), denied=(("pods", "forbidden"),)))
    snapshot = reader().mapped(part)
    found = rows(snapshot, "queue_resource")
    assert (found[GPU]["used"], found[GPU]["limit"], found[GPU]["pending"]) == (None, 4, None)
    assert found["cpu"]["used"] == 6
    assert rows(snapshot, "queue_state") == {}, "what runs is not known: no state is better than a state of zero"
    assert str(snapshot.scope).startswith("partial: 1 namespace readable; pods: forbidden")


@pytest.mark.parametrize(
    ("configuration", "nominal", "untold"),
    [(CAPACITY, 6.0, ""), (PROPORTION, None, ""), (None, 6.0, "")],
)
def test_deserved_means_something_under_capacity_only(
    configuration: str | None, nominal: float | None, untold: str
) -> None:
    team = queue("team-a", weight=3, deserved={GPU: 6}, guarantee={"resource": {GPU: "2"}})
    snapshot = mapped(node("n1"), team, configuration=configuration)
    quota = rows(snapshot, "quota")["team-a"]
    assert (quota["nominal_gpus"], quota["limit_gpus"], quota["not_reported"]) == (nominal, None, untold)
    assert (quota["guarantee_gpus"], quota["weight"]) == (2, 3)
    words = [(f"{GPU}: deserved 6 means nothing, the plugin is proportion")] if configuration == PROPORTION else []
    assert [one[1] for one in complaints(snapshot, "bad_quota")] == words


@pytest.mark.parametrize(
    ("configuration", "nominal", "untold"), [(CAPACITY, 0.0, ""), (PROPORTION, None, ""), (None, None, "nominal_gpus")]
)
def test_an_unset_deserved_is_none_of_its_own_or_no_quota_or_not_told(
    configuration: str | None, nominal: float | None, untold: str
) -> None:
    snapshot = mapped(node("n1"), queue("team-a", capability={GPU: 4}), configuration=configuration)
    quota = rows(snapshot, "quota")["team-a"]
    assert (quota["nominal_gpus"], quota["not_reported"], quota["limit_gpus"]) == (nominal, untold, 4)
    assert rows(snapshot, "queue_state")["team-a"]["nominal_gpus"] == nominal


def test_a_configuration_that_may_not_be_read_is_said_so() -> None:
    snapshot = mapped(queue("team-a", deserved={GPU: 6}), refused="configmaps is forbidden")
    subject, words, _ = complaints(snapshot, "not_permitted")[0]
    assert subject == "configmap volcano-system/volcano-scheduler-configmap"
    assert words.startswith("configmaps is forbidden; which plugin shares out the queues is not known")
    assert rows(snapshot, "quota")["team-a"]["nominal_gpus"] == 6


def test_a_tree_sums_up_and_only_leaves_have_a_state() -> None:
    tree = [
        queue("root"),
        queue("dept", deserved={GPU: 8}, guarantee={"resource": {GPU: 4}}, allocated={GPU: 5}),
        queue("team-a", parent="dept", deserved={GPU: 6}, guarantee={"resource": {GPU: 3}}, allocated={GPU: 5}),
        queue("team-b", parent="dept", deserved={GPU: 4}, guarantee={"resource": {GPU: 2}}, allocated={}),
        queue("stray", parent="nowhere", deserved={GPU: 1}, state="Closing"),
    ]
    held = [pod("p0", "g", on="n1", **gpus(5))]
    snapshot = mapped(node("n1"), *tree, group("g", phase="Running", minMember=1), *held)
    parents = {name: row["parent"] for name, row in rows(snapshot, "queue").items()}
    assert parents == {"root": None, "dept": "root", "team-a": "dept", "team-b": "dept", "stray": None}
    assert set(rows(snapshot, "queue_state")) == {"team-a", "team-b", "stray"}
    assert rows(snapshot, "queue")["stray"]["status"] == "draining"
    assert rows(snapshot, "quota")["root"]["nominal_gpus"] is None
    words = sorted(complaints(snapshot, "bad_quota"))
    assert words == [
        ("dept", f"{GPU}: deserved 8, its children's add up to 10", 1),
        ("dept", f"{GPU}: guarantee 4, its children's add up to 5", 1),
        ("stray", "its parent nowhere is not there", 1),
    ]
    by_queue = {row["queue"]: row["used"] for row in snapshot.records["queue_resource"].to_pylist()}
    assert by_queue == {"root": 5, "dept": 5, "team-a": 5, "team-b": 0, "stray": 0}


def test_borrowed_is_what_is_held_over_ones_own() -> None:
    held = [pod(f"p{n}", "g", on="n1", **gpus(2)) for n in range(3)]
    team = queue("team-a", deserved={GPU: 4}, allocated={GPU: 4})
    snapshot = mapped(node("n1"), team, group("g", phase="Running", minMember=1), *held)
    state = rows(snapshot, "queue_state")["team-a"]
    assert (state["running_gpus"], state["borrowed_gpus"], state["lent_gpus"]) == (6, 2, None)
    assert complaints(snapshot, "quota_mismatch") == [
        ("team-a", "it reports 4 GPUs allocated, its pods hold 6", 2),
    ]


def test_pending_gpus_are_the_minimum_of_groups_that_wait_less_what_they_hold() -> None:
    groups = [
        group("a", phase="Inqueue", minMember=4, minResources={GPU: "4", "cpu": "8"}),
        group("b", phase="Pending", job="later", minMember=2, minResources={"requests.nvidia.com/gpu": "16"}),
        group("c", phase="Running", job="old", minMember=1, minResources={GPU: "1"}),
    ]
    places = (("a-0", "a", "n1"), ("a-1", "a", None), ("c-0", "c", "n1"))
    pods = [pod(name, of, on=on, **gpus(1)) for name, of, on in places]
    snapshot = mapped(node("n1"), queue("team-a"), *groups, *pods)
    assert rows(snapshot, "queue_state")["team-a"]["pending_gpus"] == 3 + 16
    assert rows(snapshot, "queue_resource")[GPU]["pending"] == 19
    assert rows(snapshot, "queue_resource")[GPU]["used"] == 2


def test_a_group_that_does_not_say_what_it_wants_makes_the_sum_unknown() -> None:
    silent = group("a", phase="Pending", job="gone", minMember=1)
    snapshot = mapped(node("n1"), queue("team-a", deserved={GPU: 4}), silent)
    assert rows(snapshot, "queue_state")["team-a"]["pending_gpus"] is None
    told = group("a", phase="Pending", job="train", minMember=2)
    snapshot = mapped(node("n1"), queue("team-a", deserved={GPU: 4}), told, job("train", 2, **gpus(4)))
    assert rows(snapshot, "queue_state")["team-a"]["pending_gpus"] == 8, "its job says it"


def test_slices_count_by_what_their_nodes_say() -> None:
    slices = {"nvidia.com/mig-3g.20gb": "2"}
    sliced = node("n1", 0, {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}, **slices)
    team = queue("team-a", deserved={"nvidia.com/mig-3g.20gb": 2, GPU: 1})
    snapshot = mapped(sliced, team, group("g", phase="Running", minMember=1), pod("p", "g", on="n1", **slices))
    assert rows(snapshot, "quota")["team-a"]["nominal_gpus"] == pytest.approx(1 + 6 / 7)
    assert rows(snapshot, "queue_state")["team-a"]["running_gpus"] == pytest.approx(6 / 7)
    nowhere = mapped(node("n2"), team)
    quota = rows(nowhere, "quota")["team-a"]
    assert (quota["nominal_gpus"], quota["not_reported"]) == (None, "nominal_gpus")


def test_shares_that_cannot_be_told_in_cards_make_no_state() -> None:
    asks = {"volcano.sh/vgpu-number": "1", "volcano.sh/vgpu-memory": "1024"}
    held = pod("p", "g", on="n1", **asks)
    team = queue("team-a", capability={"volcano.sh/vgpu-memory": "4k"})
    snapshot = mapped(node("n1", 0), team, group("g", phase="Running", minMember=1), held)
    assert rows(snapshot, "queue_state") == {}
    assert complaints(snapshot, "unparsed_allocation") == [
        ("team-a", "1 pods hold shares that cannot be told in cards", 1)
    ]
    assert rows(snapshot, "queue_resource")["volcano.sh/vgpu-memory"]["used"] == 1024


def test_one_queue_that_makes_no_sense_costs_itself() -> None:
    snapshot = mapped(node("n1"), queue("bad", capability={GPU: "many"}), queue("team-a", deserved={GPU: 2}))
    assert set(rows(snapshot, "queue")) == {"team-a"}
    assert complaints(snapshot, "unreadable_object")[0][:1] == ("bad",)


@pytest.mark.parametrize(
    ("configuration", "sharing"),
    [
        (CAPACITY, Sharing.CAPACITY),
        (PROPORTION, Sharing.PROPORTION),
        ('tiers:\n- plugins:\n  - name: "capacity"\n', Sharing.CAPACITY),
        ("tiers:\n- plugins:\n  - name: gang\n", Sharing.UNKNOWN),
        ("# - name: capacity", Sharing.UNKNOWN),
        (None, Sharing.UNKNOWN),
    ],
)
def test_the_plugin_is_read_from_the_scheduler_configuration(configuration: str | None, sharing: Sharing) -> None:
    assert sharing_of(configuration) is sharing


def test_a_wrong_option_is_named() -> None:
    with pytest.raises(ConfigError, match="volcano: configuration_nam"):
        reader(configuration_nam="x")
