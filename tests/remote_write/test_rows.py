"""Rows follow from the set of samples: not from how it was cut into requests, in which order, how often, or when."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collector.devices.assemble import Options, assemble
from collector.remote_write.decode import Decoder
from collector.samples import Samples
from collector.sources.dcgm import Target, parse
from gpuledger.app.assembling import Assembling
from gpuledger.app.pod_books import PodBooks
from gpuledger.app.receiving import Receiver
from gpuledger.attribution.rules import Rules
from gpuledger.model import QualityFlag, to_table
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api
from tests.remote_write.writing import V1, V2, card, in_order, pack, post, post_block, request_1, request_2, rows
from warehouse.samples import SampleStore

EXPECTED = Path(__file__).resolve().parents[1] / "expected" / "dcgm" / "dcgm_8gpu_h100_generated.yaml"
MS = int(NOW.timestamp() * 1000)
OWN = ("seen_at", "source", "interval_seconds")
"""What differs between a page and remote write by its nature."""


def _as_pages(table: str, records: Any) -> list[dict[str, Any]]:
    return in_order(to_table(table, records).to_pylist(), *OWN)


PAGE = """\
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-0",modelName="NVIDIA H100",Hostname="n0",namespace="a",pod="p"} 40
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-1",modelName="NVIDIA H100",Hostname="n0"} 0
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-0",modelName="NVIDIA H100",Hostname="n0",pod="p",namespace="a"} 350.5
DCGM_FI_DEV_XID_ERRORS{gpu="1",UUID="GPU-1",modelName="NVIDIA H100",Hostname="n0"} 79
DCGM_FI_PROF_SM_ACTIVE{gpu="0",UUID="GPU-0",modelName="NVIDIA H100",Hostname="n0",namespace="a",pod="p"} 0.25
"""
HELD = {"namespace": "a", "pod": "p"}
WRITTEN = [
    (card(0, **HELD), [(MS, 40.0)]),
    (card(1), [(MS, 0.0)]),
    (card(0, "DCGM_FI_DEV_POWER_USAGE", **HELD), [(MS, 350.5)]),
    (card(1, "DCGM_FI_DEV_XID_ERRORS"), [(MS, 79.0)]),
    (card(0, "DCGM_FI_PROF_SM_ACTIVE", **HELD), [(MS, 0.25)]),
]


def test_deprecated_names_are_told_once_as_of_a_page(api: Api) -> None:
    for at in (MS, MS + 1000):
        assert post(api.http, request_1([(card(0, "DCGM_FI_DEV_POWER_USAGE"), [(at, 350.5)])])).status_code == 204
        api.service.assemble()
    (told,) = rows(api, "quality_event")
    assert (told["kind"], told["source"], told["subject"], told["count"]) == (
        "renamed_metric", "remote_write", "remote_write", 1
    )  # fmt: skip
    assert told["detail"] == "DCGM_FI_DEV_POWER_USAGE -> DCGM_FI_DEV_BOARD_POWER_WATTS"


def test_a_page_and_its_samples_give_the_same_rows(api: Api) -> None:
    seen = parse(PAGE.encode(), NOW, Target())
    assert post(api.http, request_1(WRITTEN)).status_code == 204
    assert api.service.assemble() == 2
    assert rows(api, "reading", *OWN) == _as_pages("reading", seen.readings)
    assert rows(api, "holding", *OWN) == _as_pages("holding", seen.holdings)
    assert rows(api, "source_read", *OWN) == _as_pages("source_read", seen.reads)
    by_card = {row["gpu_uuid"]: row for row in rows(api, "reading")}
    assert (by_card["GPU-0"]["gpu_util_ratio"], by_card["GPU-0"]["power_watts"]) == (0.4, 350.5)
    assert (by_card["GPU-0"]["sm_active_ratio"], by_card["GPU-0"]["interval_seconds"]) == (0.25, None)
    assert (by_card["GPU-1"]["gpu_util_ratio"], by_card["GPU-1"]["xid_code"]) == (0.0, 79)
    assert [(row["namespace"], row["pod"], row["share"]) for row in rows(api, "holding")] == [("a", "p", 1.0)]
    assert [(row["node"], row["device_count"], row["ok"]) for row in rows(api, "source_read")] == [("n0", 2, True)]


def test_a_counter_may_have_got_its_suffix_on_the_way(api: Api) -> None:
    series = [(card(0, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total"), [(MS, 5e6)])]
    assert post(api.http, request_1(series)).status_code == 204
    assert api.service.assemble() == 1
    assert [row["energy_joules"] for row in rows(api, "reading")] == [5000.0]


def _expected(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The values of each card in the file that was written by reading the page."""
    return [
        {
            column: how["written"][position] * how.get("times", 1) / how.get("divided_by", 1)
            for column, how in told["columns"].items()
        }
        | {"gpu_uuid": gpu, "node": told["node"], "model": told["model"]}
        for position, gpu in enumerate(told["cards"])
    ]


