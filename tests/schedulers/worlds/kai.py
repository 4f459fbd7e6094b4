"""A department with two queues behind a fake API server: one job runs, one shares a card, one lacks GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Store
from schedulers.fakes.apiserver.resources import Resource
from schedulers.kai import Kai
from tests.schedulers.kai_objects import GPU, RESERVED, group, node, pod, queue, reservation, unschedulable
from tests.schedulers.reading import World
from tests.schedulers.volcano_objects import NOW, Object, gpus
from tests.schedulers.worlds.family import Harm, family_world

NO_GPUS = "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs."
KINDS = (
    Resource(group="scheduling.run.ai", plural="queues", kind="Queue", versions=("v2",), is_namespaced=False),
    Resource(group="scheduling.run.ai", plural="podgroups", kind="PodGroup", versions=("v2alpha2",)),
    Resource(group="kai.scheduler", plural="topologies", kind="Topology", versions=("v1alpha1",), is_namespaced=False),
)


def objects() -> list[Object]:
    """The cluster's objects, all but namespaces."""
    short = {"reason": "PodSchedulingErrors", "message": NO_GPUS}
    return [
        node("n1"),
        queue("dept", {"quota": -1, "limit": -1, "overQuotaWeight": 1}, allocated={GPU: "6500m"}),
        queue("team", {"quota": 4, "limit": -1, "overQuotaWeight": 1}, parent="dept", allocated={GPU: "6500m"}),
        queue("other", {"quota": 2, "limit": 2, "overQuotaWeight": 1}, parent="dept"),
        group("run"),
        pod("run", "run", on="n1", **gpus(6)),
        group("part"),
        pod("part", "part", on="n1", labels={"runai-gpu-group": "c1"}, annotations={"gpu-fraction": "0.5"}),
        reservation("gpu-reservation-1", "n1", "c1"),
        group("wait", [unschedulable(short)]),
        pod("wait", "wait", **gpus(8)),
        {
            "apiVersion": "kai.scheduler/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": "net"},
            "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
        },
    ]


def store() -> Store:
    made = Store(clock=FakeClock(NOW))
    for resource in KINDS:
        made.serve(resource)
    for name in ("ml", RESERVED):
        made.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for one in objects():
        made.put(one)
    return made


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    broken = queue("other", {"quota": -7}, parent="dept")
    harm = Harm(store(), hidden=["queues"], broken=("other", broken), late=pod("web", None), torn="queues")
    waiting = {"ml/wait": "didn't have enough resources: GPUs"}
    unlimited = [("dept", "nominal_gpus"), ("team", "limit_gpus")]
    with family_world(Kai, (folder, cluster, FakeClock(NOW)), harm, waiting, unlimited) as made:
        yield made
