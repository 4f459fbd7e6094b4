from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuledger.ports import SchedulerSnapshot
from tests.schedulers.koordinator_objects import (
    GPU,
    device,
    given,
    mapped,
    migration,
    network,
    of_quota,
    part_pod,
    pod_group,
    quota,
    reservation,
)
from tests.schedulers.kubernetes_objects import by, node, pod
from tests.schedulers.reading import rows

AT_EIGHT = datetime(2026, 3, 2, 8, tzinfo=UTC)
AT_NINE = datetime(2026, 3, 2, 9, tzinfo=UTC)


def _problems(snapshot: SchedulerSnapshot) -> list[tuple[str, str, int]]:
    return [(row["kind"], row["subject"], row["count"]) for row in rows(snapshot, "quality_event")]


def _state(snapshot: SchedulerSnapshot, queue: str) -> tuple[Any, ...]:
    """(nominal, running, pending, borrowed, lent, reserved)."""
    row = by(snapshot, "queue_state", "queue")[queue]
    columns = ("nominal_gpus", "running_gpus", "pending_gpus", "borrowed_gpus", "lent_gpus", "reserved_gpus")
    return tuple(row[column] for column in columns)


def _forest() -> list[dict[str, Any]]:
    """16 GPUs: `a` holds 10 of its 8, `b` wants 2 of its 8 and lends what `a` borrows, `c` lends nothing."""
    return [
        node("n1", 8),
        node("n2", 8),
        quota("root", 16, 16, 12, parent="koordinator-root-quota", is_parent="true"),
        quota("a", 8, 12, 10, parent="root", request=11, runtime=12),
        quota("b", 8, 16, 2, parent="root", request=2, runtime=4),
        quota("c", 0, 4, 0, parent="root", request=0, runtime=0, lends=False),
        pod("a-0", 8, on="n1", labels=of_quota("a")),
        pod("a-1", 2, on="n2", labels=of_quota("a")),
        pod("a-2", 1, labels=of_quota("a"), message="0/2 nodes are available: 2 Insufficient nvidia.com/gpu."),
        pod("b-0", 2, on="n2", labels=of_quota("b")),
    ]


