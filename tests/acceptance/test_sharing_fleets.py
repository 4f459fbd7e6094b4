"""Fleets under MIG, time-slicing and HAMi close to physical cards; hours per owner are the script's, from sightings.

The scheduler says nothing here: no allocation and no workload is loaded. Who held what comes from the pods that pages
show and from the pods' own records. Every minute of an owner is compared, not only sums.

With pods' records hours are exact: the records say when a pod ran, and sightings only where. Without them a pod run is
known to one interval: it is seen up to one too late, and held up to one too long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from collector.devices.page import parse
from collector.exposition import ExpositionParser
from collector.kube_state_metrics.book import PodBook
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from collector.sources.hami import PAGES
from gpuledger.model import Window, to_table
from gpuledger.simulate import FleetSpec, Simulation, simulate
from warehouse import Warehouse
from warehouse.ledger import AUDITS

pytestmark = pytest.mark.slow

NODES, DAYS = 2, 1
CARDS = NODES * 8
UNTOLD = ("allocation", "workload")
FAULTS = {"label_flap_ratio": 0.1, "linger_minutes": 30}


def fleet(scenario: str, **options: Any) -> Simulation:
    return simulate(FleetSpec(nodes=NODES, days=DAYS, seed=3, scenario=scenario, tells_pods=True, **options))


@contextmanager
def ledger(
    simulation: Simulation, pods: pa.Table | None = None, *, without: tuple[str, ...] = ()
) -> Iterator[Warehouse]:
    """A warehouse with the ledger of what was seen; `pods` instead of the back-fill's own."""
    with Warehouse.open(None) as house:
        for number, (record, told) in enumerate(simulation.records()):
            table = pods if pods is not None and record == "pod" else told
            if record not in (*UNTOLD, *without):
                assert not house.ingest(record, table, f"batch-{number}").rejected
        assert house.build_ledger(window(simulation)).violations == 0
        yield house


def window(simulation: Simulation) -> Window:
    return Window(simulation.spec.start_at, simulation.spec.end_at)


def spans(house: Warehouse) -> pl.DataFrame:
    with house.writing() as cursor:
        return pl.DataFrame(pl.from_arrow(cursor.sql("from state_span").to_arrow_table()))


def truth(simulation: Simulation) -> pl.DataFrame:
    return pl.DataFrame(pl.from_arrow(simulation.pod_hours()))


def check_closed(simulation: Simulation, house: Warehouse) -> None:
    """Each card counts 24 hours a day, whole: no card twice, none missing, and no audit has a row."""
    whole = window(simulation)
    for name in AUDITS:
        assert house.query(name, from_at=whole.from_at, to_at=whole.to_at).num_rows == 0, name
    by_card = spans(house).group_by("gpu_uuid").agg(pl.col("gpu_hours").sum())
    assert set(by_card["gpu_uuid"]) == {card.gpu_uuid for card in simulation.fleet.cards}
    assert by_card["gpu_hours"].to_list() == pytest.approx([24.0 * DAYS] * CARDS, abs=1e-9)
    rows = house.query("ledger_by", by="state", from_at=whole.from_at, to_at=whole.to_at).to_pylist()
    assert sum(row["gpu_hours"] for row in rows) == pytest.approx(24.0 * DAYS * CARDS, abs=1e-9)


def difference(simulation: Simulation, house: Warehouse) -> pl.DataFrame:
    """Hours of each pod on each card or slice, found and true; what has no owner stays out."""
    found = spans(house).filter(pl.col("workload_id").is_not_null() & (pl.col("workload_id") != ""))
    key = ["pod", "gpu_uuid", "slice_id"]
    both = truth(simulation).join(
        found.group_by(key).agg(pl.col("gpu_hours").sum().alias("found")), on=key, how="full", coalesce=True
    )
    return both.with_columns(pl.col("gpu_hours", "found").fill_null(0.0)).with_columns(
        off=(pl.col("found") - pl.col("gpu_hours")).abs()
    )


def worst(both: pl.DataFrame) -> float:
    """The largest difference, in GPU-hours."""
    return float(both["off"].to_numpy().max())


def by_owner(simulation: Simulation, house: Warehouse) -> tuple[dict[str, float], dict[str, float]]:
    held = spans(house).filter(pl.col("workload_id").is_not_null() & (pl.col("workload_id") != ""))
    found = held.group_by("workload_id").agg(pl.col("gpu_hours").sum())
    true = truth(simulation).group_by("workload_id").agg(pl.col("gpu_hours").sum())
    return dict(found.iter_rows()), dict(true.iter_rows())


