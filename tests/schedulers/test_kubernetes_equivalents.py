"""What a pod's GPUs are in whole cards, on nodes that share theirs by time-slicing."""

from __future__ import annotations

import pytest

from gpuledger.attribution import Rules
from schedulers.kubernetes.equivalents import of_pod
from schedulers.kubernetes.facts import CoreFacts
from schedulers.rows import SnapshotRows
from tests.schedulers.kubernetes_objects import NOW, Object, node, pod

COPIES = {"nvidia.com/gpu.replicas": "4"}
SHARED = "nvidia.com/gpu.shared"


def _renamed(cards: int) -> Object:
    """A node whose copies have a name of their own; `cards` of its cards are not shared."""
    found = node("n1", 8, resource=SHARED, labels=COPIES)
    found["status"]["capacity"]["nvidia.com/gpu"] = str(cards)
    return found


@pytest.mark.parametrize(
    ("host", "asked", "gpus"),
    [
        (node("n1", 32, labels=COPIES), pod("a", 5, on="n1"), 1.25),
        (_renamed(6), pod("a", 5, on="n1"), 5.0),
        (_renamed(6), pod("a", 0, requests={SHARED: "5"}, on="n1"), 1.25),
        (_renamed(0), pod("a", 0, requests={SHARED: "5"}, on="n1"), 1.25),
        (node("n1", 8), pod("a", 5, on="n1"), 5.0),
    ],
)
def test_a_copy_is_a_part_of_a_card_and_a_card_beside_copies_is_whole(host: Object, asked: Object, gpus: float) -> None:
    core = CoreFacts(rows=SnapshotRows("kubernetes", "default", NOW), rules=Rules(), nodes={"n1": host})
    assert of_pod(core, asked) == gpus


CUT = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", "nvidia.com/gpu.count": "56"}
SLICE = "nvidia.com/mig-1g.10gb"


@pytest.mark.parametrize(
    ("host", "resource", "gpus"),
    [
        (node("n1", 56, labels=CUT), "nvidia.com/gpu", 1.0),
        (
            node("n1", 56, labels={**CUT, "nvidia.com/gpu.product": f"{CUT['nvidia.com/gpu.product']}-SHARED"}),
            SHARED,
            1.0,
        ),
        (node("n1", 7, resource=SLICE), SLICE, 1.0),
        (node("n1", 14, resource=f"{SLICE}.shared", labels={f"{SLICE}.replicas": "2"}), f"{SLICE}.shared", 0.5),
        (node("n1", 8, resource="mthreads.com/vgpu"), "mthreads.com/vgpu", None),
        (node("n1", 8, resource="volcano.sh/vgpu-number"), "volcano.sh/vgpu-number", None),
        (node("n1", 8, resource="example.com/fast"), "example.com/fast", 7.0),
    ],
)
def test_seven_of_a_resource_in_cards(host: Object, resource: str, gpus: float | None) -> None:
    held = pod("a", 0, requests={resource: "7"}, on="n1")
    core = CoreFacts(
        rows=SnapshotRows("kubernetes", "default", NOW),
        rules=Rules(),
        nodes={"n1": host},
        model_of_node={"n1": "A100"},
        gpu_resources=frozenset({"example.com/fast"}),
    )
    assert of_pod(core, held) == gpus
