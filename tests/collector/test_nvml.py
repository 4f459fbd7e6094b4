"""NVML through the real binding and a stub library: units, gaps, lost and hung cards, slices, restarts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta

import pytest

from collector.nvml.records import Pass, occupied_memory, parse
from collector.sources.nvml import NvmlSource
from gpuledger.model import QualityFlag

CARD = "GPU-{:08d}-0000-0000-0000-000000000000"


@pytest.fixture
def source(nvml_source) -> Callable[..., NvmlSource]:
    return nvml_source


def test_everything_that_a_card_measures_in_our_units(source, now):
    (reading,) = source("count 1").read(now).readings
    measured = {
        "gpu_util_ratio": 0.97,
        "mem_copy_util_ratio": 0.41,
        "sm_active_ratio": 0.63,
        "gr_engine_active_ratio": 0.905,
        "tensor_active_ratio": 0.17,
        "dram_active_ratio": 0.2525,
        "enc_util_ratio": 0.03,
        "dec_util_ratio": 0.04,
        "fb_used_bytes": 39449 * 2**20,
        "fb_reserved_bytes": 551 * 2**20,
        "fb_total_bytes": 81559 * 2**20,
        "power_watts": 512.345,
        "power_limit_watts": 700.0,
        "energy_joules": 9000000001.5,
        "sm_clock_hertz": 1.98e9,
        "mem_clock_hertz": 2.619e9,
        "gpu_temp_celsius": 61.0,
        "memory_temp_celsius": 72.0,
        "throttle_reasons": 4,
        "pcie_tx_bytes_per_second": 100 * 2**20,
        "pcie_rx_bytes_per_second": 100 * 2**20,
        "nvlink_bytes_per_second": 500 * 2**20,
        "xid_code": None,
        "ecc_uncorrected_count": 2,
        "pcie_replay_count": 5,
        "row_remap_correctable_count": 3,
        "row_remap_uncorrectable_count": 0,
        "row_remap_failure": 0,
        "sm_occupancy_ratio": 0.44,
        "fp64_active_ratio": 0.01,
        "fp32_active_ratio": 0.22,
        "fp16_active_ratio": 0.33,
        "process_count": 2,
        "invalid_count": 0,
        "quality_flags": 0,
    }
    assert {column: getattr(reading, column) for column in measured} == measured
    assert (reading.model, reading.slice_id, reading.source) == ("H100", "", "nvml")


def test_an_unsupported_call_is_none_and_not_asked_again(source, nvml_stub, now):
    nvml = source("rc.nvmlDeviceGetPowerUsage.1 3", "rc.nvmlDeviceGetEncoderUtilization 13")
    for _ in range(3):
        first, second = nvml.read(now).readings
        assert (first.power_watts, second.power_watts, first.enc_util_ratio) == (512.345, None, None)
        assert (first.quality_flags, second.quality_flags) == (0, 0)
    assert nvml_stub.calls("nvmlDeviceGetPowerUsage", 0) == 3
    assert nvml_stub.calls("nvmlDeviceGetPowerUsage", 1) == 1
    assert nvml_stub.calls("nvmlDeviceGetEncoderUtilization", 0) == 1


def test_a_passing_fault_is_partial_and_asked_again(source, nvml_stub, now):
    nvml = source("count 1", "rc.nvmlDeviceGetPowerUsage 27")
    (reading,) = nvml.read(now).readings
    assert (reading.power_watts, reading.quality_flags) == (None, QualityFlag.PARTIAL)
    nvml_stub.scenario("count 1")
    (reading,) = nvml.read(now).readings
    assert (reading.power_watts, reading.quality_flags) == (512.345, 0)


def test_only_the_first_memory_call(source, now):
    busy, idle = source("v1 1", "processes.1 0", "used_mib.1 0").read(now).readings
    assert (busy.fb_used_bytes, busy.fb_reserved_bytes) == (40000 * 2**20, None)
    assert (idle.fb_used_bytes, idle.fb_reserved_bytes, idle.fb_total_bytes) == (0, 551 * 2**20, 81559 * 2**20)


def test_a_lost_card_has_no_row_and_the_others_stay(source, nvml_stub, now):
    nvml = source("count 3")
    assert nvml.read(now).reads[0].device_count == 3
    nvml_stub.scenario("count 3", "lost.1 1")
    observation = nvml.read(now)
    assert [reading.gpu_uuid for reading in observation.readings] == [CARD.format(0), CARD.format(2)]
    assert (observation.reads[0].ok, observation.reads[0].device_count) == (True, 2)


def test_a_card_lost_from_the_start(source, now):
    observation = source("lost.0 1").read(now)
    assert [reading.gpu_uuid for reading in observation.readings] == [CARD.format(1)]


def test_a_sliced_card(source, now):
    observation = source("count 1", "mig.0 1").read(now)
    card, small, large = observation.readings
    assert observation.reads[0].device_count == 1
    assert (card.gpu_util_ratio, card.sm_active_ratio, card.power_watts) == (None, None, 512.345)
    assert [(part.slice_id, part.slice_profile) for part in (small, large)] == [("1", "3g.40gb"), ("2", "4g.40gb")]
    assert [part.sm_active_ratio for part in (small, large)] == [0.1, 0.2]
    assert [part.fb_used_bytes for part in (small, large)] == [1000 * 2**20, 2000 * 2**20]
    assert {part.power_watts for part in (small, large)} == {None}
    assert {part.gpu_uuid for part in (small, large)} == {card.gpu_uuid}


def test_activity_takes_one_more_sample_a_pass(source, nvml_stub, now):
    nvml = source()
    for samples in (2, 3, 4):
        assert nvml.read(now).readings[0].sm_active_ratio == 0.63
        assert nvml_stub.calls("nvmlGpmSampleGet", 0) == samples


def test_without_permission_for_activity_the_rest_is_read(source, now):
    (reading,) = source("count 1", "rc.nvmlGpmSampleGet 4").read(now).readings
    assert (reading.sm_active_ratio, reading.gpu_util_ratio, reading.quality_flags) == (None, 0.97, 0)


def test_a_value_out_of_range_is_rejected(source, now):
    (reading,) = source("count 1", "util.0 2619").read(now).readings
    assert (reading.gpu_util_ratio, reading.mem_copy_util_ratio, reading.invalid_count) == (None, 0.41, 1)
    assert reading.quality_flags == QualityFlag.VALUE_REJECTED


@pytest.mark.parametrize("code", [9, 12, 18])
def test_a_library_that_does_not_start(source, now, code):
    (read,) = source(f"rc.nvmlInitWithFlags {code}").read(now).reads
    assert (read.ok, read.error.startswith("NVML: ")) == (False, True)


def test_a_library_that_fails_later_is_started_again(source, nvml_stub, now):
    nvml = source()
    first_child = nvml.read(now) and nvml._child.pid
    nvml_stub.scenario("rc.nvmlDeviceGetUtilizationRates 1")
    assert not nvml.read(now).reads[0].ok
    nvml_stub.scenario()
    (waiting,) = nvml.read(now + timedelta(seconds=0.5)).reads
    assert (waiting.ok, waiting.error.startswith("waiting to start again after: NVML:")) == (False, True)
    assert nvml.read(now + timedelta(seconds=2)).reads[0].ok
    assert nvml._child.pid != first_child


def test_waiting_grows_while_it_keeps_failing_and_starts_over_after_success(source, nvml_stub, now):
    nvml = source("rc.nvmlInitWithFlags 9")
    waits = []
    for _ in range(8):
        nvml.read(now)
        waits.append((nvml._start_at - now).total_seconds())
        now = nvml._start_at
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    nvml_stub.scenario()
    assert nvml.read(now).reads[0].ok
    nvml_stub.scenario("rc.nvmlDeviceGetUtilizationRates 1")
    nvml.read(now)
    assert (nvml._start_at - now).total_seconds() == 1


def test_a_hung_card_costs_one_read_and_is_then_left_out(source, nvml_stub, now):
    nvml = source(timeout_seconds=3.0)
    nvml.read(now)
    nvml_stub.scenario("hang.1 1")
    started = time.monotonic()
    (read,) = nvml.read(now).reads
    assert time.monotonic() - started < 6
    assert (read.ok, read.error) == (False, f"no answer within 3 s, hung at {CARD.format(1)}")
    observation = nvml.read(now + timedelta(seconds=5))
    assert [reading.gpu_uuid for reading in observation.readings] == [CARD.format(0)]
    assert (observation.reads[0].ok, observation.reads[0].device_count) == (True, 1)
    assert nvml.counts == {"left_out_devices": 1, "hung_processes": 0}
    nvml_stub.scenario()
    assert len(nvml.read(now + timedelta(minutes=11)).readings) == 2


def test_a_killed_child_is_replaced(source, now):
    nvml = source()
    nvml.read(now)
    os.kill(nvml._child.pid, 9)
    assert not nvml.read(now).reads[0].ok
    assert nvml.read(now + timedelta(seconds=2)).reads[0].ok


def test_nothing_is_left_behind(source, now):
    nvml = source()
    nvml.read(now)
    pid = nvml._child.pid
    nvml.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_snapshot_of_nothing_is_a_read_node(now):
    observation = parse({"devices": []}, Pass(now, "n", 15))
    assert (observation.reads[0].device_count, observation.readings) == (0, ())


@pytest.mark.parametrize(
    ("reserved", "processes", "used_after", "reserved_after"),
    [(5, 0, 7, 5), (None, 0, 0, 7), (None, 1, 7, None), (None, None, 7, None)],
)
def test_occupied_memory(reserved, processes, used_after, reserved_after):
    memory = occupied_memory({"total": 20, "used": 7, "reserved": reserved}, processes)
    assert memory == {"fb_used_bytes": used_after, "fb_reserved_bytes": reserved_after, "fb_total_bytes": 20}
