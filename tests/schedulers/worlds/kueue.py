"""A node of 32 GPUs behind a fake API server; two queues of one cohort, one job that borrows, one that waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, Asked, Fault, Store, Subject, serve
from schedulers.kueue import Kueue
from schedulers.rights import cluster_role
from tests.schedulers.kueue_objects import (
    GPU,
    NOW,
    Object,
    admission,
    cluster_queue,
    false,
    flavor,
    local_queue,
    node,
    owner,
    pod,
    pod_set,
    quota,
    store,
    true,
    usage,
    workload,
)
from tests.schedulers.reading import World

TOKEN = "token-not-to-be-told"
SHORT = f"couldn't assign flavors to pod set main: insufficient unused quota for {GPU} in flavor h100, 20 more needed"
VISIBILITY = "visibility.kueue.x-k8s.io"


def things(version: str = "v1beta2") -> list[Object]:
    """`big` holds 16 of the 8 of its queue, the rest is lent by `b`; `late` waits for 24, `next` for its turn."""
    book = usage({"h100": {GPU: (16, 8)}})
    told = [{"name": "h100", "resources": [{"name": GPU, "total": "16"}]}]
    return [
        node("n1"),
        flavor("h100", "NVIDIA-H100-80GB-HBM3", version=version),
        cluster_queue("a", {"h100": [quota(8)]}, cohort="ai", version=version, reserved=book, used=book),
        cluster_queue("b", {"h100": [quota(12, 0)]}, cohort="ai", version=version, reserved=[], used=[]),
        local_queue("team-a", "gpus", "a", version=version, used=told),
        workload(
            "big",
            true("QuotaReserved", "QuotaReserved", minutes_ago=50),
            true("Admitted", "Admitted", minutes_ago=50),
            pod_sets=[pod_set(2, {GPU: 8})],
            admission=admission("a", {GPU: "16"}, count=2),
            version=version,
        ),
        workload("late", false("QuotaReserved", "Pending", SHORT), gpus=24, version=version),
        workload("next", gpus=1, version=version, made=1),
        pod("big-0", owner("Job", "big")),
        pod("big-1", owner("Job", "big")),
    ]  # fmt: skip


def visible(made: Store, places: Mapping[str, list[str]], version: str = "v1beta2") -> None:
    """Have the visibility API: workloads of namespace team-a in their order, by ClusterQueue."""

    def answer(path: str, query: Mapping[str, str]) -> Mapping[str, Any]:
        name, begin, most = path.split("/")[1], int(query.get("offset", 0)), int(query.get("limit", 1000))
        items = [
            {"metadata": {"namespace": "team-a", "name": one}, "positionInClusterQueue": place}
            for place, one in enumerate(places.get(name, ()))
        ]
        return {"kind": "PendingWorkloadsSummary", "items": items[begin : begin + most]}

    made.aggregate(f"{VISIBILITY}/{version}", [], answer)


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    made = store(*things())
    visible(made, {"a": ["late", "next"]})
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    rules = [dict(rule) for rule in cluster_role("reader", Kueue.all_rights())["rules"]]
    harms: list[str] = []

    def faults(asked: Asked) -> Fault | None:
        if "stop" in harms:
            return Fault(refusal=503)
        if "tear" in harms and asked.plural == "nodes":
            made.put(pod("web", None, 0))
            made.forget_before(made.version)
        return None

    def forbid() -> None:
        for rule in rules:
            rule["resources"] = [one for one in rule["resources"] if one != "clusterqueues"]

    def spoil() -> str:
        broken = workload("late", false("QuotaReserved", "Pending", SHORT))
        broken["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"][GPU] = "many"
        made.put(broken)
        return "team-a/late"

    prefix = "" if cluster == "default" else f"{cluster}/"
    clock = FakeClock(NOW)
    access = Access({TOKEN: Subject("system:serviceaccount:gpuledger:reader", rules)})
    with serve(made, access=access, faults=faults) as api:
        options = {"url": api.url, "token_file": str(token)}
        reader: Any = Kueue.from_options(options, cluster=cluster, rules=Rules(), clock=clock)
        yield World(
            reader=reader,
            options=options,
            place=api.url,
            clock=clock,
            waiting={f"{prefix}team-a/late": "20 more needed", f"{prefix}team-a/next": "place 2 in a"},
            unlimited=[(f"{prefix}a", "borrowing_limit_gpus"), (f"{prefix}b", "lending_limit_gpus")],
            stop=lambda: harms.append("stop"),
            forbid=forbid,
            spoil=spoil,
            tear=lambda: harms.append("tear"),
            secrets=(TOKEN,),
        )
