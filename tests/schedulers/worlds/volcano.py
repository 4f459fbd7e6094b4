"""A tree of queues behind a fake API server: one gang runs, one lacks GPUs, one job was not let in and has no pods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, Asked, Fault, Store, Subject, serve
from schedulers.fakes.apiserver.resources import Resource
from schedulers.rights import cluster_role
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

TOKEN = "token-not-to-be-told"
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


@dataclass
class Harm:
    """What goes wrong with the cluster in `store`."""

    store: Store
    rules: list[dict[str, Any]]
    is_down: bool = False
    forgets: bool = False

    def fault(self, asked: Asked) -> Fault | None:
        """Asked before each request."""
        if self.forgets and asked.plural == "queues":
            self.store.put(pod("web", None))
            self.store.forget_before(self.store.version)
        return Fault(refusal=503) if self.is_down else None

    def stop(self) -> None:
        self.is_down = True

    def forbid(self) -> None:
        for rule in self.rules:
            rule["resources"] = [one for one in rule["resources"] if one not in ("podgroups", "configmaps")]

    def spoil(self) -> str:
        self.store.put(group("pg-late", phase="Pending", job="late", minMember=1, minResources={GPU: "lots"}))
        return "late"

    def tear(self) -> None:
        """Each list of queues finds the version of the list of pods before it forgotten."""
        self.forgets = True


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    token, clock = folder / "token", FakeClock(NOW)
    token.write_text(TOKEN, encoding="utf-8")
    rules = [dict(rule) for rule in cluster_role("reader", Volcano.all_rights())["rules"]]
    harm = Harm(store(), rules)
    prefix = "" if cluster == "default" else f"{cluster}/"
    access = Access({TOKEN: Subject("system:serviceaccount:gpuledger:reader", rules)})
    with serve(harm.store, access=access, faults=harm.fault) as api:
        options = {"url": api.url, "token_file": str(token)}
        reader: Any = Volcano.from_options(options, cluster=cluster, rules=Rules(), clock=clock)
        yield World(
            reader=reader,
            options=options,
            place=api.url,
            clock=clock,
            waiting={f"{prefix}ml/wait": "2 Insufficient nvidia.com/gpu", f"{prefix}ml/late": FULL},
            unlimited=[(f"{prefix}root", "nominal_gpus"), (f"{prefix}team-a", "limit_gpus")],
            stop=harm.stop,
            forbid=harm.forbid,
            spoil=harm.spoil,
            tear=harm.tear,
            secrets=(TOKEN,),
        )
