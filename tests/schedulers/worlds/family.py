"""What the worlds of the Kubernetes family share: one subject with the adapter's own rights, and what may go wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, Asked, Fault, Store, Subject, serve
from schedulers.kubernetes.family import KubernetesFamily
from schedulers.rights import cluster_role
from tests.schedulers.reading import Cannot, World

TOKEN = "token-not-to-be-told"


@dataclass
class Harm:
    """What goes wrong with the cluster in `store`: kinds that are `hidden`, an object that is `broken` and its name.

    A torn read is one in which `late` changes whenever `torn` is listed, and all versions before are forgotten.
    """

    store: Store
    hidden: Sequence[str]
    broken: tuple[str, Mapping[str, Any]]
    late: Mapping[str, Any]
    torn: str
    rules: list[dict[str, Any]] = field(default_factory=list)
    is_down: bool = False
    forgets: bool = False

    def fault(self, asked: Asked) -> Fault | None:
        """Asked before each request."""
        if self.forgets and asked.plural == self.torn:
            self.store.put(dict(self.late))
            self.store.forget_before(self.store.version)
        return Fault(refusal=503) if self.is_down else None

    def stop(self) -> None:
        self.is_down = True

    def forbid(self) -> None:
        for rule in self.rules:
            rule["resources"] = [one for one in rule["resources"] if one not in self.hidden]

    def spoil(self) -> str:
        name, broken = self.broken
        self.store.put(dict(broken))
        return name

    def tear(self) -> None:
        self.forgets = True


@contextmanager
def family_world(
    family: type[KubernetesFamily],
    at: tuple[Path, str, FakeClock],
    harm: Harm,
    waiting: Mapping[str, str],
    unlimited: Sequence[tuple[str, str]] | Cannot,
) -> Iterator[World]:
    """A reader of `family` with exactly its rights. `at` is folder, cluster, clock; names get the cluster's prefix."""
    folder, cluster, clock = at
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    harm.rules = [dict(rule) for rule in cluster_role("reader", family.all_rights())["rules"]]
    access = Access({TOKEN: Subject("system:serviceaccount:gpuledger:reader", harm.rules)})
    prefix = "" if cluster == "default" else f"{cluster}/"
    with serve(harm.store, access=access, faults=harm.fault) as api:
        options = {"url": api.url, "token_file": str(token)}
        reader: Any = family.from_options(options, cluster=cluster, rules=Rules(), clock=clock)
        yield World(
            reader=reader,
            options=options,
            place=api.url,
            clock=clock,
            waiting={f"{prefix}{name}": words for name, words in waiting.items()},
            unlimited=unlimited
            if isinstance(unlimited, Cannot)
            else [(f"{prefix}{queue}", column) for queue, column in unlimited],
            stop=harm.stop,
            forbid=harm.forbid,
            spoil=harm.spoil,
            tear=harm.tear,
            secrets=(TOKEN,),
        )
