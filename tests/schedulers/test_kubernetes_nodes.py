"""What nodes have, gave away and have left; who holds which card of them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from schedulers.kubernetes.hami import cards_of, held_by
from tests.schedulers.kubernetes_objects import EIGHT, NINE, NOW, by, mapped, node, pod

AT_EIGHT = datetime(2026, 3, 2, 8, tzinfo=UTC)
AT_NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)


def _state(row: dict[str, Any]) -> tuple[float, float, float, float]:
    return row["capacity"], row["allocatable"], row["allocated"], row["free"]


def test_free_is_what_is_allocatable_and_not_held_by_bound_pods_that_are_not_over() -> None:
    snapshot = mapped(
        nodes=[node("n1", 8, allocatable=7), node("n2", 8)],
        pods=[
            pod("a", 4, on="n1"),
            pod("b", 2, on="n1", phase="Pending"),
            pod("c", 1, on="n1", phase="Succeeded"),
            pod("d", 8),
        ],
    )
    states = by(snapshot, "node_state", "node")
    assert _state(states["n1"]) == (8.0, 7.0, 6.0, 1.0)
    assert _state(states["n2"]) == (8.0, 8.0, 0.0, 8.0)
    assert by(snapshot, "node", "node")["n1"]["gpu_count"] == 8
    assert by(snapshot, "scheduler_node", "node")["n1"]["gpu_count"] == 7


def test_a_node_that_takes_no_work_has_nothing_free_and_says_since_when() -> None:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule", "timeAdded": NINE}
    snapshot = mapped(
        nodes=[
            node("gone", ready="Unknown"),
            node("drained", cordoned=True, taints=[cordon]),
            node("broken", cordoned=True, taints=[{"key": "example.com/gpu-fault", "effect": "NoSchedule"}]),
        ],
        pods=[pod("a", 2, on="drained")],
    )
    states = by(snapshot, "node_state", "node")
    assert {name: row["free"] for name, row in states.items()} == {"gone": 0.0, "drained": 0.0, "broken": 0.0}
    assert (states["gone"]["is_ready"], states["gone"]["is_schedulable"]) == (False, True)
    assert (states["drained"]["is_ready"], states["drained"]["is_schedulable"]) == (True, False)
    assert states["gone"]["reason"] == "NotReady: NodeStatusUnknown"
    conditions = by(snapshot, "condition", "subject")
    assert (conditions["gone"]["condition"], conditions["gone"]["from_at"]) == ("not_ready", AT_EIGHT)
    assert conditions["gone"]["reason"] == "NodeStatusUnknown: Kubelet stopped posting node status."
    assert (conditions["drained"]["condition"], conditions["drained"]["from_at"]) == ("drain", AT_NINE)
    assert (conditions["broken"]["condition"], conditions["broken"]["from_at"]) == ("cordoned_fault", NOW)


def test_labels_say_the_model_and_where_a_node_stands() -> None:
    labels = {
        "network.topology.nvidia.com/leaf": "leaf-3",
        "cloud.provider.com/topology-block": "block-1",
        "nvidia.com/gpu.clique": "a1b2.7",
        "example.com/room": "east",
    }
    options = {"topology_labels": {"leaf": ["network.topology.nvidia.com/leaf"], "room": ["example.com/room"]}}
    usual = mapped(nodes=[node("n1", labels=labels)])
    row = by(usual, "node", "node")["n1"]
    assert (row["model"], row["leaf"], row["spine"], row["nvl_domain"]) == ("H100", "leaf-3", "block-1", "a1b2.7")
    assert (row["cpu_milli"], row["memory_mib"]) == (64_000, 524_288)
    own = mapped(options=options, nodes=[node("n1", labels=labels)])
    row = by(own, "node", "node")["n1"]
    assert (row["leaf"], row["spine"]) == ("leaf-3", None)
    assert json.loads(by(own, "node_state", "node")["n1"]["topology"]) == {"leaf": "leaf-3", "room": "east"}


def test_copies_and_slices_are_not_cards() -> None:
    sliced = node("sliced", 7, resource="nvidia.com/mig-1g.10gb")
    copied = node("copied", 8, labels={"nvidia.com/gpu.replicas": "4"})
    labelled = node("labelled", 7, resource="nvidia.com/mig-1g.10gb", labels={"nvidia.com/gpu.count": "1"})
    snapshot = mapped(
        nodes=[sliced, copied, labelled],
        pods=[pod("a", 0, on="sliced", requests={"nvidia.com/mig-1g.10gb": "2"}), pod("b", 3, on="copied")],
    )
    nodes, states = by(snapshot, "node", "node"), by(snapshot, "node_state", "node")
    assert {name: row["gpu_count"] for name, row in nodes.items()} == {"copied": 2, "labelled": 1}
    assert _state(states["sliced"]) == (7.0, 7.0, 2.0, 5.0)
    assert states["sliced"]["resource"] == "nvidia_com_mig_1g_10gb"
    assert _state(states["copied"]) == (8.0, 8.0, 3.0, 5.0)


def test_a_further_resource_counts_where_it_is_named() -> None:
    odd = node("n1", 4, resource="example.com/npu")
    assert mapped(nodes=[odd]).records["node_state"].num_rows == 0
    snapshot = mapped(
        options={"gpu_resources": ["example.com/npu"]},
        nodes=[odd],
        pods=[pod("a", 0, on="n1", requests={"example.com/npu": "3"})],
    )
    assert _state(by(snapshot, "node_state", "resource")["example_com_npu"]) == (4.0, 4.0, 3.0, 1.0)
    assert by(snapshot, "pod", "pod")["a"]["gpu_count"] == 3.0


def test_one_senseless_node_costs_itself() -> None:
    snapshot = mapped(nodes=[node("n1", "many"), node("n2", 8)], pods=[pod("a", 2, on="n2")])
    assert [row["node"] for row in snapshot.records["node_state"].to_pylist()] == ["n2"]
    (problem,) = snapshot.records["quality_event"].to_pylist()
    assert (problem["kind"], problem["subject"]) == ("unreadable_object", "n1")
    assert "status.capacity[nvidia.com/gpu]" in problem["detail"]


REGISTER = json.dumps(
    [
        {"id": "GPU-1", "count": 10, "devmem": 24576, "devcore": 100, "type": "NVIDIA A10", "health": True},
        {"id": "GPU-2", "count": 10, "devmem": 24576, "devcore": 100, "type": "NVIDIA A10", "health": False},
    ]
)


def test_hamis_cards_are_counted_and_not_their_slots() -> None:
    shared = node(
        "n1", 20, labels={"nvidia.com/gpu.product": ""}, annotations={"hami.io/node-nvidia-register": REGISTER}
    )
    snapshot = mapped(nodes=[shared])
    row = by(snapshot, "node", "node")["n1"]
    assert (row["gpu_count"], row["model"]) == (2, "A10")
    assert by(snapshot, "scheduler_node", "node")["n1"]["gpu_count"] == 1
    assert _state(by(snapshot, "node_state", "node")["n1"]) == (20.0, 20.0, 0.0, 20.0)


def test_hamis_older_form_of_the_register_is_read() -> None:
    text = "GPU-1,10,24576,100,NVIDIA-A10,0,true:GPU-2,10,24576,100,NVIDIA-A10,0,false:"
    cards = cards_of({"metadata": {"annotations": {"hami.io/node-nvidia-register": text}}})
    assert [(card.uuid, card.slots, card.memory_mib, card.is_healthy) for card in cards] == [
        ("GPU-1", 10, 24576.0, True),
        ("GPU-2", 10, 24576.0, False),
    ]


def test_hamis_allocations_say_the_part_of_each_card() -> None:
    shared = node("n1", 20, annotations={"hami.io/node-nvidia-register": REGISTER})
    given = {"quarter": "GPU-1,NVIDIA,6144,25:;", "two": "GPU-1,NVIDIA,12288,10:;GPU-2,NVIDIA,24576,0:;"}
    pods = [pod(name, on="n1", annotations={"hami.io/vgpu-devices-allocated": text}) for name, text in given.items()]
    snapshot = mapped(nodes=[shared], pods=pods)
    rows = {(row["pod"], row["gpu_uuid"]): row for row in snapshot.records["allocation"].to_pylist()}
    assert {key: row["share"] for key, row in rows.items()} == {
        ("quarter", "GPU-1"): 0.25,
        ("two", "GPU-1"): 0.5,
        ("two", "GPU-2"): 1.0,
    }
    assert rows["quarter", "GPU-1"]["started_at"] == AT_NINE
    assert rows["quarter", "GPU-1"]["workload_id"] == "team-a/quarter"


def test_an_allocation_that_is_still_to_be_made_is_none() -> None:
    assert held_by({"metadata": {"annotations": {"hami.io/vgpu-devices-allocated": ";"}}}) == []
    assert held_by({"metadata": {}}) == []


def _slice(name: str, generation: int, devices: list[dict[str, Any]], pool: str = "n1") -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {
            "driver": "gpu.nvidia.com",
            "nodeName": "n1",
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        },
    }


def _device(name: str, uuid: str, **more: Any) -> dict[str, Any]:
    words = {"uuid": uuid, "productName": "NVIDIA H100 80GB HBM3", **more.get("words", {})}
    found: dict[str, Any] = {"name": name, "attributes": {key: {"string": text} for key, text in words.items()}}
    found["capacity"] = {"memory": {"value": "80Gi"}}
    return {**found, **more.get("body", {})}


def _claim(name: str, *devices: dict[str, Any], pods: tuple[str, ...] = (), count: int = 1) -> dict[str, Any]:
    results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n1", **one} for one in devices]
    return {
        "metadata": {"name": name, "namespace": "team-a", "creationTimestamp": EIGHT},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "count": count}}]}},
        "status": {
            "allocation": {"devices": {"results": results}, "allocationTimestamp": NINE} if results else None,
            "reservedFor": [{"resource": "pods", "name": one, "uid": f"uid-{one}"} for one in pods],
        },
    }


def _claiming(name: str, claim: str, **more: Any) -> dict[str, Any]:
    return pod(name, 0, spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}, **more)


def _claimed(slices: list[dict[str, Any]], claims: list[dict[str, Any]], *pods: dict[str, Any]) -> Any:
    bare = node("n1", 0, resource="example.com/none")
    return mapped(nodes=[bare], pods=pods, resourceslices_resource_k8s_io=slices, resourceclaims_resource_k8s_io=claims)


def test_claimed_devices_are_cards_that_are_held() -> None:
    devices = [_device(f"gpu-{n}", f"GPU-{n}") for n in range(3)]
    devices.append(_device("gpu-3", "GPU-3", body={"taints": [{"key": "bad", "effect": "NoSchedule"}]}))
    old = _slice("old", 1, [_device("gpu-9", "GPU-9")])
    claims = [
        _claim("train", {"device": "gpu-0"}, {"device": "gpu-1"}, pods=("train-0",)),
        _claim("monitor", {"device": "gpu-2", "adminAccess": True}, pods=("watcher",)),
        _claim("later", count=4),
    ]
    pods = [
        _claiming("train-0", "train", on="n1"),
        _claiming("late", "later"),
        _claiming("watcher", "monitor", on="n1"),
    ]
    snapshot = _claimed([old, _slice("new", 2, devices)], claims, *pods)
    assert _state(by(snapshot, "node_state", "resource")["gpu_nvidia_com"]) == (4.0, 3.0, 2.0, 1.0)
    row = by(snapshot, "node", "node")["n1"]
    assert (row["gpu_count"], row["model"]) == (4, "H100")
    held = by(snapshot, "allocation", "gpu_uuid")
    assert {uuid: (one["pod"], one["share"], one["started_at"]) for uuid, one in held.items()} == {
        "GPU-0": ("train-0", 1.0, AT_NINE),
        "GPU-1": ("train-0", 1.0, AT_NINE),
    }
    pods_by_name = by(snapshot, "pod", "pod")
    assert (pods_by_name["train-0"]["gpu_count"], pods_by_name["train-0"]["resource"]) == (2.0, "resourceclaim")
    assert pods_by_name["late"]["gpu_count"] == 4.0
    assert "watcher" not in pods_by_name


def test_partitions_and_shares_hold_their_part_of_the_card() -> None:
    mig = {"parentUUID": "GPU-0", "profile": "3g.40gb"}
    devices = [_device("gpu-0", "GPU-0"), _device("mig-0", "MIG-0", words=mig), _device("gpu-1", "GPU-1")]
    claims = [
        _claim("slice", {"device": "mig-0"}, pods=("a",)),
        _claim("part", {"device": "gpu-1", "shareID": "s1", "consumedCapacity": {"memory": "20Gi"}}, pods=("b",)),
        _claim("half", {"device": "gpu-1", "shareID": "s2", "consumedCapacity": {"memory": "40Gi"}}, pods=("c", "d")),
    ]
    owners = (("a", "slice"), ("b", "part"), ("c", "half"), ("d", "half"))
    snapshot = _claimed([_slice("s", 1, devices)], claims, *(_claiming(one, claim, on="n1") for one, claim in owners))
    held = by(snapshot, "allocation", "pod")
    assert {one: (row["gpu_uuid"], row["slice_id"]) for one, row in held.items()} == {
        "a": ("GPU-0", "MIG-0"),
        "b": ("GPU-1", "s1"),
        "c": ("GPU-1", "s2"),
        "d": ("GPU-1", "s2"),
    }
    assert held["a"]["share"] == pytest.approx(3 / 7)
    assert (held["b"]["share"], held["c"]["share"], held["d"]["share"]) == (0.25, 0.25, 0.25)
    state = by(snapshot, "node_state", "resource")["gpu_nvidia_com"]
    assert (state["capacity"], state["free"]) == (2.0, 0.0)
    assert state["allocated"] == pytest.approx(3 / 7 + 0.75)


def test_a_device_that_no_slice_knows_is_a_problem_and_not_nothing() -> None:
    claims = [_claim("lost", {"device": "gpu-7"}, pods=("a",))]
    snapshot = _claimed([_slice("s", 1, [_device("gpu-0", "GPU-0")])], claims, _claiming("a", "lost", on="n1"))
    (problem,) = snapshot.records["quality_event"].to_pylist()
    assert (problem["kind"], problem["subject"]) == ("unparsed_allocation", "team-a/a")
    assert "gpu-7" in problem["detail"]
    assert snapshot.records["allocation"].num_rows == 0


@pytest.mark.parametrize(
    ("host", "cards", "offered"),
    [
        (node("n", 8, allocatable=7, labels={"nvidia.com/gpu.count": "8"}), 8, 7),
        (node("n", 32, allocatable=28, labels={"nvidia.com/gpu.count": "8", "nvidia.com/gpu.replicas": "4"}), 8, 7),
        (node("n", 80, allocatable=70, labels={"nvidia.com/gpu.count": "8"}), 8, 7),
        (node("n", 4, allocatable=3, labels={"nvidia.com/gpu.count": "8"}), 8, 7),
        (node("n", 8, allocatable=0, labels={"nvidia.com/gpu.count": "8"}), 8, 0),
        (node("n", 4, resource="nvidia.com/mig-1g.10gb", labels={"nvidia.com/gpu.count": "8"}), 8, 8),
        (node("n", 8, resource="cambricon.com/mlu", allocatable=6), 8, 6),
    ],
)
def test_a_broken_card_is_not_offered_whatever_else_a_label_counts(host: Any, cards: int, offered: int) -> None:
    snapshot = mapped(nodes=[host])
    assert by(snapshot, "node", "node")["n"]["gpu_count"] == cards
    assert by(snapshot, "scheduler_node", "node")["n"]["gpu_count"] == offered


def test_equal_slices_that_are_named_as_cards_say_nothing_of_cards() -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/gpu.count": "56"}
    snapshot = mapped(nodes=[node("n", 56, labels=labels)])
    assert (snapshot.records["node"].num_rows, snapshot.records["scheduler_node"].num_rows) == (0, 0)
    assert by(snapshot, "node_state", "node")["n"]["capacity"] == 56.0


def test_a_resource_that_the_operator_names_counts_cards() -> None:
    host = node("n", 8, resource="example.com/fast", allocatable=7)
    snapshot = mapped(nodes=[host], options={"gpu_resources": ["example.com/fast"]})
    assert by(snapshot, "node", "node")["n"]["gpu_count"] == 8
    assert by(snapshot, "scheduler_node", "node")["n"]["gpu_count"] == 7


def test_copies_and_slices_under_the_name_of_cards_are_named_as_shared() -> None:
    register = "GPU-1,10,24576,100,NVIDIA-L4,0,true:"
    snapshot = mapped(
        nodes=[
            node("cards", 8),
            node("copies", 32, labels={"nvidia.com/gpu.replicas": "4"}),
            node("slices", 56, labels={"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"}),
            node("shares", 10, annotations={"hami.io/node-nvidia-register": register}),
        ],
        pods=[pod("a", 3, on="copies")],
    )
    states = by(snapshot, "node_state", "node")
    assert {name for name, row in states.items() if row["resource"] == "nvidia_com_gpu"} == {"cards"}
    assert {row["resource"] for row in states.values()} == {"nvidia_com_gpu", "nvidia_com_gpu_shared"}
    assert _state(states["copies"]) == (32.0, 32.0, 3.0, 29.0)
