"""What becomes of Kueue's queues: limits that are unset, zero and set; borrowed, lent, held and counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.schedulers.kueue_objects import (
    GPU,
    Object,
    admission,
    cluster_queue,
    cohort,
    false,
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

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"


def _public(name: str) -> Any:
    path = PROBLEMS / name
    if not path.exists():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    return json.loads(path.read_text(encoding="utf-8"))


def _quota_columns(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("nominal_gpus", "borrowing_limit_gpus", "lending_limit_gpus", "limit_gpus"))


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_unset_zero_and_set_limits_are_three_things(version: str) -> None:
    things = [
        cluster_queue("a", {"h100": [quota(8)]}, cohort="ai", version=version),
        cluster_queue("b", {"h100": [quota("8", "0")]}, cohort="ai", version=version),
        cluster_queue("c", {"h100": [quota("8", 4, 2)]}, cohort="ai", version=version),
        cluster_queue("alone", {"h100": [quota("8000m")]}, version=version),
    ]
    snapshot = read(moment(*things, version=version))
    quotas = {row["queue"]: row for row in rows(snapshot, "quota", flavor="h100")}
    assert _quota_columns(quotas["a"]) == (8, None, None, 18)  # its own 8, all 8 of b, and the 2 that c lends
    assert _quota_columns(quotas["b"]) == (8, 0, None, 8)
    assert _quota_columns(quotas["c"]) == (8, 4, 2, 12)
    assert _quota_columns(quotas["alone"]) == (8, None, None, 8)
    assert {row["not_reported"] for row in quotas.values()} == {""}
    assert quotas["c"]["guarantee_gpus"] == 6
    assert only(snapshot, "queue", queue="a")["cohort"] == "ai"
    assert only(snapshot, "queue", queue="a")["parent"] == "cohort:ai"
    assert only(snapshot, "queue", queue="cohort:ai")["parent"] is None


def test_070_the_public_unset_borrowing_limit_is_no_number() -> None:
    told = _public("070-kueue-unset-borrowing.json")
    things = [
        cluster_queue(
            one["name"],
            {"h100": [quota(one["nominal"], one["borrowingLimit"], one["lendingLimit"])]},
            cohort=told["cohort"],
            reserved=usage({"h100": {GPU: (told["usage"][one["name"]], 0)}}),
        )
        for one in told["clusterqueues"]
    ]
    snapshot = read(moment(*things))
    quotas = {row["queue"]: row for row in rows(snapshot, "quota")}
    assert {name: row["limit_gpus"] for name, row in quotas.items()} == {"a": 24, "b": 8, "c": 12}
    assert {name: row["borrowing_limit_gpus"] for name, row in quotas.items()} == {"a": None, "b": 0, "c": 4}
    assert [row["borrowed"] for row in rows(snapshot, "queue_resource")] == [0, 0, 0]


def test_071_the_public_lending_limit_caps_what_others_reach() -> None:
    told = _public("071-kueue-lending.json")
    things = [
        cluster_queue(one["name"], {"h100": [quota(one["nominal"], None, one["lendingLimit"])]}, cohort=told["cohort"])
        for one in told["clusterqueues"]
    ]
    quotas = {row["queue"]: row for row in rows(read(moment(*things)), "quota")}
    assert _quota_columns(quotas["team-a"]) == (9, None, None, 10)
    assert _quota_columns(quotas["team-b"]) == (12, None, 1, 21)
    assert quotas["team-b"]["guarantee_gpus"] == 11


def _lowered(name: str, nominal: int, held: int, borrowed: int) -> Any:
    book = usage({"h100": {GPU: (held, borrowed)}})
    return read(moment(cluster_queue(name, {"h100": [quota(nominal)]}, reserved=book, used=book)))


def _assert_over(snapshot: Any, held: int, over: int) -> None:
    told = only(snapshot, "queue_resource", queue="solo")
    assert (told["used"], told["reserved"], told["borrowed"], told["lent"]) == (held, held, 0, 0)
    state = only(snapshot, "queue_state", queue="solo")
    assert (state["borrowed_gpus"], state["lent_gpus"]) == (0, 0)
    problem = only(snapshot, "quality_event", kind="limit_not_enforced")
    assert (problem["subject_kind"], problem["subject"], problem["count"]) == ("queue", "solo", held)
    assert problem["detail"] == f"{GPU} of h100: holds {held}, {over} beyond all quotas"


def test_a_quota_lowered_under_running_work_is_over_quota_and_not_borrowed() -> None:
    _assert_over(_lowered("solo", 2, 7, 5), held=7, over=5)


def test_072_the_public_lowered_quota() -> None:
    told = _public("072-kueue-over-not-borrowed.json")
    assert told["cohort"] is None
    snapshot = _lowered(told["name"], told["nominal"], told["usage"], told["reported_borrowed"])
    _assert_over(snapshot, held=3, over=2)


def _stale(count: int, per_pod: int, reclaimed: int, running: int, nominal: int) -> Any:
    name = "js-1"
    job = workload(
        name,
        true("QuotaReserved", "QuotaReserved"),
        true("Admitted", "Admitted"),
        pod_sets=[pod_set(count, {GPU: per_pod})],
        admission=admission("gpus", {GPU: str(count * per_pod)}, count=count),
        reclaimablePods=[{"name": "main", "count": reclaimed}],
    )
    book = usage({"h100": {GPU: ((count - reclaimed) * per_pod, 0)}})
    things: list[Object] = [
        node("n1"),
        cluster_queue("gpus", {"h100": [quota(nominal)]}, cohort="ai", reserved=book, used=book),
        cluster_queue("idle", {"h100": [quota(16)]}, cohort="ai", reserved=usage({"h100": {GPU: (0, 0)}})),
        local_queue("team-a", "gpus", "gpus"),
        job,
        *(pod(f"{name}-{number}", owner("Job", name), per_pod) for number in range(running)),
    ]
    return read(moment(*things))


def _assert_mismatch(snapshot: Any, *, ledger: int, real: int, free: int) -> None:
    state = only(snapshot, "queue_state", queue="gpus")
    assert (state["running_gpus"], state["reserved_gpus"], state["pending_gpus"]) == (real, 0, 0)
    assert only(snapshot, "queue_resource", queue="gpus")["reserved"] == ledger
    problem = only(snapshot, "quality_event", kind="quota_mismatch")
    assert (problem["subject"], problem["count"]) == ("gpus", real - ledger)
    assert problem["detail"] == f"Kueue counts {ledger}, pods hold {real}: team-a/js-1"
    assert only(snapshot, "node_state", node="n1")["free"] == free


def test_pods_that_hold_more_than_kueue_counts_count() -> None:
    snapshot = _stale(count=4, per_pod=4, reclaimed=3, running=4, nominal=8)
    _assert_mismatch(snapshot, ledger=4, real=16, free=16)
    # 8 of the 16 are beyond its own quota, and its neighbour's: Kueue's own book says that nobody borrows.
    assert only(snapshot, "queue_state", queue="gpus")["borrowed_gpus"] == 8
    assert only(snapshot, "queue_state", queue="idle")["lent_gpus"] == 8


def test_075_the_public_stale_ledger() -> None:
    told = _public("075-kueue-reclaimable-stale.json")
    job = told["workload"]
    running = sum(one["phase"] == "Running" for one in told["pods"])
    snapshot = _stale(job["count"], job["gpus_per_pod"], job["reclaimablePods"], running, nominal=24)
    _assert_mismatch(snapshot, ledger=8, real=24, free=8)
    assert only(snapshot, "quality_event", kind="quota_mismatch")["count"] == 16


def test_what_is_reserved_and_not_held_yet_is_told_apart() -> None:
    started = workload(
        "half",
        true("QuotaReserved", "QuotaReserved"),
        true("Admitted", "Admitted"),
        pod_sets=[pod_set(2, {GPU: 8})],
        admission=admission("gpus", {GPU: 16}, count=2),
    )
    snapshot = read(
        moment(
            node("n1"),
            cluster_queue("gpus", {"h100": [quota(32)]}, reserved=usage({"h100": {GPU: (16, 0)}})),
            local_queue("team-a", "gpus", "gpus"),
            started,
            workload("next", false("QuotaReserved", "WaitingForQuota"), gpus=24),
            pod("half-0", owner("Job", "half")),
        )
    )
    state = only(snapshot, "queue_state", queue="gpus")
    assert (state["running_gpus"], state["reserved_gpus"], state["pending_gpus"]) == (8, 8, 24)
    assert rows(snapshot, "quality_event", kind="quota_mismatch") == []
    assert only(snapshot, "queue_resource", queue="gpus")["pending"] == 24


def test_a_tree_of_cohorts_with_a_pool_of_its_own() -> None:
    snapshot = read(
        moment(
            cluster_queue("a1", {"h100": [quota(4)]}, cohort="a", reserved=usage({"h100": {GPU: (10, 6)}})),
            cluster_queue("a2", {"h100": [quota(4)]}, cohort="a", reserved=usage({"h100": {GPU: (1, 0)}})),
            cohort("a", "org", {"h100": [quota(2, 8)]}),
            cohort("org", None, {"h100": [quota(5)]}),
        )
    )
    quotas = {row["queue"]: _quota_columns(row) for row in rows(snapshot, "quota")}
    assert quotas == {
        "a1": (4, None, None, 15),
        "a2": (4, None, None, 15),
        "cohort:a": (2, 8, None, 15),
        "cohort:org": (5, None, None, 15),
    }
    lent = {row["queue"]: row["lent"] for row in rows(snapshot, "queue_resource")}
    assert lent == {"a1": 0, "a2": 3, "cohort:a": 2, "cohort:org": 1}  # the nearest pool, neighbours, then above
    assert only(snapshot, "queue", queue="cohort:a")["parent"] == "cohort:org"


def test_a_cycle_of_cohorts_is_a_problem_and_lends_nothing() -> None:
    snapshot = read(
        moment(
            cluster_queue("q", {"h100": [quota(4)]}, cohort="x"),
            cluster_queue("p", {"h100": [quota(4)]}, cohort="y"),
            cohort("x", "y"),
            cohort("y", "x"),
        )
    )
    assert {row["limit_gpus"] for row in rows(snapshot, "quota")} == {4}
    assert {row["status"] for row in rows(snapshot, "queue")} == {"closed"}
    assert sorted(row["subject"] for row in rows(snapshot, "quality_event", kind="bad_quota")) == [
        "cohort:x",
        "cohort:y",
    ]


def test_resources_of_all_kinds_keep_their_own_units_and_quotas_count_cards() -> None:
    mig = "nvidia.com/mig-3g.40gb"
    snapshot = read(
        moment(
            flavor("h100", "NVIDIA-H100-80GB-HBM3"),
            flavor("unknown"),
            cluster_queue(
                "mixed",
                {
                    "h100": [quota(8), quota("96", name="cpu"), quota(14, name=mig), quota("1Ti", name="memory")],
                    "unknown": [quota(2), quota(1, name="cpu"), quota(7, name=mig), quota(1, name="memory")],
                },
                reserved=usage({"h100": {"cpu": ("1500m", 0), mig: (7, 0)}}),
                used=usage({"h100": {"cpu": ("500m", 0)}}),
            ),
        )
    )
    quotas = {row["flavor"]: row["nominal_gpus"] for row in rows(snapshot, "quota")}
    assert quotas == {"h100": 14, "unknown": 2}  # 14 slices of 3/7; slices of what nobody knows are left out
    cpu = only(snapshot, "queue_resource", flavor="h100", resource="cpu")
    assert (cpu["nominal"], cpu["reserved"], cpu["used"]) == (96, 1.5, 0.5)
    assert only(snapshot, "queue_resource", flavor="h100", resource=mig)["reserved"] == 7
    gpu = only(snapshot, "queue_resource", flavor="h100", resource=GPU)
    assert (gpu["reserved"], gpu["used"]) == (None, None)  # Kueue tells nothing of it, which is not zero


def _local_usage(total: int) -> Object:
    return {"name": "h100", "resources": [{"name": GPU, "total": str(total)}]}


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_local_queues_are_doors_of_tenants(version: str) -> None:
    snapshot = read(
        moment(
            cluster_queue("shared", {"h100": [quota(8)]}, version=version, fairSharing={"weight": "2500m"}),
            cluster_queue("own", {"h100": [quota(8)]}, version=version, stopPolicy="HoldAndDrain"),
            cluster_queue("broken", {"h100": [quota(8)]}, version=version, is_active=False),
            local_queue("nlp", "gpus", "shared", version=version, used=[_local_usage(4)]),
            local_queue("vision", "gpus", "shared", version=version),
            local_queue("nlp", "own", "own", version=version, stop="Hold"),
            version=version,
        ),
        rules={"tenant": [{"namespace": "nlp", "value": "language"}]},
    )
    queues = {row["queue"]: (row["tenant"], row["parent"], row["status"]) for row in rows(snapshot, "queue")}
    assert queues == {
        "shared": ("shared", None, "open"),
        "own": ("language", None, "draining"),
        "broken": ("broken", None, "closed"),
        "local:nlp/gpus": ("language", "shared", "open"),
        "local:vision/gpus": ("vision", "shared", "open"),
        "local:nlp/own": ("language", "own", "held"),
    }
    assert only(snapshot, "quota", queue="shared")["weight"] == 2.5
    door = only(snapshot, "queue_resource", queue="local:nlp/gpus")
    assert (door["nominal"], door["limit"], door["used"], door["reserved"]) == (None, None, 4, 4)
