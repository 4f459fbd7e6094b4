"""A tree of queues behind a fake API server: one gang runs, one lacks GPUs, one job was not let in and has no pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Store
from schedulers.fakes.apiserver.resources import Resource
from schedulers.volcano import Volcano
from tests.schedulers.reading import World
from tests.schedulers.volcano_objects import (
    CAPACITY,
    GPU,
    NOW,
    Object,
    event,
    gpus,
    group,
    job,
    node,
    pod,
    queue,
    says,
)
from tests.schedulers.worlds.family import Harm, family_world

NO_GPUS = "0/2 nodes are unavailable: 2 Insufficient nvidia.com/gpu."
FULL = "queue resource quota insufficient: insufficient nvidia.com/gpu"
KINDS = (
    Resource(group="scheduling.volcano.sh", plural="queues", kind="Queue", versions=("v1beta1",), is_namespaced=False),
    Resource(group="scheduling.volcano.sh", plural="podgroups", kind="PodGroup", versions=("v1beta1",)),
    Resource(group="batch.volcano.sh", plural="jobs", kind="Job", versions=("v1alpha1",)),
    Resource(
        group="topology.volcano.sh", plural="hypernodes", kind="HyperNode", versions=("v1alpha1",), is_namespaced=False
    ),
)


def configuration() -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "volcano-scheduler-configmap", "namespace": "volcano-system"},
        "data": {"volcano-scheduler.conf": CAPACITY},
    }


def objects() -> list[Object]:
    """The cluster's objects, all but namespaces."""
    later = group("pg-late", phase="Pending", job="late", minMember=1, minResources={GPU: "4"})
    return [
        configuration(),
        node("n1"),
        node("n2"),
        queue("root"),
        queue("team-a", parent="root", deserved={GPU: "8"}, allocated={GPU: "16"}),
        queue("team-b", parent="root", deserved={GPU: "4"}, capability={GPU: "8"}, weight=2),
        group("pg-train", phase="Running", minMember=2, minResources={GPU: "16"}),
        *(pod(f"train-{n}", "pg-train", on=f"n{n + 1}", **gpus(8)) for n in (0, 1)),
        group("pg-wait", phase="Inqueue", job="wait", minMember=1, minResources={GPU: "8"}),
        says(pod("wait-0", "pg-wait", job="wait", **gpus(8)), NO_GPUS),
        later,
        job("late", 1, **gpus(4)),
        {**event(later, FULL, "Unschedulable"), "type": "Normal"},
    ]


def store() -> Store:
    made = Store(clock=FakeClock(NOW))
    for resource in KINDS:
        made.serve(resource)
    for name in ("ml", "volcano-system"):
        made.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for one in objects():
        made.put(one)
    return made


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    broken = group("pg-late", phase="Pending", job="late", minMember=1, minResources={GPU: "lots"})
    hidden = ["podgroups", "configmaps"]
    harm = Harm(store(), hidden=hidden, broken=("late", broken), late=pod("web", None), torn="queues")
    waiting = {"ml/wait": "2 Insufficient nvidia.com/gpu", "ml/late": FULL}
    unlimited = [("root", "nominal_gpus"), ("team-a", "limit_gpus")]
    with family_world(Volcano, (folder, cluster, FakeClock(NOW)), harm, waiting, unlimited) as made:
        yield made
