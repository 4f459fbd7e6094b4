"""A fleet of every vendor, cut, shared and serving, read from its pages: it closes to physical cards by vendor.

Pages of dcgm-exporter (whole cards and MIG), HAMi's two, npu-exporter, AMD's exporter, vLLM and SGLang. Nobody declares
an inventory; pods' and workloads' own records say when each ran and which floor a service has. It is night in Asia.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pytest

from collector.devices.page import PageTarget, failure, parse
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from collector.serving import Target as ServerTarget
from collector.serving import parse as parse_server
from collector.sources import dcgm
from collector.sources.hami import PAGES
from collector.sources.sglang import DIALECT as SGLANG
from collector.sources.vllm import DIALECT as VLLM
from gpuledger.errors import SourceError
from gpuledger.model import Window, to_table
from gpuledger.ports import Observation
from gpuledger.simulate import FleetSpec, Simulation, simulate
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.pods import CLUSTER, held_hours, pod_runs
from gpuledger.simulate.services import ANSWERING, NIGHT_IDLE, STANDBY
from warehouse import Warehouse
from warehouse.ledger import AUDITS

pytestmark = pytest.mark.slow

FIRST_HOUR, HOURS, STEP = 16, 4, 5
DIALECTS = {"vllm": VLLM, "sglang": SGLANG}
MAPPINGS = {"ascend": "ascend", "amd": "amd", "hami": "hami"}
STATE_OF_MARK = {STANDBY: "alloc_standby", NIGHT_IDLE: "alloc_idle", ANSWERING: "alloc_low", None: "alloc_productive"}
CARDS_OF_MODEL = {"H100": 8, "L40S": 16, "A100": 16, "Ascend 910B": 8, "MI300X": 8}


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    spec = FleetSpec(nodes=7, days=1, seed=5, interval_seconds=60 * STEP, scenario="one_of_each", tells_pods=True)
    return simulate(spec)


@pytest.fixture(scope="module")
def window(simulation: Simulation) -> Window:
    begin = simulation.spec.start_at + timedelta(hours=FIRST_HOUR)
    return Window(begin, begin + timedelta(hours=HOURS))


def target_of(host: Host) -> PageTarget:
    """What an agent on `host` reads its cards' page with."""
    kind = host.hardware.sharing or host.hardware.facts.vendor
    if kind not in MAPPINGS:
        return dcgm.Target(interval_seconds=60 * STEP)
    return MappedTarget(load(MAPPINGS[kind]), node=host.name, interval_seconds=60 * STEP)


