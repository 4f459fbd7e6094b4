"""A Ray cluster of two nodes: one job with actors, one whose GPUs do not fit, one that no node could ever run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.ray import Ray
from tests.schedulers.reading import World
from tests.servers.ray_fake import GROUP, HEAD, OTHER, TOKEN, FakeRay, actor, group, inside, job, node, task


def fake() -> FakeRay:
    """12 GPUs: `a` uses 6.3 of them and 0.7 more of its placement group are idle; `b` waits for 7, `c` for 9."""
    return FakeRay(
        nodes=[node(HEAD, 8.0, "gpu-1"), node(OTHER, 4.0, "gpu-2")],
        jobs=[
            job("a", "RUNNING", "02000000", metadata={"tenant": "team-a", "user": "ann"}),
            job("b", "RUNNING", "03000000", metadata={"tenant": "team-b"}),
            job("c", "PENDING", message="Job has not started yet. It may be waiting for resources."),
            job(None, "SUCCEEDED", "04000000", end_time=1_772_409_500_000),
        ],
        tasks=[
            task("f", "02000000", 3.0, "RUNNING", HEAD),
            task("g", "02000000", 3.0, "RUNNING_IN_RAY_GET", HEAD),
            task("done", "02000000", 8.0, "FINISHED"),
        ],
        actors=[
            actor("in", "02000000", 0.0, OTHER, required_resources=inside(0.3), placement_group_id=GROUP),
            actor("wait", "03000000", 7.0),
            actor("job", "01000000", 9.0, name="_ray_internal_job_actor_c"),
        ],
        groups=[group(GROUP, "02000000", [(0.7, OTHER), (0.3, OTHER)])],
        token=TOKEN,
    )


@contextmanager
def world(folder: Path, cluster: str) -> Iterator[World]:
    ray, clock = fake(), FakeClock()
    token = folder / "token"
    token.write_text(f"{TOKEN}\n", encoding="utf-8")
    prefix = "" if cluster == "default" else f"{cluster}/"

    def stop() -> None:
        ray.is_down = True

    def forbid() -> None:
        ray.token = "another"

    def spoil() -> str:
        ray.actors.append(actor("senseless", "02000000", "many", HEAD))
        return "senseless"

    def tear() -> None:
        def move(path: str) -> None:
            if path == "/api/v0/tasks":
                ray.nodes.append(node(f"{len(ray.nodes):056x}", 8.0, f"gpu-{len(ray.nodes) + 1}"))

        ray.before = move

    with ray.serve() as url:
        options = {"url": url, "token_file": str(token)}
        yield World(
            reader=Ray.from_options(options, cluster=cluster, rules=Rules(), clock=clock),
            options=options,
            place=url,
            clock=clock,
            waiting={f"{prefix}ray/b": "PENDING_CREATION", f"{prefix}ray/c": "Job has not started yet"},
            unlimited=[(f"{prefix}ray", "nominal_gpus"), (f"{prefix}ray", "limit_gpus")],
            stop=stop,
            forbid=forbid,
            spoil=spoil,
            tear=tear,
            secrets=(TOKEN,),
        )
