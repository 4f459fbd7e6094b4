"""ResourceQuotas: unset, zero and not reported are three different things, and only some keys limit anything."""

from __future__ import annotations

from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.errors import ConfigError
from gpuledger.testing import FakeClock
from schedulers.deploying import family
from schedulers.kubernetes.family import KubernetesFamily
from tests.schedulers.kubernetes_objects import NOW, by, mapped, moment, node, pod, quota

GPUS = "requests.nvidia.com/gpu"


def _resources(snapshot: Any) -> dict[str, tuple[Any, Any]]:
    return {row["resource"]: (row["limit"], row["used"]) for row in snapshot.records["queue_resource"].to_pylist()}


def test_a_quota_of_gpus_is_a_queue_that_lends_and_borrows_nothing() -> None:
    given = quota("gpus", {GPUS: "16", "requests.cpu": "500m", "pods": "10"}, {GPUS: "10", "requests.cpu": "0"})
    pods = [pod("a", 8, on="n1"), pod("b", 2, on="n2"), pod("c", 4), pod("d", 1, on="n2", namespace="team-b")]
    snapshot = mapped(nodes=[node("n1"), node("n2")], pods=pods, resourcequotas=[given])
    assert by(snapshot, "queue", "queue")["team-a/gpus"]["tenant"] == "team-a"
    row = by(snapshot, "quota", "queue")["team-a/gpus"]
    assert (row["nominal_gpus"], row["limit_gpus"]) == (16.0, 16.0)
    assert (row["borrowing_limit_gpus"], row["lending_limit_gpus"], row["not_reported"]) == (0.0, 0.0, "")
    state = by(snapshot, "queue_state", "queue")["team-a/gpus"]
    assert (state["nominal_gpus"], state["running_gpus"], state["pending_gpus"]) == (16.0, 10.0, None)
    assert _resources(snapshot) == {"nvidia.com/gpu": (16.0, 10.0), "cpu": (0.5, 0.0), "pods": (10.0, None)}
    assert "quality_event" not in snapshot.records


@pytest.mark.parametrize("adapter", tuple(family()), ids=lambda adapter: adapter.name)
def test_beside_queues_that_hold_the_same_pods_a_quota_is_a_limit_and_no_second_holder(
    adapter: type[KubernetesFamily],
) -> None:
    reader = adapter.from_options({"url": "http://127.0.0.1:1"}, rules=Rules(), clock=FakeClock(NOW))
    given = quota("gpus", {GPUS: "16"}, {GPUS: "8"})
    snapshot = reader.mapped(moment(nodes=[node("n1")], pods=[pod("a", 8, on="n1")], resourcequotas=[given]))
    row = by(snapshot, "quota", "queue")["team-a/gpus"]
    states = {one["queue"] for one in snapshot.records["queue_state"].to_pylist()}
    is_all = adapter.name in {"kubernetes", "kuberay"}
    assert (row["nominal_gpus"], row["limit_gpus"]) == (16.0 if is_all else None, 16.0)
    assert ("team-a/gpus" in states) == is_all
    assert _resources(snapshot)["nvidia.com/gpu"] == (16.0, 8.0)


def test_zero_is_a_limit_and_what_is_unset_is_none() -> None:
    snapshot = mapped(resourcequotas=[quota("none", {GPUS: "0"}), quota("cpu", {"requests.cpu": "8"})])
    assert {row["queue"]: row["limit_gpus"] for row in snapshot.records["quota"].to_pylist()} == {"team-a/none": 0.0}
    assert _resources(snapshot) == {"nvidia.com/gpu": (0.0, None)}


@pytest.mark.parametrize("key", ["nvidia.com/gpu", "limits.nvidia.com/gpu"])
def test_a_limit_under_a_name_that_limits_nothing_is_a_problem(key: str) -> None:
    snapshot = mapped(resourcequotas=[quota("gpus", {key: "16"})])
    assert snapshot.records["quota"].num_rows == 0
    (problem,) = snapshot.records["quality_event"].to_pylist()
    assert (problem["kind"], problem["subject"]) == ("bad_quota", "team-a/gpus")
    assert problem["detail"] == f"{key} limits nothing: of nvidia.com/gpu only {GPUS} counts"


