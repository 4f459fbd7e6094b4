"""Queues of Kueue by name, tenant and topology; quotas that are odd or cannot be seen; each by hand."""

from __future__ import annotations

import pytest

from gpuledger.ports import SnapshotScope
from schedulers.kueue.kinds import CLUSTER_QUEUES, COHORTS, WORKLOADS
from tests.schedulers.kueue_objects import (
    GPU,
    GROUP,
    NOW,
    cluster_queue,
    false,
    flavor,
    local_queue,
    moment,
    node,
    only,
    owner,
    pod,
    quota,
    read,
    rows,
    usage,
    workload,
)


def test_names_of_a_cluster_of_its_own_carry_it() -> None:
    snapshot = read(
        moment(cluster_queue("q", {"h100": [quota(4)]}, cohort="ai"), local_queue("a", "q", "q")), cluster="east"
    )
    assert {row["queue"] for row in rows(snapshot, "queue")} == {"east/q", "east/cohort:ai", "east/local:a/q"}
    assert only(snapshot, "queue", queue="east/local:a/q")["parent"] == "east/q"
    assert only(snapshot, "queue", queue="east/q")["scheduler"] == "kueue/east"


def test_limits_that_contradict_each_other_are_told() -> None:
    snapshot = read(moment(cluster_queue("q", {"h100": [quota(4, None, 9)]}, cohort="ai")))
    problem = only(snapshot, "quality_event", kind="bad_quota")
    assert (problem["subject"], problem["detail"]) == ("q", f"{GPU} of h100: lends 9 of 4")


def test_a_queue_that_cannot_be_understood_costs_itself() -> None:
    broken = cluster_queue("broken", {"h100": [quota("many")]}, cohort="ai")
    good = cluster_queue("good", {"h100": [quota(4)]}, cohort="ai")
    snapshot = read(moment(broken, good, is_valid=False))
    assert {row["queue"] for row in rows(snapshot, "queue")} == {"good", "cohort:ai"}
    problem = only(snapshot, "quality_event", kind="unreadable_object")
    assert (problem["subject"], problem["subject_kind"]) == ("broken", "queue")
    assert "nominalQuota: 'many' is no quantity" in problem["detail"]


def test_what_may_not_be_seen_is_unknown() -> None:
    things = [
        node("n1"),
        cluster_queue("q", {"h100": [quota(4, 2)]}, cohort="ai"),
        cluster_queue("p", {"h100": [quota(4)]}, cohort="ai"),
    ]
    no_cohorts = moment(*things, without=[COHORTS.key], scope=SnapshotScope(denied=((COHORTS.key, "forbidden"),)))
    told = only(read(no_cohorts), "quota", queue="q")
    assert (told["limit_gpus"], told["not_reported"], told["borrowing_limit_gpus"]) == (None, "limit_gpus", 2)

    no_workloads = moment(*things, without=[WORKLOADS.key], scope=SnapshotScope(denied=((WORKLOADS.key, "forbidden"),)))
    snapshot = read(no_workloads)
    assert {"workload", "wait"} <= snapshot.scope.unlisted
    assert rows(snapshot, "queue_state") == []
    assert {(row["borrowed"], row["pending"]) for row in rows(snapshot, "queue_resource")} == {(None, None)}

    no_queues = moment(
        *things, without=[CLUSTER_QUEUES.key], scope=SnapshotScope(denied=((CLUSTER_QUEUES.key, "forbidden"),))
    )
    snapshot = read(no_queues)
    assert {"queue", "quota", "queue_resource", "queue_state"} <= snapshot.scope.unlisted
    assert rows(snapshot, "quota") == []


def test_rows_are_of_the_moment() -> None:
    snapshot = read(moment(cluster_queue("q", {"h100": [quota(4)]})))
    assert only(snapshot, "quota")["from_at"] == NOW
    state = only(snapshot, "queue_state")
    assert (state["ts"], state["duration_seconds"], state["nominal_gpus"]) == (NOW, 0.001, 4)


@pytest.mark.parametrize(("copies", "nominal"), [(None, 8), (4, 2)])
def test_copies_of_cards_are_parts_of_them(copies: int | None, nominal: float) -> None:
    shared = node("n1", 8)
    if copies:
        shared["metadata"]["labels"]["nvidia.com/gpu.replicas"] = str(copies)
    snapshot = read(
        moment(
            shared,
            flavor("shared", shared["metadata"]["labels"]["nvidia.com/gpu.product"]),
            cluster_queue("q", {"shared": [quota(8)]}),
        )
    )
    assert only(snapshot, "quota")["nominal_gpus"] == nominal
    assert only(snapshot, "queue_resource")["nominal"] == 8


def test_where_not_all_pods_may_be_seen_kueue_says_what_is_used() -> None:
    queue = cluster_queue(
        "q", {"h100": [quota(8)]}, reserved=usage({"h100": {GPU: (7, 0)}}), used=usage({"h100": {GPU: (5, 0)}})
    )
    snapshot = read(moment(node("n1"), queue, scope=SnapshotScope(namespaces=("team-a",))))
    state = only(snapshot, "queue_state")
    assert (state["running_gpus"], state["reserved_gpus"], state["pending_gpus"]) == (5, None, None)
    assert (state["borrowed_gpus"], state["lent_gpus"]) == (0, 0)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_topology_says_where_the_nodes_of_its_flavor_stand(version: str) -> None:
    placed, elsewhere = node("n1"), node("n2")
    placed["metadata"]["labels"] |= {"example.com/hall": "h1", "example.com/row": "r7"}
    tas = flavor("h100", "NVIDIA-H100-80GB-HBM3", version=version)
    tas["spec"]["topologyName"] = "halls"
    halls = {
        "apiVersion": f"{GROUP}/{version}",
        "kind": "Topology",
        "metadata": {"name": "halls"},
        "spec": {"levels": [{"nodeLabel": "example.com/hall"}, {"nodeLabel": "example.com/row"}]},
    }
    snapshot = read(moment(placed, elsewhere, tas, halls, version=version))
    found = {row["node"]: row["topology"] for row in rows(snapshot, "node_state")}
    assert found == {"n1": '{"example.com/hall": "h1", "example.com/row": "r7"}', "n2": None}


def test_a_flavor_that_a_queue_does_not_offer_is_none_that_it_may_use() -> None:
    moved = cluster_queue("a", {"h100": [quota(8)]}, cohort="ai", reserved=usage({"a100": {GPU: (3, 3)}}))
    other = cluster_queue("b", {"a100": [quota(8)]}, cohort="ai", reserved=usage({"a100": {GPU: (0, 0)}}))
    snapshot = read(moment(moved, other))
    told = only(snapshot, "queue_resource", queue="a", flavor="a100")
    assert (told["nominal"], told["limit"], told["borrowed"]) == (0, 0, 0)
    assert only(snapshot, "quality_event", kind="limit_not_enforced")["count"] == 3


def test_pods_of_work_without_quota_run_and_are_of_no_flavor() -> None:
    evicted = workload("w", false("QuotaReserved", "WaitingForQuota"))
    queue = cluster_queue("gpus", {"h100": [quota(8)], "a100": [quota(8)]})
    snapshot = read(
        moment(node("n1"), queue, local_queue("team-a", "gpus", "gpus"), evicted, pod("p", owner("Job", "w")))
    )
    assert only(snapshot, "queue_state")["running_gpus"] == 8
    assert {row["flavor"] for row in rows(snapshot, "queue_resource")} == {"h100", "a100"}
    assert only(snapshot, "quality_event", kind="quota_mismatch")["count"] == 8
