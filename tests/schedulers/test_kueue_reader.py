"""The adapter against an API server: both versions, the visibility API where it is and where it is not, rights."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.errors import ConfigError
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, Asked, Fault, Serving, Store, Subject, serve
from schedulers.kueue import Kueue
from schedulers.rights import cluster_role
from tests.schedulers.kueue_objects import NOW, false, only, rows, schemas, store, workload
from tests.schedulers.reading import check_snapshot, timeless
from tests.schedulers.worlds.kueue import VISIBILITY, things, visible


def _reader(api: Serving, **options: Any) -> Kueue:
    return Kueue.from_options({"url": api.url, **options}, rules=Rules(), clock=FakeClock(NOW))


def _read(made: Store, **options: Any) -> tuple[SchedulerSnapshot, list[Asked]]:
    with serve(made) as api:
        reader: Any = _reader(api, **options)
        snapshot = reader.snapshot()
        check_snapshot(snapshot, reader)
        return snapshot, [one for one in api.asked if one.group == VISIBILITY]


def _waits(snapshot: SchedulerSnapshot) -> dict[str, str]:
    return {row["workload_id"]: row["cause"] for row in rows(snapshot, "wait")}


def test_both_versions_say_the_same() -> None:
    new, _ = _read(store(*things("v1beta2"), version="v1beta2"))
    old, _ = _read(store(*things("v1beta1"), version="v1beta1"))
    assert timeless(old) == timeless(new)
    state = {row["queue"]: row for row in rows(new, "queue_state")}
    assert (state["a"]["running_gpus"], state["a"]["borrowed_gpus"], state["a"]["pending_gpus"]) == (16, 8, 25)
    assert (state["b"]["running_gpus"], state["b"]["lent_gpus"], state["b"]["nominal_gpus"]) == (0, 8, 12)
    assert only(new, "node_state")["free"] == 16
    assert _waits(new) == {"team-a/late": "quota", "team-a/next": "scheduler"}


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_objects_that_published_schemas_accept_are_read_alike(version: str) -> None:
    if schemas() is None:
        pytest.skip("../shared is absent: this checkout has no published schemas beside it")
    plain, _ = _read(store(*things(version), version=version))
    published, _ = _read(store(*things(version), version=version, published=True))
    assert timeless(published) == timeless(plain)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_places_come_from_the_visibility_api_in_either_version(version: str) -> None:
    made = store(*things())
    visible(made, {"a": ["late", "next"]}, version)
    snapshot, asked = _read(made)
    assert _waits(snapshot) == {"team-a/late": "quota", "team-a/next": "priority"}
    assert asked[-1].version == version
    assert {one.path.split("/")[5] for one in asked if one.version == version} == {"a", "b"}


def test_a_long_list_of_places_is_read_to_its_end() -> None:
    made = store(*things())
    visible(made, {"a": [f"other-{number}" for number in range(1000)] + ["next"]})
    snapshot, asked = _read(made)
    assert only(snapshot, "wait", workload_id="team-a/next")["message"] == "place 1001 in a"
    assert [one.query["offset"] for one in asked if "/a/" in one.path] == ["0", "1000"]


def test_queues_in_which_nothing_waits_are_not_asked() -> None:
    objects = things()
    for thing in objects:
        if thing["kind"] == "ClusterQueue":
            thing["status"]["pendingWorkloads"] = 2 if thing["metadata"]["name"] == "a" else 0
    made = store(*objects)
    visible(made, {"a": ["next"]})
    _, asked = _read(made)
    assert [one.path.split("/")[5] for one in asked] == ["a"]


def test_nobody_asks_for_places_that_nobody_wants() -> None:
    made = store(*things())
    visible(made, {"a": ["late", "next"]})
    snapshot, asked = _read(made, positions=False)
    assert asked == []
    assert _waits(snapshot)["team-a/next"] == "scheduler"


@pytest.mark.parametrize("refusal", [403, 404, 503])
def test_a_visibility_api_that_does_not_answer_costs_nothing_but_places(refusal: int) -> None:
    def faults(asked: Asked) -> Fault | None:
        return Fault(refusal=refusal) if asked.group == VISIBILITY else None

    made = store(*things())
    visible(made, {"a": ["late", "next"]})
    with serve(made, faults=faults) as api:
        snapshot = _reader(api).snapshot()
    assert snapshot.scope.is_complete
    assert _waits(snapshot) == {"team-a/late": "quota", "team-a/next": "scheduler"}


def test_a_cluster_without_kueue_has_no_queues_of_it() -> None:
    made = Store(clock=FakeClock(NOW))
    made.put(things()[0])
    snapshot, _ = _read(made)
    assert rows(snapshot, "queue") == []
    assert only(snapshot, "node_state")["free"] == 32
    assert {"queue", "quota", "queue_resource", "queue_state"} <= snapshot.scope.unlisted


def test_its_rights_are_enough_and_all_of_them_are_reads(tmp_path: Any) -> None:
    role = cluster_role("gpuledger-kueue", Kueue.all_rights())
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} <= {"get", "list", "watch"}
    made, token = store(*things()), tmp_path / "token"
    visible(made, {"a": ["late", "next"]})
    token.write_text("secret", encoding="utf-8")
    with serve(made, access=Access({"secret": Subject("reader", role["rules"])})) as api:
        snapshot = _reader(api, token_file=str(token)).snapshot()
    assert snapshot.scope.is_complete
    assert _waits(snapshot)["team-a/next"] == "priority"


def test_a_change_is_heard() -> None:
    made, stop = store(*things()), Event()
    with serve(made) as api:
        snapshots = _reader(api).watch(stop, every_seconds=0.01)
        assert _waits(next(snapshots)) == {"team-a/late": "quota", "team-a/next": "scheduler"}
        made.put(workload("next", false("QuotaReserved", "TopologyPlacementFailed", "no room"), gpus=1))
        assert _waits(next(snapshots))["team-a/next"] == "topology"
        stop.set()


def test_wrong_options_are_named() -> None:
    with pytest.raises(ConfigError, match="scheduler kueue: positions"):
        Kueue.from_options({"url": "http://localhost:1", "positions": "some"}, rules=Rules(), clock=FakeClock(NOW))
