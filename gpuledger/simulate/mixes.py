"""The fleets on which accuracy is measured: training, serving, notebooks, Ascend, and a clean one.

Each rule's waste and the work that looks like it are planted side by side; lanes leave no gap, so that what is free is
free on purpose. Figures of the older fleets are not touched: all randomness comes from streams of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

from gpuledger.simulate import advised_stories as advised
from gpuledger.simulate import ailments, faults
from gpuledger.simulate import lookalike_stories as alike
from gpuledger.simulate import wasted_stories as wasted
from gpuledger.simulate.advised_stories import ROOM_LEFT
from gpuledger.simulate.demand import team_steps
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.notebooks import Seat, add_notebook
from gpuledger.simulate.script import Mark, Quotas, Script
from gpuledger.simulate.services import Service, add_service
from gpuledger.simulate.stage import Deck, Lane, perform
from gpuledger.simulate.stories import Story, logged, plain
from gpuledger.simulate.stranding import fill_cpus
from gpuledger.simulate.teams import ASSISTANT, BLOCKED, EVALUATION, NOTEBOOKS, POSTTRAIN, PRETRAIN, RANKING, TEAMS
from gpuledger.simulate.waiting import plan_big_only, queue_blocked, settle_quotas

HONEST: tuple[Story, ...] = (
    plain,
    logged,
    alike.told_checkpoint,
    alike.told_evaluation,
    alike.told_compile,
    alike.long_steps,
    alike.short_spins,
    alike.starved,
    alike.paused,
    alike.memory_bound,
    alike.power_capped,
    alike.silent,
    alike.long_warm_up,
)
IN_GANGS: tuple[Story, ...] = (
    wasted.finished,
    wasted.memory_held,
    wasted.hung,
    wasted.frozen,
    wasted.dead_rank,
    wasted.unused_cards,
    advised.slow_rank,
    advised.slow_clock,
    advised.low_mfu,
    advised.util_lies,
    advised.input_bound,
    advised.small_memory,
    alike.reinforced,
    *HONEST,
)
ALONE: tuple[Story, ...] = (
    wasted.never_used,
    wasted.finished,
    wasted.no_process,
    wasted.barely_idle,
    wasted.hung,
    advised.low_sm,
    advised.non_tensor,
    advised.memory_bound,
    advised.input_bound,
    advised.small_memory,
    advised.low_mfu,
    *HONEST,
)
ON_NPUS: tuple[Story, ...] = (
    plain,
    logged,
    wasted.finished,
    wasted.memory_held,
    wasted.dead_rank,
    wasted.silent_hang,
    wasted.npu_hung,
    wasted.frozen,
    wasted.no_process,
    advised.slow_rank,
    advised.low_mfu,
    alike.core_low,
    alike.told_checkpoint,
    alike.told_compile,
    alike.reinforced,
    alike.long_steps,
    alike.paused,
    alike.starved,
)
ON_NPUS_ALONE = tuple(
    story
    for story in (*ON_NPUS, wasted.never_used)
    if story not in (wasted.dead_rank, advised.slow_rank, alike.reinforced)
)
INTERACTIVE = Mark("advice", "low_activity", "interactive", "a person at a notebook: few SMs, hour after hour")
LAYOUTS = ((4, 4), (8,), (4, 2, 1, 1), (2, 2, 2, 2), (4, 2, 2))
TEAMS_IN_TURN = (POSTTRAIN, PRETRAIN, EVALUATION)


def fill_lanes(
    script: Script, hosts: Sequence[Host], gangs: Sequence[Story], alone: Sequence[Story], stream: int
) -> None:
    """Lanes on all cards of `hosts`: four cards and more play `gangs`, fewer `alone`."""
    wide, narrow = Deck(gangs, script.rng(stream, 1)), Deck(alone, script.rng(stream, 2))
    teams = cycle(TEAMS_IN_TURN)
    for host, layout in zip(hosts, cycle(LAYOUTS), strict=False):
        left = list(host.cards)
        for width in layout:
            own, left = tuple(left[:width]), left[width:]
            perform(script, Lane(own, next(teams)), wide if width >= 4 else narrow)


def _strand(script: Script, host: Host) -> None:
    """Six cards are held by small jobs; two stay free, which no whole-node pod can use."""
    deck = Deck((plain,), script.rng(53, host.index))
    perform(script, Lane(host.cards[:4], BLOCKED), deck)
    perform(script, Lane(host.cards[4:6], POSTTRAIN), deck)


def _break(script: Script, hosts: Sequence[Host]) -> None:
    """A fault of each kind, an echo, and a program's own errors; before the lanes, which keep clear of outages."""
    rng, end = script.rng(54), script.spec.end_minute
    first, second, third = (hosts[number % len(hosts)] for number in range(3))
    begin, between, last = (int(end * rng.uniform(*part)) for part in ((0.2, 0.3), (0.4, 0.5), (0.6, 0.7)))
    ailments.lose(script, first, 1, begin, 500)
    ailments.poison(script, second, 5, between, 300)
    ailments.corrupt(script, third, 6, last)
    if len(hosts) < 3:  # one host has several of them: by the rules' definitions it is worn out
        ailments.mark_worn_out(script, first, begin, last + 1)
    ailments.blame_user(script, first, 2, int(end * rng.uniform(0.3, 0.5)), rng)


