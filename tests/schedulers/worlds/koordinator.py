"""Elastic quotas behind a fake API server: a pod holds cards, one half a card, one waits as its quota is used up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Store
from schedulers.fakes.apiserver.resources import Resource
from schedulers.koordinator import Koordinator
from tests.schedulers.koordinator_objects import device, given, network, of_quota, part_pod, quota, reservation
from tests.schedulers.kubernetes_objects import NOW, Object, node, pod
from tests.schedulers.reading import World
from tests.schedulers.worlds.family import Harm, family_world

NO_QUOTA = "quota not enough, Insufficient quotas, quotaName: team-a, exceedDimensions: [nvidia.com/gpu]"
NAMES = {
    "scheduling.sigs.k8s.io": (("ElasticQuota", "elasticquotas", True), ("PodGroup", "podgroups", True)),
    "scheduling.koordinator.sh": (
        ("Device", "devices", False),
        ("Reservation", "reservations", False),
        ("PodMigrationJob", "podmigrationjobs", False),
        ("ClusterNetworkTopology", "clusternetworktopologies", False),
    ),
}


def store_of(resources: Sequence[Resource], objects: Sequence[Object]) -> Store:
    made = Store(clock=FakeClock(NOW))
    for resource in resources:
        made.serve(resource)
    for name in ("team-a", "koordinator-system"):
        made.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for one in objects:
        made.put(one)
    return made


def objects() -> list[Object]:
    half = {"koordinator.sh/gpu-core": "50", "koordinator.sh/gpu-memory-ratio": "50"}
    return [
        node("n1", 4),
        node("n2", 8),
        device("n1"),
        network(),
        quota("root", 12, {"cpu": "64"}, {"nvidia.com/gpu": "8", **half}, is_parent="true"),
        quota("team-a", 4, 8, 8, parent="root", request=12, runtime=8),
        quota("team-b", 4, None, half, parent="root", request=half, runtime=4),
        reservation("later", "n1", 2, quota="team-b"),
        pod("train", 8, on="n2", labels=of_quota("team-a")),
        pod("more", 4, labels=of_quota("team-a"), message=NO_QUOTA),
        part_pod("half", 50, "team-b", on="n1", annotations=given((0, 50, 50))),
    ]


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    resources = [
        Resource(group=group, plural=plural, kind=kind, versions=("v1alpha1",), is_namespaced=is_namespaced)
        for group, kinds in NAMES.items()
        for kind, plural, is_namespaced in kinds
    ]
    harm = Harm(
        store_of(resources, objects()),
        hidden=("devices", "reservations"),
        broken=("team-b", quota("team-b", "lots", None, 1, parent="root")),
        late=pod("web", 0),
        torn="elasticquotas",
    )
    waiting = {"team-a/more": "Insufficient quotas"}
    unlimited = [("root", "limit_gpus"), ("team-b", "limit_gpus")]
    with family_world(Koordinator, (folder, cluster, FakeClock(NOW)), harm, waiting, unlimited) as made:
        yield made
