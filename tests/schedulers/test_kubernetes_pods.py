"""What one pod asks for, when it ran, and that its rows agree with those that kube-state-metrics' reader makes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from collector.exposition import Series
from collector.kube_state_metrics.book import PodBook
from gpuledger.errors import BadInput
from schedulers.kubernetes.pods import ended_at, owner_of, requests_of
from schedulers.kubernetes.quantities import quantity
from schedulers.kubernetes.times import instant
from tests.schedulers.kubernetes_objects import EIGHT, NINE, NOW, by, mapped, node, pod


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("500m", 0.5),
        ("1k", 1000.0),
        ("4Gi", 4 * 2**30),
        ("1e3", 1000.0),
        ("1E3", 1000.0),
        ("1E", 1e18),
        ("8", 8.0),
        (8, 8.0),
        (0.5, 0.5),
        ("12000m", 12.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("100n", 1e-7),
        ("250u", 0.00025),
        ("1Ki", 1024.0),
        ("0.1", 0.1),
        ("-1", -1.0),
    ],
)
def test_quantities_are_exact(text: Any, amount: float) -> None:
    assert quantity(text) == amount


@pytest.mark.parametrize(
    "text", ["", "many", "1 Gi", "4GB", "0x10", "1e", "NaN", "inf", "1e400", "٣", None, True, [], "1kk"]
)
def test_what_is_no_quantity_is_refused_by_its_field(text: Any) -> None:
    with pytest.raises(BadInput, match="limits"):
        quantity(text, "limits")


def test_instants_are_utc_and_nonsense_is_refused() -> None:
    assert instant("2026-03-02T08:00:00+08:00") == datetime(2026, 3, 2, tzinfo=UTC)
    assert instant("2026-03-02T08:00:00.123456Z") == datetime(2026, 3, 2, 8, 0, 0, 123456, tzinfo=UTC)
    assert instant(None) is None
    with pytest.raises(BadInput, match="startTime"):
        instant("yesterday", "startTime")


def _containers(*counts: int, sidecar: bool = False) -> list[dict[str, Any]]:
    more = {"restartPolicy": "Always"} if sidecar else {}
    return [{"name": f"c{n}", "resources": {"limits": {"nvidia.com/gpu": str(n)}}, **more} for n in counts]


@pytest.mark.parametrize(
    ("init", "main", "overhead", "held"),
    [
        ([], [2, 3], None, 5.0),
        ([8], [2, 3], None, 8.0),
        ([1, 4], [2, 3], None, 5.0),
        ([], [1], "2", 3.0),
    ],
)
def test_a_pod_holds_the_larger_of_its_init_containers_and_the_others(
    init: list[int], main: list[int], overhead: str | None, held: float
) -> None:
    spec: dict[str, Any] = {"initContainers": _containers(*init), "containers": _containers(*main)}
    if overhead:
        spec["overhead"] = {"nvidia.com/gpu": overhead}
    assert requests_of({"spec": spec})["nvidia.com/gpu"] == held


def test_sidecars_run_beside_everything_that_comes_after_them() -> None:
    # sidecar 1, then an init container of 6 beside it: 7; the main containers of 2 beside the sidecar: 3
    spec = {"initContainers": [*_containers(1, sidecar=True), *_containers(6)], "containers": _containers(2)}
    assert requests_of({"spec": spec})["nvidia.com/gpu"] == 7.0
    spec = {"initContainers": [*_containers(6), *_containers(1, sidecar=True)], "containers": _containers(2)}
    assert requests_of({"spec": spec})["nvidia.com/gpu"] == 6.0
    spec = {"initContainers": _containers(1, 2, sidecar=True), "containers": _containers(4)}
    assert requests_of({"spec": spec})["nvidia.com/gpu"] == 7.0


def test_requests_of_the_pod_as_a_whole_replace_those_of_its_containers() -> None:
    spec = {
        "containers": [{"name": "a", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}],
        "resources": {"requests": {"cpu": "4"}},
    }
    assert requests_of({"spec": spec}) == {"cpu": 4.0, "nvidia.com/gpu": 1.0}


def _over(*finished: str | None, phase: str = "Succeeded") -> dict[str, Any]:
    states: list[dict[str, Any]] = [
        {"state": {"terminated": {"finishedAt": at}} if at else {"running": {}}} for at in finished
    ]
    return {"metadata": {}, "status": {"phase": phase, "startTime": EIGHT, "containerStatuses": states}}


def test_a_pod_ends_with_its_last_container_and_not_when_it_is_deleted() -> None:
    over = _over("2026-03-02T09:00:00Z", "2026-03-02T09:30:00Z")
    assert ended_at(over) == datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
    assert ended_at(over, gone_at=NOW) == datetime(2026, 3, 2, 9, 30, tzinfo=UTC)
    assert ended_at(_over("2026-03-02T09:00:00Z", phase="Running")) is None
    # It is gone while one of its containers ran: it ended when that was heard.
    assert ended_at(_over("2026-03-02T09:00:00Z", None, phase="Running"), gone_at=NOW) == NOW


def test_a_pod_that_is_over_without_a_word_ended_when_it_last_changed() -> None:
    silent = {
        "metadata": {"creationTimestamp": EIGHT},
        "status": {"phase": "Failed", "conditions": [{"type": "Ready", "lastTransitionTime": NINE}]},
    }
    assert ended_at(silent) == datetime(2026, 3, 2, 9, tzinfo=UTC)


def test_the_controller_owns_a_pod_whatever_comes_first() -> None:
    owners = [{"kind": "A", "name": "first"}, {"kind": "Job", "name": "train", "controller": True}]
    owner = owner_of({"metadata": {"ownerReferences": owners}})
    assert owner is not None
    assert (owner.kind, owner.name) == ("Job", "train")


HASHED = {"pod-template-hash": "5d9c7b8f6"}
PODS = (
    pod("train-0", 8, on="n1", owner=("Job", "train"), labels={"batch.kubernetes.io/job-name": "train", "team": "nlp"}),
    pod("train-1", 8, on="n2", owner=("Job", "train"), labels={"batch.kubernetes.io/job-name": "train"}),
    pod("web-5d9c7b8f6-x2x2x", 1, on="n3", owner=("ReplicaSet", "web-5d9c7b8f6"), labels=HASHED),
    pod("alone", 2),
    pod("share", 1, on="n3", requests={"nvidia.com/gpumem": "3000", "cpu": "500m", "memory": "2Gi"}),
)  # fmt: skip


def _series(item: dict[str, Any]) -> list[tuple[Series, float]]:
    """What kube-state-metrics shows of a pod, by its documentation."""
    meta, spec, status = item["metadata"], item["spec"], item["status"]
    own = {"namespace": meta["namespace"], "pod": meta["name"], "uid": meta["uid"]}
    at = datetime(2026, 3, 2, 8, tzinfo=UTC).timestamp()
    node_name = spec.get("nodeName", "")
    out = [
        (Series("kube_pod_created", own), at),
        (Series("kube_pod_info", {**own, "node": node_name}), 1.0),
        (Series("kube_pod_status_phase", {**own, "phase": status["phase"]}), 1.0),
    ]
    if "startTime" in status:
        out.append((Series("kube_pod_start_time", own), at + 3600))
    for owner in meta.get("ownerReferences", ()):
        labels = {**own, "owner_kind": owner["kind"], "owner_name": owner["name"], "owner_is_controller": "true"}
        out.append((Series("kube_pod_owner", labels), 1.0))
    spelt = {f"label_{name.translate(str.maketrans('.-/', '___'))}": text for name, text in meta["labels"].items()}
    out.append((Series("kube_pod_labels", {**own, **spelt}), 1.0))
    for name, amount in spec["containers"][0]["resources"]["requests"].items():
        resource = name.translate(str.maketrans(".-/", "___"))
        labels = {**own, "container": "main", "resource": resource, "unit": "integer", "node": node_name}
        out.append((Series("kube_pod_container_resource_requests", labels), quantity(amount)))
    return out


def test_pods_and_workloads_are_those_that_kube_state_metrics_tells_of() -> None:
    book = PodBook()
    samples = [(series, value, NOW) for item in PODS for series, value in _series(item)]
    told = book.feed(samples, is_whole_page=True)
    snapshot = mapped(nodes=[node("n1"), node("n2"), node("n3")], pods=PODS)
    pods = by(snapshot, "pod", "uid")
    assert len(told["pod"]) == len(PODS)
    for row in told["pod"]:
        for column in (
            "namespace", "pod", "node", "workload_id", "gpu_count", "resource", "phase", "owner_kind", "owner_name",
            "created_at", "started_at", "ended_at",
        ):  # fmt: skip
            assert pods[row.uid][column] == getattr(row, column), f"{row.pod}.{column}"
    workloads = by(snapshot, "workload", "workload_id")
    assert set(workloads) == {"team-a/train", "team-a/web", "team-a/alone", "team-a/share"}
    for row in told["workload"]:
        for column in (
            "name", "kind", "stage", "tenant", "user", "queue", "submitted_at", "started_at", "ended_at", "pod_count",
            "num_gpu", "gpu_milli", "cpu_milli", "memory_mib", "is_gang",
        ):  # fmt: skip
            assert workloads[row.workload_id][column] == getattr(row, column), f"{row.workload_id}.{column}"


def test_memory_and_cores_of_shared_cards_are_no_cards_whoever_made_them() -> None:
    ascend = {"huawei.com/Ascend910B2": "1", "huawei.com/Ascend910B2-memory": "16384"}
    dcu = {"hygon.com/dcunum": "2", "hygon.com/dcumem": "4000", "hygon.com/dcucores": "60"}
    snapshot = mapped(
        nodes=[node("n1", 16, resource="huawei.com/Ascend910B2")],
        pods=[pod("a", 0, on="n1", requests=ascend), pod("b", 0, on="n1", requests=dcu)],
    )
    rows = by(snapshot, "pod", "pod")
    assert (rows["a"]["resource"], rows["a"]["gpu_count"]) == ("huawei_com_Ascend910B2_shared", 1.0)
    assert (rows["b"]["resource"], rows["b"]["gpu_count"]) == ("hygon_com_dcunum_shared", 2.0)
    assert {row["resource"] for row in snapshot.records["node_state"].to_pylist()} == {
        "huawei_com_Ascend910B2",
        "hygon_com_dcunum",
    }
    assert {row["num_gpu"] for row in snapshot.records["workload"].to_pylist()} == {1, 2}


def test_a_pod_that_was_over_before_it_was_deleted_ended_then() -> None:
    evicted = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": "2026-03-02T08:30:00Z"}
    rejected = pod("a", 1, on="n1", phase="Failed", status={"startTime": EIGHT, "conditions": [evicted]})
    leaving = {**rejected, "metadata": {**rejected["metadata"], "deletionTimestamp": "2026-03-02T11:00:00Z"}}
    ended = datetime(2026, 3, 2, 8, 30, tzinfo=UTC)
    assert [ended_at(rejected), ended_at(rejected, NOW), ended_at(leaving), ended_at(leaving, NOW)] == [ended] * 4
