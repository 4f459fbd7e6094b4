"""nvidia-smi's CSV: words in place of numbers, sentences between lines, lost cards; and the command's deadline."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.nvidia_smi.table import Health, address, read
from collector.sources.nvidia_smi import NvidiaSmiSource, Reader, parse
from gpuledger.errors import BadInput
from gpuledger.model import QualityFlag, to_table
from gpuledger.registry import resolve

STUB = Path(__file__).resolve().parents[1] / "stubs" / "nvidia_smi" / "nvidia-smi"
HEADER = "index, uuid, utilization.gpu [%], memory.used [MiB], memory.total [MiB], power.draw [W]\n"
MIXED = (
    HEADER
    + "0, GPU-a, 40 %, 1024 MiB, 81920 MiB, 300.50 W\n"
    + "1, GPU-b, [Not Supported], 312 MiB, 2004 MiB, [Not Supported]\n"
    + "2, GPU-c, [N/A], 0 MiB, 40960 MiB, 44.10 W\n"
    + "3, GPU-d, [Unknown Error], [Unknown Error], [Unknown Error], [Unknown Error]\n"
    + "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost.  Reboot the system to recover it\n"
)
MIXED_HEALTH = [Health.MEASURED, Health.PARTIAL, Health.PARTIAL, Health.ERROR, Health.LOST]


@pytest.fixture
def reader() -> Reader:
    return Reader("n1", interval_seconds=30)


def check_mixed(text: str, now: datetime, reader: Reader, *, util: float, lost_at: str) -> None:
    output = read(text)
    assert [device.health for device in output.devices] == MIXED_HEALTH
    lost = output.devices[-1]
    assert (lost.pci, lost.index, lost.uuid) == (lost_at, None, None)
    assert (output.status, output.others) == ("partial", ())
    observation = parse(text, now, reader)
    (seen,) = observation.reads
    assert (seen.ok, seen.device_count, seen.error) == (True, 5, "partial: 1 lost, 1 not readable")
    utils = [r.gpu_util_ratio for r in observation.readings if r.gpu_util_ratio is not None]
    assert sum(utils) / len(utils) == util
    assert [r.gpu_uuid for r in observation.readings] == [d.uuid for d in output.devices[:4]]
    assert [bool(r.quality_flags & QualityFlag.PARTIAL) for r in observation.readings] == [False, False, False, True]
    (event,) = observation.others["quality_event"]
    assert (event.kind, event.subject, event.detail) == ("partial_answer", "n1", f"{lost_at}: lost")
    assert observation.others["condition"] == []


def test_five_devices_of_which_one_is_whole(now, reader):
    check_mixed(MIXED, now, reader, util=0.4, lost_at="0000:3B:00.0")


def test_004_as_reported(now, reader, shared):
    text = (shared / "problems" / "004-nvidia-smi-mixed.csv").read_text()
    check_mixed(text, now, reader, util=0.35, lost_at="0000:1A:00.0")


@pytest.mark.parametrize(
    "text",
    [
        "uuid, memory.used [MiB], power.draw [W], clocks.current.sm [MHz]\nGPU-a, 2048 MiB, 310.22 W, 1980 MHz\n",
        "uuid, memory.used [MiB], power.draw [W], clocks.current.sm [MHz]\nGPU-a, 2048, 310.22, 1980\n",
        "uuid, memory.used, power.draw, clocks.sm\r\nGPU-a, 2 GiB, 310220 mW, 1.98 GHz\r\n",
        "\ufeffgpu_uuid,memory.used [MiB],power.draw [W],clocks.sm [MHz]\nGPU-a,2048,310.22,1980\n",
    ],
    ids=["units in cells", "nounits", "other units and CRLF", "without blanks"],
)
def test_units_come_from_the_cell_the_header_or_the_field(now, reader, text):
    (reading,) = parse(text, now, reader).readings
    assert reading.fb_used_bytes == 2 * 2**30
    assert reading.power_watts == pytest.approx(310.22)
    assert reading.sm_clock_hertz == pytest.approx(1.98e9)


def test_every_other_field_and_identity(now, reader):
    text = (
        "index, name, uuid, pci.bus_id, utilization.memory [%], temperature.gpu, "
        "ecc.errors.uncorrected.volatile.total, remapped_rows.failure, clocks_event_reasons.active, driver_version\n"
        "7, NVIDIA H100 80GB HBM3, GPU-h, 00000000:1a:00.0, 12 %, 61, 2, Yes, 0x0000000000000044, 550.54\n"
    )
    (device,) = read(text).devices
    assert (device.index, device.pci, device.health) == (7, "0000:1A:00.0", Health.MEASURED)
    (reading,) = parse(text, now, reader).readings
    assert (reading.model, reading.mem_copy_util_ratio, reading.gpu_temp_celsius) == ("H100", 0.12, 61.0)
    assert (reading.ecc_uncorrected_count, reading.row_remap_failure, reading.throttle_reasons) == (2, 1, 0x44)


@pytest.mark.parametrize("cell", ["many", "-1 %", "101 %", "5 furlongs", "1e999", "1.2.3 %"])
def test_what_is_no_measurement_is_counted_and_not_kept(now, reader, cell):
    (reading,) = parse(f"uuid, utilization.gpu [%], power.draw [W]\nGPU-a, {cell}, 50 W\n", now, reader).readings
    assert (reading.gpu_util_ratio, reading.power_watts) == (None, 50.0)
    assert (reading.invalid_count, reading.quality_flags) == (1, QualityFlag.VALUE_REJECTED)


def test_other_lines_cost_themselves_and_are_named(now, reader):
    text = (
        "WARNING: infoROM is corrupted at gpu 0000:5E:00.0\n"
        + HEADER
        + "0, GPU-a, 40 %, 1024 MiB, 81920 MiB, 300.50 W\n"
        + "1, GPU-b, 40 %\n"
        + "1, GPU-b, 50 %, 1024 MiB, 81920 MiB, 300.50 W\n"
    )
    observation = parse(text, now, reader)
    assert [reading.gpu_util_ratio for reading in observation.readings] == [0.4, 0.5]
    assert observation.reads[0].skipped_lines == 2
    named = {event.detail: event.count for event in observation.others["quality_event"]}
    assert named == {"WARNING: infoROM is corrupted at gpu 0000:5E:00.0": 1, "1, GPU-b, 40 %": 1}
    assert {event.kind for event in observation.others["quality_event"]} == {"refused_line"}


def test_a_mig_device_belongs_to_its_card(now, reader):
    text = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-a)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-new)\n"
        "uuid, mig.mode.current, utilization.gpu [%], memory.used [MiB]\n"
        "GPU-a, Enabled, [N/A], 512 MiB\n"
        "MIG-new, [N/A], [N/A], 256 MiB\n"
        "MIG-GPU-b/2/0, [N/A], [N/A], 128 MiB\n"
    )
    observation = parse(text, now, reader)
    places = [(r.gpu_uuid, r.slice_id, r.slice_profile, r.gpu_util_ratio) for r in observation.readings]
    assert places == [("GPU-a", "", None, None), ("GPU-a", "MIG-new", "3g.20gb", None), ("GPU-b", "2", None, None)]
    assert observation.reads[0].device_count == 1
    assert read(text).devices[0].is_mig


@pytest.mark.parametrize(
    ("line", "health"),
    [
        ("Unable to determine the device handle for GPU0: 0000:3B:00.0: Unknown Error", Health.ERROR),
        ("Unable to determine the device handle for GPU 0000:3b:00.0: GPU is lost.", Health.LOST),
        ("NVRM: GPU at PCI:0000:3B:00.0 has fallen off the bus.", Health.LOST),
    ],
)
def test_sentences_about_a_card(line, health):
    (device,) = read(line).devices
    assert (device.health, device.pci, device.uuid) == (health, "0000:3B:00.0", None)


def test_addresses_have_one_form():
    assert {address(text) for text in ("00000000:1a:00.0", "0000:1A:00.0", "1A:00.0")} == {"0000:1A:00.0"}


def with_address(*lines: str) -> str:
    return "uuid, pci.bus_id, utilization.gpu [%]\n" + "".join(f"{line}\n" for line in lines)


def test_a_card_that_was_seen_and_is_lost_gets_a_dated_condition(now, reader):
    whole = with_address("GPU-a, 00000000:3B:00.0, 10 %", "GPU-b, 00000000:5E:00.0, 20 %")
    lost = with_address("GPU-a, 00000000:3B:00.0, 10 %") + (
        "Unable to determine the device handle for GPU 0000:5E:00.0: GPU is lost.  Reboot the system\n"
    )
    step = timedelta(seconds=30)
    assert parse(whole, now, reader).others["condition"] == []
    (first,) = parse(lost, now + step, reader).others["condition"]
    (second,) = parse(lost, now + 2 * step, reader).others["condition"]
    assert (first.subject_kind, first.subject, first.condition) == ("gpu", "GPU-b", "gpu_lost")
    assert (first.from_at, first.until_at) == (now + step, now + 4 * step)
    assert (second.from_at, second.until_at) == (now + step, now + 5 * step)
    (ended,) = parse(whole, now + 3 * step, reader).others["condition"]
    assert (ended.from_at, ended.until_at) == (now + step, now + 3 * step)
    assert parse(whole, now + 4 * step, reader).others["condition"] == []
    assert to_table("condition", [first, ended]).num_rows == 2


def test_a_line_that_says_lost_has_a_condition_and_no_reading(now, reader):
    observation = parse(with_address("GPU-a, 0000:3B:00.0, [GPU is lost]"), now, reader)
    assert observation.readings == ()
    assert [condition.subject for condition in observation.others["condition"]] == ["GPU-a"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no device in the answer"),
        ("No devices were found\n", "No devices were found"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "NVIDIA-SMI has failed"),
    ],
)
def test_text_without_a_device_is_a_failed_read(now, reader, text, said):
    observation = parse(text, now, reader)
    assert not observation.reads[0].ok
    assert (observation.reads[0].error or "").startswith(said)
    assert observation.readings == ()


CELLS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=12)


@given(st.lists(st.one_of(CELLS, st.just(HEADER), st.just("0, GPU-a, 40 %, 1 MiB, 2 MiB, 3 W")), max_size=12))
def test_no_text_breaks_the_reader(lines):
    text = "\n".join(lines)
    at = datetime(2026, 3, 2, tzinfo=UTC)
    observation = parse(text, at, Reader("n1", interval_seconds=30))
    for record, rows in (("reading", observation.readings), ("source_read", observation.reads)):
        assert to_table(record, rows).num_rows == len(rows)


# The command.


@dataclass
class Stub:
    folder: Path

    def put(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def source(self, timeout_seconds: float = 10) -> NvidiaSmiSource:
        environment = os.environ | {"NVIDIA_SMI_STUB": str(self.folder)}
        return NvidiaSmiSource(node="n1", timeout_seconds=timeout_seconds, command=str(STUB), environment=environment)


@pytest.fixture
def stub(tmp_path) -> Stub:
    made = Stub(tmp_path)
    made.put("answer", MIXED)
    return made


def test_the_source_reads_what_the_command_prints(stub, now):
    stub.put("status", "15")
    observation = stub.source().read(now)
    assert [reading.gpu_util_ratio for reading in observation.readings] == [0.4, None, None, None]
    assert observation.reads[0].interval_seconds == 30
    (call,) = stub.calls
    assert call.startswith("--query-gpu=index,uuid,name,pci.bus_id,")
    assert call.endswith(" --format=csv")


def test_a_field_that_the_version_does_not_know_is_left_out_from_then_on(stub, now):
    stub.put("unknown", "memory.reserved")
    source = stub.source()
    assert source.read(now).reads[0].ok
    assert source.read(now).reads[0].ok
    assert ["memory.reserved" in call for call in stub.calls] == [True, False, False]
    assert source.counts["unknown_fields"] == 1


def test_a_command_that_hangs_ends_at_its_deadline_with_its_children(stub, now):
    stub.put("sleep", "60")
    source = stub.source(timeout_seconds=0.3)
    begun = time.monotonic()
    (failed,) = source.read(now).reads
    assert (failed.ok, failed.error) == (False, "no answer within 0.3 s")
    assert time.monotonic() - begun < 30
    (stub.folder / "sleep").unlink()
    assert stub.source().read(now).reads[0].ok
    source.close()


def test_a_command_that_is_not_there_is_a_failed_read(now):
    source = NvidiaSmiSource(node="n1", command="/nonexistent/nvidia-smi")
    (failed,) = source.read(now).reads
    assert (failed.ok, failed.error) == (False, "/nonexistent/nvidia-smi cannot be run: No such file or directory")


# The importer.


def test_a_saved_table_is_imported(tmp_path, now):
    path = tmp_path / "smi.csv"
    path.write_text(MIXED)
    tables = dict(resolve("importers", "nvidia_smi")(path, node="n1", at=now))
    assert {name: table.num_rows for name, table in tables.items()} == {
        "source_read": 1, "reading": 4, "quality_event": 1,
    }  # fmt: skip


def test_a_log_of_several_passes_keeps_its_times(tmp_path, now):
    path = tmp_path / "smi.csv"
    path.write_text(
        "timestamp, uuid, utilization.gpu [%]\n"
        "2026/03/02 17:00:00.100, GPU-a, 10 %\n2026/03/02 17:00:00.103, GPU-b, 20 %\n"
        "2026/03/02 17:00:05.100, GPU-a, 30 %\n2026/03/02 17:00:05.103, GPU-b, 40 %\n"
    )
    tables = dict(resolve("importers", "nvidia_smi")(path, node="n1", at=now, timezone="Asia/Shanghai"))
    first = datetime(2026, 3, 2, 9, 0, 0, 100_000, tzinfo=UTC)
    assert tables["source_read"].column("ts").to_pylist() == [first, first + timedelta(seconds=5)]
    assert tables["reading"].column("ts").to_pylist() == [first] * 2 + [first + timedelta(seconds=5)] * 2
    assert tables["reading"].column("gpu_util_ratio").to_pylist() == [0.1, 0.2, 0.3, 0.4]
    assert set(tables["reading"].column("interval_seconds").to_pylist()) == {None}


def test_a_file_that_shows_nothing_is_refused(tmp_path, now):
    path = tmp_path / "smi.csv"
    path.write_text("No devices were found\n")
    with pytest.raises(BadInput, match="No devices were found"):
        list(resolve("importers", "nvidia_smi")(path, node="n1", at=now))
    with pytest.raises(BadInput, match="timezone"):
        list(resolve("importers", "nvidia_smi")(path, node="n1", at=now, timezone="Mars/Base"))
