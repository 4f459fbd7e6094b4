"""Three nodes of 8 GPUs, one of them not ready, behind a fake API server; one pod that no node has room for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Store
from schedulers.kubernetes.family import Kubernetes
from tests.schedulers.kubernetes_objects import NOW, node, pod, quota
from tests.schedulers.reading import Cannot, World
from tests.schedulers.worlds.family import Harm, family_world

WORDS = (
    "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, "
    "2 Insufficient nvidia.com/gpu."
)
LATE = pod("late", 8, message=WORDS)


def store() -> Store:
    """The cluster's objects."""
    made = Store(clock=FakeClock(NOW))
    for name in ("team-a", "team-b"):
        made.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    made.put(node("n1"))
    made.put(node("n2"))
    made.put(node("n3", ready="Unknown"))
    made.put(pod("train-0", 8, on="n1", labels={"batch.kubernetes.io/job-name": "train"}))
    made.put(pod("serve-0", 2, on="n2", namespace="team-b", owner=("StatefulSet", "serve")))
    made.put(LATE)
    made.put(quota("gpus", {"requests.nvidia.com/gpu": "16"}, {"requests.nvidia.com/gpu": "16"}))
    return made


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    broken = pod("late", 8, message=WORDS)
    broken["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "many"
    harm = Harm(store(), hidden=["nodes"], broken=("team-a/late", broken), late=pod("web", 0), torn="nodes")
    waiting = {"team-a/late": "2 Insufficient nvidia.com/gpu"}
    unlimited = Cannot("a ResourceQuota limits what it names and says nothing of the rest")
    with family_world(Kubernetes, (folder, cluster, FakeClock(NOW)), harm, waiting, unlimited) as made:
        yield made