@pytest.mark.parametrize(("file", "kind"), [("remote_write_v1_dcgm8", V1), ("remote_write_v2_dcgm8", V2)])
def test_the_published_requests_give_the_rows_of_their_page(
    shared: Path, make_api: Callable[..., Api], clock: FakeClock, file: str, kind: str
) -> None:
    clock.instant = at = datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=123)
    api = make_api()
    folder = shared / "fixtures" / "exposition"
    seen = parse((folder / "dcgm_8gpu_h100_generated.prom").read_bytes(), at, Target())
    answer = post_block(api.http, (folder / f"{file}.snappy").read_bytes(), kind)
    assert (answer.status_code, answer.headers["X-Prometheus-Remote-Write-Samples-Written"]) == (204, "256")
    assert api.service.assemble() == len(seen.readings) == 8
    told = yaml.safe_load(EXPECTED.read_text(encoding="utf-8"))
    own = {"ts", "slice_id", "seen_at", "source", "interval_seconds", "slice_profile", "invalid_count", "quality_flags"}
    found = [{name: of for name, of in row.items() if of is not None} for row in rows(api, "reading", *own)]
    assert {row["gpu_uuid"]: row for row in found} == {row["gpu_uuid"]: row for row in _expected(told)}
    pods = {(row["gpu_uuid"], f"{row['namespace']}/{row['pod']}", row["share"]) for row in rows(api, "holding")}
    assert pods == {(one["gpu"], one["pod"], one["share"]) for one in told["holdings"]}
    assert rows(api, "reading", *OWN) == _as_pages("reading", seen.readings)
    assert rows(api, "holding", *OWN) == _as_pages("holding", seen.holdings)
    assert rows(api, "source_read", *OWN) == _as_pages("source_read", seen.reads)


def test_a_late_fragment_fills_its_row_before_and_after_the_first_ones_are_forgotten(
    api: Api, clock: FakeClock
) -> None:
    def send(metric: str, value: float) -> dict[str, Any]:
        assert post(api.http, request_1([(card(0, metric), [(MS, value)])])).status_code == 204
        assert api.service.assemble() == 1
        api.service.assembling.prune()
        (row,) = rows(api, "reading")
        return row

    first = send("DCGM_FI_DEV_GPU_UTIL", 100.0)
    clock.advance(1800)
    send("DCGM_FI_DEV_POWER_USAGE", 690.0)
    second = send("DCGM_FI_PROF_SM_ACTIVE", 0.0)  # all fragments are here: a contradiction is seen
    assert (second["gpu_util_ratio"], second["power_watts"], second["sm_active_ratio"]) == (1.0, 690.0, None)
    assert second["quality_flags"] == QualityFlag.PROFILING_CONTRADICTED
    clock.advance(2000)
    api.service.assembling.prune()
    assert api.count("sample") == 2
    clock.advance(3600)
    api.service.assembling.prune()
    assert api.count("sample") == 0
    last = send("DCGM_FI_DEV_FB_USED", 1024.0)
    assert (last["gpu_util_ratio"], last["power_watts"], last["fb_used_bytes"]) == (1.0, 690.0, 2**30)
    assert last["quality_flags"] == QualityFlag.PROFILING_CONTRADICTED
    assert first["seen_at"] == last["seen_at"] == NOW


def test_samples_that_are_no_rows_yet_are_never_forgotten(api: Api, clock: FakeClock) -> None:
    assert post(api.http, request_1([(card(0), [(MS, 40.0)])])).status_code == 204
    clock.advance(90 * 86_400)
    api.service.assembling.prune()
    assert (api.count("sample"), api.count("series")) == (1, 1)
    assert api.service.assemble() == 1
    api.service.assembling.prune()
    assert (api.count("sample"), api.count("series")) == (0, 0)
    # A series that was removed is written down anew when it is written again.
    at = int(clock.now().timestamp() * 1000)
    assert post(api.http, request_1([(card(0), [(at, 41.0)])])).status_code == 204
    assert (api.count("series"), api.service.assemble()) == (1, 1)


