"""Three nodes of 8 GPUs, one of them not ready, behind a fake API server; one pod that no node has room for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, Asked, Fault, Store, Subject, serve
from schedulers.kubernetes.family import Kubernetes
from schedulers.rights import cluster_role
from tests.schedulers.kubernetes_objects import NOW, node, pod, quota
from tests.schedulers.reading import Cannot, World

TOKEN = "token-not-to-be-told"
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


def access_with(rules: list[dict[str, Any]]) -> Access:
    """One subject with these rules."""
    return Access({TOKEN: Subject("system:serviceaccount:gpuledger:reader", rules)})


@dataclass
class Harm:
    """What goes wrong with the cluster in `store`."""

    store: Store
    rules: list[dict[str, Any]]
    is_down: bool = False
    forgets: bool = False

    def fault(self, asked: Asked) -> Fault | None:
        """Asked before each request."""
        if self.forgets and asked.plural == "nodes":
            self.store.put(pod("web", 0))
            self.store.forget_before(self.store.version)
        return Fault(refusal=503) if self.is_down else None

    def stop(self) -> None:
        self.is_down = True

    def forbid(self) -> None:
        for rule in self.rules:
            rule["resources"] = [one for one in rule["resources"] if one != "nodes"]

    def spoil(self) -> str:
        broken = pod("late", 8, message=WORDS)
        broken["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "many"
        self.store.put(broken)
        return "team-a/late"

    def tear(self) -> None:
        """Each list of nodes finds the version of the list of pods before it forgotten."""
        self.forgets = True


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    token, clock = folder / "token", FakeClock(NOW)
    token.write_text(TOKEN, encoding="utf-8")
    rules = [dict(rule) for rule in cluster_role("reader", Kubernetes.all_rights())["rules"]]
    harm = Harm(store(), rules)
    prefix = "" if cluster == "default" else f"{cluster}/"
    with serve(harm.store, access=access_with(rules), faults=harm.fault) as api:
        options = {"url": api.url, "token_file": str(token)}
        reader: Any = Kubernetes.from_options(options, cluster=cluster, rules=Rules(), clock=clock)
        yield World(
            reader=reader,
            options=options,
            place=api.url,
            clock=clock,
            waiting={f"{prefix}team-a/late": "2 Insufficient nvidia.com/gpu"},
            unlimited=Cannot("a ResourceQuota limits what it names and says nothing of the rest"),
            stop=harm.stop,
            forbid=harm.forbid,
            spoil=harm.spoil,
            tear=harm.tear,
            secrets=(TOKEN,),
        )
