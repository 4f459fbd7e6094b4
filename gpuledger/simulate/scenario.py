"""The named scripts: which host plays which role, scaled to the size of the fleet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle

import numpy as np

from gpuledger.errors import BadInput
from gpuledger.simulate import faults, mixes, shapes, sharing
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.lanes import Deck, Lane, Request, fill, pods_job
from gpuledger.simulate.notebooks import Seat, add_classroom, add_notebook
from gpuledger.simulate.one_of_each import one_of_each
from gpuledger.simulate.plots import GANGS, PACKED
from gpuledger.simulate.script import Job, Phase, Quotas, Script
from gpuledger.simulate.services import Service, add_service
from gpuledger.simulate.spec import FleetSpec
from gpuledger.simulate.stranding import fill_cpus, strand
from gpuledger.simulate.teams import (
    ASSISTANT,
    BLOCKED,
    EVALUATION,
    NOTEBOOKS,
    POSTTRAIN,
    PRETRAIN,
    RANKING,
    UNDERUSED,
)
from gpuledger.simulate.waiting import burst, plan_big_only, queue_blocked, settle_quotas

GANG_HOSTS = (2, 1, 4, 1, 8, 2, 1)
GANG_TEAMS = (PRETRAIN, BLOCKED, PRETRAIN, POSTTRAIN, PRETRAIN, POSTTRAIN, PRETRAIN)
PACKED_LAYOUTS = ((2, 2, 1, 1, 2), (4, 2, 1, 1), (4, 4), (1,) * 8)
PACKED_TEAMS = (POSTTRAIN, UNDERUSED, BLOCKED, EVALUATION, POSTTRAIN, EVALUATION, POSTTRAIN)
SERVICE_STYLES = ("concentrated", "spread", "scaled")
NOTEBOOK_HABITS = ("kept", "returned", "returned", "returned")
SLICE_HABITS = (*("returned",) * 3, "kept", *("returned",) * 3, "abandoned", "returned", "kept")
SMALL_FLEET = 8
LIVES_UNDER_HAMI = (240, 2_880)


@dataclass(slots=True)
class Roles:
    """Which hosts do what."""

    gangs: list[list[Host]]
    packed: list[Host]
    fragmented: list[Host]
    cpu_full: list[Host]
    sliced: list[Host]
    serving: list[Host]
    spare: list[Host]


def cast_roles(script: Script) -> Roles:
    """Give whole NVIDIA hosts their roles; fewer than eight of them have neither fragmented nor spare ones."""
    fleet, nodes = script.fleet, _size(script)
    training, shared = fleet.pool("h100-train"), fleet.pool("a100-shared")
    packed = [training.pop() for _ in range(max(1, round(len(training) * 0.25)))]
    fragmented = [shared.pop(0) for _ in range(max(1, nodes // 12) if nodes >= SMALL_FLEET else 0)]
    cpu_full = [shared.pop(0) for _ in range(max(1, nodes // 28) if nodes >= SMALL_FLEET else 0)]
    spare = [shared.pop() for _ in range(nodes // 32)]
    serving = [*fleet.pool("h20-serve"), *fleet.pool("l40s-serve")]
    return Roles(_gangs(training), packed + shared, fragmented, cpu_full, fleet.pool("a100-mig"), serving, spare)


def _size(script: Script) -> int:
    """How many hosts have a role: those of other vendors, and those that HAMi shares, have work of their own."""
    hardware = (host.hardware for host in script.fleet.hosts)
    return sum(of.facts.vendor == "nvidia" and not of.sharing for of in hardware)


def _gangs(hosts: list[Host]) -> list[list[Host]]:
    gangs: list[list[Host]] = []
    left = list(hosts)
    for size in cycle(GANG_HOSTS):
        if not left:
            return gangs
        gangs.append(left[:size])
        left = left[size:]
    return gangs


def mixed(script: Script) -> None:
    """A fleet as they are: training, services with a tide, notebooks, faults, planted waste and look-alikes."""
    roles = cast_roles(script)
    plan_big_only(script, script.rng(1))
    free_cards = _break_things(script, roles, script.rng(2))
    _train(script, roles, free_cards)
    _train_elsewhere(script)
    for host in roles.fragmented:
        strand(script, host, script.rng(5, host.index))
    for host in roles.cpu_full:
        fill_cpus(script, host, script.rng(6, host.index))
    _serve(script, roles.serving)
    _sit_down(script, roles, script.rng(8))
    settle_quotas(script)
    queue_blocked(script, script.rng(9))
    burst(script, script.rng(10))


def _break_things(script: Script, roles: Roles, rng: np.random.Generator) -> dict[int, tuple[int, ...]]:
    """Plant outages and spares; gives the cards of each packed host that lanes may use."""
    usable, nodes = {host.index: host.cards for host in roles.packed}, _size(script)
    if nodes < SMALL_FLEET:
        return usable
    for host in roles.spare:
        faults.set_aside(script, host, host.cards)
    if not roles.spare:
        host = roles.packed[-1]
        faults.set_aside(script, host, host.cards[6:])
        usable[host.index] = host.cards[:6]
    for number in range(1 + nodes // 48):
        faults.not_ready(script, roles.gangs[-1 - number % len(roles.gangs)][0], rng, 0.35 + 0.1 * number)
    for number in range(1 + nodes // 24):
        host = roles.packed[number % len(roles.packed)]
        faults.lose_card(script, host, 1 + number % 4, rng, 0.15 + 0.06 * number)
        faults.poison_card(script, host, 5, rng, 0.6 + 0.05 * number)
    host = roles.serving[-1]
    faults.repair(script, host, host.cards if nodes >= 2 * SMALL_FLEET else host.cards[7:], rng)
    faults.mute_exporter(script, roles.cpu_full[0], rng)
    return usable


def _train(script: Script, roles: Roles, usable: Mapping[int, tuple[int, ...]]) -> None:
    gangs = [
        Lane(tuple(card for host in gang for card in host.cards), team, shortest=360, longest=1_800)
        for gang, team in zip(roles.gangs, cycle(GANG_TEAMS), strict=False)
    ]
    fill(script, gangs, Deck(GANGS, script.rng(3)))
    packed, teams = [], cycle(PACKED_TEAMS)
    for host, layout in zip(roles.packed, cycle(PACKED_LAYOUTS), strict=False):
        left = list(usable[host.index])
        for width in layout:
            own, left = tuple(left[:width]), left[width:]
            if own:
                team = next(teams)
                packed.append(Lane(own, team, kind="batch" if team == EVALUATION else "training"))
    fill(script, packed, Deck(PACKED, script.rng(4)))


def _train_elsewhere(script: Script) -> None:
    """Jobs with logs on NPUs, gangs and small jobs on AMD's cards, parts under HAMi; nothing where there are none."""
    sharing.deal_parts(script, script.fleet.pool("l40s-hami"), LIVES_UNDER_HAMI)
    mixes.fill_lanes(script, script.fleet.pool("npu-train"), mixes.ON_NPUS, mixes.ON_NPUS_ALONE, 11)
    hosts = script.fleet.pool("mi300x-train")
    gangs = [Lane(host.cards, team) for host, team in zip(hosts[::2], cycle(GANG_TEAMS), strict=False)]
    small = [
        Lane(host.cards[first : first + 4], team)
        for host in hosts[1::2]
        for first, team in ((0, POSTTRAIN), (4, BLOCKED))
    ]
    fill(script, gangs, Deck(GANGS, script.rng(12, 1)))
    fill(script, small, Deck(PACKED, script.rng(12, 2)))


