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
