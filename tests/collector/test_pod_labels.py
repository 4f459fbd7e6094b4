"""Which labels of a pod's series are the exporter's own, however Prometheus was told to treat its target's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.exposition import Series
from collector.kube_state_metrics.book import PodBook

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
START = NOW.timestamp() - 3600
TARGET = {
    "node": "infra-7",
    "namespace": "monitoring",
    "pod": "ksm-0",
    "container": "ksm",
    "uid": "ksm-uid",
    "instance": "10.0.0.9:8080",
    "job": "kubernetes-service-endpoints",
    "resource": "target",
    "phase": "target",
}
Sample = tuple[Series, float, datetime]


def scraped(name: str, labels: dict[str, str], *, honor: bool, target: dict[str, str]) -> Series:
    """A series as Prometheus makes it of what the exporter wrote."""
    if honor:
        return Series(name, {**target, **labels})
    own = {f"exported_{key}" if key in target and text else key: text for key, text in labels.items()}
    return Series(name, {**{key: text for key, text in own.items() if text}, **target})


def page(node: str = "gpu-1", phase: str = "Running", *, at: datetime = NOW, **how: Any) -> list[Sample]:
    who = {"namespace": "t", "pod": "p", "uid": "u"}
    wants = {**who, "container": "c", "node": node}
    found: list[tuple[str, dict[str, str], float]] = [
        ("kube_pod_info", {**who, "node": node, "created_by_kind": "Job", "created_by_name": "j"}, 1),
        ("kube_pod_container_resource_requests", {**wants, "resource": "nvidia_com_gpu"}, 2),
        ("kube_pod_container_resource_limits", {**wants, "resource": "nvidia_com_gpu"}, 2),
        ("kube_pod_status_phase", {**who, "phase": phase}, 1),
        ("kube_pod_created", who, START),
        ("kube_pod_owner", {**who, "owner_kind": "Job", "owner_name": "j", "owner_is_controller": "true"}, 1),
        ("kube_pod_owner", {**who, "owner_kind": "App", "owner_name": "a", "owner_is_controller": "false"}, 1),
        ("kube_pod_labels", {**who, "label_app": "x"}, 1),
    ]
    if phase != "Pending":
        found.append(("kube_pod_start_time", who, START))
    return [(scraped(name, labels, **how), value, at) for name, labels, value in found]


@pytest.mark.parametrize("target", [TARGET, {"node": "infra-7"}, {"namespace": "monitoring", "pod": "ksm-0"}, {}])
@pytest.mark.parametrize("honor", [False, True])
@given(data=st.data())
def test_a_pod_is_where_the_exporter_says_and_not_where_the_exporter_is(
    honor: bool, target: dict[str, str], data: st.DataObject
) -> None:
    samples = data.draw(st.permutations(page(honor=honor, target=target)))
    rows = PodBook().feed(samples, is_whole_page=True)
    (pod,), (workload,) = rows["pod"], rows["workload"]
    assert (pod.uid, pod.namespace, pod.pod, pod.node, pod.phase) == ("u", "t", "p", "gpu-1", "Running")
    assert (pod.resource, pod.gpu_count, pod.owner_kind, pod.owner_name) == ("nvidia_com_gpu", 2.0, "Job", "j")
    assert (pod.labels, workload.workload_id) == ('{"app": "x"}', "t/j")


def test_a_pod_without_a_place_is_not_on_the_node_of_the_target() -> None:
    book = PodBook()
    how: dict[str, Any] = {"honor": False, "target": {"node": "infra-7"}}
    (waits,) = book.feed(page("", "Pending", **how), is_whole_page=True)["pod"]
    (runs,) = book.feed(page(at=NOW + timedelta(minutes=1), **how), is_whole_page=True)["pod"]
    assert (waits.node, runs.node) == (None, "gpu-1")


@given(st.permutations(range(9)))
def test_without_uids_a_pod_of_the_same_name_does_not_inherit_the_life_of_the_one_before(order: list[int]) -> None:
    def anonymous(minutes: float, phase: str, created: float, done: float | None = None) -> list[Sample]:
        at = NOW + timedelta(minutes=minutes)
        samples = [s for s in page(phase=phase, at=at, honor=True, target={}) if "time" not in s[0].name]
        samples = [(s, START + created if s.name == "kube_pod_created" else value, at) for s, value, at in samples]
        who = {"namespace": "t", "pod": "p"}
        samples += [] if done is None else [(Series("kube_pod_completion_time", who), START + done, at)]
        return [(Series(s.name, {k: v for k, v in s.labels.items() if k != "uid"}), v, at) for s, v, at in samples]

    book = PodBook()
    book.feed(anonymous(0, "Running", 0), is_whole_page=True)
    book.feed(anonymous(1, "Succeeded", 0, 3660), is_whole_page=True)
    later = anonymous(2, "Running", 3700)
    (pod,) = book.feed([later[i] for i in order if i < len(later)], is_whole_page=True)["pod"]
    assert (pod.uid, pod.phase) == ("default/t/p", "Running")
    assert (pod.started_at, pod.ended_at) == (NOW + timedelta(minutes=2), None)
