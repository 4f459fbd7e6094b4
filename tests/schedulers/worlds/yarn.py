"""YARN with three nodes of 8 GPUs, two leaves, one of them borrowing, and applications that wait for each reason."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.fakes.yarn import (
    CLUSTER_ID,
    FakeApp,
    FakeContainer,
    FakeNode,
    FakeQueue,
    FakeResourceManager,
)
from schedulers.yarn import Yarn
from tests.schedulers.reading import Cannot, World

TOKEN = "token-not-to-be-told"
AM_LIMIT = (
    "[Sun Mar 01 22:00:09 +0000 2026] Application is added to the scheduler and is not yet activated. "
    "Queue's AM resource limit exceeded.  Details : AM Partition = <DEFAULT_PARTITION>; "
)


def fake() -> FakeResourceManager:
    """`root.a` may have 8 GPUs and at most 16, holds 12; `root.b.b1` has 8 of 16 and holds 2, wants 8 more."""
    master = FakeContainer("n1", 0)
    return FakeResourceManager(
        FakeQueue("root", 24, 24, [FakeQueue("a", 8, 16), FakeQueue("b", 16, 24, [FakeQueue("b1", 8, 16)])]),
        [FakeNode("n1", 8), FakeNode("n2", 8), FakeNode("n3", 8, state="UNHEALTHY", report="1/1 log-dirs are bad")],
        [
            FakeApp(
                1, "root.a", "RUNNING", launched_ms=CLUSTER_ID + 70_000,
                containers=[master, FakeContainer("n1", 4), FakeContainer("n1", 4), FakeContainer("n2", 4)],
            ),
            FakeApp(
                2, "root.b.b1", "RUNNING", launched_ms=CLUSTER_ID + 80_000,
                containers=[FakeContainer("n2", 0), FakeContainer("n2", 2)], asks=[(4, 1)],
            ),
            FakeApp(3, "root.a", "ACCEPTED", user="bo", diagnostics=AM_LIMIT),
            FakeApp(
                4, "root.b.b1", "RUNNING", launched_ms=CLUSTER_ID + 90_000,
                containers=[FakeContainer("n2", 0)], asks=[(4, 1)],
            ),
        ],
    )  # fmt: skip


def _spoilt(path: str, told: Any) -> Any:
    if path == "/apps":
        held = told["apps"]["app"][1]["resourceInfo"]["resourceUsagesByPartition"][0]["used"]
        held["resourceInformations"]["resourceInformation"][2]["value"] = "many"
    return told


def _moved(manager: FakeResourceManager, path: str, told: Any) -> Any:
    """Between the two reads of the queues a container starts, which the nodes that were told do not have yet."""
    if path == "/nodes":
        manager.apps[1].containers.append(FakeContainer("n2", 1))
    return told


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    manager, clock = fake(), FakeClock()
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    prefix = "" if cluster == "default" else f"{cluster}/"

    def stop() -> None:
        manager.is_down = True

    def forbid() -> None:
        manager.forbidden = {"/apps"}

    def spoil() -> str:
        manager.change = _spoilt
        return manager.apps[1].id

    def tear() -> None:
        manager.change = lambda path, told: _moved(manager, path, told)

    with manager.serve() as url:
        options = {"url": url, "token_file": str(token), "user": "gpuledger"}
        yield World(
            reader=Yarn.from_options(options, cluster=cluster, rules=Rules(), clock=clock),
            options=options,
            place=url,
            clock=clock,
            waiting={f"{prefix}yarn/{manager.apps[2].id}": "Queue's AM resource limit exceeded."},
            unlimited=Cannot("the capacity scheduler tells a most for every queue: effectiveMaxResource"),
            stop=stop,
            forbid=forbid,
            spoil=spoil,
            tear=tear,
            secrets=(TOKEN,),
        )
