"""How fast the placer is, and how near its curves come to the published ones on openb's default list.

    python benchmarks/placer.py [--seeds 10] [--policies fgd,best_fit,random] [--nodes FILE --pods FILE --expected DIR]

Prints seconds a seed, and medians over the seeds of allocated GPUs (at 100 % arrival) and of the index F (at 50, 80 and
90 %), both as per cent of the fleet's GPUs, beside the published ones.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from analyzers.fgd import NodeState, TaskClass
from analyzers.replay.fleet import Fleet, FleetNode, PodShape
from analyzers.replay.inflation import PUBLISHED_RATIO, by_arrival, inflate, typical_classes
from analyzers.replay.placer import BestFit, FragmentDescent, Policy, RandomFit, Run, gpu_milli, place

TRACE = Path(__file__).resolve().parents[2] / "shared" / "data" / "openb"
PUBLISHED = {"fgd": "06-FGD", "best_fit": "05-BestFit", "random": "01-Random"}
STEPS = (50, 80, 90, 100)
FIRST_SEED = 42


def nodes_of(path: Path) -> list[FleetNode]:
    """The trace's nodes, empty."""
    with path.open(newline="") as file:
        return [
            FleetNode(
                state=NodeState(
                    node=row["sn"],
                    cpu_free_milli=int(row["cpu_milli"]),
                    gpu_free_milli=(1000,) * int(row["gpu"]),
                    model=row["model"] or None,
                ),
                memory_free_mib=int(row["memory_mib"]),
            )
            for row in csv.DictReader(file)
        ]


def pods_of(path: Path) -> list[PodShape]:
    """What each pod of the trace asks for, in its order."""
    with path.open(newline="") as file:
        return [
            PodShape(
                cpu_milli=int(row["cpu_milli"]),
                memory_mib=int(row["memory_mib"]),
                gpu_milli=int(row["gpu_milli"]) if int(row["num_gpu"]) else 0,
                num_gpu=int(row["num_gpu"]),
                models=frozenset(filter(None, row["gpu_spec"].split("|"))),
            )
            for row in csv.DictReader(file)
        ]


def published(folder: Path, what: str, policy: str, workload: str = "openb_pod_list_default") -> dict[int, float]:
    """The medians over the published seeds, by per cent of arrival."""
    with (folder / f"fgd_expected_{what}_discrete.csv").open(newline="") as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["workload"] == workload and row["sc_policy"] == PUBLISHED[policy] and row["tune"] == "1.3"
        ]
    return {step: statistics.median(float(row[str(step)]) for row in rows) for step in STEPS}


def one_run(name: str, nodes: list[FleetNode], pods: list[PodShape], classes: list[TaskClass], seed: int) -> Run:
    """Inflate, shuffle and place with `seed`."""
    rng = np.random.default_rng(seed)
    fleet = Fleet(nodes)
    shapes = sorted(
        set(pods), key=lambda one: (one.cpu_milli, one.memory_mib, one.gpu_milli, one.num_gpu, sorted(one.models))
    )
    position = {shape: i for i, shape in enumerate(shapes)}
    arrivals = inflate(shapes, [position[pod] for pod in pods], PUBLISHED_RATIO * gpu_milli(fleet), rng)
    policy: Policy
    if name == "fgd":
        policy = FragmentDescent(fleet, shapes, classes)
    elif name == "best_fit":
        policy = BestFit(fleet, shapes)
    else:
        policy = RandomFit(shapes, rng)
    return place(fleet, shapes, arrivals.tolist(), policy, classes)


def medians(runs: list[Run], total_milli: int) -> tuple[dict[int, float], dict[int, float]]:
    """Allocated and fragmented per cent of the fleet by arrival, as medians over `runs`."""
    allocated = [by_arrival(run, 100 * run.allocated_milli / total_milli, total_milli) for run in runs]
    fragments = [by_arrival(run, 100 * run.fragment_milli / total_milli, total_milli) for run in runs]
    return (
        {step: statistics.median(one[step] for one in allocated) for step in STEPS},
        {step: statistics.median(one[step] for one in fragments) for step in STEPS},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--policies", default="fgd,best_fit,random")
    parser.add_argument("--nodes", type=Path, default=TRACE / "openb_node_list_gpu_node.csv")
    parser.add_argument("--pods", type=Path, default=TRACE / "openb_pod_list_default.csv")
    parser.add_argument("--expected", type=Path, default=TRACE)
    given = parser.parse_args()
    if not given.nodes.is_file():
        print(f"skipped: no trace at {given.nodes}")
        return
    nodes, pods = nodes_of(given.nodes), pods_of(given.pods)
    classes = typical_classes(pods)
    total = gpu_milli(Fleet(nodes))
    print(f"{len(nodes)} nodes, {total / 1000:g} GPUs, {len(pods)} pods, {len(classes)} classes of the index")
    for name in given.policies.split(","):
        runs, seconds = [], []
        for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
            begun = time.process_time()
            runs.append(one_run(name, nodes, pods, classes, seed))
            seconds.append(time.process_time() - begun)
        allocated, fragments = medians(runs, total)
        print(
            f"{name}: {statistics.median(seconds):.1f} s a seed (most {max(seconds):.1f}), "
            f"{statistics.median(len(run.places) for run in runs):g} pods"
        )
        expected = {what: published(given.expected, what, name) for what in ("allo", "frag")}
        for what, ours in (("allo", allocated), ("frag", fragments)):
            cells = (f"{step} %: {ours[step]:6.2f} against {expected[what][step]:6.2f}" for step in STEPS)
            print(f"  {what}  " + "   ".join(cells))


if __name__ == "__main__":
    main()
