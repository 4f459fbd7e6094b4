"""Every reader of a scheduler passes the same checks. One joins with a line in `WORLDS`: where its world is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TypeVar

import pytest

from gpuledger.attribution import Rules
from gpuledger.errors import ConfigError, InconsistentSnapshot, NotPermitted, SchedulerUnreachable
from gpuledger.model import NodeState, to_table
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from tests.schedulers.reading import (
    Cannot,
    World,
    check_costs_itself,
    check_error,
    check_no_false_zeros,
    check_nodes,
    check_snapshot,
    rows,
    timeless,
)

WORLDS: Mapping[str, str] = {
    "kubernetes": "tests.schedulers.worlds.kubernetes:world",
    "koordinator": "tests.schedulers.worlds.koordinator:world",
    "kuberay": "tests.schedulers.worlds.kuberay:world",
    "kai": "tests.schedulers.worlds.kai:world",
    "volcano": "tests.schedulers.worlds.volcano:world",
    "airflow": "tests.schedulers.worlds.airflow:world",
    "ray": "tests.schedulers.worlds.ray:world",
    "kueue": "tests.schedulers.worlds.kueue:world",
    "slurm": "tests.schedulers.worlds.slurm:world",
    "yarn": "tests.schedulers.worlds.yarn:world",
}
"""module:function(folder, cluster), a context manager that gives a World."""

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"
T = TypeVar("T")
MakeWorld = Callable[[Path, str], AbstractContextManager[World]]


def _maker(name: str) -> MakeWorld:
    module, _, function = WORLDS[name].partition(":")
    found: MakeWorld = getattr(import_module(module), function)
    return found


@pytest.fixture(params=sorted(WORLDS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def world(name: str, tmp_path: Path) -> Iterator[World]:
    with _maker(name)(tmp_path, "default") as made:
        yield made


def _given(what: T | Cannot) -> T:
    if isinstance(what, Cannot):
        pytest.skip(f"optional: {what.reason}")
    return what


def test_a_snapshot_is_as_the_model_says(name: str, world: World) -> None:
    snapshot = world.reader.snapshot()
    assert world.reader.name == name
    assert snapshot.taken_at == world.clock.now()
    assert snapshot.scope.is_complete, str(snapshot.scope)
    assert rows(snapshot, "queue") or rows(snapshot, "node_state"), "the world is empty"
    check_snapshot(snapshot, world.reader)


def test_clusters_with_names_keep_theirs_apart(name: str, tmp_path: Path) -> None:
    with _maker(name)(tmp_path, "east") as world:
        snapshot = world.reader.snapshot()
        assert world.reader.cluster == "east"
        check_snapshot(snapshot, world.reader)


def test_what_has_no_limit_says_so(world: World) -> None:
    unlimited = _given(world.unlimited)
    quotas = {row["queue"]: row for row in rows(world.reader.snapshot(), "quota")}
    assert unlimited, "the world has no queue without a limit"
    for queue, column in unlimited:
        assert quotas[queue][column] is None
        assert column not in quotas[queue]["not_reported"].split("|")


def test_who_waits_says_why_in_the_schedulers_words(world: World) -> None:
    waiting = _given(world.waiting)
    snapshot = world.reader.snapshot()
    workloads = {row["workload_id"]: row for row in rows(snapshot, "workload")}
    waits = {row["workload_id"]: row for row in rows(snapshot, "wait")}
    assert waiting, "nothing waits in the world"
    for workload, words in waiting.items():
        assert words in workloads[workload]["pending_reason"]
        told = waits[workload]
        assert words in told["reason"] or words in (told["message"] or "")


def test_two_reads_of_the_same_are_the_same(world: World) -> None:
    first = world.reader.snapshot()
    world.clock.advance(61)
    second = world.reader.snapshot()
    assert second.taken_at - first.taken_at == timedelta(seconds=61)
    assert timeless(second) == timeless(first)


def test_a_scheduler_that_is_down_is_unreachable(world: World) -> None:
    world.reader.snapshot()
    _given(world.stop)()
    with pytest.raises(SchedulerUnreachable) as caught:
        world.reader.snapshot()
    check_error(caught.value, world)


def test_what_is_forbidden_is_unknown_and_not_none(world: World) -> None:
    before = world.reader.snapshot()
    _given(world.forbid)()
    try:
        after = world.reader.snapshot()
    except NotPermitted as error:
        check_error(error, world)
        return
    assert not after.scope.is_complete
    assert not [secret for secret in world.secrets if secret in str(after.scope)]
    check_snapshot(after, world.reader)
    check_no_false_zeros(before, after)


def test_an_object_that_makes_no_sense_costs_itself(world: World) -> None:
    before = world.reader.snapshot()
    spoilt = _given(world.spoil)()
    after = world.reader.snapshot()
    check_snapshot(after, world.reader)
    check_costs_itself(before, after, spoilt)


def test_reads_of_several_moments_are_refused(world: World) -> None:
    world.reader.snapshot()
    _given(world.tear)()
    with pytest.raises(InconsistentSnapshot) as caught:
        world.reader.snapshot()
    check_error(caught.value, world)


def test_wrong_options_are_named(world: World) -> None:
    make = type(world.reader).from_options  # type: ignore[attr-defined]  # of classes, not of the port
    with pytest.raises(ConfigError, match="no_such_option"):
        make({**world.options, "no_such_option": 1}, cluster="default", rules=Rules(), clock=world.clock)


def _three_calls(total: float, allocated: float, idle: float) -> SchedulerSnapshot:
    clock = FakeClock()
    row = NodeState(
        scheduler="slurm", node="cluster", resource="gres_gpu", capacity=total, allocated=allocated, free=idle,
        from_at=clock.now(),
    )  # fmt: skip
    return SchedulerSnapshot(taken_at=clock.now(), version="1", records={"node_state": to_table("node_state", [row])})


@pytest.mark.parametrize(("total", "allocated", "idle"), [(64, 66, 0), (64, 60, 6), (8, 9, 0)])
def test_the_suite_sees_three_calls_of_three_moments(total: float, allocated: float, idle: float) -> None:
    check_nodes(_three_calls(64, 60, 4))
    with pytest.raises(AssertionError):
        check_nodes(_three_calls(total, allocated, idle))


def test_123_the_suite_sees_the_public_three_calls() -> None:
    path = PROBLEMS / "123-three-calls.json"
    if not path.exists():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    told = {row["call"]: row["gpus"] for row in json.loads(path.read_text(encoding="utf-8"))}
    with pytest.raises(AssertionError):
        check_nodes(_three_calls(told["total"], told["alloc"], told["idle"]))
