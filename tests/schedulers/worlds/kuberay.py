"""Ray clusters behind a fake API server: a job runs, one is suspended, a cluster has pods that lack GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver.resources import Resource
from schedulers.ray.kuberay import KubeRay
from tests.schedulers.kuberay_objects import labels_of, ray_cluster, ray_job, workers
from tests.schedulers.kubernetes_objects import NOW, Object, node, pod
from tests.schedulers.reading import Cannot, World
from tests.schedulers.worlds.family import Harm, family_world
from tests.schedulers.worlds.koordinator import store_of

KINDS = (("RayCluster", "rayclusters"), ("RayJob", "rayjobs"), ("RayService", "rayservices"))
NO_GPUS = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def objects() -> list[Object]:
    return [
        node("n1", 8),
        ray_job("train", "Running", workers(2, 4)),
        *(pod(f"train-{index}", 4, on="n1", labels=labels_of("RayJob", "train")) for index in range(2)),
        ray_job("later", "Suspended", workers(2, 4), suspend=True),
        ray_cluster("notebook", "", workers(1, 2)),
        pod("notebook-0", 2, labels=labels_of("RayCluster", "notebook"), message=NO_GPUS),
    ]


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    resources = [Resource(group="ray.io", plural=plural, kind=kind, versions=("v1",)) for kind, plural in KINDS]
    harm = Harm(
        store_of(resources, objects()),
        hidden=("rayjobs",),
        broken=("later", ray_job("later", "Suspended", workers("two", 4), suspend=True)),
        late=pod("web", 0),
        torn="rayjobs",
    )
    waiting = {"team-a/later": "Suspended", "team-a/notebook": NO_GPUS}
    unlimited = Cannot("it has no queues of its own")
    with family_world(KubeRay, (folder, cluster, FakeClock(NOW)), harm, waiting, unlimited) as made:
        yield made
