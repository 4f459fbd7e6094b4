"""Ray clusters behind a fake API server: a job runs, one is suspended, a cluster has pods that lack GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schedulers.fakes.apiserver.resources import Resource
from schedulers.ray.kuberay import KubeRay
from tests.schedulers.kuberay_objects import labels_of, ray_cluster, ray_job, workers
from tests.schedulers.kubernetes_objects import Object, node, pod
from tests.schedulers.reading import World
from tests.schedulers.worlds.koordinator import NO_QUOTAS, Harm, harmed, rules_of, store_of

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
        store=store_of(resources, objects()),
        rules=rules_of(KubeRay),
        hidden=("rayjobs",),
        torn="rayjobs",
        moved=pod("web", 0),
    )
    prefix = "" if cluster == "default" else f"{cluster}/"

    def spoil() -> str:
        harm.store.put(ray_job("later", "Suspended", workers("two", 4), suspend=True))
        return "later"

    told = {
        "cluster": cluster,
        "waiting": {f"{prefix}team-a/later": "Suspended", f"{prefix}team-a/notebook": NO_GPUS},
        "unlimited": NO_QUOTAS,
    }
    with harmed(folder, KubeRay, harm, spoil, told) as made:
        yield made
