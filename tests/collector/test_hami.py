"""HAMi's pages: every published one and ours against rows written by reading it, and what the pages are not.

An expected file (`tests/expected/hami`) names the page, reads by node, rows with all their values and no others,
holdings, and the older names that the page uses.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from collector.building import build_sources
from collector.devices.page import PageTarget, parse
from collector.exporters import DeviceReader
from collector.exposition import Series
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from collector.settings import load as load_settings
from collector.sources.hami import NUMBERS_IN_LABELS, PAGES, HamiSource
from gpuledger.errors import ConfigError
from gpuledger.ports import Observation
from tests.collector.page_rows import holding_of, row_of
from tests.collector.test_dcgm_expected import old

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
EXPECTED = Path(__file__).resolve().parents[1] / "expected" / "hami"
RECORDINGS = Path(__file__).parent / "recordings"
NAMES = sorted(path.stem for path in EXPECTED.glob("*.yaml"))
TOTAL = 'hami_gpu_memory_limit_bytes{device_uuid="G",node="n"} 1e10\n'


def target(page: str = "monitor", **options: Any) -> PageTarget:
    mapping = load("hami").model_copy(update={"source": PAGES[page]})
    return MappedTarget(mapping, drop_labels=NUMBERS_IN_LABELS, **options)


def read(text: str, page: str = "scheduler") -> Observation:
    return parse(text.encode(), NOW, target(page))


def given(pod: str, *, memory: float | None = None, cores: float | None = None, container: int = 0) -> str:
    labels = f'{{container_index="{container}",device_uuid="G",namespace="a",node="n",pod="{pod}"}}'
    parts = {"hami_vgpu_memory_allocated_bytes": memory, "hami_vgpu_core_allocated_ratio": cores}
    return "".join(f"{name}{labels} {value}\n" for name, value in parts.items() if value is not None)


def shares(observation: Observation) -> dict[str, tuple[float, bool]]:
    return {one.pod: (round(one.share, 6), one.is_stated) for one in observation.holdings}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_gives_exactly_the_expected_rows(request: pytest.FixtureRequest, name: str) -> None:
    ours = RECORDINGS / f"{name}.prom"
    theirs = ours if ours.exists() else request.getfixturevalue("shared") / "fixtures/exposition" / f"{name}.prom"
    told = yaml.safe_load((EXPECTED / f"{name}.yaml").read_text())
    observation = parse(theirs.read_bytes(), NOW, target(told["page"]))
    assert [row_of(reading) for reading in observation.readings] == told["rows"]
    held = [holding_of(one) | ({"stated": True} if one.is_stated else {}) for one in observation.holdings]
    assert held == told["holdings"]
    assert {one.node: {"devices": one.device_count} for one in observation.reads} == told["reads"]
    events = observation.others.get("quality_event", ())
    assert sorted(old(event.detail) for event in events) == told["renamed"]
    assert {one.source for one in observation.reads} == {PAGES[told["page"]]}
    assert {one.source for one in observation.readings} == {PAGES[told["page"]]}


def test_every_published_page_has_an_expected_file(shared: Path) -> None:
    assert {path.stem for path in (shared / "fixtures/exposition").glob("hami_*.prom")} <= set(NAMES)


def test_what_is_left_beside_stated_shares_is_divided() -> None:
    page = TOTAL + given("told", cores=60) + given("first", cores=0) + given("second", memory=0)
    assert shares(read(page)) == {"told": (0.6, True), "first": (0.2, False), "second": (0.2, False)}


def test_memory_of_a_card_whose_size_is_not_known_is_no_share() -> None:
    page = given("memory", memory=5e9) + given("cores", cores=30)
    assert shares(read(page)) == {"memory": (0.7, False), "cores": (0.3, True)}


@pytest.mark.parametrize("wrong", ["NaN", "-5", "101", "+Inf"])
def test_a_part_that_is_none_counts_for_nothing(wrong: str) -> None:
    page = TOTAL + given("a", cores=25) + given("b", memory=2.5e9, cores=50).replace("} 50", f"}} {wrong}")
    assert shares(read(page)) == {"a": (0.25, True), "b": (0.25, True)}


def test_containers_add_up_and_no_pod_has_more_than_a_card() -> None:
    page = TOTAL + "".join(given("a", cores=70, container=number) for number in range(3))
    assert shares(read(page)) == {"a": (1.0, True)}


def test_two_scrapers_of_one_page_are_no_two_shares() -> None:
    page = TOTAL + given("a", cores=25) + given("a", cores=25).replace("{", '{instance="10.0.0.7:9395",')
    assert shares(read(page)) == {"a": (0.25, True)}


def test_pods_that_share_a_card_are_no_double_claim() -> None:
    page = TOTAL + given("a", cores=50) + given("b", cores=50)
    assert "quality_event" not in read(page).others


def test_the_monitors_own_pod_holds_no_card() -> None:
    page = 'HostCoreUtilization{deviceuuid="G",pod="hami-device-plugin-x1",namespace="kube-system"} 5\n'
    observation = read(page, "monitor")
    assert (observation.holdings, observation.readings[0].gpu_util_ratio) == ((), 0.05)


def test_remote_write_and_back_fill_read_both_pages() -> None:
    reader = DeviceReader()
    labels = {"device_uuid": "G", "namespace": "a", "pod": "p", "container_index": "0", "node": "n"}
    found = reader.read(Series("hami_vgpu_core_allocated_ratio", labels))
    assert found is not None
    assert found.field is not None
    assert (found.field.column, found.subject.is_shared) == ("held_core_ratio", True)


def test_the_settings_name_the_page(tmp_path: Path) -> None:
    file = tmp_path / "collector.toml"
    text = 'service_url = "http://s"\nspool_directory = "spool"\n[[source]]\nkind = "hami"\nurl = "http://h:31993/metrics"\n'
    file.write_text(text + 'page = "scheduler"\n')
    (source,) = build_sources(load_settings(file), None)  # type: ignore[arg-type]
    assert (type(source), source.name.partition(":")[0]) == (HamiSource, "hami_scheduler")
    file.write_text(text + 'page = "schedule"\n')
    with pytest.raises(ConfigError, match="page"):
        build_sources(load_settings(file), None)  # type: ignore[arg-type]
