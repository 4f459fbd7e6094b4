"""Airflow with a pool of GPUs that is full, one without a limit, one of none, and one of CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.airflow import Airflow
from tests.schedulers.reading import World
from tests.servers.airflow_fake import PASSWORD, TOKEN, FakeAirflow, task


def fake() -> FakeAirflow:
    """Pool `gpu` has 5 slots of 2 GPUs: 2 tasks hold 4 slots, 2 wait; `any` has one task, `none` a task in vain."""
    return FakeAirflow(
        {"default_pool": (128, False), "gpu": (5, True), "any": (-1, False), "none": (0, False)},
        [
            task("a0", "running", "gpu", 2),
            task("a1", "queued", "gpu", 2),
            task("a2", "scheduled", "gpu", 2),
            task("a3", "scheduled", "gpu", 6),
            task("b0", "running", "any", 3),
            task("c0", "scheduled", "none", 1),
            task("cpu", "running", "default_pool", 1),
            task("later", None, "gpu", 1),
        ],
    )


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    airflow, clock = fake(), FakeClock()
    password = folder / "password"
    password.write_text(f"{PASSWORD}\n", encoding="utf-8")
    prefix = "" if cluster == "default" else f"{cluster}/"

    def stop() -> None:
        airflow.is_down = True

    def forbid() -> None:
        airflow.forbidden = {"/taskInstances"}

    def spoil() -> str:
        next(one for one in airflow.tasks if one["task_id"] == "a2")["pool_slots"] = "many"
        return "a2"

    def tear() -> None:
        def move(held: FakeAirflow) -> None:
            held.tasks.append(task(f"new{len(held.asked)}", "running", "any", 1))

        airflow.before_pools = move

    with airflow.serve() as url:
        options = {
            "url": url, "user": "viewer", "password_file": str(password),
            "gpus_per_slot": {"gpu": 2, "any": 1, "none": 1},
        }  # fmt: skip
        yield World(
            reader=Airflow.from_options(options, cluster=cluster, rules=Rules(), clock=clock),
            options=options,
            place=url,
            clock=clock,
            waiting={f"{prefix}airflow/train/r1/a2": "1 open slots in pool gpu and require 2 pool slots"},
            unlimited=[(f"{prefix}any", "nominal_gpus"), (f"{prefix}any", "limit_gpus")],
            stop=stop,
            forbid=forbid,
            spoil=spoil,
            tear=tear,
            secrets=(PASSWORD, TOKEN),
        )