def observations(simulation: Simulation, window: Window) -> Iterator[Observation]:
    """What agents make of all pages, one each in five minutes; of servers from five minutes before on."""
    instants: list[datetime] = [window.from_at + i * timedelta(minutes=STEP) for i in range(HOURS * 60 // STEP)]
    for host in simulation.fleet.hosts:
        target = target_of(host)
        for at in instants:
            try:
                yield parse(simulation.node_page(host.name, at), at, target)
            except SourceError as error:
                yield failure(target, at, str(error))
    hami = load("hami")
    scheduler = MappedTarget(hami.model_copy(update={"source": PAGES["scheduler"]}), interval_seconds=60 * STEP)
    for at in instants:
        later = at + timedelta(minutes=1)
        yield parse(simulation.hami_scheduler_page(later), later, scheduler)
    servers: dict[str, ServerTarget] = {}
    for at in [window.from_at - timedelta(minutes=STEP), *instants, window.to_at]:
        for run in simulation.servers(at):
            fresh = ServerTarget(
                DIALECTS[run.job.server],
                name=run.name,
                cluster=CLUSTER,
                namespace=run.namespace,
                pod=run.name,
                interval_seconds=60 * STEP,
            )
            yield parse_server(simulation.server_page(run.name, at), at, servers.setdefault(run.name, fresh))


@pytest.fixture(scope="module")
def house(simulation: Simulation, window: Window) -> Iterator[Warehouse]:
    rows: dict[str, list[Any]] = defaultdict(list)
    for seen in observations(simulation, window):
        assert all(read.ok for read in seen.reads)
        rows["reading"] += seen.readings
        rows["holding"] += seen.holdings
        rows["source_read"] += seen.reads
        rows["engine_reading"] += seen.others.get("engine_reading", ())
    with Warehouse.open(None) as opened:
        for name, of in rows.items():
            assert not opened.ingest(name, to_table(name, of), name).rejected
        told = ((name, table) for name, table in simulation.records() if name in ("pod", "workload"))
        for number, (name, table) in enumerate(told):
            assert not opened.ingest(name, table, f"{name}-{number}").rejected
        assert opened.build_ledger(window).violations == 0
        yield opened


@pytest.fixture(scope="module")
def spans(house: Warehouse) -> pl.DataFrame:
    with house.writing() as cursor:
        return pl.DataFrame(pl.from_arrow(cursor.sql("from state_span").to_arrow_table()))


def test_it_closes_to_physical_cards_of_each_vendor(simulation, house, window, spans) -> None:
    for name in AUDITS:
        assert house.query(name, from_at=window.from_at, to_at=window.to_at).num_rows == 0, name
    by_card = spans.group_by("gpu_uuid").agg(pl.col("gpu_hours").sum(), pl.col("model").unique().first())
    assert set(by_card["gpu_uuid"]) == {card.gpu_uuid for card in simulation.fleet.cards}
    assert by_card["gpu_hours"].to_list() == pytest.approx([float(HOURS)] * 56, abs=1e-9)
    models = Counter(simulation.fleet.host_of(card.index).hardware.model for card in simulation.fleet.cards)
    assert models == CARDS_OF_MODEL
    rows = house.query("ledger_by", by="state", from_at=window.from_at, to_at=window.to_at).to_pylist()
    assert sum(row["gpu_hours"] for row in rows) == pytest.approx(float(HOURS * 56), abs=1e-9)


def test_each_pod_has_the_hours_of_its_part(simulation, window, spans) -> None:
    """Exact by its own record; a pod that came after the last page is missing for its few minutes."""
    begin = (window.from_at - simulation.spec.start_at) // timedelta(minutes=1)
    told = held_hours(simulation.script, pod_runs(simulation.script), begin, begin + HOURS * 60)
    truth = pl.DataFrame(pl.from_arrow(told)).filter(pl.col("gpu_hours") > 0).rename({"gpu_hours": "hours"})
    key = ["pod", "gpu_uuid", "slice_id"]
    found = spans.filter(pl.col("pod") != "").group_by(key).agg(pl.col("gpu_hours").sum())
    both = truth.join(found, on=key, how="full", coalesce=True).with_columns(pl.col("hours", "gpu_hours").fill_null(0))
    off = both.with_columns(off=(pl.col("hours") - pl.col("gpu_hours")).abs())
    assert off.filter(pl.col("gpu_hours") > 0)["off"].to_list() == pytest.approx([0.0] * found.height, abs=1e-9)
    assert off["off"].to_list() == pytest.approx([0.0] * off.height, abs=(STEP + 1) / 60)
    assert off.height > 80


def planted(simulation: Simulation, window: Window) -> dict[tuple[str, str], float]:
    """Hours by (service, state) that the script gives the replicas of services, once they have their weights."""
    minute = (window.from_at - simulation.spec.start_at) // timedelta(minutes=1)
    hours: dict[tuple[str, str], float] = defaultdict(float)
    for job in (job for job in simulation.script.jobs if job.server):
        for phase in (phase for hold in job.holds for phase in hold.phases):
            length = min(phase.end, minute + HOURS * 60) - max(phase.start, minute)
            if length > 0:
                hours[job.workload_id, STATE_OF_MARK[phase.mark]] += length / 60
    return dict(hours)


def test_the_floor_stands_by_the_rest_is_idle_and_what_answers_is_low_and_serving(simulation, window, spans) -> None:
    served = spans.filter(
        pl.col("workload_id").is_in([job.workload_id for job in simulation.script.jobs if job.server])
    )
    sums = served.group_by("workload_id", "state").agg(pl.col("gpu_hours").sum())
    found = {(workload, state): hours for workload, state, hours in sums.iter_rows()}
    truth = planted(simulation, window)
    assert {state for _, state in truth} == set(STATE_OF_MARK.values())
    assert found == pytest.approx(truth, abs=0.2)
    assert sum(found.values()) == pytest.approx(16.0 * HOURS, abs=1e-9)
    assert set(served.filter(pl.col("state") == "alloc_low")["cause"]) == {"serving"}


def test_prefill_and_decode_of_a_service_stand_apart(house, window) -> None:
    rows = house.query("service_activity", from_at=window.from_at, to_at=window.to_at, bucket_seconds=3600).to_pylist()
    roles = {row["role"] for row in rows if "bright" in row["workload_id"]}
    assert roles == {"prefill", "decode"}
    whole = [row for row in rows if "bright" in row["workload_id"] and row["read_seconds"] == pytest.approx(3600)]
    for row in whole:
        is_prefill = row["role"] == "prefill"
        assert (row["first_token_seconds"] is not None, row["output_token_seconds"] is not None) == (
            is_prefill,
            not is_prefill,
        )
        # Two replicas of 14 requests a second, of 600 tokens in and 200 out.
        rate = row["prompt_tokens_per_second"] if is_prefill else row["generation_tokens_per_second"]
        assert rate == pytest.approx(2 * 14 * (600 if is_prefill else 200), rel=0.01)
    assert whole
