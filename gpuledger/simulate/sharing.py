"""Fleets whose cards are shared: cut by MIG, divided by time or given in parts (HAMi) to pods that come and go."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from gpuledger.simulate import shapes
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.lanes import USERS
from gpuledger.simulate.notebooks import CPU_CORES_PER_SHARE, STARTING, Seat
from gpuledger.simulate.script import Hold, Job, Phase, Quotas, Script
from gpuledger.simulate.shapes import Shape
from gpuledger.simulate.teams import ASSISTANT, EVALUATION, NOTEBOOKS, POSTTRAIN

EMPTY_PART = 0.15
"""Part of the slices that nobody asks for."""
KINDS = (
    ("notebook", "notebook", NOTEBOOKS),
    ("training", "posttraining", POSTTRAIN),
    ("inference", "inference", ASSISTANT),
    ("batch", "evaluation", EVALUATION),
)
PARTS = ((0.5, 0.25, 0.25), (0.25, 0.25, 0.25, 0.25), (1.0,), (0.6, 0.3), (0.1, 0.2, 0.3))
"""Into which parts HAMi gives cards away, one card after the other."""
LIVES = (35, 420)
"""Minutes that a pod lives, at least and at most."""


def mig(script: Script) -> None:
    """Every card is cut; pods follow each other on most slices, with and without a gap, and some slices stay empty."""
    for card in script.fleet.cards:
        rng = script.rng(30, card.index)
        for number, part in enumerate(card.slices):
            if rng.random() >= EMPTY_PART:
                _follow(script, Seat(card.index, part.share, number), rng)
    _settle(script)


def whole_and_parted(script: Script) -> None:
    """Cards held whole beside cards that are dealt out in parts: vNPUs, AMD's partitions."""
    for card in script.fleet.cards:
        if not card.slices:
            _follow(script, Seat(card.index, 1.0, None), script.rng(32, card.index))
    mig(script)


def side_by_side(script: Script, taken: Collection[int]) -> None:
    """Whole cards, slices and HAMi's parts, each as its host has it; nothing on the cards that are `taken`."""
    for card in (card for card in script.fleet.cards if card.index not in taken):
        rng = script.rng(33, card.index)
        parts = PARTS[card.index % len(PARTS)] if script.fleet.hosts[card.host].hardware.sharing else (1.0,)
        seats = [Seat(card.index, share, None, paints=number == 0) for number, share in enumerate(parts)]
        if card.slices:
            seats = [Seat(card.index, part.share, number) for number, part in enumerate(card.slices)]
        for seat in seats:
            _follow(script, seat, rng)
    _settle(script)


def timeslice(script: Script) -> None:
    """Every card is divided by time into two to four: a first pod is always there, the others come and go."""
    for card in script.fleet.cards:
        rng = script.rng(31, card.index)
        replicas = 2 + card.index % 3
        for number in range(replicas):
            _follow(script, Seat(card.index, 1 / replicas, None, paints=number == 0), rng)
    _settle(script)


def hami(script: Script) -> None:
    """Every card is shared by pods that were given parts of it, equal and unequal; some parts nobody asked for."""
    deal_parts(script, script.fleet.hosts)
    _settle(script)


def deal_parts(script: Script, hosts: Sequence[Host], lives: tuple[int, int] = LIVES) -> None:
    """Pods follow each other on parts of the cards of `hosts`."""
    for card in (card for host in hosts for card in host.cards):
        rng = script.rng(32, card)
        for number, share in enumerate(PARTS[card % len(PARTS)]):
            _follow(script, Seat(card, share, None, paints=number == 0), rng, lives)


def _settle(script: Script) -> None:
    nominal = {team: float(len(script.fleet.cards)) for _, _, team in KINDS}
    script.quotas = Quotas(nominal, None, None)


def _follow(script: Script, seat: Seat, rng: np.random.Generator, lives: tuple[int, int] = LIVES) -> None:
    """One pod after the other on `seat`. The one that paints a shared card is followed at once."""
    clock, last = -int(rng.integers(10, lives[1])), script.spec.last_minute
    is_first = seat.paints and seat.slice_index is None
    while clock < last:
        end = min(last, clock + int(rng.integers(*lives)))
        if end > 0:
            script.jobs.append(_job(script, seat, (clock, end), rng))
        clock = end + (0 if is_first or rng.random() < 0.3 else int(rng.integers(1, 90)))


def _job(script: Script, seat: Seat, span: tuple[int, int], rng: np.random.Generator) -> Job:
    begin, end = span
    kind, stage, team = KINDS[int(rng.integers(len(KINDS)))]
    host = script.fleet.host_of(seat.card)
    cpu = CPU_CORES_PER_SHARE * 1000
    memory = int(host.hardware.memory_mib / 8 * 0.7 * seat.share)
    ready = min(end, begin + int(rng.integers(1, 4)))
    name = script.next_id(team, kind)
    phases = (Phase(begin, ready, shapes.FREE, STARTING), Phase(ready, end, _shape(kind, rng)))
    hold = Hold(
        pod=f"{name}-0",
        host=host.index,
        card=seat.card,
        start=begin,
        ready=ready,
        end=end,
        cpu_milli=cpu,
        memory_mib=memory,
        share=seat.share,
        slice_index=seat.slice_index,
        phases=phases,
        paints=seat.paints,
    )
    return Job(
        workload_id=name,
        kind=kind,
        stage=stage,
        team=team,
        user=str(rng.choice(USERS)),
        submit=begin - int(rng.integers(0, 5)),
        start=begin,
        end=end,
        pods=1,
        num_gpu=1,
        gpu_milli=int(seat.share * 1000),
        cpu_milli=cpu,
        memory_mib=memory,
        model_set=host.hardware.model,
        holds=(hold,),
    )


def _shape(kind: str, rng: np.random.Generator) -> Shape:
    sm, fb = float(rng.uniform(0.3, 0.8)), float(rng.uniform(0.2, 0.8))
    if kind == "training":
        return shapes.training(sm, fb)
    if kind == "inference":
        return shapes.serving(sm, fb, 0.3)
    return shapes.interactive(sm, fb) if kind == "notebook" else shapes.evaluation(sm, fb)
