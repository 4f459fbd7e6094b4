"""Three nodes of 8 GPUs, one of them not ready, behind a fake API server; one pod that no node has room for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, Asked, Fault, Store, Subject, serve
from schedulers.kubernetes.family import Kubernetes
from schedulers.rights import cluster_role
from tests.schedulers.kubernetes_objects import NOW, node, pod, quota
from tests.schedulers.reading import Cannot, World

TOKEN = "token-not-to-be-told"
WORDS = "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/unreachable: }, 2 Insufficient nvidia.com/gpu."
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


def denied_to(rules: list[dict[str, object]]) -> Access:
    """One subject with these rules."""
    return Access({TOKEN: Subject("system:serviceaccount:gpuledger:reader", rules)})


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    cluster_store = store()
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    rules = [dict(rule) for rule in cluster_role("reader", Kubernetes.all_rights())["rules"]]
    is_down = [False]

    def faults(_: Asked) -> Fault | None:
        return Fault(refusal=503) if is_down[0] else None

    def stop() -> None:
        is_down[0] = True

    def forbid() -> None:
        for rule in rules:
            rule["resources"] = [one for one in rule["resources"] if one != "nodes"]

    def spoil() -> str:
        broken = pod("late", 8, message=WORDS)
        broken["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "many"
        cluster_store.put(broken)
        return "team-a/late"

    def tear() -> None:
        # Every answer about pods is followed by a compaction: the version that was read is forgotten at once.
        def forgetting(asked: Asked) -> Fault | None:
            if asked.plural == "nodes":
                cluster_store.put(pod("web", 0))
                cluster_store.forget_before(cluster_store.version)
            return None

        api_faults.append(forgetting)

    api_faults = [faults]

    def all_faults(asked: Asked) -> Fault | None:
        return next((found for fault in api_faults if (found := fault(asked))), None)

    prefix = "" if cluster == "default" else f"{cluster}/"
    clock = FakeClock(NOW)
    with serve(cluster_store, access=denied_to(rules), faults=all_faults) as api:
        options = {"url": api.url, "token_file": str(token)}
        yield World(
            reader=Kubernetes.from_options(options, cluster=cluster, rules=Rules(), clock=clock),
            options=options,
            place=api.url,
            clock=clock,
            waiting={f"{prefix}team-a/late": "2 Insufficient nvidia.com/gpu"},
            unlimited=Cannot("a ResourceQuota limits what it names and says nothing of the rest"),
            stop=stop,
            forbid=forbid,
            spoil=spoil,
            tear=tear,
            secrets=(TOKEN,),
        )
