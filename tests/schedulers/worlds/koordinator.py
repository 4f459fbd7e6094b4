"""Elastic quotas behind a fake API server: a pod holds cards, one half a card, one waits as its quota is used up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, Asked, Fault, Store, Subject, serve
from schedulers.fakes.apiserver.resources import Resource
from schedulers.koordinator import Koordinator
from schedulers.kubernetes.family import KubernetesFamily
from schedulers.rights import cluster_role
from tests.schedulers.koordinator_objects import device, given, network, of_quota, part_pod, quota, reservation
from tests.schedulers.kubernetes_objects import NOW, Object, node, pod
from tests.schedulers.reading import Cannot, World

TOKEN = "token-not-to-be-told"
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


@dataclass
class Harm:
    """What goes wrong with the cluster in `store`.

    `hidden` kinds are not shown, `torn` is the list before which history is lost.
    """

    store: Store
    rules: list[dict[str, Any]]
    hidden: Sequence[str]
    torn: str
    moved: Object
    is_down: bool = False
    forgets: bool = False

    def fault(self, asked: Asked) -> Fault | None:
        """Asked before each request."""
        if self.forgets and asked.plural == self.torn:
            self.store.put(self.moved)
            self.store.forget_before(self.store.version)
        return Fault(refusal=503) if self.is_down else None

    def stop(self) -> None:
        self.is_down = True

    def forbid(self) -> None:
        for rule in self.rules:
            rule["resources"] = [one for one in rule["resources"] if one not in self.hidden]

    def tear(self) -> None:
        self.forgets = True


@contextmanager
def harmed(
    folder: Path, reader: type[KubernetesFamily], harm: Harm, spoil: Callable[[], str], told: Mapping[str, Any]
) -> Iterator[World]:
    """A world of `reader`; `told` has its `waiting`, `unlimited` and `cluster`."""
    token, clock = folder / "token", FakeClock(NOW)
    token.write_text(TOKEN, encoding="utf-8")
    access = Access({TOKEN: Subject("system:serviceaccount:gpuledger:reader", harm.rules)})
    with serve(harm.store, access=access, faults=harm.fault) as api:
        options = {"url": api.url, "token_file": str(token)}
        made: Any = reader.from_options(options, cluster=told["cluster"], rules=Rules(), clock=clock)
        yield World(
            reader=made,
            options=options,
            place=api.url,
            clock=clock,
            waiting=told["waiting"],
            unlimited=told["unlimited"],
            stop=harm.stop,
            forbid=harm.forbid,
            spoil=spoil,
            tear=harm.tear,
            secrets=(TOKEN,),
        )


def rules_of(reader: type[KubernetesFamily]) -> list[dict[str, Any]]:
    """The rules that an adapter's rights are rendered to, to be taken apart."""
    return [dict(rule) for rule in cluster_role("reader", reader.all_rights())["rules"]]


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
        store=store_of(resources, objects()),
        rules=rules_of(Koordinator),
        hidden=("devices", "reservations"),
        torn="elasticquotas",
        moved=pod("web", 0),
    )
    prefix = "" if cluster == "default" else f"{cluster}/"

    def spoil() -> str:
        harm.store.put(quota("team-b", "lots", None, 1, parent="root"))
        return "team-b"

    told = {
        "cluster": cluster,
        "waiting": {f"{prefix}team-a/more": "Insufficient quotas"},
        "unlimited": [(f"{prefix}root", "limit_gpus"), (f"{prefix}team-b", "limit_gpus")],
    }
    with harmed(folder, Koordinator, harm, spoil, told) as made:
        yield made


NO_QUOTAS = Cannot("it has no queues of its own")
