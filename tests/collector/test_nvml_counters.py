"""Numbered fields, traffic from counters, and slices that are made anew."""

from __future__ import annotations

import time

import pytest

from collector.nvml.counters import Rates
from gpuledger.model import QualityFlag

GIB = 2**30


def test_a_rate_is_what_moved_between_two_looks():
    rates = Rates()
    assert rates.since_last({"a": 100.0, "b": 7.0}, 10.0) is None
    assert rates.since_last({"a": 160.0, "b": 7.0}, 12.0) == {"a": 30.0, "b": 0.0}


@pytest.mark.parametrize("then", [{"a": 99.0}, {"a": 120.0, "b": 1.0}, {}])
def test_after_a_reset_or_another_set_of_counters_nobody_knows_what_moved(then):
    rates = Rates()
    rates.since_last({"a": 100.0}, 10.0)
    assert rates.since_last(then, 12.0) is None
    assert rates.since_last({name: value + 2 for name, value in then.items()}, 14.0) == dict.fromkeys(then, 1.0)


def test_looks_too_close_together_give_no_rate():
    rates = Rates()
    rates.since_last({"a": 100.0}, 10.0)
    assert rates.since_last({"a": 101.0}, 10.001) is None


WITHOUT_GPM = ("count 1", "gpm.0 0")


def _traffic(nvml, nvml_stub, now, *looks):
    readings = []
    for lines in looks:
        nvml_stub.scenario(*WITHOUT_GPM, *lines)
        readings.append(nvml.read(now).readings[0])
    return readings


def _wait() -> None:
    """Looks that follow each other at once are too close together for a rate."""
    time.sleep(0.06)


def test_traffic_over_pcie_from_counters_where_gpm_is_missing(nvml_source, nvml_stub, now):
    nvml = nvml_source(*WITHOUT_GPM)
    (first,) = _traffic(nvml, nvml_stub, now, [f"field.197.0 {8 * GIB}", f"field.198.0 {9 * GIB}"])
    _wait()
    (second,) = _traffic(nvml, nvml_stub, now, [f"field.197.0 {8 * GIB + 2000}", f"field.198.0 {9 * GIB + 1000}"])
    assert (first.pcie_tx_bytes_per_second, first.sm_active_ratio) == (None, None)
    assert second.pcie_tx_bytes_per_second == pytest.approx(2 * second.pcie_rx_bytes_per_second)
    assert 0 < second.pcie_tx_bytes_per_second <= 2000 / 0.05


def test_counters_of_32_bits_that_wrap_within_a_second_are_not_believed(nvml_source, nvml_stub, now):
    nvml = nvml_source(*WITHOUT_GPM)
    looks = []
    for count in (1000, 2000):
        looks += _traffic(nvml, nvml_stub, now, [f"field.197.0 {count}", f"field.198.0 {count}"])
        _wait()
    assert [look.pcie_tx_bytes_per_second for look in looks] == [None, None]


@pytest.mark.parametrize(("sent", "received"), [(202, 204), (138, 139), (140, 141)])
def test_traffic_over_nvlink_from_the_best_counters_that_the_card_has(nvml_source, nvml_stub, now, sent, received):
    nvml = nvml_source(*WITHOUT_GPM)
    links = "field.91.0 4"
    looks = []
    for count in (10, 20):
        looks += _traffic(nvml, nvml_stub, now, [links, f"field.{sent}.0 {count}", f"field.{received}.0 {count}"])
        _wait()
    first, second = (look.nvlink_bytes_per_second for look in looks)
    unit_bytes = 1 if sent == 202 else 1024
    assert first is None
    assert 0 < second <= 4 * 2 * 10 * unit_bytes / 0.05


def test_a_card_without_links_has_no_traffic_over_them(nvml_source, nvml_stub, now):
    nvml = nvml_source(*WITHOUT_GPM, "field.91.0 0", "field.202.0 1", "field.204.0 1")
    (reading,) = nvml.read(now).readings
    assert (reading.nvlink_bytes_per_second, reading.quality_flags) == (None, 0)
    assert nvml_stub.calls("nvmlDeviceGetFieldValues", 0) == 1


@pytest.mark.parametrize("code", [2, 3])
def test_a_field_that_the_card_does_not_have_is_none(nvml_source, now, code):
    (reading,) = nvml_source("count 1", f"field.82.0 -{code}", f"field.94.0 -{code}").read(now).readings
    assert (reading.memory_temp_celsius, reading.pcie_replay_count, reading.quality_flags) == (None, None, 0)


def test_a_field_with_a_passing_fault_is_partial_and_asked_again(nvml_source, nvml_stub, now):
    nvml = nvml_source("count 1", "field.82.0 -999")
    (reading,) = nvml.read(now).readings
    assert (reading.memory_temp_celsius, reading.quality_flags) == (None, QualityFlag.PARTIAL)
    nvml_stub.scenario("count 1")
    (reading,) = nvml.read(now).readings
    assert (reading.memory_temp_celsius, reading.quality_flags) == (72, 0)


def test_throttle_reasons_are_nvmls_bits(nvml_source, now):
    (reading,) = nvml_source("count 1", "throttle.0 200").read(now).readings
    assert reading.throttle_reasons == 0x8 | 0x40 | 0x80


def test_slices_that_are_made_anew_are_sampled_anew(nvml_source, nvml_stub, now):
    nvml = nvml_source("count 1", "mig.0 1")
    nvml.read(now)
    nvml.read(now)
    assert nvml_stub.calls("nvmlGpmMigSampleGet", 0) == 6
    nvml_stub.scenario("count 1", "mig.0 2")
    _, small, large = nvml.read(now).readings
    # A first and a second sample of each: what was measured in the slice before is not mixed in.
    assert nvml_stub.calls("nvmlGpmMigSampleGet", 0) == 10
    assert (small.sm_active_ratio, large.sm_active_ratio) == (0.1, 0.2)


def test_a_card_that_is_sliced_while_it_is_read(nvml_source, nvml_stub, now):
    nvml = nvml_source("count 1")
    assert [reading.gpu_util_ratio for reading in nvml.read(now).readings] == [0.97]
    nvml_stub.scenario("count 1", "mig.0 1")
    assert [reading.slice_id for reading in nvml.read(now).readings] == ["", "1", "2"]
    nvml_stub.scenario("count 1")
    assert [reading.gpu_util_ratio for reading in nvml.read(now).readings] == [0.97]
