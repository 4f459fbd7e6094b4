"""What the book of pods makes of series, in pages and in fragments."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.exposition import Series
from collector.kube_state_metrics.book import REFRESH, PodBook
from gpuledger.attribution import Rules
from gpuledger.attribution.resources import is_gpu

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
Sample = tuple[Series, float, datetime]


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


def series(name: str, pod: str, **labels: str) -> Series:
    return Series(name, {"namespace": "t", "pod": pod, "uid": f"uid-{pod}", **labels})


def page(
    minutes: float, pod: str = "p", *, phase: str = "Running", gpus: float = 1, extra: Mapping[str, float] | None = None
) -> list[Sample]:
    """What a page says of one pod that asks for GPUs; `extra`: further metrics without labels."""
    found = [
        (series("kube_pod_info", pod, node="n1"), 1.0),
        *((series("kube_pod_status_phase", pod, phase=p), float(p == phase)) for p in ("Pending", "Running", phase)),
        (series("kube_pod_container_resource_requests", pod, container="c", resource="nvidia_com_gpu"), gpus),
        *((series(name, pod), value) for name, value in (extra or {}).items()),
    ]
    return [(one, value, at(minutes)) for one, value in found]


def feed(book: PodBook, samples: list[Sample], *, whole: bool = True) -> dict[str, list[Any]]:
    return dict(book.feed(samples, is_whole_page=whole))


def asked(*requests: tuple[str, str, str, float]) -> tuple[str | None, float | None]:
    """(metric's ending, container, resource, value) to the resource and count of the pod's row."""
    samples = [
        (series(f"kube_pod_{kind}", "p", container=container, resource=resource), value, NOW)
        for kind, container, resource, value in requests
    ]
    rows = feed(PodBook(), samples).get("pod", [])
    return (rows[0].resource, rows[0].gpu_count) if rows else (None, None)


REQUEST, LIMIT = "container_resource_requests", "container_resource_limits"
INIT = "init_container_resource_requests"
GPU = "nvidia_com_gpu"


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ([(REQUEST, "a", GPU, 2), (REQUEST, "b", GPU, 3)], (GPU, 5.0)),
        ([(REQUEST, "a", GPU, 2), (LIMIT, "a", GPU, 2)], (GPU, 2.0)),
        ([(LIMIT, "a", GPU, 4)], (GPU, 4.0)),
        ([(REQUEST, "a", GPU, 1), (INIT, "x", GPU, 3), (INIT, "y", GPU, 2)], (GPU, 3.0)),
        ([(REQUEST, "a", GPU, 4), (INIT, "x", GPU, 3)], (GPU, 4.0)),
        ([(INIT, "x", GPU, 1)], (GPU, 1.0)),
        ([(REQUEST, "a", "nvidia_com_mig_1g_10gb", 2)], ("nvidia_com_mig_1g_10gb", 2.0)),
        ([(REQUEST, "a", "nvidia_com_gpu_shared", 1)], ("nvidia_com_gpu_shared", 1.0)),
        ([(REQUEST, "a", GPU, 1), (REQUEST, "a", "nvidia_com_gpumem", 4000)], ("nvidia_com_gpu_shared", 1.0)),
        ([(REQUEST, "a", GPU, 2), (REQUEST, "a", "amd_com_gpumem", 4000)], (GPU, 2.0)),
        ([(REQUEST, "a", "huawei_com_Ascend910", 8)], ("huawei_com_Ascend910", 8.0)),
        ([(REQUEST, "a", "amd_com_gpu", 4)], ("amd_com_gpu", 4.0)),
        (
            [(REQUEST, "a", "huawei_com_Ascend910B2", 1), (REQUEST, "a", "huawei_com_Ascend910B2_memory", 16384)],
            ("huawei_com_Ascend910B2_shared", 1.0),
        ),
        (
            [(REQUEST, "a", "hygon_com_dcunum", 2), (REQUEST, "a", "hygon_com_dcumem", 4000)],
            ("hygon_com_dcunum_shared", 2.0),
        ),
        ([(REQUEST, "a", "cpu", 4), (REQUEST, "a", "memory", 1e9)], (None, None)),
        ([(REQUEST, "a", GPU, 0)], (None, None)),
    ],
)
def test_what_a_pod_asks_for(requests: list[Any], expected: tuple[str | None, float | None]) -> None:
    assert asked(*requests) == expected


@pytest.mark.parametrize(
    "resource",
    [
        "cpu",
        "memory",
        "ephemeral_storage",
        "nvidia_com_gpumem",
        "pods",
        "example_gpus",
        "huawei_com_Ascend310P_core",
        "cambricon_com_mlu_smlu_vmemory",
        "amd_com_gpucores",
        "iluvatar_ai_BI_V150_vMem",
        "mthreads_com_sgpu_memory",
        "gpu_intel_com_i915_monitoring",
    ],
)
def test_other_resources_are_no_gpus(resource: str) -> None:
    assert not is_gpu(resource)


def test_start_time_beats_the_first_running_time() -> None:
    (first,) = feed(PodBook(), page(0))["pod"]
    assert (first.started_at, first.ended_at, first.seen_at) == (NOW, None, NOW)
    begin = at(-10).timestamp()
    (second,) = feed(PodBook(), page(0, extra={"kube_pod_start_time": begin}))["pod"]
    assert second.started_at == at(-10)


def test_a_completed_pod_ended_when_its_containers_did() -> None:
    done = page(60, phase="Succeeded", extra={"kube_pod_completion_time": at(30).timestamp()})
    (row,) = feed(PodBook(), done)["pod"]
    assert (row.phase, row.ended_at) == ("Succeeded", at(30))


def test_without_a_completion_time_it_ended_when_it_was_first_seen_over() -> None:
    book = PodBook()
    feed(book, page(0))
    (row,) = feed(book, page(1, phase="Failed"))["pod"]
    assert (row.started_at, row.ended_at) == (NOW, at(1))
    assert feed(book, page(2, phase="Failed")) == {}


def test_a_pod_that_two_pages_lack_ended_at_its_last_sighting() -> None:
    book = PodBook()
    feed(book, page(0) + page(0, "q"))
    assert feed(book, page(1, "q")) == {}
    found = feed(book, page(2, "q"))
    assert [(row.pod, row.ended_at) for row in found["pod"]] == [("p", NOW)]
    assert [(row.workload_id, row.ended_at) for row in found["workload"]] == [("t/p", NOW)]


def test_a_pod_that_one_page_lacks_has_not_ended() -> None:
    book = PodBook()
    feed(book, page(0) + page(0, "q"))
    feed(book, page(1, "q"))
    assert feed(book, page(2) + page(2, "q")) == {}
    assert feed(book, page(3, "q")) == {}


def test_fragments_end_a_pod_only_after_a_while() -> None:
    book = PodBook()
    feed(book, page(0) + page(0, "q"), whole=False)
    assert "p" not in [row.pod for row in feed(book, page(5, "q"), whole=False).get("pod", [])]
    found = feed(book, page(5.5, "q"), whole=False)
    assert [(row.pod, row.ended_at) for row in found["pod"]] == [("p", NOW)]


def test_a_listed_pod_is_sent_again_so_that_it_is_known_to_be_listed() -> None:
    book = PodBook()
    feed(book, page(0))
    assert feed(book, page(4)) == {}
    (row,) = feed(book, [(one, value, NOW + REFRESH) for one, value, _ in page(0)])["pod"]
    assert row.seen_at == NOW + REFRESH


def test_pods_that_ask_for_no_gpu_are_no_rows() -> None:
    assert feed(PodBook(), page(0, gpus=0)) == {}


def test_a_resource_claim_is_a_pod_of_which_the_count_is_not_known() -> None:
    samples = [*page(0, gpus=0), (series("kube_pod_resourceclaim_info", "p"), 1.0, NOW)]
    (row,) = feed(PodBook(), samples)["pod"]
    assert (row.resource, row.gpu_count) == ("resourceclaim", None)


def test_what_a_scraper_renamed_is_read_by_its_true_name() -> None:
    labels = {"namespace": "monitoring", "pod": "ksm-0", "exported_namespace": "t", "exported_pod": "p", "uid": "u"}
    sample = Series(
        "kube_pod_container_resource_requests",
        {**labels, "container": "ksm", "exported_container": "c", "resource": "nvidia_com_gpu", "node": "n1"},
    )
    (row,) = feed(PodBook(), [(sample, 1.0, NOW)])["pod"]
    assert (row.namespace, row.pod) == ("t", "p")


def test_stale_markers_and_samples_of_other_metrics_say_nothing() -> None:
    assert feed(PodBook(), [(series("kube_pod_info", "p"), float("nan"), NOW), (Series("up", {}), 1.0, NOW)]) == {}


def test_shards_and_replicas_change_nothing() -> None:
    once, twice = PodBook(), PodBook()
    assert feed(once, page(0)) == feed(twice, page(0) + page(0))
    assert feed(twice, page(0.1)) == {}


def test_labels_that_come_late_move_a_pod_and_leave_nothing_waiting() -> None:
    book = PodBook()
    requests = [sample for sample in page(0) if sample[0].name.endswith("requests")]
    (early,) = feed(book, requests, whole=False)["workload"]
    assert (early.workload_id, early.started_at, early.ended_at) == ("t/p", None, None)
    owner = series("kube_pod_owner", "p", owner_kind="Job", owner_name="train", owner_is_controller="true")
    found = feed(book, [(owner, 1.0, NOW)], whole=False)
    assert [row.workload_id for row in found["pod"]] == ["t/train"]
    assert {row.workload_id: row.ended_at for row in found["workload"]} == {"t/p": NOW, "t/train": None}


def test_pods_of_a_gang_are_one_workload() -> None:
    name = "label_training_kubeflow_org_job_name"
    samples: list[Sample] = []
    for pod, begin in (("w-0", 0), ("w-1", 2)):
        samples += page(5, pod, gpus=8, extra={"kube_pod_start_time": at(begin).timestamp()})
        samples.append((series("kube_pod_labels", pod, **{name: "llm"}), 1.0, at(5)))
    (row,) = feed(PodBook(), samples)["workload"]
    assert (row.workload_id, row.pod_count, row.num_gpu, row.is_gang) == ("t/llm", 2, 8, True)
    assert (row.kind, row.started_at, row.ended_at) == ("training", NOW, None)


def node(
    name: str, minutes: float, capacity: Mapping[str, float], labels: Mapping[str, str] | None = None
) -> list[Sample]:
    found = [
        (Series("kube_node_status_capacity", {"node": name, "resource": r}), v, at(minutes))
        for r, v in capacity.items()
    ]
    found += [(Series("kube_node_status_allocatable", s.labels), v, t) for s, v, t in found]
    return found + ([(Series("kube_node_labels", {"node": name, **labels}), 1.0, at(minutes))] if labels else [])


def test_a_node_that_changes_is_dated() -> None:
    book = PodBook(Rules(), "east")
    (first,) = feed(book, node("n", 0, {"nvidia_com_gpu": 8}))["node"]
    assert (first.node, first.cluster, first.gpu_count, first.from_at, first.until_at) == ("n", "east", 8, NOW, None)
    assert feed(book, node("n", 1, {"nvidia_com_gpu": 8})) == {}
    ended, new = feed(book, node("n", 2, {"nvidia_com_gpu": 7}))["scheduler_node"]
    assert (ended.gpu_count, ended.from_at, ended.until_at) == (8, NOW, at(2))
    assert (new.gpu_count, new.from_at, new.until_at) == (7, at(2), None)


def test_a_node_that_left_offers_nothing() -> None:
    book = PodBook()
    feed(book, node("n", 0, {"nvidia_com_gpu": 8}) + node("m", 0, {"nvidia_com_gpu": 8}))
    found = feed(book, node("m", 1, {"nvidia_com_gpu": 8}))
    assert [(row.node, row.until_at) for row in found["scheduler_node"]] == [("n", at(1))]
    assert [(row.node, row.until_at) for row in found["node"]] == [("n", at(1))]


def test_fragments_end_a_node_only_after_a_while() -> None:
    book = PodBook()
    feed(book, node("n", 0, {"nvidia_com_gpu": 8}) + node("m", 0, {"nvidia_com_gpu": 8}), whole=False)
    assert feed(book, node("m", 5, {"nvidia_com_gpu": 8}), whole=False) == {}
    assert feed(book, page(5.5), whole=False).keys() == {"pod", "workload"}
    found = feed(book, node("m", 6, {"nvidia_com_gpu": 8}), whole=False)
    assert [(row.node, row.from_at, row.until_at) for row in found["scheduler_node"]] == [("n", NOW, at(1))]


@pytest.mark.parametrize(
    ("capacity", "labels", "cards"),
    [
        ({"nvidia_com_gpu": 8}, {}, 8),
        ({"nvidia_com_gpu": 0}, {}, 0),
        ({"amd_com_gpu": 4}, {}, 4),
        ({"cpu": 4}, {}, None),
        ({"nvidia_com_gpu": 0, "nvidia_com_mig_1g_10gb": 7}, {}, None),
        ({"nvidia_com_gpu": 0, "nvidia_com_mig_1g_10gb": 7}, {"label_nvidia_com_gpu_count": "1"}, 1),
        ({"nvidia_com_gpu": 32}, {"label_nvidia_com_gpu_replicas": "4"}, 8),
        ({"nvidia_com_gpu_shared": 32}, {}, None),
    ],
)
def test_cards_are_counted_only_where_they_can_be(
    capacity: Mapping[str, float], labels: Mapping[str, str], cards: int | None
) -> None:
    rows = feed(PodBook(), node("n", 0, capacity, labels)).get("node", [])
    assert [row.gpu_count for row in rows] == ([] if cards is None else [cards])


def test_a_node_is_named_by_its_product() -> None:
    labels = {"label_nvidia_com_gpu_product": "NVIDIA-H100-80GB-HBM3"}
    (row,) = feed(PodBook(), node("n", 0, {"nvidia_com_gpu": 8}, labels))["node"]
    assert row.model == "NVIDIA-H100-80GB-HBM3"


@given(cut=st.integers(0, 6), order=st.sampled_from(list(permutations(range(3)))))
def test_the_order_of_fragments_does_not_matter(cut: int, order: tuple[int, ...]) -> None:
    """What is known of a pod in the end is the same, however its series were spread over requests."""
    samples = page(0, extra={"kube_pod_start_time": at(-1).timestamp(), "kube_pod_created": at(-2).timestamp()})
    parts = [samples[:cut], samples[cut : cut + 1], samples[cut + 1 :]]
    book = PodBook()
    last: dict[str, Any] = {}
    for number in order:
        last |= {row.uid: row for row in feed(book, parts[number], whole=False).get("pod", [])}
    whole = feed(PodBook(), samples)["pod"]
    assert list(last.values()) == whole
