from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuledger.simulate import FleetSpec, simulate
from gpuledger.simulate.script import Hold, Script

Change = tuple[int, float]


def _peak(changes: list[Change]) -> float:
    """The highest running sum; at one instant what ends goes before what starts."""
    level = best = 0.0
    for _, amount in sorted(changes):
        level += amount
        best = max(best, level)
    return best


def _spans(holds: list[tuple[Hold, float]]) -> list[Change]:
    return [change for hold, amount in holds for change in ((hold.start, amount), (hold.end, -amount))]


def _assert_no_conflicts(script: Script) -> None:
    cards: dict[object, list[tuple[Hold, float]]] = defaultdict(list)
    slices: dict[tuple[int, int | None], list[tuple[Hold, float]]] = defaultdict(list)
    cpus: dict[int, list[tuple[Hold, float]]] = defaultdict(list)
    memory: dict[int, list[tuple[Hold, float]]] = defaultdict(list)
    for hold in (hold for job in script.jobs for hold in job.holds):
        assert hold.start <= hold.ready <= hold.end
        assert hold.start < hold.end
        cpus[hold.host].append((hold, hold.cpu_milli))
        memory[hold.host].append((hold, hold.memory_mib))
        if hold.card is not None:
            assert script.fleet.cards[hold.card].host == hold.host
            cards[hold.card].append((hold, hold.share))
            slices[hold.card, hold.slice_index].append((hold, hold.share))
    for held in cards.values():
        assert _peak(_spans(held)) <= 1 + 1e-9
    for (card, part), held in slices.items():
        whole = script.fleet.cards[card].slices
        assert (part is None) != bool(whole)
        assert _peak(_spans(held)) <= (1 if part is None else whole[part].share) + 1e-9
    for host, held in cpus.items():
        assert _peak(_spans(held)) <= script.fleet.hosts[host].hardware.cpu_cores * 1000
    for host, held in memory.items():
        assert _peak(_spans(held)) <= script.fleet.hosts[host].hardware.memory_mib


def _assert_nothing_on_what_is_out(script: Script) -> None:
    for outage in script.outages:
        for hold in (hold for job in script.jobs for hold in job.holds):
            if hold.card in outage.cards:
                assert hold.end <= outage.start or hold.start >= outage.end, (outage, hold)


def _assert_phases_fit(script: Script) -> None:
    for hold in (hold for job in script.jobs for hold in job.holds):
        last = hold.start
        for phase in hold.phases:
            assert last <= phase.start < phase.end <= hold.end
            last = phase.end


@settings(max_examples=25, deadline=None)
@given(
    nodes=st.integers(1, 20),
    days=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    scenario=st.sampled_from(("mixed", "mixed", "mixed", "busy")),
)
def test_no_card_cpu_or_memory_is_given_away_twice(nodes: int, days: int, seed: int, scenario: str) -> None:
    script = simulate(FleetSpec(nodes=nodes, days=days, seed=seed, scenario=scenario)).script
    _assert_no_conflicts(script)
    _assert_nothing_on_what_is_out(script)
    _assert_phases_fit(script)


@pytest.mark.parametrize("seed", [1, 2])
def test_jobs_are_submitted_before_they_start_and_gangs_start_together(seed: int) -> None:
    script = simulate(FleetSpec(nodes=24, days=2, seed=seed)).script
    assert any(job.is_gang and job.pods * job.num_gpu >= 32 for job in script.jobs)
    for job in script.jobs:
        if job.start is not None:
            assert job.submit <= job.start <= job.end
        if job.is_gang:
            assert len({hold.start for hold in job.holds}) == 1
            assert len(job.holds) == job.pods * job.num_gpu


def test_the_fleet_runs_all_kinds_of_work(small) -> None:
    workloads = small.tables["workload"]
    assert set(workloads["kind"]) == {"training", "inference", "notebook", "batch"}
    assert (workloads["num_gpu"] == 0).any()
    assert (workloads["gpu_milli"] == 250).any()
    assert (small.tables["allocation"]["slice_id"] != "").any()
    assert (workloads["min_replicas"] > 0).any()
    assert set(small.tables["condition"]["condition"]) == {"not_ready", "gpu_lost", "fatal_xid", "spare"}
    assert "under_repair" in set(small.tables["asset"]["status"])
