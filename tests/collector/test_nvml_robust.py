"""Whatever any call of NVML answers on one card, or does not answer, the other cards are read."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

from collector.nvml.incidents import Incidents
from collector.nvml.places import ACTIVITY, EVENTS, INDEX, INIT
from collector.nvml.records import Pass, parse
from collector.sources.nvml import NvmlSource
from gpuledger.model import Reading, to_table
from tests.collector.conftest import ROOT, NvmlStub

CARDS = [f"GPU-{index:08d}-0000-0000-0000-000000000000" for index in range(3)]
HEALTHY = [
    "count 3",
    "mig.2 1",
    # Both ways to the same thing are asked: the old call for memory, pages of cards that cannot remap rows.
    "v1 1",
    "field.142.1 -3",
    "field.143.1 -3",
    "field.145.1 -3",
    "accounted.1 2",
    "sampled.1 100",
]
START = {"nvmlInitWithFlags", "nvmlDeviceGetCount_v2"}
"""Without these nothing is known of any card."""


def _run(nvml_stub, cases: list[tuple[str, list[list[str]]]]) -> dict[str, list[dict[str, Any]]]:
    listed = nvml_stub.directory / "cases"
    listed.write_text(json.dumps(cases))
    command = [sys.executable, "-m", "tests.collector.nvml_driver", str(listed)]
    done = subprocess.run(command, cwd=ROOT, env=nvml_stub.environment, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return {answer["name"]: answer["passes"] for answer in map(json.loads, done.stdout.decode().splitlines())}


@pytest.fixture(scope="module")
def log(nvml_library, tmp_path_factory) -> list[str]:
    """Calls and announced places of two healthy passes, in their order."""
    stub = NvmlStub.of(nvml_library, tmp_path_factory.mktemp("healthy"))
    _run(stub, [("healthy", [HEALTHY, HEALTHY])])
    return (stub.directory / "log").read_text().splitlines()


@pytest.fixture
def calls(log, nvml_stub) -> list[tuple[str, int]]:
    """Each function that is called, and a card on which it is (-1: none), if possible not the first."""
    del nvml_stub.environment["NVML_STUB_LOG"]
    on: dict[str, int] = {}
    for function, _, device in (line.partition(" ") for line in log if not line.startswith("at ")):
        on[function] = max(on.get(function, -1), int(device))
    return sorted(on.items())


def test_every_call_is_made_at_an_announced_place(log):
    """So that the one at which a call hangs is known, and the next process can leave it out."""
    place, wrong = "", []
    for line in log:
        if line.startswith("at "):
            place = line.removeprefix("at ")
            continue
        function, _, device = line.partition(" ")
        allowed = {f"{INDEX}{device}", CARDS[int(device)]} if int(device) >= 0 else {INIT, EVENTS, ACTIVITY}
        if place not in allowed:
            wrong.append((place, function, device))
    assert wrong == []


FAULTS = {
    "lost": "rc.{} 15",
    "no permission": "rc.{} 4",
    "not supported": "rc.{} 3",
    "unknown": "rc.{} 999",
    "a code that NVML does not have": "rc.{} 12345",
    "all bits": "garbage.{} 255",
    "text without an end": "garbage.{} 85",
    "nothing": "garbage.{} 0",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_any_call_on_one_card_leaves_the_others_readable(nvml_stub, calls, now, fault):
    cases = []
    for function, device in calls:
        broken = [*HEALTHY, FAULTS[fault].format(function if device < 0 else f"{function}.{device}")]
        cases.append((f"{function} from the start", [broken, broken, HEALTHY, HEALTHY]))
        cases.append((f"{function} later", [HEALTHY, broken, broken, HEALTHY, HEALTHY]))
    answers = _run(nvml_stub, cases)
    on = dict(calls)
    wrong = []
    for name, passes in answers.items():
        function = name.partition(" ")[0]
        others = {CARDS[index] for index in range(3) if index != on[function]} if function not in START else set()
        seen = _seen(passes, now)
        faulty, healed = seen[:-2], seen[-1]
        if not all(others <= cards for cards in faulty) or not healed >= set(CARDS):
            wrong.append((name, seen, passes))
    assert wrong == []


def _seen(passes: list[dict[str, Any]], now: datetime) -> list[set[str]]:
    """The cards that each pass has rows of; all rows are such that the service would take them."""
    incidents, found = Incidents(), list[set[str]]()
    for number, one in enumerate(passes):
        if "error" in one:
            found.append(set())
            continue
        taken = Pass(now + timedelta(seconds=15 * number), "n1", 15)
        observation = parse(one["snapshot"], taken)
        _check(observation.readings)
        for record, rows in incidents.note(one["snapshot"], taken).items():
            assert to_table(record, rows).num_rows == len(rows)
        found.append({reading.gpu_uuid for reading in observation.readings})
    return found


def _check(readings) -> None:
    assert to_table("reading", readings).num_rows == len(readings)
    for column in dataclasses.fields(Reading):
        low, high = column.metadata.get("low"), column.metadata.get("high")
        values = [value for value in (getattr(row, column.name) for row in readings) if value is not None]
        assert all(low is None or low <= value for value in values), column.name
        assert all(high is None or value <= high for value in values), column.name


@pytest.mark.parametrize("code", [1, 9, 18])
def test_a_driver_that_goes_in_any_call_costs_one_process(nvml_stub, calls, now, code):
    cases = [(function, [HEALTHY, [*HEALTHY, f"rc.{function} {code}"], HEALTHY]) for function, _ in calls]
    for function, passes in _run(nvml_stub, cases).items():
        seen = _seen(passes, now)
        assert seen[0] == seen[2] == set(CARDS), function


HANGS = {
    "hang.nvmlInitWithFlags 1": (INIT, CARDS),
    "hang.nvmlDeviceGetUUID.1 1": (f"{INDEX}1", [CARDS[0], CARDS[2]]),
    "hang.nvmlDeviceRegisterEvents.1 1": (CARDS[1], [CARDS[0], CARDS[2]]),
    "hang.nvmlEventSetWait_v2 1": (EVENTS, CARDS),
    "hang.nvmlGpmSampleAlloc 1": (ACTIVITY, CARDS),
    "hang.nvmlGpmMetricsGet.2 1": (CARDS[2], CARDS[:2]),
}


def test_where_a_call_hangs_is_left_out_and_the_rest_is_read(nvml_library, tmp_path, now):
    def reads(number: int, hang: str) -> tuple[Any, Any]:
        (tmp_path / str(number)).mkdir()
        stub = NvmlStub.of(nvml_library, tmp_path / str(number))
        stub.scenario(*HEALTHY, hang)
        nvml = NvmlSource(node="n1", timeout_seconds=4.0, environment=stub.environment)
        try:
            return nvml.read(now), nvml.read(now + timedelta(seconds=2))
        finally:
            nvml.close()

    with ThreadPoolExecutor(len(HANGS)) as pool:
        found = list(pool.map(reads, range(len(HANGS)), HANGS))
    for (place, cards), (hung, after) in zip(HANGS.values(), found, strict=True):
        assert (hung.reads[0].ok, hung.reads[0].error) == (False, f"no answer within 4 s, hung at {place}")
        assert [event.kind for event in hung.others["quality_event"]] == ["gap"]
        assert (after.reads[0].ok, after.reads[0].device_count) == (True, len(cards)), place
        assert [reading.gpu_uuid for reading in after.readings if not reading.slice_id] == list(cards)
