"""The three rules against a simulated fleet whose truth the script wrote: precision and recall by GPU-hours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl
import pytest

from analyzers.rules.fragmentation import Fragmentation
from analyzers.rules.idle_allocation import IdleAllocation
from analyzers.rules.quota_balance import QuotaBalance
from gpuledger.model import Window
from gpuledger.simulate import FleetSpec, Simulation, hide, simulate
from warehouse import Warehouse
from warehouse.ledger import AUDITS

SEEDS = (1, 2)


@dataclass(frozen=True)
class Judged:
    simulation: Simulation
    house: Warehouse
    window: Window
    truth: pl.DataFrame


def load(simulation: Simulation) -> Warehouse:
    house = Warehouse.open(None)
    for number, (record, table) in enumerate(simulation.records()):
        result = house.ingest(record, table, f"batch-{number}")
        assert not result.rejected, (record, result.rejected)
    return house


@pytest.fixture(scope="module", params=SEEDS)
def judged(request: pytest.FixtureRequest) -> Iterator[Judged]:
    simulation = simulate(FleetSpec(nodes=8, days=14, seed=request.param))
    window = Window(simulation.spec.start_at, simulation.spec.end_at)
    with load(simulation) as house:
        assert house.build_ledger(window).violations == 0
        yield Judged(simulation, house, window, pl.DataFrame(pl.from_arrow(simulation.truth())))


def spans(house: Warehouse, condition: pl.Expr) -> pl.DataFrame:
    with house.writing() as cursor:
        table = cursor.sql("from state_span").to_arrow_table()
    return pl.DataFrame(pl.from_arrow(table)).filter(condition)


def overlap_hours(found: pl.DataFrame, truth: pl.DataFrame, keys: list[str]) -> float:
    """GPU-hours that both claim: the intersection of their stretches, at the smaller of their shares."""
    both = found.join(truth, on=keys, suffix="_true", nulls_equal=True)
    begin = pl.max_horizontal("from_at", "from_at_true")
    end = pl.min_horizontal("until_at", "until_at_true")
    hours = (end - begin).dt.total_microseconds().clip(0) / 3.6e9
    return float(both.select((hours * pl.min_horizontal("share", "share_true")).sum()).item())


def with_share(truth: pl.DataFrame) -> pl.DataFrame:
    length = (pl.col("until_at") - pl.col("from_at")).dt.total_microseconds() / 3.6e9
    return truth.with_columns(share=pl.col("gpu_hours") / length)


def check(overlap: float, found: float, planted: float) -> None:
    print(f"precision {overlap / found:.4f} recall {overlap / planted:.4f} of {planted:.1f} GPU-hours")  # noqa: T201 the figure that a release note quotes
    assert overlap / found >= 0.95
    assert overlap / planted >= 0.95


def planted(judged: Judged, rule: str) -> pl.DataFrame:
    rows = judged.truth.filter((pl.col("kind") == "waste") & (pl.col("rule") == rule))
    assert rows.height
    return with_share(rows)


def test_audits_return_no_row(judged: Judged) -> None:
    for name in AUDITS:
        assert judged.house.query(name, from_at=judged.window.from_at, to_at=judged.window.to_at).num_rows == 0


def test_inventory_is_the_sum_of_the_states(judged: Judged) -> None:
    hours = sum(
        row["gpu_hours"]
        for row in judged.house.query(
            "ledger_by", by="state", from_at=judged.window.from_at, to_at=judged.window.to_at
        ).to_pylist()
    )
    assert hours == pytest.approx(8 * 8 * 14 * 24)


def test_idle_allocation(judged: Judged) -> None:
    result = IdleAllocation().run(judged.house, judged.window, {})
    rows = [
        {
            "workload_id": finding.action_params["workload_id"],
            "only_pod": finding.subject_id if finding.subject_kind == "pod" else None,
            "window_start": finding.window_start,
            "window_end": finding.window_end,
        }
        for finding in result.findings
    ]
    held = spans(judged.house, pl.col("activity") == "idle").select(
        "workload_id", "pod", "gpu_uuid", "from_at", "until_at", "share"
    )
    zone = pl.Datetime("us", "UTC")
    claims = pl.DataFrame(rows).with_columns(pl.col("window_start", "window_end").cast(zone))
    found = (
        held.join(claims, on="workload_id")
        .filter(pl.col("only_pod").is_null() | (pl.col("only_pod") == pl.col("pod")))
        .with_columns(
            from_at=pl.max_horizontal("from_at", "window_start"), until_at=pl.min_horizontal("until_at", "window_end")
        )
        .filter(pl.col("from_at") < pl.col("until_at"))
    )
    truth = planted(judged, "idle_allocation").rename({"subject_id": "workload_id"})
    both = overlap_hours(found, truth, ["workload_id", "gpu_uuid", "pod"])
    check(both, sum(finding.gpu_hours_wasted for finding in result.findings), float(truth["gpu_hours"].sum()))


def test_fragmentation(judged: Judged) -> None:
    result = Fragmentation().run(judged.house, judged.window, {})
    truth = planted(judged, "fragmentation")
    stranded = spans(judged.house, pl.col("state") == "free_stranded")
    both = overlap_hours(stranded, truth, ["gpu_uuid"])
    found = sum(finding.gpu_hours_wasted for finding in result.findings)
    # A finding is a stretch of an hour or more; what is shorter is stranded in the ledger but nobody's finding.
    in_the_ledger = float(stranded["gpu_hours"].sum())
    short = in_the_ledger - found
    assert short >= -1e-6
    check(min(both, found), found, float(truth["gpu_hours"].sum()))
    assert both / in_the_ledger >= 0.95


def test_quota_balance(judged: Judged) -> None:
    result = QuotaBalance().run(judged.house, judged.window, {})
    # Unmet demand is no GPU-hour of the ledger, so a blocked tenant's finding wastes none: its totals carry the number.
    by_label = {"underused": "idle_quota_gpu_hours", "blocked": "unmet_gpu_hours"}
    accused = {finding.tenant for finding in result.findings}
    claimed = {
        (row["label"], row["tenant"]): row[by_label[row["label"]]]
        for row in result.totals["tenants"]
        if row["tenant"] in accused
    }
    truth = {
        (row["cause"], row["subject_id"]): row["gpu_hours"]
        for row in planted(judged, "quota_balance").iter_rows(named=True)
    }
    both = sum(min(claimed.get(key, 0.0), hours) for key, hours in truth.items())
    check(both, sum(claimed.values()), sum(truth.values()))


def test_a_busy_fleet_gives_no_finding() -> None:
    simulation = simulate(FleetSpec(nodes=8, days=14, seed=1, scenario="busy"))
    window = Window(simulation.spec.start_at, simulation.spec.end_at)
    with load(simulation) as house:
        assert house.build_ledger(window).violations == 0
        for rule in (IdleAllocation(), Fragmentation(), QuotaBalance()):
            assert list(rule.run(house, window, {}).findings) == []


def test_hidden_cards_leave_the_total_unchanged_and_are_named() -> None:
    simulation = simulate(FleetSpec(nodes=8, days=1, seed=4, scenario="busy"))
    window = Window(simulation.spec.start_at, simulation.spec.end_at)
    cards = {
        host.name: [simulation.fleet.cards[card].gpu_uuid for card in host.cards] for host in simulation.fleet.hosts
    }
    names = list(cards)
    hidden = [cards[names[5]][0], cards[names[6]][7]]
    with load(hide(simulation, scheduler_nodes=names[:3], cards=hidden)) as house:
        assert house.build_ledger(window).violations == 0
        rows = house.query("ledger_by", by="state", from_at=window.from_at, to_at=window.to_at).to_pylist()
        assert sum(row["gpu_hours"] for row in rows) == pytest.approx(8 * 8 * 24)
        differences = house.query("inventory_differences").to_pylist()
    assert len(differences) == 26
    by_kind = {
        kind: {row["subject"] for row in differences if row["kind"] == kind}
        for kind in ("not_in_scheduler", "not_in_telemetry")
    }
    assert by_kind["not_in_scheduler"] == {card for name in names[:3] for card in cards[name]}
    assert by_kind["not_in_telemetry"] == set(hidden)
