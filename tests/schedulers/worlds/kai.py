"""A department with two queues behind a fake API server: one job runs, one shares a card, one lacks GPUs."""

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
from schedulers.kai import Kai
from schedulers.rights import cluster_role
from tests.schedulers.kai_objects import GPU, RESERVED, group, node, pod, queue, reservation, unschedulable
from tests.schedulers.reading import World
from tests.schedulers.volcano_objects import NOW, Object, gpus

TOKEN = "token-not-to-be-told"
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
            rule["resources"] = [one for one in rule["resources"] if one != "queues"]

    def spoil(self) -> str:
        self.store.put(queue("other", {"quota": -7}, parent="dept"))
        return "other"

    def tear(self) -> None:
        """Each list of queues finds the version of the list of pods before it forgotten."""
        self.forgets = True


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    token, clock = folder / "token", FakeClock(NOW)
    token.write_text(TOKEN, encoding="utf-8")
    rules = [dict(rule) for rule in cluster_role("reader", Kai.all_rights())["rules"]]
    harm = Harm(store(), rules)
    prefix = "" if cluster == "default" else f"{cluster}/"
    access = Access({TOKEN: Subject("system:serviceaccount:gpuledger:reader", rules)})
    with serve(harm.store, access=access, faults=harm.fault) as api:
        options = {"url": api.url, "token_file": str(token)}
        reader: Any = Kai.from_options(options, cluster=cluster, rules=Rules(), clock=clock)
        yield World(
            reader=reader,
            options=options,
            place=api.url,
            clock=clock,
            waiting={f"{prefix}ml/wait": "didn't have enough resources: GPUs"},
            unlimited=[(f"{prefix}dept", "nominal_gpus"), (f"{prefix}team", "limit_gpus")],
            stop=harm.stop,
            forbid=harm.forbid,
            spoil=harm.spoil,
            tear=harm.tear,
            secrets=(TOKEN,),
        )
