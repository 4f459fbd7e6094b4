"""Pages of npu-exporter against expected files, written by reading the pages; and what changes between pages.

An expected file (`tests/expected/npu_exporter`) names reads by node, rows with all their values and no others, holdings
and faults. `cards` with `each` are rows that are alike.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from collector.devices.page import parse
from collector.exporters import DeviceReader
from collector.exposition import Series
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from gpuledger.attribution.resources import is_gpu, is_whole
from gpuledger.model import slice_share
from gpuledger.ports import Observation
from tests.collector.page_rows import holding_of, row_of

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
EXPECTED = Path(__file__).resolve().parents[1] / "expected" / "npu_exporter"
NAMES = sorted(path.stem for path in EXPECTED.glob("*.yaml"))
DIE = "185A0B21-20A04C18-93B2ED94-14CC040A-11102003"


def target() -> MappedTarget:
    return MappedTarget(load("ascend"), node="n1", interval_seconds=15)


def faults_of(observation: Observation) -> list[dict[str, str]]:
    told = observation.others.get("fault_event", ())
    assert all((event.vendor, event.source, event.ts) == ("ascend", "npu_exporter", NOW) for event in told)
    return [{"gpu": event.gpu_uuid, "kind": event.kind, "code": event.code} for event in told]


def counted(observation: Observation, kind: str) -> int:
    return sum(event.count for event in observation.others.get("quality_event", ()) if event.kind == kind)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_gives_exactly_the_expected_rows(request, recordings, name: str) -> None:
    path = recordings / f"{name}.prom"
    if not path.exists():
        path = request.getfixturevalue("shared") / "fixtures/exposition" / path.name
    told = yaml.safe_load((EXPECTED / f"{name}.yaml").read_text())
    observation = parse(path.read_bytes(), NOW, target())
    wanted = told.get("rows") or [{"gpu": card, **told["each"]} for card in told["cards"]]
    got = [row_of(reading) for reading in observation.readings]
    assert [{**row, "values": pytest.approx(row["values"])} for row in wanted] == got
    assert [holding_of(holding) for holding in observation.holdings] == told["holdings"]
    assert faults_of(observation) == told["faults"]
    assert {read.node: {"devices": read.device_count} for read in observation.reads} == told["reads"]
    assert {reading.ts for reading in observation.readings} == {NOW}
    assert counted(observation, "clock_skew") // 86_400 == told.get("skew_days", 0)
    assert counted(observation, "refused_sample") == told.get("stale", 0)


def test_every_published_page_has_an_expected_file(shared) -> None:
    published = {path.stem for path in (shared / "fixtures/exposition").glob("npu_exporter_*.prom")}
    assert published <= set(NAMES)


def series(name: str, value: float, labels: str = f'id="0",model_name="910B3",vdie_id="{DIE}"', age: float = 0) -> str:
    return f"{name}{{{labels}}} {value} {int((NOW.timestamp() - age) * 1000)}\n"


@pytest.mark.parametrize(("age", "devices"), [(0, 1), (75, 1), (75.1, 0), (100, 0), (600, 0), (601, 1), (-30, 1)])
def test_what_a_stuck_collector_repeats_is_no_reading(age: float, devices: int) -> None:
    """Beyond ten minutes it is the node's clock that is wrong: the exporter serves nothing for so long."""
    observation = parse(series("npu_chip_info_utilization", 50, age=age).encode(), NOW, target())
    assert len(observation.readings) == devices
    assert observation.reads[0].ok
    assert observation.reads[0].device_count == devices


def test_a_part_that_is_read_before_its_chip_is_read_again() -> None:
    """Named by its number only, the part would be another chip; which chip that is stands further down."""
    part = 'aicore_count="4.00",id="0",model_name="310P3",v_dev_id="100"'
    one = target()
    page = series("vnpu_pod_aicore_utilization", 40, part)
    (alone,) = parse(page.encode(), NOW, one).readings
    assert (alone.gpu_uuid, alone.slice_id) == ("n1/npu_exporter/0", "100")
    for die in (DIE, "another"):
        chip = f'id="0",model_name="310P3",vdie_id="{die}"'
        both = parse((page + series("npu_chip_info_power", 40, chip)).encode(), NOW, one).readings
        assert [(row.gpu_uuid, row.slice_id) for row in both] == [(die, ""), (die, "100")]