def test_slices_and_claimed_devices_stay_in_their_own_unit() -> None:
    hard = {"requests.nvidia.com/mig-1g.10gb": "7", "gpu.deviceclass.resource.k8s.io/devices": "4"}
    snapshot = mapped(resourcequotas=[quota("parts", hard)])
    assert snapshot.records["quota"].num_rows == 0
    assert _resources(snapshot) == {
        "nvidia.com/mig-1g.10gb": (7.0, None),
        "gpu.deviceclass.resource.k8s.io/devices": (4.0, None),
    }


def test_a_quota_of_a_scope_counts_only_what_is_in_it() -> None:
    scope = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
    given = quota("high", {GPUS: "8"}, {GPUS: "2"}, scopeSelector=scope)
    snapshot = mapped(nodes=[node("n1")], pods=[pod("a", 6, on="n1")], resourcequotas=[given])
    assert by(snapshot, "queue_state", "queue")["team-a/high"]["running_gpus"] == 2.0
    assert "quality_event" not in snapshot.records


def test_a_quota_that_counts_less_than_its_pods_hold_is_told() -> None:
    given = quota("gpus", {GPUS: "8"}, {GPUS: "2"})
    snapshot = mapped(nodes=[node("n1")], pods=[pod("a", 6, on="n1")], resourcequotas=[given])
    assert by(snapshot, "queue_state", "queue")["team-a/gpus"]["running_gpus"] == 6.0
    (problem,) = snapshot.records["quality_event"].to_pylist()
    assert (problem["kind"], problem["count"]) == ("quota_mismatch", 4)


def test_queues_of_a_named_cluster_carry_its_name() -> None:
    snapshot = mapped(cluster="east", resourcequotas=[quota("gpus", {GPUS: "8"})])
    row = by(snapshot, "queue", "queue")["east/team-a/gpus"]
    assert row["scheduler"] == "kubernetes/east"


def test_priority_is_the_pods_own_or_its_classs() -> None:
    classes = [{"metadata": {"name": "high"}, "value": 1000}]
    named = pod("a", spec={"priorityClassName": "high"})
    del named["spec"]["priority"]
    snapshot = mapped(pods=[named, pod("b", priority=7)], priorityclasses_scheduling_k8s_io=classes)
    rows = by(snapshot, "workload", "workload_id")
    assert (rows["team-a/a"]["priority"], rows["team-a/b"]["priority"]) == (1000, 7)


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"urll": "x"}, "urll"),
        ({"url": "http://a", "kubeconfig": "k"}, "exclude each other"),
        ({"token_file": "t"}, "need url"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError, match=place):
        mapped(options={"url": None, **options})


def test_a_quota_of_copies_counts_cards_and_keeps_copies_in_its_own_unit() -> None:
    shared = node("n1", 32, labels={"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "8"})
    given = quota("gpus", {GPUS: "8"}, {GPUS: "4"})
    snapshot = mapped(nodes=[shared], pods=[pod("a", 4, on="n1")], resourcequotas=[given])
    row, state = by(snapshot, "quota", "queue")["team-a/gpus"], by(snapshot, "queue_state", "queue")["team-a/gpus"]
    assert (row["nominal_gpus"], row["limit_gpus"]) == (2.0, 2.0)
    assert (state["nominal_gpus"], state["running_gpus"]) == (2.0, 1.0)
    assert _resources(snapshot) == {"nvidia.com/gpu": (8.0, 4.0)}
    mixed = mapped(nodes=[shared, node("n2")], resourcequotas=[given])
    assert mixed.records["quota"].num_rows == 0  # a card of one node, a quarter of one of the other


def test_parts_of_cards_run_as_parts() -> None:
    part = pod("a", 1, on="n1", requests={"nvidia.com/gpumem-percentage": "25"})
    snapshot = mapped(nodes=[node("n1")], pods=[part], resourcequotas=[quota("gpus", {GPUS: "8"})])
    assert by(snapshot, "queue_state", "queue")["team-a/gpus"]["running_gpus"] == 0.25
