"""What every source promises, whatever it reads: the same suite for each of the registered ones.

`worlds/<name>.py` makes what a source reads.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import datetime, timedelta
from importlib import import_module
from typing import Any

import pytest

from gpuledger.model import RECORDS, to_table
from gpuledger.model.vocabulary import QUALITY_KINDS, QUALITY_SUBJECTS, READ_SCOPES
from gpuledger.ports import Observation
from gpuledger.registry import SOURCES, resolve
from tests.collector.worlds.case import Case


@pytest.fixture(params=SOURCES)
def case(request) -> Iterator[Case]:
    case: Case = import_module(f"tests.collector.worlds.{request.param}").world(request)
    yield case
    getattr(case.source, "close", lambda: None)()


@pytest.fixture
def devices(case) -> Case:
    if not case.lists_devices:
        pytest.skip("optional: the source lists no devices")
    return case


def rows_of(observation: Observation) -> dict[str, Any]:
    own = {"source_read": observation.reads, "reading": observation.readings, "holding": observation.holdings}
    return own | dict(observation.others)


@pytest.mark.parametrize("name", SOURCES)
def test_a_registered_source_can_be_made(name):
    assert hasattr(resolve("sources", name), "read")


def test_a_source_has_a_name_and_an_interval(case):
    assert case.source.name
    assert case.source.interval_seconds == 15


def test_a_read_says_that_something_was_read(case, now):
    (read,) = case.source.read(now).reads
    assert (read.ok, read.error, read.ts, read.interval_seconds) == (True, None, now, 15)
    assert read.scope in READ_SCOPES


def test_a_read_gives_rows(case, now):
    rows = rows_of(case.source.read(now))
    assert any(rows[record] for record in rows if record not in ("source_read", "quality_event"))


def test_values_lie_in_the_bounds_of_their_columns(case, now):
    for name, rows in rows_of(case.source.read(now)).items():
        for column in dataclasses.fields(RECORDS[name].cls):
            low, high = column.metadata.get("low"), column.metadata.get("high")
            choices = column.metadata.get("choices")
            for value in (getattr(row, column.name) for row in rows):
                assert value is None or low is None or low <= value
                assert value is None or high is None or value <= high
                assert value is None or choices is None or value in choices


def test_rows_are_unique_by_the_records_key_and_fit_its_schema(case, now):
    for name, rows in rows_of(case.source.read(now)).items():
        keys = [tuple(getattr(row, column) for column in RECORDS[name].key) for row in rows]
        assert len(set(keys)) == len(keys)
        assert to_table(name, rows).num_rows == len(rows)


def test_what_was_noticed_is_of_known_kinds(case, now):
    for event in case.source.read(now).others.get("quality_event", ()):
        assert event.kind in QUALITY_KINDS
        assert event.subject_kind in QUALITY_SUBJECTS


def test_a_source_that_fails_says_so(case, now):
    case.source.read(now)
    case.break_it()
    failed = case.source.read(now + timedelta(seconds=15))
    (read,) = failed.reads
    assert (read.ok, read.device_count) == (False, None)
    assert read.error
    assert not [
        record for record, rows in rows_of(failed).items() if rows and record not in ("source_read", "quality_event")
    ]


@pytest.mark.parametrize("fail_first", [True, False])
def test_reading_never_raises(case, now: datetime, fail_first: bool):
    if fail_first:
        case.break_it()
    for turn in range(3):
        assert case.source.read(now + timedelta(seconds=15 * turn)).reads


def test_a_read_names_the_node_and_counts_its_cards(devices, now):
    (read,) = devices.source.read(now).reads
    assert (read.node, read.device_count) == ("n1", 2)


def test_a_failed_read_names_the_node(devices, now):
    devices.source.read(now)
    devices.break_it()
    (read,) = devices.source.read(now + timedelta(seconds=15)).reads
    assert read.node == "n1"


def test_identity_is_the_uuid_and_units_are_ours(devices, now):
    first, second = devices.source.read(now).readings
    assert (first.gpu_uuid, second.gpu_uuid) == devices.uuids
    column, activity = devices.activity
    assert (getattr(first, column), first.power_watts, first.model) == (activity, devices.power_watts, devices.model)
    assert (first.ts, first.node, first.interval_seconds) == (now, "n1", 15)


def test_what_is_not_measured_is_none(devices, now):
    _, second = devices.source.read(now).readings
    assert second.power_watts is None
    assert second.quality_flags == 0