def test_a_part_that_names_no_chip_is_left_out_where_series_come_in_any_order() -> None:
    part = {"id": "0", "aicore_count": "4.00", "v_dev_id": "100", "instance": "n1:8082"}
    chip = {"id": "0", "vdie_id": DIE, "instance": "n1:8082"}
    reader = DeviceReader()
    for _ in range(2):
        assert reader.read(Series("vnpu_pod_aicore_utilization", part)) is None
        found = reader.read(Series("npu_chip_info_utilization", chip))
        assert found is not None
        assert (found.subject.gpu_uuid, found.subject.node, found.subject.slice_id) == (DIE, "n1", "")


def test_faults_are_told_when_they_appear_and_once() -> None:
    one = target()

    def told(minute: int, *lines: str) -> list[tuple[str, str]]:
        at = NOW + timedelta(minutes=minute)
        page = "".join(line.rsplit(" ", 1)[0] + "\n" for line in (series("npu_chip_info_utilization", 1), *lines))
        faults = parse(page.encode(), at, one).others.get("fault_event", ())
        assert all(event.ts == at for event in faults)
        return [(event.kind, event.code) for event in faults]

    code, other = (series("npu_chip_info_error_code", value) for value in (0x80E18402, 0x80C98000))
    up, down = (series("npu_chip_info_network_status", value) for value in (1, 0))
    assert told(0, code, down) == [("npu_fault", "80E18402")]
    assert told(1, code, down) == []
    assert told(2, other, up) == [("npu_fault", "80C98000")]
    assert told(3, down) == [("fabric", "npu_port")]
    assert told(4, series("npu_chip_info_error_code", 0), down) == []
    assert told(5, other, down) == [("npu_fault", "80C98000")]
    assert told(6, series("npu_chip_info_error_code", 4294967295), series("npu_chip_info_error_code_1", -1)) == []


def test_a_port_that_copies_call_up_and_down_falls_once() -> None:
    one, name = target(), "npu_chip_info_network_status"
    mine, theirs = (f'id="0",vdie_id="{DIE}",pod_name="{pod}"' for pod in ("a", "b"))
    card = series("npu_chip_info_utilization", 1)
    pages = [(1, 1), (1, 0), (1, 0), (0, 1), (1, 1), (1, 0)]
    told = [
        len(
            parse((card + series(name, x, mine) + series(name, y, theirs)).encode(), NOW, one).others.get(
                "fault_event", ()
            )
        )
        for x, y in pages
    ]
    assert told == [0, 1, 0, 0, 0, 1]


@pytest.mark.parametrize(
    ("model", "profile", "share"),
    [
        ("310P3-Ascend-V1", "4.00", 0.5),
        ("Ascend310P3", "vir04_3c", 0.5),
        ("Ascend310P3", "2c.1cpu", 0.25),
        ("Ascend310P3", "8", 1.0),
        ("Ascend310P3", "9c", None),
        ("Ascend310P3", "0.00", None),
        ("Ascend910B4", "vir05_1c_16g", 0.25),
        ("Ascend910", "16c", 0.5),
        ("Ascend910_9392", "4c", None),
        ("H100", "4.00", None),
    ],
)
def test_a_vnpu_is_its_part_of_the_ai_cores(model: str, profile: str, share: float | None) -> None:
    assert slice_share(model, profile) == share


@pytest.mark.parametrize("resource", ["huawei_com_Ascend310P_4c", "huawei_com_Ascend310P_4c_3cpu_ndvpp"])
def test_a_vnpu_is_asked_for_as_a_part(resource: str) -> None:
    assert is_gpu(resource)
    assert not is_whole(resource)


@pytest.mark.parametrize("resource", ["huawei_com_Ascend310P", "huawei_com_Ascend910", "huawei_com_npu"])
def test_a_whole_npu_is_asked_for_as_one(resource: str) -> None:
    assert is_whole(resource)


@pytest.mark.parametrize(
    ("failed", "used"),
    [(-1, None), (0, None), (4294967295, None), (None, 3000 * 2**20), (9000, 9000 * 2**20)],
)
def test_the_memory_of_the_control_processors_does_not_stand_for_hbm_that_was_not_read(failed, used) -> None:
    hbm = "" if failed is None else series("npu_chip_info_hbm_used_memory", failed)
    page = hbm + series("npu_chip_info_used_memory", 3000) + series("npu_chip_info_power", 300)
    (reading,) = parse(page.encode(), NOW, target()).readings
    assert (reading.fb_used_bytes, reading.power_watts) == (used, 300)
