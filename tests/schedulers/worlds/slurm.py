"""Slurm by slurmrestd: two nodes, an account with a limit and one without, jobs that run and wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.slurm import Slurm
from tests.schedulers.reading import World
from tests.servers.slurmrestd import BEGUN, TOKEN, Slurmrestd, old_job, old_node, waiting

LIMIT = {"type": "gres", "name": "gpu", "count": 8}
QOS = {"name": "normal", "priority": 0, "limits": {"max": {"tres": {"total": [], "per": {}}}}, "preempt": {"list": []}}


def account(name: str, parent: str | None, limit: list[dict[str, object]]) -> dict[str, object]:
    return {"account": name, "parent_account": parent, "user": None, "partition": None, "shares_raw": 1,
            "max": {"tres": {"total": limit, "per": {"job": []}}}}  # fmt: skip


def fake() -> Slurmrestd:
    """ml may have 8 GPUs and has 4, bio is not limited; two jobs wait."""
    return Slurmrestd(
        jobs=[
            old_job(1),
            old_job(2, nodes="n2", node_count=1),
            waiting(3, "Priority", submit_time=BEGUN - 60, eligible_time=BEGUN - 60),
            waiting(4, "AssocGrpGRES"),
            old_job(5, job_state="COMPLETED", end_time=BEGUN - 600, gres_detail=[]),
        ],
        nodes=[old_node("n1", 2), old_node("n2", 2)],
        associations=[account("root", None, []), account("ml", "root", [LIMIT]), account("bio", "root", [])],
        qos=[QOS],
    )


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    told, clock = fake(), FakeClock()
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    prefix = "" if cluster == "default" else f"{cluster}/"
    serving = ExitStack()

    def forbid() -> None:
        told.errors = {"associations": (401, b"Authentication failure"), "qos": (401, b"Authentication failure")}

    def spoil() -> str:
        told.jobs[3]["submit_time"] = "soon"
        return "4"

    def tear() -> None:
        told.is_torn = True

    with serving:
        url = serving.enter_context(told.serve())
        options = {"transport": "rest", "url": url, "token_file": str(token), "user": "gpuledger"}
        yield World(
            reader=Slurm.from_options(options, cluster=cluster, rules=Rules(), clock=clock),
            options=options,
            place=url,
            clock=clock,
            waiting={
                f"{prefix}slurm/3@{BEGUN - 60}.0": "Priority",
                f"{prefix}slurm/4@{BEGUN - 3600}.0": "AssocGrpGRES",
            },
            unlimited=[(f"{prefix}bio", "nominal_gpus"), (f"{prefix}bio", "limit_gpus")],
            stop=serving.close,
            forbid=forbid,
            spoil=spoil,
            tear=tear,
            secrets=(TOKEN,),
        )
