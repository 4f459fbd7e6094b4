"""Pages of exporters that a shipped mapping describes, against expected files that were written by reading the pages.

An expected file (`tests/expected/mapped`) names the mapping, the number of cards by node, rows with all their values
and no others, and holdings. Pages of Cambricon, Hygon and MetaX are made by hand from their documents.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from collector.devices.page import parse
from collector.mapping.file import Fault, Labels, MappingFile, Metric, load, shipped
from collector.mapping.source import MappedTarget
from collector.mapping.units import UNITS
from gpuledger.errors import ConfigError
from gpuledger.model import QualityFlag, Reading
from tests.collector.page_rows import holding_of, row_of

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
EXPECTED = Path(__file__).resolve().parents[1] / "expected" / "mapped"
DOCUMENTS = Path(__file__).resolve().parents[2] / "docs" / "sources"
NAMES = sorted(path.stem for path in EXPECTED.glob("*.yaml"))
UNTESTED = ("cambricon", "hygon", "metax")
LINKED = """
source = "acme_exporter"
[labels]
uuid = ["card"]
[[metric]]
names = ["acme_link_errors"]
column = "ecc_uncorrected_count"
unit = "count"
sum_over = "link"
[[metric]]
names = ["acme_core_busy"]
column = "core_active_ratio"
unit = "percent"
mean_over = "core"
"""


def target(mapping: str | MappingFile) -> MappedTarget:
    read = mapping if isinstance(mapping, MappingFile) else load(mapping)
    return MappedTarget(read, fallback_node="n1", interval_seconds=15)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_gives_exactly_the_expected_rows(request, recordings, name: str) -> None:
    path = recordings / f"{name}.prom"
    if not path.exists():
        path = request.getfixturevalue("shared") / "fixtures/exposition" / path.name
    told = yaml.safe_load((EXPECTED / f"{name}.yaml").read_text())
    seen = parse(path.read_bytes(), NOW, target(told["mapping"]))
    assert [{**row, "values": pytest.approx(row["values"])} for row in told["rows"]] == [*map(row_of, seen.readings)]
    assert [holding_of(holding) for holding in seen.holdings] == told["holdings"]
    assert {read.node: read.device_count for read in seen.reads} == told["reads"]
    assert not seen.others.get("quality_event")


def test_every_published_page_of_amd_has_an_expected_file(shared) -> None:
    assert {path.stem for path in (shared / "fixtures/exposition").glob("amd_*.prom")} <= set(NAMES)


def test_every_shipped_mapping_has_a_page_and_says_on_what_it_was_tried() -> None:
    with_pages = {yaml.safe_load((EXPECTED / f"{name}.yaml").read_text())["mapping"] for name in NAMES}
    elsewhere = {"ascend", "hami"}
    assert with_pages | elsewhere >= set(shipped())
    assert {name for name in shipped() if load(name).tested == "untested"} == set(UNTESTED)


@pytest.fixture
def linked(tmp_path) -> MappingFile:
    path = tmp_path / "linked.toml"
    path.write_text(LINKED, encoding="utf-8")
    return load(path)


def read(mapping: MappingFile, *lines: str) -> Reading:
    (reading,) = parse("".join(f"{line}\n" for line in lines).encode(), NOW, target(mapping)).readings
    return reading


def test_parts_of_a_card_add_up_or_are_averaged(linked: MappingFile) -> None:
    errors = [f'acme_link_errors{{card="a",link="{link}"}} {count}' for link, count in (("0", 2), ("1", 3), ("2", 0))]
    cores = [f'acme_core_busy{{card="a",core="{core}"}} {busy}' for core, busy in (("0", 100), ("1", 50), ("2", 0))]
    reading = read(linked, *errors, *cores)
    assert reading.ecc_uncorrected_count == 5
    assert reading.core_active_ratio == pytest.approx(0.5)
    assert reading.quality_flags == 0


def test_a_part_that_is_told_twice_counts_once(linked: MappingFile) -> None:
    pods = ("", ',namespace="x",pod="one"', ',namespace="x",pod="two"')
    lines = [f'acme_link_errors{{card="a",link="{link}"{pod}}} 2' for pod in pods for link in ("0", "1")]
    assert read(linked, *lines).ecc_uncorrected_count == 4


def test_a_sum_without_one_of_its_parts_is_none(linked: MappingFile) -> None:
    reading = read(linked, 'acme_core_busy{card="a",core="0"} 100', 'acme_core_busy{card="a",core="1"} 101')
    assert reading.core_active_ratio is None
    assert reading.invalid_count == 1


def blocks(of: str, language: str) -> list[str]:
    """The code blocks of a page of the documents."""
    text = (DOCUMENTS / of).read_text(encoding="utf-8")
    return [block.split("```")[0] for block in text.split(f"```{language}\n")[1:]]


def test_the_mapping_that_the_documents_write_from_zero_reads_their_page(tmp_path) -> None:
    path = tmp_path / "acme.toml"
    (mapping,) = (block for block in blocks("exposition.md", "toml") if "acme_exporter" in block)
    path.write_text(mapping, encoding="utf-8")
    (page,) = (block for block in blocks("exposition.md", "") if block.startswith("acme_load"))
    first, second = (row_of(reading) for reading in parse(page.encode(), NOW, target(load(path))).readings)
    about = {"node": "acme-07", "model": "Acme A5"}
    memory = {"fb_used_bytes": 40 * 2**30, "fb_total_bytes": 64 * 2**30}
    values = {"gpu_util_ratio": 0.87, "power_watts": 241.5, "ecc_uncorrected_count": 2}
    assert first == {"gpu": "AC-0001", **about, "values": pytest.approx(values | memory)}
    missing = {"invalid": 1, "flags": ["VALUE_REJECTED"]}
    assert second == {"gpu": "AC-0002", **about, **missing, "values": {"gpu_util_ratio": 0.0}}


def test_the_documents_name_every_key_unit_and_mapping() -> None:
    told = (DOCUMENTS / "exposition.md").read_text(encoding="utf-8").replace("`", " ").replace(",", " ").split()
    keys = {key for table in (MappingFile, Labels, Metric, Fault) for key in table.model_fields}
    assert {*keys, *UNITS, *shipped()} - {"labels", "fault", "metric"} <= set(told)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("source = ", "Invalid value"),
        ('source = "a"\n[[metric]]\nnames = ["x"]\n', "labels: one of uuid, serial and index"),
        ('source = "a"\n[labels]\nuuid = ["u"]\n', "metric: Field required"),
        ('source = "a"\n[labels]\nuuid = ["u"]\n[[metric]]\nnames = ["x"]\ncolumn = "y"\n', "a reading has no 'y'"),
        (
            'source = "a"\n[labels]\nuuid = ["u"]\n[[metric]]\nnames = ["x"]\ncolumn = "power_watts"\nunit = "MiB"\n',
            "metric.0: unit: MiB does not measure power_watts, which is in watts",
        ),
        ('source = "a"\nsorce = 1\n[labels]\nuuid = ["u"]\n[[metric]]\nnames = ["x"]\n', "sorce: Extra inputs"),
    ],
)
def test_a_wrong_mapping_file_is_refused_and_says_where(tmp_path, text: str, complaint: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=complaint) as refused:
        load(path)
    assert str(path) in str(refused.value)


def test_a_mapping_that_is_not_there_names_those_that_are() -> None:
    with pytest.raises(ConfigError, match=r"mapping nosuch: not readable.*amd.*metax"):
        load("nosuch")


@pytest.mark.parametrize(
    ("mapping", "line"),
    [
        ("amd", 'gpu_health{{gpu_uuid="a",hostname="n1",namespace="x",pod="{pod}"}} 1\n'),
        ("hami", 'hami_vgpu_memory_used_bytes{{device_uuid="a",node="n1",namespace="x",pod="{pod}"}} 1\n'),
        ("cambricon", 'mlu_container{{uuid="a",node="n1",namespace="x",pod="{pod}"}} 1\n'),
    ],
)
def test_only_the_exporters_own_pods_hold_nothing(mapping: str, line: str) -> None:
    pods = ("onnx-exporter-job", "data-exporter-train-7", "default-metrics-exporter-vvvkm", "hami-device-plugin-8xw2k")
    own = {"amd": pods[2], "hami": pods[3]}.get(mapping, "mlu-exporter-4k2xm")
    held = {
        pod: [one.pod for one in parse(line.format(pod=pod).encode(), NOW, target(mapping)).holdings]
        for pod in (pods[0], pods[1], own)
    }
    assert held == {pods[0]: [pods[0]], pods[1]: [pods[1]], own: []}


DIE = 'gpu_uuid="a",hostname="n1",gpu_partition_id="{part}"'


@pytest.mark.parametrize(
    ("part", "kind", "busy"),
    [
        ("1", ',gpu_compute_partition_type="CPX"', 0.95),
        ("1", ',gpu_compute_partition_type="cpx"', 0.95),
        ("1", "", 0.95),
        ("0", "", 0.95),
        ("0", ',gpu_compute_partition_type="SPX"', 0.12),
        ("0", ',gpu_compute_partition_type="Spx"', 0.12),
    ],
)
def test_a_partition_is_known_by_its_labels_however_they_are_written(part: str, kind: str, busy: float) -> None:
    about = DIE.format(part=part) + kind
    page = f'gpu_gfx_activity{{{about}}} 12\ngpu_gfx_busy_instantaneous{{{about},xcc_index="0"}} 95\n'
    (reading,) = parse(page.encode(), NOW, target("amd")).readings
    assert reading.gpu_util_ratio == pytest.approx(busy)
    assert reading.slice_id == ("" if kind.lower().endswith('"spx"') else part)


def test_the_memory_of_a_partition_does_not_stand_as_the_cards() -> None:
    about = DIE.format(part="0") + ',gpu_compute_partition_type="CPX",gpu_memory_partition_type="NPS4"'
    readings = parse(f"gpu_total_vram{{{about}}} 49152\n".encode(), NOW, target("amd")).readings
    assert [reading.fb_total_bytes for reading in readings] == [None] * len(readings)
    assert readings


def test_a_mapping_that_fits_nothing_on_the_page_is_a_failed_read(linked: MappingFile) -> None:
    one = target(linked)
    other, ours = b'acne_core_busy{card="a",core="0"} 10\ngo_threads 3\n', b'acme_core_busy{card="a",core="0"} 10\n'
    (failed,) = parse(other, NOW, one).reads
    assert (failed.ok, failed.device_count) == (False, None)
    assert failed.error == (
        "no device on the page: none of its 2 samples is of a metric and a card that mapping acme_exporter names"
    )
    assert [read.device_count for read in parse(ours, NOW, one).reads] == [1]
    (lost,) = parse(other, NOW, one).reads
    assert (lost.ok, lost.device_count) == (True, 0)


def test_a_node_without_cards_is_read_where_the_exporter_speaks_of_more() -> None:
    (head,) = parse(b'ray_node_cpu_utilization{ip="10.0.0.1"} 3\n', NOW, target("ray")).reads
    assert (head.ok, head.device_count) == (True, 0)


ENGINES = """
source = "acme_exporter"
[labels]
uuid = ["card"]
[[metric]]
names = ["acme_busy", "acme_load"]
column = "gpu_util_ratio"
unit = "percent"
"""


@pytest.mark.parametrize(
    ("lines", "busy", "conflicts"),
    [
        (['acme_busy{card="a",engine="0"} 10', 'acme_busy{card="a",engine="1"} 90'], None, 1),
        (['acme_busy{card="a",engine="0"} 10', 'acme_busy{card="a",engine="1"} 10'], 0.1, 0),
        (['acme_busy{card="a",pod="p"} 10', 'acme_busy{card="a",pod="q"} 90'], 0.9, 0),
        (['acme_load{card="a"} 10', 'acme_busy{card="a"} 90'], 0.9, 0),
    ],
)
def test_series_of_a_card_that_differ_are_no_value(tmp_path, lines, busy, conflicts) -> None:
    path = tmp_path / "engines.toml"
    path.write_text(ENGINES, encoding="utf-8")
    seen = parse("".join(f"{line}\n" for line in lines).encode(), NOW, target(load(path)))
    (reading,) = seen.readings
    assert (reading.gpu_util_ratio, reading.invalid_count) == (busy, conflicts)
    events = [event for event in seen.others.get("quality_event", ()) if event.kind == "conflicting_sample"]
    assert [(event.subject, event.count) for event in events] == [("a", 1)] * conflicts
    assert bool(reading.quality_flags & QualityFlag.VALUE_REJECTED) == bool(conflicts)
