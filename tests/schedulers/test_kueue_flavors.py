"""Whose flavor a pod is of, and what a flavor's cards are, where that takes more than one look."""

from __future__ import annotations

from typing import Any

from tests.schedulers.kueue_objects import (
    GPU,
    Object,
    admission,
    cluster_queue,
    flavor,
    local_queue,
    moment,
    node,
    only,
    owner,
    pod,
    pod_set,
    quota,
    read,
    rows,
    true,
    usage,
    workload,
)

H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"
BOTH = usage({"h100": {GPU: (8, 0)}, "a100": {GPU: (8, 0)}})
RAY = owner("Job", "ray")
LET_GO = (true("QuotaReserved", "QuotaReserved"), true("Admitted", "Admitted"))


def _node(name: str, **labels: str) -> Object:
    found = node(name)
    found["metadata"]["labels"].update(labels)
    return found


def _assigned(name: str, flavor_name: str) -> Object:
    return {"name": name, "count": 1, "flavors": {GPU: flavor_name}, "resourceUsage": {GPU: "8"}}


def _two_flavors(*pods: Object) -> Any:
    sets = {"clusterQueue": "q", "podSetAssignments": [_assigned("new", "h100"), _assigned("old", "a100")]}
    asked = [pod_set(1, {GPU: 8}, name="new"), pod_set(1, {GPU: 8}, name="old")]
    quotas = {"h100": [quota(8)], "a100": [quota(8)]}
    return read(
        moment(
            _node("n1"),
            _node("n2", **{"nvidia.com/gpu.product": A100}),
            flavor("h100", H100),
            flavor("a100", A100),
            cluster_queue("q", quotas, cohort="c", reserved=BOTH, used=BOTH),
            cluster_queue("lender", quotas, cohort="c"),
            local_queue("team-a", "gpus", "q"),
            workload("ray", *LET_GO, pod_sets=asked, owned_by=RAY, admission=sets),
            *pods,
        )
    )


def _assert_nothing_is_borrowed(snapshot: Any) -> None:
    state = only(snapshot, "queue_state", queue="q")
    assert (state["running_gpus"], state["borrowed_gpus"], state["reserved_gpus"]) == (16.0, 0.0, 0.0)
    assert only(snapshot, "queue_state", queue="lender")["lent_gpus"] == 0.0
    assert rows(snapshot, "quality_event") == []


def test_pod_sets_of_one_workload_hold_each_their_own_flavor() -> None:
    _assert_nothing_is_borrowed(_two_flavors(pod("r1", RAY, node="n1"), pod("r2", RAY, node="n2")))


def test_the_pod_set_that_a_pod_names_says_its_flavor() -> None:
    label = "kueue.x-k8s.io/podset"
    _assert_nothing_is_borrowed(
        _two_flavors(
            pod("r1", RAY, node="gone", labels={label: "new"}), pod("r2", RAY, node="gone", labels={label: "old"})
        )
    )


def test_copies_of_a_flavor_of_any_node_are_parts_of_cards() -> None:
    shared = _node("n1", **{"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "8"})
    snapshot = read(moment(shared, flavor("default"), cluster_queue("q", {"default": [quota(32)]})))
    assert only(snapshot, "quota")["nominal_gpus"] == 8.0
    assert only(snapshot, "queue_resource", resource=GPU)["nominal"] == 32.0


def test_what_was_admitted_in_part_is_as_large_as_that_part() -> None:
    part = admission("q", {GPU: "16"}, 2, flavor="h100")
    asked = [{**pod_set(4, {GPU: 8}), "minCount": 1}]
    snapshot = read(
        moment(
            node("n1"),
            cluster_queue("q", {"h100": [quota(32)]}),
            local_queue("team-a", "gpus", "q"),
            workload("ray", *LET_GO, pod_sets=asked, owned_by=RAY, admission=part),
        )
    )
    assert only(snapshot, "workload")["pod_count"] == 2
    wait = only(snapshot, "wait")
    assert (wait["cause"], wait["gpus"], wait["pods"]) == ("startup", 16.0, 2)
    assert only(snapshot, "queue_state")["reserved_gpus"] == 16.0


def test_work_that_is_over_for_kueue_runs_on_while_its_pods_hold_gpus() -> None:
    over = workload("ray", *LET_GO, true("Finished", "Succeeded"), owned_by=RAY)
    queue = cluster_queue("q", {"h100": [quota(32)]})
    snapshot = read(moment(node("n1"), queue, local_queue("team-a", "gpus", "q"), over, pod("r1", RAY)))
    row = only(snapshot, "workload")
    assert (row["status"], row["ended_at"]) == ("running", None)
    assert only(snapshot, "queue_state")["running_gpus"] == 8.0
    assert only(snapshot, "quality_event")["kind"] == "quota_mismatch"