@pytest.mark.parametrize("options", [{}, FAULTS], ids=["steady", "flapping and lingering"])
@pytest.mark.parametrize("scenario", ["mig", "timeslice", "hami"])
def test_it_closes_and_each_owner_has_the_hours_that_it_held(scenario, options):
    simulation = fleet(scenario, **options)
    with ledger(simulation) as house:
        check_closed(simulation, house)
        found, true = by_owner(simulation, house)
        assert len(true) > 250
        assert found == pytest.approx(true, abs=1e-9)
        assert worst(difference(simulation, house)) < 1e-9


@pytest.mark.parametrize("scenario", ["mig", "timeslice"])
def test_pods_read_from_kube_state_metrics_give_the_same(scenario):
    """Scraped every half hour, while objects of completed pods stay for an hour."""
    simulation = fleet(scenario, **FAULTS)
    spec, book, rows = simulation.spec, PodBook(cluster="shanghai"), []
    reader = ExpositionParser(lambda series: series)
    for minute in range(0, spec.end_minute + 1, 30):
        at = spec.start_at + timedelta(minutes=minute)
        page = [(series, value, at) for series, value, _ in reader.parse(simulation.kube_state_page(at)).samples]
        rows += book.feed(page, is_whole_page=True).get("pod", [])
    last = {row.uid: row for row in rows}
    with ledger(simulation, to_table("pod", last.values())) as house:
        check_closed(simulation, house)
        assert worst(difference(simulation, house)) < 1e-9


@pytest.mark.parametrize("scenario", ["mig", "timeslice", "hami"])
def test_without_pods_records_a_run_is_known_to_one_interval(scenario):
    simulation = fleet(scenario, interval_seconds=300)
    with ledger(simulation, without=("pod",)) as house:
        check_closed(simulation, house)
        off = difference(simulation, house)
        assert 0 < worst(off) <= 300 / 3600
        found, true = (float(off[column].to_numpy().sum()) for column in ("found", "gpu_hours"))
        assert found == pytest.approx(true, rel=0.01)


@pytest.mark.parametrize("has_pods", [True, False], ids=["with pods' records", "pages alone"])
def test_hamis_two_pages_make_the_ledger(has_pods):
    """The monitor sees containers and not their parts; the scheduler's page, a minute later, tells those."""
    simulation = fleet("hami", interval_seconds=600)
    rows: dict[str, list[Any]] = defaultdict(list)
    mapping = load("hami")
    monitors = {host.name: MappedTarget(mapping, interval_seconds=600) for host in simulation.fleet.hosts}
    scheduler = MappedTarget(mapping.model_copy(update={"source": PAGES["scheduler"]}), interval_seconds=600)
    for minute in range(0, simulation.spec.end_minute, 10):
        at = simulation.spec.start_at + timedelta(minutes=minute)
        later = at + timedelta(minutes=1)
        seen = [parse(simulation.node_page(name, at), at, target) for name, target in monitors.items()]
        seen.append(parse(simulation.hami_scheduler_page(later), later, scheduler))
        for one in seen:
            for record in ("reading", "holding", "source_read"):
                rows[record] += getattr(one, "reads" if record == "source_read" else f"{record}s")
    told = ("reading", "holding", "source_read") if has_pods else ("reading", "holding", "source_read", "pod")
    with ledger(simulation, without=told) as house:
        for record, found in rows.items():
            assert not house.ingest(record, to_table(record, found), record).rejected
        assert house.build_ledger(window(simulation)).violations == 0
        check_closed(simulation, house)
        off = difference(simulation, house)
        assert worst(off) <= 600 / 3600
        if has_pods:  # exact, but for pods that came after the last page of the day
            assert worst(off.filter(pl.col("found") > 0)) <= 1e-9
            unseen, whole = off.filter(pl.col("found") == 0)["gpu_hours"].to_numpy(), off["gpu_hours"].to_numpy()
            assert unseen.sum() < 0.001 * whole.sum()


def test_a_lingering_pod_holds_nothing_and_its_successor_the_whole_slice():
    """Counted by hand: of one slice the pods of the day, in order, as the script has them."""
    simulation = fleet("mig", **FAULTS)
    card = next(card for card in simulation.fleet.cards if card.slices[0].profile == "7g.80gb")
    own = truth(simulation).filter(pl.col("gpu_uuid") == card.gpu_uuid)
    with ledger(simulation) as house:
        held = spans(house).filter((pl.col("gpu_uuid") == card.gpu_uuid) & (pl.col("workload_id") != ""))
    assert set(held["share"].round(9)) == {1.0}
    assert held["gpu_hours"].sum() == pytest.approx(own["gpu_hours"].sum(), abs=1e-9)
    assert own.height > 3
