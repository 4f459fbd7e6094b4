"""AMD cards through a stub of the module amdsmi: units, gaps, partitions, calls that hang or die, an absent module."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collector.amdsmi.records import Pass, parse
from collector.sources.amdsmi import AmdsmiSource
from gpuledger.errors import SourceError
from gpuledger.model import QualityFlag, Reading, slice_share
from tests.collector.amd_cards import UUID, card, source

MEASURED = {
    "gpu_util_ratio": 0.97,
    "mem_copy_util_ratio": 0.41,
    "power_watts": 612.0,
    "power_limit_watts": 750.0,
    "energy_joules": 6100.0,
    "fb_used_bytes": 157_286_400_000,
    "fb_total_bytes": 206_141_652_992,
    "gpu_temp_celsius": 71.0,
    "memory_temp_celsius": 58.0,
    "sm_clock_hertz": 2.1e9,
    "mem_clock_hertz": 1.3e9,
    "ecc_uncorrected_count": 2,
}
ABOUT = ("ts", "node", "gpu_uuid", "slice_id", "source", "seen_at", "interval_seconds", "model", "slice_profile")


@pytest.fixture
def answers(tmp_path) -> Path:
    return tmp_path / "answers.json"


@pytest.fixture
def made(answers) -> Iterator[Callable[..., AmdsmiSource]]:
    sources = []

    def make(cards: list[dict[str, Any]] | str, **options: Any) -> AmdsmiSource:
        sources.append(source(answers, cards, **options))
        return sources[-1]

    yield make
    for one in sources:
        one.close()


def values(reading: Reading) -> dict[str, Any]:
    unlisted = (*ABOUT, "invalid_count", "quality_flags")
    return {name: of for name, of in dataclasses.asdict(reading).items() if name not in unlisted and of is not None}


def parsed(now: datetime, *cards: dict[str, Any]) -> Sequence[Reading]:
    devices = [{"place": f"gpu {number}", "index": number, **_told(of)} for number, of in enumerate(cards)]
    return parse({"devices": devices}, Pass(now, "n1", 15.0)).readings


def _told(of: dict[str, Any]) -> dict[str, Any]:
    """What the child makes of a stub's card."""
    names = {
        "uuid": "gpu_device_uuid",
        "board": "gpu_board_info",
        "asic": "gpu_asic_info",
        "partition": "gpu_accelerator_partition_profile",
        "activity": "gpu_activity",
        "power": "power_info",
        "energy": "energy_count",
        "memory": "gpu_vram_usage",
        "celsius": "temp_metric.HOTSPOT",
        "memory_celsius": "temp_metric.VRAM",
        "clock": "clock_info.GFX",
        "memory_clock": "clock_info.MEM",
        "ecc": "gpu_total_ecc_count",
    }
    return {ours: of[theirs] for ours, theirs in names.items()}


def test_everything_that_a_card_measures_in_our_units(made, now) -> None:
    observation = made([card(0)]).read(now)
    (reading,) = observation.readings
    assert values(reading) == pytest.approx(MEASURED)
    assert (reading.gpu_uuid, reading.node, reading.model) == (UUID.format(0), "n1", "MI300X")
    assert (reading.invalid_count, reading.quality_flags) == (0, 0)
    assert [(read.source, read.device_count) for read in observation.reads] == [("amdsmi", 1)]


def test_what_a_release_does_not_answer_is_none(made, now) -> None:
    silent = dict.fromkeys(card(0), "raise") | {"gpu_device_uuid": UUID.format(0)}
    (reading,) = made([silent]).read(now).readings
    assert values(reading) == {}
    assert (reading.model, reading.invalid_count) == (None, 0)


def test_not_available_is_none_and_zero_power_is_no_power(now) -> None:
    gone = {"current_socket_power": "N/A", "average_socket_power": 140}
    first, second, third = parsed(
        now,
        card(0, gpu_activity={"gfx_activity": "N/A", "umc_activity": 0}, power_info=gone),
        card(1, power_info={"current_socket_power": 0, "average_socket_power": "N/A"}),
        card(2, gpu_activity={"gfx_activity": 65535, "umc_activity": 101}),
    )
    assert (first.gpu_util_ratio, first.mem_copy_util_ratio, first.power_watts) == (None, 0.0, 140.0)
    assert (second.power_watts, second.invalid_count) == (None, 1)
    assert (third.gpu_util_ratio, third.mem_copy_util_ratio, third.invalid_count) == (None, None, 2)
    assert third.quality_flags == QualityFlag.VALUE_REJECTED