def test_quota_limit_use_borrowed_and_lent_are_apart() -> None:
    snapshot = mapped(*_forest())
    assert _state(snapshot, "a") == (8.0, 10.0, 1.0, 2.0, 0.0, 0.0)
    assert _state(snapshot, "b") == (8.0, 2.0, 0.0, 0.0, 2.0, 0.0)
    assert _state(snapshot, "c") == (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    quotas = by(snapshot, "quota", "queue")
    assert {name: (row["nominal_gpus"], row["limit_gpus"]) for name, row in quotas.items()} == {
        "root": (16.0, 16.0), "a": (8.0, 12.0), "b": (8.0, 16.0), "c": (0.0, 4.0),
    }  # fmt: skip
    queues = by(snapshot, "queue", "queue")
    assert [queues[name]["parent"] for name in ("root", "a")] == ["koordinator-root-quota", "root"]
    assert {row["cohort"] for row in queues.values()} == {"koordinator-root-quota"}
    told = next(row for row in rows(snapshot, "queue_resource") if row["queue"] == "b")
    assert (told["resource"], told["nominal"], told["limit"], told["used"]) == (GPU, 8.0, 16.0, 2.0)
    assert (told["borrowed"], told["lent"], told["pending"]) == (0.0, 2.0, 0.0)
    assert _problems(snapshot) == []


def test_work_is_in_its_quota() -> None:
    snapshot = mapped(*_forest(), pod("plain", 1, on="n2"))
    queues = {row["name"]: row["queue"] for row in rows(snapshot, "workload")}
    assert queues == {"a-0": "a", "a-1": "a", "a-2": "a", "b-0": "b", "plain": ""}


def test_a_pod_without_a_name_is_in_the_quota_of_its_namespace() -> None:
    objects = [
        node("n1"),
        quota("own", 4, 4, 1, namespace="team-a"),
        quota("told", 4, 4, 2, raw={"namespaces": '["team-b"]'}),
        pod("p", 1, on="n1"),
        pod("q", 2, on="n1", namespace="team-b"),
    ]
    snapshot = mapped(*objects)
    assert {row["name"]: row["queue"] for row in rows(snapshot, "workload")} == {"p": "own", "q": "told"}
    assert _problems(snapshot) == []


def test_unset_zero_and_not_told_are_three_things() -> None:
    snapshot = mapped(
        quota("free"),
        quota("cpu-only", {"cpu": "4"}, {"cpu": "8"}, {"cpu": "1"}),
        quota("unsure", None, 8, 0),
        quota("zero", 0, 0, 0),
        quota("silent", 4, 8),
    )
    quotas = by(snapshot, "quota", "queue")
    limits = {name: (row["nominal_gpus"], row["limit_gpus"]) for name, row in quotas.items()}
    assert limits == {
        "free": (None, None), "cpu-only": (None, None), "unsure": (0.0, 8.0), "zero": (0.0, 0.0), "silent": (4.0, 8.0),
    }  # fmt: skip
    told = {(row["queue"], row["resource"]): row for row in rows(snapshot, "queue_resource")}
    assert told["silent", GPU]["used"] is None
    assert told["silent", GPU]["borrowed"] is None
    assert told["silent", GPU]["lent"] is None
    assert told["zero", GPU]["used"] == 0.0
    assert by(snapshot, "queue_state", "queue")["silent"]["borrowed_gpus"] is None


def test_fractions_are_counted_once() -> None:
    percents = {"koordinator.sh/gpu-core": "150", "koordinator.sh/gpu-memory-ratio": "250"}
    both = {**percents, GPU: "4"}
    limit = {"koordinator.sh/gpu-core": "800", "koordinator.sh/gpu-memory-ratio": "600", GPU: "8"}
    snapshot = mapped(quota("mixed", limit, limit, both))
    assert _state(snapshot, "mixed")[:2] == (14.0, 6.5)
    assert by(snapshot, "quota", "queue")["mixed"]["limit_gpus"] == 14.0


def test_trees_do_not_lend_to_each_other() -> None:
    snapshot = mapped(
        quota("t1", 8, 8, 10, tree="one", request=10, runtime=8),
        quota("t2", 8, 8, 2, tree="two", request=2, runtime=2),
        quota("t3", 4, 8, 5, tree="two", request=5, runtime=5),
    )
    assert _state(snapshot, "t2")[3:5] == (0.0, 1.0)
    assert {row["queue"]: row["cohort"] for row in rows(snapshot, "queue")} == {"t1": "one", "t2": "two", "t3": "two"}


def test_floor_and_weight() -> None:
    snapshot = mapped(
        quota("a", 8, 12, 8, non_preemptible_used=6, shared_weight=3), quota("b", 8, 12, 0), quota("none")
    )
    found = {name: (row["guarantee_gpus"], row["weight"]) for name, row in by(snapshot, "quota", "queue").items()}
    assert found == {"a": (6.0, 3.0), "b": (0.0, 12.0), "none": (0.0, 1.0)}


def test_broken_json_costs_itself() -> None:
    prefix = "quota.scheduling.koordinator.sh/"
    broken = quota("a", 8, 8, 2, request=5, raw={"runtime": '{"nvidia.com/gpu":', "non-preemptible-used": "[1]"})
    assert broken["metadata"]["annotations"][f"{prefix}runtime"].endswith(":")
    snapshot = mapped(broken, quota("b", "many", 8, 0), quota("c", 1, 1, 0), is_valid=False)
    assert by(snapshot, "queue", "queue").keys() == {"a", "c"}
    assert _state(snapshot, "a")[:3] == (8.0, 2.0, 3.0)
    subjects = [row["subject"] for row in rows(snapshot, "quality_event") if row["kind"] == "unreadable_object"]
    assert sorted(subjects) == ["a", "a", "b"]


def test_limits_that_contradict_each_other() -> None:
    snapshot = mapped(
        quota("p", 8, 8, 0, is_parent="true", parent="koordinator-root-quota"),
        quota("x", 6, 8, 0, parent="p"),
        quota("y", 6, 4, 0, parent="p"),
        quota("lost", 1, 1, 0, parent="nowhere"),
        quota("over", 2, 2, 3),
        node("n1"),
        pod("o", 3, on="n1", labels=of_quota("over")),
    )
    assert sorted(_problems(snapshot)) == [
        ("bad_quota", "lost", 1), ("bad_quota", "p", 12), ("bad_quota", "y", 6), ("limit_not_enforced", "over", 3),
    ]  # fmt: skip
    assert by(snapshot, "queue", "queue")["lost"]["parent"] is None


def test_a_count_that_differs_from_the_pods_is_told() -> None:
    snapshot = mapped(node("n1"), quota("a", 8, 8, 6), pod("p", 2, on="n1", labels=of_quota("a")))
    assert _problems(snapshot) == [("quota_mismatch", "a", 4)]


def _shared_cards() -> list[dict[str, Any]]:
    return [
        node("n1", 4),
        device("n1"),
        quota("team-a", 4, 4, {"koordinator.sh/gpu-core": "180", "koordinator.sh/gpu-memory-ratio": "180"}),
        part_pod("half", 50, on="n1", annotations=given((0, 50, 30)), requests={"cpu": "5", "memory": "3Gi"}),
        part_pod("more", 30, on="n1", annotations=given((0, 20, 30))),
        part_pod("two", 100, on="n1", annotations=given((1, 50, 50), (2, 50, 50)), requests={"cpu": "5"}),
    ]


def test_parts_of_cards_have_uuids_and_shares() -> None:
    snapshot = mapped(*_shared_cards())
    held = {(row["pod"], row["gpu_uuid"]): row for row in rows(snapshot, "allocation")}
    assert {key: row["share"] for key, row in held.items()} == {
        ("half", "GPU-n1-0"): 0.5,
        ("more", "GPU-n1-0"): 0.3,
        ("two", "GPU-n1-1"): 0.5,
        ("two", "GPU-n1-2"): 0.5,
    }
    assert (held["half", "GPU-n1-0"]["cpu_milli"], held["half", "GPU-n1-0"]["memory_mib"]) == (5000, 3072)
    assert [held["two", f"GPU-n1-{minor}"]["cpu_milli"] for minor in (1, 2)] == [2500, 2500]
    assert held["half", "GPU-n1-0"]["started_at"] == AT_NINE
    state = by(snapshot, "node_state", "node")["n1"]
    assert (state["resource"], state["capacity"], state["allocated"], state["free"]) == (
        "nvidia_com_gpu",
        4.0,
        1.8,
        2.2,
    )
    pods = by(snapshot, "pod", "pod")
    assert {name: row["gpu_count"] for name, row in pods.items()} == {"half": 0.5, "more": 0.3, "two": 1.0}
    work = by(snapshot, "workload", "name")
    assert [(work[name]["num_gpu"], work[name]["gpu_milli"]) for name in ("half", "two")] == [(1, 500), (1, 1000)]
    assert _problems(snapshot) == []


def test_a_node_may_offer_cards_by_its_device_alone() -> None:
    bare = node("n1", resource="koordinator.sh/gpu", labels={"node.koordinator.sh/gpu-model": "NVIDIA-A100"})
    del bare["metadata"]["labels"]["nvidia.com/gpu.product"]
    objects = [bare, device("n1", unhealthy=(3,)), part_pod("p", 50, on="n1", annotations=given((0, 50, 50)))]
    snapshot = mapped(*objects)
    (state,) = rows(snapshot, "node_state")
    assert (state["capacity"], state["allocatable"], state["allocated"], state["free"]) == (4.0, 3.0, 0.5, 2.5)
    assert json.loads(state["topology"])["numa"] == {"0": [0, 1], "1": [2, 3]}
    (row,) = rows(snapshot, "node")
    assert (row["gpu_count"], row["model"]) == (4, "A100")
    assert [row["gpu_count"] for row in rows(snapshot, "scheduler_node")] == [3]
    (lost,) = rows(snapshot, "condition")
    assert (lost["subject_kind"], lost["subject"], lost["from_at"]) == ("gpu", "GPU-n1-3", AT_EIGHT)
    assert lost["reason"] == "XidError: Xid 79"


def test_an_annotation_that_cannot_be_read_costs_itself() -> None:
    broken = {"scheduling.koordinator.sh/device-allocated": '{"gpu": ['}
    objects = [node("n1", 4), device("n1"), part_pod("p", 50, on="n1", annotations=broken)]
    objects.append(part_pod("q", 50, on="n1", annotations=given((9, 50, 50))))
    snapshot = mapped(*objects)
    assert rows(snapshot, "allocation") == []
    assert by(snapshot, "node_state", "node")["n1"]["allocated"] == 1.0
    kinds = [(row["kind"], row["subject"]) for row in rows(snapshot, "quality_event")]
    assert sorted(kinds) == [("unparsed_allocation", "team-a/q"), ("unreadable_object", "team-a/p")]


def test_what_is_reserved_and_held_is_counted_once() -> None:
    snapshot = mapped(
        node("n1", 8),
        quota("team-a", 8, 8, 3),
        reservation("r1", "n1", 5, taken=3),
        reservation("r2", "n1", 8, phase="Succeeded"),
        pod("p", 3, on="n1", labels=of_quota("team-a")),
    )
    assert _state(snapshot, "team-a")[1:] == (3.0, 0.0, 0.0, None, 2.0)
    state = by(snapshot, "node_state", "node")["n1"]
    assert (state["allocated"], state["free"]) == (3.0, 3.0)


def test_moves_are_events_of_who_was_moved_and_who_made_room() -> None:
    snapshot = mapped(node("n1"), pod("p", 1, on="n1"), migration("m1", "p", ["gone"]))
    events = {(row["workload_id"], row["kind"]): row for row in rows(snapshot, "workload_event")}
    evicted, preempted = events["team-a/p", "evicted"], events["team-a/gone", "preempted"]
    assert (evicted["ts"], evicted["pod"], evicted["reason"]) == (AT_NINE, "p", "EvictComplete")
    assert (preempted["ts"], preempted["beneficiary"]) == (AT_NINE, "team-a/p")


def test_gangs_by_group_and_by_annotation() -> None:
    own = {"gang.scheduling.koordinator.sh/name": "x", "gang.scheduling.koordinator.sh/min-available": "3"}
    snapshot = mapped(
        node("n1"),
        pod_group("g", 2),
        pod("g-0", 1, owner=("Job", "g"), labels={"pod-group.scheduling.sigs.k8s.io": "g"}),
        pod("x-0", 1, owner=("Job", "x"), annotations=own),
        pod("alone", 1),
    )
    work = by(snapshot, "workload", "name")
    assert {name: (row["is_gang"], row["min_replicas"], row["pod_count"]) for name, row in work.items()} == {
        "g": (True, 2, 2), "x": (True, 3, 3), "alone": (False, 0, 1),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("message", "gpus", "cause"),
    [
        ("quota not enough, Insufficient quotas, quotaName: team-a, exceedDimensions: [nvidia.com/gpu]", 2, "quota"),
        ("Insufficient quotas, quotaName: team-a, exceedDimensions: [nvidia.com/gpu]", 6, "exceeds_max"),
        ("0/1 nodes are available: 1 Reservation(s) Insufficient gpu devices.", 1, "reservation"),
        ("0/1 nodes are available: 1 Insufficient gpu devices.", 1, "capacity"),
        ("0/1 nodes are available: 1 Insufficient rdma devices.", 1, "cpu_mem"),
        ("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.", 1, "capacity"),
    ],
)
def test_koordinators_words_have_causes(message: str, gpus: int, cause: str) -> None:
    objects = [
        node("n1", 8),
        quota("above", 4, 4, 8, is_parent="true", parent="koordinator-root-quota"),
        quota("team-a", 4, 8, 8, parent="above"),
        pod("busy", 8, on="n1", labels=of_quota("team-a")),
        pod("p", gpus, labels=of_quota("team-a"), message=message),
    ]
    snapshot = mapped(*objects)
    row = by(snapshot, "workload", "name")["p"]
    assert (row["status"], row["pending_cause"]) == ("pending", cause)
    assert message in row["pending_reason"]
    wait = by(snapshot, "wait", "workload_id")["team-a/p"]
    assert (wait["cause"], wait["gpus"], wait["from_at"]) == (cause, float(gpus), AT_EIGHT)


def test_the_networks_layers_are_leaf_and_spine() -> None:
    labels = {"example.com/spine": "s1", "example.com/block": "b7"}
    snapshot = mapped(node("n1", labels=labels), network())
    (row,) = rows(snapshot, "node")
    assert (row["leaf"], row["spine"]) == ("b7", "s1")
    topology = json.loads(by(snapshot, "node_state", "node")["n1"]["topology"])
    assert (topology["BlockLayer"], topology["SpineLayer"]) == ("b7", "s1")


def test_clusters_with_names_keep_their_queues_apart() -> None:
    snapshot = mapped(*_forest(), cluster="east")
    assert by(snapshot, "queue", "queue")["east/a"]["parent"] == "east/root"
    assert {row["queue"] for row in rows(snapshot, "workload")} == {"east/a", "east/b"}


def test_what_runs_below_a_quota_is_counted_once() -> None:
    above, below = quota("all", 4, 8, 2, is_parent="true"), quota("team", 2, 8, 2, parent="all")
    snapshot = mapped(above, below)
    assert [row["queue"] for row in snapshot.records["queue_state"].to_pylist()] == ["team"]
    assert {row["queue"]: row["used"] for row in snapshot.records["queue_resource"].to_pylist()} == {
        "all": 2.0,
        "team": 2.0,
    }