def _overheat(script: Script, host: Host, slot: int) -> None:
    begin = int(script.spec.end_minute * script.rng(55).uniform(0.5, 0.6)) // 60 * 60
    ailments.heat(script, host.cards[slot], (begin, begin + 600))


def _wait(script: Script) -> None:
    settle_quotas(script)
    queue_blocked(script, script.rng(56))


def training(script: Script) -> None:
    """Gangs and single cards; hosts whose rest is stranded; faults, heat, and an exporter that falls silent."""
    plan_big_only(script, script.rng(50))
    h100, a100 = script.fleet.pool("h100-train"), script.fleet.pool("a100-shared")
    stranded, full, hosts = a100[0], a100[1], [*h100, *a100[2:]]
    _break(script, hosts)
    ailments.wear_out(script, hosts[-1], int(script.spec.end_minute * script.rng(58).uniform(0.2, 0.3)))
    faults.mute_exporter(script, hosts[1 % len(hosts)], script.rng(51))
    fill_lanes(script, hosts, IN_GANGS, ALONE, 52)
    _strand(script, stranded)
    fill_cpus(script, full, script.rng(57))
    _overheat(script, stranded, 4)
    _wait(script)


def serving(script: Script) -> None:
    """Services of all tides beside some training."""
    plan_big_only(script, script.rng(60))
    hosts = [*script.fleet.pool("h20-serve"), *script.fleet.pool("l40s-serve")]
    stranded, *train = script.fleet.pool("h100-train")
    _break(script, train)
    _serve(script, hosts, ("concentrated", "thin", "scaled", "steady", "bright"))
    faults.mute_exporter(script, hosts[0], script.rng(51))
    fill_lanes(script, train, IN_GANGS, ALONE, 62)
    _strand(script, stranded)
    _overheat(script, stranded, 4)
    _wait(script)


def notebooks(script: Script) -> None:
    """People at whole cards, beside batch work on single cards."""
    plan_big_only(script, script.rng(70))
    seats = [card for host in script.fleet.pool("l40s-serve") for card in host.cards]
    stranded, *shared = script.fleet.pool("a100-shared")
    train = script.fleet.pool("h100-train")
    _break(script, train)
    ailments.flap(script, shared[-1], int(script.spec.end_minute * script.rng(73).uniform(0.3, 0.5)))
    habits = cycle(("returned", "kept", "returned", "returned", "abandoned", "returned"))
    for card in [*seats, *(card for host in shared for card in host.cards)]:
        add_notebook(
            script, NOTEBOOKS, Seat(card, 1.0, marks=(ROOM_LEFT,)), script.rng(71, card), next(habits), INTERACTIVE
        )
    fill_lanes(script, train, IN_GANGS, ALONE, 72)
    _strand(script, stranded)
    _overheat(script, stranded, 4)
    _wait(script)


def ascend(script: Script) -> None:
    """NPUs that say AI Core activity and no SMs, beside GPUs."""
    plan_big_only(script, script.rng(80))
    stranded, *npus = script.fleet.pool("npu-train")
    small, *train = script.fleet.pool("h100-train")
    _break(script, train)
    rng, end = script.rng(84), script.spec.end_minute
    ailments.ail_npus(script, npus[0], int(end * rng.uniform(0.2, 0.4)), int(end * rng.uniform(0.5, 0.7)))
    fill_lanes(script, npus, ON_NPUS, ON_NPUS_ALONE, 82)
    fill_lanes(script, train, IN_GANGS, ALONE, 83)
    for host in (stranded, small):
        _strand(script, host)
    _overheat(script, small, 4)
    _wait(script)


def clean(script: Script) -> None:
    """Nothing to find: honest work on every card, much of which looks like waste, and services of the right size."""
    train = [*script.fleet.pool("h100-train"), *script.fleet.pool("a100-shared")]
    fill_lanes(script, train, (*HONEST, alike.reinforced), HONEST, 90)
    _serve(script, script.fleet.pool("h20-serve"), ("bright",))
    faults.mute_exporter(script, train[0], script.rng(51))
    end = script.spec.end_minute
    used = {team.name: float(team_steps(script, team.name, 0, end).demand.max()) for team in TEAMS}
    script.quotas = Quotas({team: max(1.0, gpus) for team, gpus in used.items() if gpus}, None, None)


def _serve(script: Script, hosts: Sequence[Host], styles: Sequence[str]) -> None:
    """Two services of four replicas on each host."""
    turns = cycle(styles)
    for host in hosts:
        for first, team in ((0, ASSISTANT), (4, RANKING)):
            rng = script.rng(61, host.index, first)
            service = Service(
                team=team,
                style=next(turns),
                cards=host.cards[first : first + 4],
                gpus=1,
                floor=2,
                shift_minutes=int(rng.integers(-60, 60)),
                sm=float(rng.uniform(0.62, 0.75)),
                fb=0.95,
                tide=0.05,
                is_graded=True,
            )
            add_service(script, service, rng)