def test_a_card_is_known_by_uuid_else_by_its_boards_serial_else_by_its_place(now) -> None:
    zeros = "00000000-0000-0000-0000-000000000000"
    nameless = card(2, gpu_device_uuid=zeros, gpu_board_info={"product_serial": "N/A"})
    names = [reading.gpu_uuid for reading in parsed(now, card(0), card(1, gpu_device_uuid=zeros), nameless)]
    assert names == ["692409000001", UUID.format(0), "n1/amdsmi/2"]


@pytest.mark.parametrize(("mode", "parts", "share"), [("CPX", 8, 0.125), ("DPX", 2, 0.5)])
def test_a_divided_card_is_one_card(now, mode: str, parts: int, share: float) -> None:
    def told(number: int) -> dict[str, Any]:
        return {"partition_id": [number], "partition_profile": {"profile_type": mode}}

    whole, *slices = parsed(now, *(card(0, gpu_accelerator_partition_profile=told(number)) for number in range(parts)))
    unmeasured = {"gpu_util_ratio", "mem_copy_util_ratio"}
    assert values(whole) == pytest.approx({name: of for name, of in MEASURED.items() if name not in unmeasured})
    assert [(part.gpu_uuid, part.slice_id, values(part)) for part in slices] == [
        (UUID.format(0), str(number), {}) for number in range(parts)
    ]
    assert {slice_share(part.model, part.slice_profile) for part in slices} == {share}


def test_what_cannot_be_understood_of_a_card_costs_that_card(now) -> None:
    broken = {"place": "gpu 0", "index": "x"}
    snapshot = {"devices": [broken, None, {"place": "gpu 1", "index": 1, **_told(card(1))}]}
    observation = parse(snapshot, Pass(now, "n1", 15.0))
    assert [reading.gpu_uuid for reading in observation.readings] == [UUID.format(1)]
    assert observation.reads[0].skipped_lines == 2
    with pytest.raises(SourceError, match="without devices"):
        parse({}, Pass(now, "n1", 15.0))


def test_an_energy_that_goes_back_a_little_is_none_and_one_that_began_anew_counts(made, answers, now) -> None:
    one = made([card(0)])

    def joules(accumulator: int) -> float | None:
        energy = {"energy_accumulator": accumulator, "counter_resolution": 1e6}
        answers.write_text(json.dumps([card(0, energy_count=energy)]))
        return one.read(now).readings[0].energy_joules

    assert [joules(of) for of in (1000, 1010, 1008, 1011, 3)] == [1000.0, 1010.0, None, 1011.0, 3.0]


def test_a_hung_card_costs_one_read_and_is_left_out_for_ten_minutes(made, answers, now) -> None:
    one = made([card(0), card(1, power_info="hang")], timeout_seconds=1.5)
    (read,) = one.read(now).reads
    assert (read.ok, read.error) == (False, "no answer within 1.5 s, hung at gpu 1")
    assert not one.read(now).reads[0].ok
    later = now + timedelta(seconds=2)
    assert [reading.gpu_uuid for reading in one.read(later).readings] == [UUID.format(0)]
    assert one.counts == {"left_out_devices": 1, "hung_processes": 0}
    answers.write_text(json.dumps([card(0), card(1)]))
    assert len(one.read(now + timedelta(minutes=11)).readings) == 2


def test_a_library_that_dies_takes_nothing_of_ours_with_it(made, now) -> None:
    one = made([card(0, gpu_activity="die")])
    (read,) = one.read(now).reads
    assert (read.ok, read.error) == (False, "the amdsmi process died")
    (read,) = one.read(now + timedelta(seconds=2)).reads
    assert (read.ok, read.error) == (False, "no card could be read: gpu 0")


def test_where_the_module_is_absent_the_read_says_so(now) -> None:
    one = AmdsmiSource(node="n1", environment={})
    (read,) = one.read(now).reads
    one.close()
    assert not read.ok
    assert read.error is not None
    assert "the Python module amdsmi is not there; it comes with ROCm" in read.error