def test_a_target_that_is_down_is_a_failed_read_of_its_nodes(api: Api) -> None:
    up = {"__name__": "up", "job": "dcgm", "instance": "n0:9400"}
    other = {"__name__": "up", "job": "node", "instance": "n0:9100"}
    assert post(api.http, request_1([*WRITTEN, (up, [(MS, 1.0), (MS + 15_000, 0.0)]), (other, [(MS, 0.0)])])).is_success
    api.service.assemble()
    assert [(row["node"], row["ts"], row["ok"], row["error"]) for row in rows(api, "source_read")] == [
        ("n0", NOW, True, None),
        ("n0", NOW + timedelta(seconds=15), False, "the target was down"),
    ]
    assert api.service.assemble() == 0
    assert api.count("source_read") == 2


def test_two_replicas_are_two_feeds_of_one_card(api: Api) -> None:
    for replica, shift, value in (("a", 0, 40.0), ("b", 700, 42.0)):
        series = [(card(0, prometheus_replica=replica), [(MS + shift, value)])]
        assert post(api.http, request_1(series)).status_code == 204
    assert api.service.assemble() == 2
    assert sorted((row["source"], row["gpu_util_ratio"]) for row in rows(api, "reading")) == [
        ("remote_write/a", 0.40),
        ("remote_write/b", 0.42),
    ]


def test_late_samples_make_their_hours_dirty_also_over_a_restart(
    tmp_path: Path, make_api: Callable[..., Api], clock: FakeClock
) -> None:
    api = make_api()
    late = MS - 5 * 3_600_000
    assert post(api.http, request_1([(card(0), [(late, 40.0)])])).status_code == 204
    assert api.service.assemble() == 1
    assert api.service.dirt.take(NOW, None, timedelta()) == NOW - timedelta(hours=5)
    api.service._remember_unbuilt()
    assert api.service.dirt.take(NOW, None, timedelta()) == NOW - timedelta(hours=5)


def test_pods_of_kube_state_metrics_are_written_too(api: Api) -> None:
    pod = {"namespace": "a", "pod": "p", "uid": "u1", "job": "ksm", "instance": "ksm:8080"}
    series = [
        ({"__name__": "kube_pod_info", "node": "n0", **pod}, [(MS, 1.0)]),
        ({"__name__": "kube_pod_status_phase", "phase": "Running", **pod}, [(MS, 1.0)]),
        (
            {
                "__name__": "kube_pod_container_resource_requests",
                "resource": "nvidia_com_gpu",
                "unit": "integer",
                "container": "c",
                **pod,
            },
            [(MS, 2.0)],
        ),
        ({"__name__": "kube_deployment_created", **pod}, [(MS, 1.0)]),
    ]
    assert post(api.http, request_1([*series, *WRITTEN])).status_code == 204
    assert [(row["uid"], row["gpu_count"], row["phase"]) for row in rows(api, "pod")] == [("u1", 2.0, "Running")]
    assert api.count("sample") == len(WRITTEN)
    assert api.metric("gpuledger_remote_write_samples_total", outcome="ignored", reason="not_used") == 1


METRICS = (
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_PROF_SM_ACTIVE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
)
VALUES = (0.0, 1.0, 100.0, 690.0, 0.5, 2147483634.0, math.nan)


def _series(draw_card: int) -> dict[str, str]:
    """Six kinds of series: plain cards, a card held by two pods, a card under MIG with two slices."""
    return (
        card(0),
        card(1, namespace="a", pod="p", vgpu="0"),
        card(1, namespace="a", pod="q", vgpu="1"),
        card(2),
        card(2, GPU_I_PROFILE="1g.10gb", GPU_I_ID="7", namespace="a", pod="r"),
        card(2, GPU_I_PROFILE="2g.20gb", GPU_I_ID="3"),
    )[draw_card]


SAMPLES = st.dictionaries(
    st.tuples(st.integers(0, 5), st.sampled_from(METRICS), st.integers(0, 1)),
    st.sampled_from(VALUES),
    min_size=1,
    max_size=30,
)


class House:
    """A receiver and its rows on a warehouse, that can die and come again."""

    def __init__(self, api: Api) -> None:
        self._api, self._clock = api, api.service.clock
        self.restart()

    def restart(self) -> None:
        service, clock = self._api.service, self._clock
        self.store = SampleStore(service.warehouse, service.settings, clock)
        books = PodBooks(Rules(), lambda *_: None)
        self.receiver = Receiver(self.store, books, service.settings, clock, service.metrics)
        self.assembling = Assembling(self.store, service.dirt, clock)

    def empty(self) -> None:
        with self._api.service.warehouse.writing() as cursor:
            for table in ("sample", "series", "reading", "holding", "source_read", "batch"):
                cursor.execute(f'delete from "{table}"')


