"""Hosts whose free GPUs cannot be used: partly held by long small jobs, or out of CPUs."""

from __future__ import annotations

import numpy as np

from gpuledger.simulate import shapes
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.lanes import Deck, Lane, Request, fill, pods_job
from gpuledger.simulate.plots import CLEAN
from gpuledger.simulate.script import Hold, Job, Phase, Script, Span
from gpuledger.simulate.teams import BLOCKED, EVALUATION, POSTTRAIN

LAYOUTS = ((4, 1), (4, 2), (2, 2, 1), (4, 2, 1))
LEFT_CPU_MILLI = 500
CPU_PODS = 4


def strand(script: Script, host: Host, rng: np.random.Generator) -> None:
    """Small jobs hold five to seven cards and leave one to three that no whole-node pod can use."""
    lanes, cards = [], list(host.cards)
    for number, width in enumerate(LAYOUTS[host.index % len(LAYOUTS)]):
        own, cards = tuple(cards[:width]), cards[width:]
        lanes.append(Lane(own, (BLOCKED, POSTTRAIN)[number % 2], shortest=600, longest=2_400))
    fill(script, lanes, Deck(CLEAN, rng))


def fill_cpus(script: Script, host: Host, rng: np.random.Generator) -> None:
    """Half the cards are held without a break; for most of the span CPU-only pods take the other half's CPUs."""
    last = script.spec.last_minute
    start = -int(rng.integers(600, 2_000))
    left = host.hardware.cpu_cores * 1000 - LEFT_CPU_MILLI
    for number in range(2):
        sm = shapes.quantile(shapes.ACTIVE_SM_RATIO, float(rng.uniform(0.3, 0.9)))
        shape = shapes.training(sm, 0.6).with_dips(90, 3, 11)
        want = Request(host.cards[number * 2 : number * 2 + 2], POSTTRAIN, "training", "posttraining", "zhao.min")
        job = pods_job(script, want, (start - 9, start, start + 6, last), (Phase(start + 6, last, shape),))
        script.jobs.append(job)
        left -= job.cpu_milli
    end = script.spec.end_minute
    begin, stop = int(end * rng.uniform(0.12, 0.2)), int(end * rng.uniform(0.75, 0.85))
    script.cpu_full.append(Span(host.index, begin, stop, "cpu_mem"))
    for number in range(CPU_PODS):
        script.jobs.append(_cpu_pod(script, host, (begin, stop), left // CPU_PODS, number))


def _cpu_pod(script: Script, host: Host, span: tuple[int, int], cpu_milli: int, number: int) -> Job:
    name = script.next_id(EVALUATION, "prepare")
    memory = host.hardware.memory_mib // 32
    hold = Hold(f"{name}-{number}", host.index, None, span[0], span[0] + 1, span[1], cpu_milli, memory, share=0.0)
    return Job(
        workload_id=name,
        kind="batch",
        stage="other",
        team=EVALUATION,
        user="li.na",
        submit=span[0],
        start=span[0],
        end=span[1],
        pods=1,
        num_gpu=0,
        gpu_milli=0,
        cpu_milli=cpu_milli,
        memory_mib=memory,
        holds=(hold,),
    )