def _serve(script: Script, hosts: list[Host]) -> None:
    """Large hosts hold one service; small ones a tidal one on two cards and a steady one on three."""
    styles = cycle(SERVICE_STYLES)
    for number, host in enumerate(hosts):
        rng = script.rng(7, host.index)
        team = (ASSISTANT, RANKING)[number % 2]
        if host.hardware.model == "H20":
            _offer(script, (team, next(styles)), host.cards, 2, rng)
        else:
            _offer(script, (team, next(styles)), host.cards[:2], 1, rng)
            _offer(script, (team, "steady"), host.cards[2:5], 1, rng)


def _offer(script: Script, what: tuple[str, str], cards: tuple[int, ...], gpus: int, rng: np.random.Generator) -> None:
    team, style = what
    service = Service(
        team=team,
        style=style,
        cards=cards,
        gpus=gpus,
        floor=1 if len(cards) < 8 else 2,
        shift_minutes=int(rng.integers(-60, 60)),
        sm=float(rng.uniform(0.35, 0.55)),
        fb=float(rng.uniform(0.6, 0.9)),
        server="" if style == "scaled" else "vllm",
    )
    add_service(script, service, rng)


def _sit_down(script: Script, roles: Roles, rng: np.random.Generator) -> None:
    """Notebooks: whole cards and quarters on the small hosts, MIG slices on theirs."""
    habits = cycle(NOTEBOOK_HABITS)
    for host in roles.serving:
        if host.hardware.model == "H20":
            continue
        for card in host.cards[5:7]:
            add_notebook(script, NOTEBOOKS, Seat(card, 1.0), rng, next(habits))
        add_classroom(script, NOTEBOOKS, host.cards[7], rng)
    seats = (
        Seat(card, part.share, number)
        for host in roles.sliced
        for card in host.cards
        for number, part in enumerate(script.fleet.cards[card].slices)
    )
    for seat, habit in zip(seats, cycle(SLICE_HABITS), strict=False):
        add_notebook(script, (NOTEBOOKS, EVALUATION)[seat.card % 2], seat, rng, habit)


