"""What happens to cards: XIDs, lost cards and such that come back, advice of the driver, drivers loaded anew."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

CARD = "GPU-{:08d}-0000-0000-0000-000000000000"


def _faults(observation) -> list[tuple[str, str, str, int]]:
    return [(fault.gpu_uuid, fault.kind, fault.code, fault.count) for fault in observation.others["fault_event"]]


def _lost(observation) -> list[tuple[str, object, object]]:
    return [(row.subject, row.from_at, row.until_at) for row in observation.others["condition"]]


def _noticed(observation) -> list[tuple[str, str, str]]:
    return [(event.subject, event.kind, event.detail) for event in observation.others["quality_event"]]


def test_an_xid_is_told_once_of_the_card_and_the_slice_that_had_it(nvml_source, now):
    nvml = nvml_source("xid.0 31", "xid.1 43", "xid_instance.1 2")
    first, second = nvml.read(now).others["fault_event"]
    assert (first.gpu_uuid, first.kind, first.code, first.detail) == (CARD.format(0), "xid", "31", None)
    assert (second.gpu_uuid, second.code, second.detail) == (CARD.format(1), "43", "GPU instance 2")
    assert (first.ts, first.node, first.vendor, first.source, first.count) == (now, "n1", "nvidia", "nvml", 1)
    assert _faults(nvml.read(now)) == []


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"])
def test_without_events_the_cards_are_read_all_the_same(nvml_source, now, call):
    observation = nvml_source(f"rc.{call} 3", "xid.0 31").read(now)
    assert (len(observation.readings), _faults(observation)) == (2, [])
    assert {reading.quality_flags for reading in observation.readings} == {0}


def test_a_code_that_is_none_is_noticed_and_no_fault(nvml_source, now):
    observation = nvml_source("xid.0 99999999").read(now)
    assert _faults(observation) == []
    assert _noticed(observation) == [(CARD.format(0), "rejected_value", "XID 99999999")]


def test_the_card_that_fell_off_the_bus_is_told_with_its_xid(nvml_source, nvml_stub, now):
    nvml = nvml_source()
    nvml.read(now)
    nvml_stub.scenario("lost.1 1", "xid.1 79")
    observation = nvml.read(now)
    assert _faults(observation) == [(CARD.format(1), "xid", "79", 1), (CARD.format(1), "gpu_lost", "", 1)]


def test_a_lost_card_is_out_of_use_until_it_answers_again(nvml_source, nvml_stub, now):
    nvml = nvml_source(interval_seconds=10)
    assert _lost(nvml.read(now)) == []
    nvml_stub.scenario("lost.1 1")
    gone_at, later, back_at = (now + timedelta(seconds=seconds) for seconds in (10, 20, 30))
    observation = nvml.read(gone_at)
    assert _faults(observation) == [(CARD.format(1), "gpu_lost", "", 1)]
    assert _lost(observation) == [(CARD.format(1), gone_at, gone_at + timedelta(seconds=30))]
    observation = nvml.read(later)
    assert _faults(observation) == []
    assert _lost(observation) == [(CARD.format(1), gone_at, later + timedelta(seconds=30))]
    nvml_stub.scenario()
    observation = nvml.read(back_at)
    assert len(observation.readings) == 2
    assert _lost(observation) == [(CARD.format(1), gone_at, back_at)]
    assert _lost(nvml.read(back_at + timedelta(seconds=10))) == []


def test_a_card_that_the_driver_says_is_not_available(nvml_source, nvml_stub, now):
    nvml = nvml_source("unavailable.1 1")
    assert _faults(nvml.read(now)) == [(CARD.format(1), "gpu_lost", "", 1)]
    nvml_stub.scenario("unavailable.1 1", "lost.1 1")
    observation = nvml.read(now)
    assert _faults(observation) == []  # told already
    assert [subject for subject, *_ in _lost(observation)] == [CARD.format(1)]


def test_a_card_that_never_said_its_name_is_the_nodes_fault(nvml_source, nvml_stub, now):
    nvml = nvml_source("lost.1 1")
    observation = nvml.read(now)
    assert _faults(observation) == [("", "gpu_lost", "", 1)]
    assert observation.others["fault_event"][0].detail == "1 of the node's cards, whose UUIDs are not known"
    assert _faults(nvml.read(now)) == []
    nvml_stub.scenario()
    assert len(nvml.read(now).readings) == 2


def test_a_card_that_is_lost_before_the_next_process_starts_is_known_by_what_is_missing(nvml_source, nvml_stub, now):
    nvml = nvml_source()
    nvml.read(now)
    os.kill(nvml._child.pid, 9)
    nvml_stub.scenario("lost.1 1")
    assert not nvml.read(now).reads[0].ok
    observation = nvml.read(now + timedelta(seconds=2))
    assert _faults(observation) == [(CARD.format(1), "gpu_lost", "", 1)]


def test_a_card_whose_name_is_no_text_is_a_gap(nvml_source, nvml_stub, now):
    nvml = nvml_source("garbage.nvmlDeviceGetUUID.1 255")
    observation = nvml.read(now)
    assert [reading.gpu_uuid for reading in observation.readings] == [CARD.format(0)]
    assert _noticed(observation) == [("n1", "gap", "1 cards do not say their UUID")]
    assert _noticed(nvml.read(now)) == []


def test_what_the_driver_recommends_is_told_when_it_changes(nvml_source, nvml_stub, now):
    nvml = nvml_source("count 1", "field.230.0 2")
    assert _faults(nvml.read(now)) == []  # since when it does, nobody knows
    told = []
    for action in (2, 0, 1, 1, 4):
        nvml_stub.scenario("count 1", f"field.230.0 {action}")
        told.append([(fault.code, fault.detail) for fault in nvml.read(now).others["fault_event"]])
    assert told == [
        [],
        [],
        [("154", "recovery action to 1 (reset the GPU)")],
        [],
        [("154", "recovery action to 4 (drain and reset)")],
    ]


def test_the_drivers_own_word_of_a_changed_action_is_not_told_twice(nvml_source, nvml_stub, now):
    nvml = nvml_source("count 1")
    nvml.read(now)
    nvml_stub.scenario("count 1", "field.230.0 1", "xid.0 154")
    (fault,) = nvml.read(now).others["fault_event"]
    assert (fault.code, fault.count, fault.detail) == ("154", 1, "recovery action to 1 (reset the GPU)")


def test_pages_that_wait_for_a_reset_on_cards_without_row_remapping(nvml_source, nvml_stub, now):
    old = ("count 1", "field.142.0 -3", "field.143.0 -3", "field.145.0 -3")
    nvml = nvml_source(*old)
    (reading,) = nvml.read(now).readings
    assert (reading.row_remap_failure, reading.row_remap_uncorrectable_count, reading.quality_flags) == (None, None, 0)
    nvml_stub.scenario(*old, "retired.0 1")
    assert _faults(nvml.read(now)) == [(CARD.format(0), "row_remap_pending", "", 1)]
    assert _faults(nvml.read(now)) == []


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_driver_that_is_loaded_anew_tells_nothing_twice(nvml_source, nvml_stub, now, code):
    nvml = nvml_source("field.230.0 1")
    nvml.read(now)
    nvml_stub.scenario("field.230.0 1", f"rc.nvmlDeviceGetUtilizationRates {code}")
    (read,) = nvml.read(now).reads
    assert (read.ok, f"NVML {code}" in read.error) == (False, True)
    nvml_stub.scenario("field.230.0 1", "lost.1 1")
    observation = nvml.read(now + timedelta(seconds=2))
    assert len(observation.readings) == 1
    assert _faults(observation) == [(CARD.format(1), "gpu_lost", "", 1)]
    nvml_stub.scenario("field.230.0 1")
    observation = nvml.read(now + timedelta(seconds=4))
    assert (len(observation.readings), _faults(observation)) == (2, [])


def test_a_process_that_dies_twice_at_a_card_leaves_it_out(nvml_source, nvml_stub, now):
    nvml = nvml_source("die.nvmlDeviceGetPowerUsage.1 1")
    ends = []
    for seconds in (0, 2):
        observation = nvml.read(now + timedelta(seconds=seconds))
        ends.append((observation.reads[0].ok, _noticed_gap(observation)))
    assert ends == [(False, []), (False, [(CARD.format(1), f"{CARD.format(1)} left out: the NVML process died")])]
    observation = nvml.read(now + timedelta(seconds=6))
    assert [reading.gpu_uuid for reading in observation.readings] == [CARD.format(0)]
    assert nvml.counts["left_out_devices"] == 1


def _noticed_gap(observation) -> list[tuple[str, str]]:
    return [(event.subject, event.detail) for event in observation.others["quality_event"] if event.kind == "gap"]