@given(written=SAMPLES, data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_cutting_order_and_repetition_gives_the_same_rows(api: Api, written: dict[Any, float], data: Any) -> None:
    house = House(api)
    house.empty()
    pieces = [
        (dict(_series(which), __name__=metric), [(MS + 15_000 * tick, value)])
        for (which, metric, tick), value in written.items()
    ]
    sent = data.draw(st.permutations(pieces + data.draw(st.lists(st.sampled_from(pieces), max_size=10))))
    begin = 0
    while begin < len(sent):
        size = data.draw(st.integers(1, 12))
        version = data.draw(st.sampled_from((1, 2)))
        house.receiver.take(pack((request_1 if version == 1 else request_2)(sent[begin : begin + size])), version)
        begin += size
        match data.draw(st.sampled_from(("", "", "assemble", "restart"))):
            case "assemble":
                house.assembling.run()
            case "restart":
                house.restart()
    house.assembling.run()

    decoded = Decoder().version_1(request_1(pieces), MS).samples
    devices = [series.device for series in decoded.meanings if series.device is not None]
    wanted = assemble(
        Samples(devices, decoded.series, decoded.values, decoded.times_ms), Options(now=NOW, source="remote_write")
    )
    for table, found in (
        ("reading", wanted.readings),
        ("holding", wanted.holdings),
        ("source_read", wanted.reads),
    ):
        assert rows(api, table, "seen_at") == in_order(found.to_pylist(), "seen_at"), table


def test_cards_of_mapped_exporters_come_in_beside_those_of_dcgm(api: Api) -> None:
    amd = {"gpu_uuid": "u-0", "hostname": "a0", "card_model": "AMD Instinct MI300X", "pod": "q", "namespace": "b"}
    nameless = {"gpu_id": "3", "instance": "10.0.0.7:5000", "gpu_uuid": "00000000-0000-0000-0000-000000000000"}
    written = [
        *WRITTEN,
        ({"__name__": "amd_gpu_gfx_activity", **amd}, [(MS, 83.0)]),
        ({"__name__": "amd_gpu_package_power", **amd}, [(MS, 65535.0)]),
        ({"__name__": "gpu_gfx_activity", **nameless}, [(MS, 7.0)]),
    ]
    assert post(api.http, request_1(written)).status_code == 204
    api.service.assemble()
    found = {row["gpu_uuid"]: row for row in rows(api, "reading")}
    assert sorted(found) == ["10.0.0.7/amd_exporter/3", "GPU-0", "GPU-1", "u-0"]
    assert (found["u-0"]["gpu_util_ratio"], found["u-0"]["power_watts"], found["u-0"]["invalid_count"]) == (
        0.83,
        None,
        1,
    )
    assert (found["u-0"]["model"], found["u-0"]["node"]) == ("MI300X", "a0")
    assert (found["10.0.0.7/amd_exporter/3"]["gpu_util_ratio"], found["GPU-0"]["gpu_util_ratio"]) == (0.07, 0.4)
    held = {row["gpu_uuid"]: row["pod"] for row in rows(api, "holding")}
    assert held == {"GPU-0": "p", "u-0": "q"}


def test_shares_that_hamis_scheduler_states_come_in_as_stated(api: Api) -> None:
    """Scraped without honor_labels: the target's own pod stands beside the holder's."""
    scraped = {"pod": "hami-scheduler-0", "namespace": "kube-system", "instance": "10.0.0.9:9395", "node": "gpu-7"}
    card = {"device_uuid": "GPU-h", **scraped}
    written = [({"__name__": "hami_gpu_memory_limit_bytes", **card}, [(MS, 80e9)])]
    for pod, cores, memory in (("a", 25.0, 40e9), ("b", 25.0, 8e9)):
        labels = {**card, "exported_pod": pod, "exported_namespace": "team", "container_index": "0"}
        written.append(({"__name__": "hami_vgpu_core_allocated_ratio", **labels}, [(MS, cores)]))
        written.append(({"__name__": "hami_vgpu_memory_allocated_bytes", **labels}, [(MS, memory)]))
    assert post(api.http, request_1(written)).status_code == 204
    api.service.assemble()
    held = {row["pod"]: (row["gpu_uuid"], row["share"], row["is_stated"]) for row in rows(api, "holding")}
    assert held == {"a": ("GPU-h", 0.5, True), "b": ("GPU-h", 0.25, True)}