def busy(script: Script) -> None:
    """Every card is held and works all the time; each team uses exactly its quota and nothing waits."""
    teams, last = (PRETRAIN, POSTTRAIN), script.spec.last_minute
    for host in script.fleet.hosts:
        rng = script.rng(20, host.index)
        want = Request(host.cards, teams[host.index % 2], "training", "pretraining", "alice")
        shape = shapes.training(float(rng.uniform(0.62, 0.85)), 0.7)
        job = pods_job(script, want, (-700, -600, -595, last), (Phase(-595, last, shape),))
        script.jobs += _by_slice(script, job) if host.hardware.is_mig else [job]
    script.quotas = Quotas(
        {team: 8.0 * sum(host.index % 2 == number for host in script.fleet.hosts) for number, team in enumerate(teams)},
        None,
        None,
    )


def _by_slice(script: Script, job: Job) -> list[Job]:
    """One job for each slice of the cards that `job` would hold whole."""
    jobs = []
    for hold in job.holds:
        for number, part in enumerate(script.fleet.cards[hold.card or 0].slices):
            name = script.next_id(job.team, "training")
            cpu, memory = int(hold.cpu_milli * part.share), int(hold.memory_mib * part.share)
            own = replace(hold, pod=f"{name}-0", slice_index=number, share=part.share, cpu_milli=cpu, memory_mib=memory)
            jobs.append(
                replace(
                    job,
                    workload_id=name,
                    num_gpu=1,
                    gpu_milli=int(part.share * 1000),
                    cpu_milli=cpu,
                    memory_mib=memory,
                    holds=(own,),
                )
            )
    return jobs


SCENARIOS: Mapping[str, Callable[[Script], None]] = {
    "mixed": mixed,
    "every_vendor": mixed,
    "busy": busy,
    "mig": sharing.mig,
    "npu": sharing.whole_and_parted,
    "amd": sharing.whole_and_parted,
    "timeslice": sharing.timeslice,
    "hami": sharing.hami,
    "training": mixes.training,
    "serving": mixes.serving,
    "notebooks": mixes.notebooks,
    "ascend": mixes.ascend,
    "clean": mixes.clean,
    "one_of_each": one_of_each,
}


def write_script(spec: FleetSpec) -> Script:
    """The script of `spec`. Raises BadInput when its scenario is unknown."""
    if spec.scenario not in SCENARIOS:
        raise BadInput("scenario", f"unknown; known: {', '.join(sorted(SCENARIOS))}")
    script = Script.empty(spec)
    SCENARIOS[spec.scenario](script)
    return script
