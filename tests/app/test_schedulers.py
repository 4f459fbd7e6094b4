"""Schedulers that the service reads: their list, restarts, watches and failures, and what the command line shows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Self

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from gpuledger import registry
from gpuledger.app import scheduler_commands
from gpuledger.app.schedulers import listing
from gpuledger.app.schedulers.feed import Feed
from gpuledger.app.schedulers.running import Schedulers, Watch
from gpuledger.attribution import Rules
from gpuledger.clock import Clock
from gpuledger.errors import ConfigError, GpuledgerError, NotPermitted, SchedulerUnreachable
from gpuledger.model import NodeState, Pod, Queue, QueueState, Quota, Tenant, Wait, Window, Workload, to_table
from gpuledger.ports import SchedulerSnapshot, SnapshotScope
from gpuledger.testing import FakeClock
from tests.app.conftest import NOW, Api, opened_api

SHAPE: dict[str, Any] = {"pod_count": 1, "num_gpu": 2, "gpu_milli": 1000, "cpu_milli": 0, "memory_mib": 0}
PATIENCE_SECONDS = 30.0


class Scripted:
    """An adapter that says what a test wants. `script` holds for all readers; a name of a cluster of "down" fails."""

    name = "scripted"
    script: ClassVar[dict[str, Any]] = {}

    def __init__(self, cluster: str, clock: Clock) -> None:
        self.cluster, self.clock = cluster, clock
        self.is_closed = False

    @classmethod
    def from_options(cls, options: Mapping[str, Any], *, cluster: str = "default", rules: Rules, clock: Clock) -> Self:
        assert isinstance(rules, Rules)
        if unknown := sorted(options.keys() - {"url"}):
            raise ConfigError(f"{unknown[0]}: no such option")
        return cls(cluster, clock)

    def snapshot(self) -> SchedulerSnapshot:
        if error := self.script.get("error") or (SchedulerUnreachable("no answer") if self.cluster == "down" else None):
            raise error
        return made(self.clock.now(), self.script)

    def close(self) -> None:
        self.is_closed = True


class Watched(Scripted):
    name = "watched"

    def watch(self, stop: threading.Event, *, every_seconds: float) -> Iterator[SchedulerSnapshot]:
        yield self.snapshot()
        stop.wait()

    def history(self, window: Window) -> Iterator[SchedulerSnapshot]:
        if window.from_at in self.script.get("gaps", ()):
            raise SchedulerUnreachable("no accounting")
        work = Workload(workload_id=f"job/{window.from_at:%d}", submitted_at=window.from_at, **SHAPE)
        records = {"workload": to_table("workload", [work])}
        yield SchedulerSnapshot(taken_at=self.clock.now(), version="", records=records)


def made(now: datetime, script: Mapping[str, Any]) -> SchedulerSnapshot:
    """Pods named by the script on one node of eight cards, one queue, and what waits."""
    pods = script.get("pods", ("p",))
    held = 2.0 * len(pods)
    node: dict[str, Any] = {"capacity": 8, "allocatable": 8, "allocated": held, "free": 8 - held, "from_at": now}
    work: dict[str, Any] = {
        "submitted_at": now - timedelta(hours=1),
        "scheduler": "scripted",
        "namespace": "a",
        "queue": "q",
    }
    waiting = Workload(workload_id="a/late", status="pending", **work, **SHAPE)
    rows: dict[str, list[Any]] = {
        "node_state": [NodeState(scheduler="scripted", node="n", resource="nvidia_com_gpu", **node)],
        "queue": [Queue(queue="q", tenant="stranger", scheduler="scripted")],
        "quota": [Quota(queue="q", tenant="stranger", not_reported="limit_gpus", from_at=now)],
        "queue_state": [
            QueueState(ts=now, queue="q", tenant="stranger", duration_seconds=0.001, running_gpus=held, pending_gpus=2)
        ],
        "workload": [Workload(workload_id=f"a/{p}", started_at=now, status="running", **work, **SHAPE) for p in pods]
        + [waiting],
        "pod": [
            Pod(uid=p, namespace="a", pod=p, node="n", workload_id=f"a/{p}", gpu_count=2.0, phase="Running",
                resource="nvidia_com_gpu", started_at=now - timedelta(hours=1), seen_at=now) for p in pods
        ],
        "wait": [
            Wait(workload_id="a/late", from_at=now, cause="topology", reason="NoDomain", message="no rack of 8", gpus=2)
        ],
    }  # fmt: skip
    tables = {record: to_table(record, found) for record, found in rows.items()}
    return SchedulerSnapshot(taken_at=now, version="1", records=tables, scope=script.get("scope", SnapshotScope()))


@pytest.fixture(autouse=True)
def adapters(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    known = {**registry.SCHEDULERS, "scripted": f"{__name__}:Scripted", "watched": f"{__name__}:Watched"}
    monkeypatch.setattr(registry, "TABLES", {**registry.TABLES, "schedulers": known})
    script: dict[str, Any] = {}
    monkeypatch.setattr(Scripted, "script", script)
    return script


@pytest.fixture
def feed(api: Api, clock: FakeClock) -> Feed:
    return a_feed(api, clock)


def a_feed(api: Api, clock: FakeClock, cluster: str = "default", kind: type[Scripted] = Scripted) -> Feed:
    return Feed(kind(cluster, clock), api.service, clock, interval_seconds=60.0)


def ask(api: Api, sql: str) -> list[tuple[Any, ...]]:
    with api.service.warehouse.reading() as cursor:
        return cursor.execute(sql).fetchall()


def a_list(folder: Path, text: str) -> Path:
    path = folder / "schedulers.toml"
    path.write_text(text, encoding="utf-8")
    return path


BAD = {
    "unknown adapter": ('[[scheduler]]\nadapter = "no_such"', "no_such"),
    "unknown option": ('[[scheduler]]\nadapter = "scripted"\noptions = { urll = "x" }', "urll"),
    "unknown key": ('[[scheduler]]\nadapter = "scripted"\nintervall = 5', "intervall: .*known: .*interval_seconds"),
    "twice": ('[[scheduler]]\nadapter = "scripted"\n[[scheduler]]\nadapter = "scripted"', "twice"),
    "one cluster": ('[[scheduler]]\nadapter = "scripted"\n[[scheduler]]\nadapter = "watched"', "scripted and watched"),
    "cannot be watched": ('[[scheduler]]\nadapter = "scripted"\nwatch = true', "cannot be watched"),
    "for trials": ('[[scheduler]]\nadapter = "fake"', "cannot be read"),
    "another table": ("[schedulers]\nadapter = 1", "schedulers"),
    "no TOML": ("[[scheduler", "schedulers.toml"),
    "cluster": ('[[scheduler]]\nadapter = "scripted"\ncluster = "a/b"', "cluster"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_slip_in_the_list_is_named(tmp_path: Path, clock: FakeClock, case: str) -> None:
    text, named = BAD[case]
    with pytest.raises(ConfigError, match=named) as raised:
        listing.readers(a_list(tmp_path, text), Rules(), clock)
    assert "schedulers_file" in str(raised.value)


def test_a_list_names_its_schedulers_as_records_do(tmp_path: Path, clock: FakeClock) -> None:
    text = '[[scheduler]]\nadapter = "scripted"\n[[scheduler]]\nadapter = "watched"\ncluster = "eu"\nwatch = false'
    found = listing.readers(a_list(tmp_path, text), Rules(), clock)
    assert [(one.entry.name, one.is_watched) for one in found] == [("scripted", False), ("watched/eu", False)]
    assert listing.readers(None, Rules(), clock) == []


def test_what_a_scheduler_knows_is_in_the_warehouse(api: Api, feed: Feed, clock: FakeClock) -> None:
    feed.read()
    clock.advance(60)
    feed.read()
    assert ask(api, "select uid, ended_at from pod") == [("p", None)]
    assert ask(api, "select queue, running_gpus, duration_seconds from queue_state") == [("q", 2.0, 60.0)]
    (row,) = api.service.query("queue_usage", at=clock.now()).to_pylist()
    assert (row["nominal_is"], row["limit_is"], row["running_gpus"]) == ("unlimited", "not_reported", 2)
    (waits,) = api.service.query("waits", from_at=NOW, to_at=NOW + timedelta(hours=1)).to_pylist()
    assert (waits["cause"], waits["wait_hours"], waits["gpu_hours"], waits["queue"]) == ("topology", 1, 2, "q")


def test_a_tenant_that_nobody_declared_costs_no_row(api: Api, feed: Feed) -> None:
    api.service.ingest("tenant", to_table("tenant", [Tenant(tenant="declared", from_at=NOW)]), "t")
    feed.read()
    assert ask(api, "select tenant from quota") == [("stranger",)]


def test_after_a_restart_nothing_stays_open_for_ever_and_nothing_is_told_twice(
    tmp_path: Path, clock: FakeClock, adapters: dict[str, Any]
) -> None:
    adapters["pods"] = ("p", "q")
    with opened_api(tmp_path, clock) as api:
        a_feed(api, clock).read()
    clock.advance(60)
    adapters["pods"] = ("q",)
    with opened_api(tmp_path, clock) as api:
        a_feed(api, clock).read()
        ended = NOW + timedelta(seconds=60)
        assert ask(api, "select uid, ended_at from pod order by uid") == [("p", ended), ("q", None)]
        assert ask(api, "select workload_id from workload where ended_at is not null") == [("a/p",)]
        assert ask(api, "select allocated, until_at from node_state order by from_at") == [(4.0, ended), (2.0, None)]
        assert ask(api, "select count(*) from wait") == [(1,)]
        assert ask(api, "select count(*) from quota") == [(1,)]


def test_a_storage_that_failed_half_way_is_made_good_by_the_next_read(
    api: Api, feed: Feed, clock: FakeClock, adapters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.read()
    clock.advance(60)
    adapters["pods"] = ()
    stored = api.service.ingest

    def failing(record: str, table: pa.Table, batch_id: str, **more: Any) -> Any:
        if record == "pod":
            raise GpuledgerError("disk full")
        return stored(record, table, batch_id, **more)

    monkeypatch.setattr(api.service, "ingest", failing)
    with pytest.raises(GpuledgerError, match="disk full"):
        feed.read()
    monkeypatch.setattr(api.service, "ingest", stored)
    clock.advance(60)
    feed.read()
    first, second = NOW + timedelta(seconds=60), NOW + timedelta(seconds=120)
    assert ask(api, "select ended_at from pod") == [(second,)]
    assert ask(api, "select allocated, until_at from node_state order by from_at") == [(2.0, first), (0.0, None)]


def test_clusters_of_one_kind_are_kept_apart(api: Api, clock: FakeClock) -> None:
    plain, named = a_feed(api, clock), a_feed(api, clock, "eu")
    plain.read()
    clock.advance(60)
    named.read()
    assert ask(api, "select count(*) from batch where starts_with(batch_id, 'snapshot:scripted:')") > [(0,)]
    last = api.service.query("last_snapshot", prefix="snapshot:scripted:").to_pylist()[0]["batch_id"]
    assert last.startswith("snapshot:scripted:20260302T1200")


def test_what_cannot_be_seen_is_said_and_nothing_ends(
    api: Api, feed: Feed, clock: FakeClock, adapters: dict[str, Any]
) -> None:
    feed.read()
    for number, error in enumerate(
        (SchedulerUnreachable("no answer"), NotPermitted("forbidden"), ZeroDivisionError("x"))
    ):
        clock.advance(60)
        adapters["error"] = error
        with pytest.raises(type(error)):
            feed.read()
        assert feed.health.reason == ("unreachable", "not_permitted", "adapter")[number]
    assert ask(api, "select uid from pod where ended_at is null") == [("p",)]
    assert ask(api, "select node, ok, error from source_read order by ts")[0] == (
        "scripted",
        False,
        "SchedulerUnreachable: no answer",
    )


def test_one_that_fails_costs_no_other_and_is_seen_in_health(tmp_path: Path, clock: FakeClock) -> None:
    text = '[[scheduler]]\nadapter = "scripted"\ncluster = "down"\n[[scheduler]]\nadapter = "watched"\n'
    with opened_api(tmp_path, clock, schedulers_file=a_list(tmp_path, text)) as api:
        schedulers = Schedulers.of(api.service)
        schedulers.start()
        try:
            wait_for(lambda: [feed.health.error or feed.health.read_at for feed in schedulers.feeds])
        finally:
            schedulers.stop()
        down, watched = schedulers.feeds
        assert (down.health.error, watched.health.error) == ("SchedulerUnreachable: no answer", None)
        assert api.metric("gpuledger_scheduler_up", scheduler="scripted/down") == 0
        assert api.metric("gpuledger_scheduler_up", scheduler="watched") == 1
        assert api.metric("gpuledger_scheduler_failures_total", scheduler="scripted/down", reason="unreachable") == 1
        check = next(one for one in api.service.doctor() if one["name"] == "schedulers_are_read")
        assert not check["ok"]
        assert check["detail"] == "scripted/down: SchedulerUnreachable: no answer; watched: complete"
        assert ask(api, "select count(*) from pod") == [(1,)]
        assert all(feed.reader.is_closed for feed in schedulers.feeds)  # type: ignore[attr-defined]


def wait_for(found: Any) -> None:
    done = threading.Event()
    for _ in range(int(PATIENCE_SECONDS / 0.05)):
        if all(found()):
            return
        done.wait(0.05)
    raise AssertionError("did not happen")


def test_a_watch_that_breaks_begins_again(api: Api, clock: FakeClock, adapters: dict[str, Any]) -> None:
    feed = Feed(Watched("default", clock), api.service, clock, interval_seconds=0.05)
    adapters["error"] = SchedulerUnreachable("gone")
    watch = Watch(feed)
    watch.start()
    wait_for(lambda: [feed.health.error])
    del adapters["error"]
    wait_for(lambda: [feed.health.read_at])
    watch.stop()
    watch.join()
    assert feed.health.error is None


def test_while_a_watch_tells_of_no_change_what_was_seen_last_holds(
    api: Api, clock: FakeClock, adapters: dict[str, Any]
) -> None:
    feed = a_feed(api, clock, kind=Watched)
    feed.repeat()
    assert ask(api, "select count(*) from batch") == [(0,)]
    first = made(clock.now(), adapters)
    feed.store(first)
    for _ in range(10):
        clock.advance(60)
        feed.repeat()
    assert ask(api, "select sum(duration_seconds), count(*) from queue_state") == [(600.0, 10)]
    assert ask(api, "select seen_at, ended_at from pod") == [(NOW + timedelta(minutes=10), None)]
    adapters["pods"] = ()
    feed.store(made(clock.now() - timedelta(seconds=1), adapters))
    (gone,) = ask(api, "select ended_at from pod")
    assert gone[0] == NOW + timedelta(minutes=10, microseconds=1)


def test_a_repeat_that_waits_for_a_newer_snapshot_repeats_that_one(
    api: Api, clock: FakeClock, adapters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = a_feed(api, clock, kind=Watched)
    feed.store(made(clock.now(), adapters))
    clock.advance(60)
    adapters["pods"] = ()
    stored = api.service.ingest
    repeats: list[threading.Thread] = []

    def ingest(*given: Any, **more: Any) -> Any:
        if not repeats:
            repeats.append(threading.Thread(target=feed.repeat))
            repeats[0].start()
            repeats[0].join(0.3)  # so that it has begun, and waits for its turn
        return stored(*given, **more)

    monkeypatch.setattr(api.service, "ingest", ingest)
    newer = made(clock.now(), adapters)
    clock.advance(1)
    feed.store(newer)
    repeats[0].join()
    assert ask(api, "select ended_at from pod") == [(NOW + timedelta(seconds=60),)]


def run(*words: str) -> Any:
    return CliRunner().invoke(scheduler_commands.scheduler_app, [*words])


def test_the_command_line_shows_what_is_unlimited_and_what_was_not_reported() -> None:
    shown = run("snapshot", "--adapter", "scripted")
    assert shown.exit_code == 0
    text = " ".join(shown.output.split())
    for word in ("scope: complete", "unlimited", "not reported", "topology", "NoDomain: no rack of 8", "a/late"):
        assert word in text
    found = run("snapshot", "--adapter", "scripted", "--format", "json")
    assert '"nominal_is": "unlimited"' in found.output.replace('":"', '": "')


EXITS = {
    "unreachable": (SchedulerUnreachable("no answer at https://x"), 3, "could not see: no answer"),
    "not_permitted": (NotPermitted("pods: forbidden"), 4, "not permitted: pods: forbidden"),
}


@pytest.mark.parametrize("case", EXITS)
def test_the_command_line_says_why_there_is_nothing_to_see(adapters: dict[str, Any], case: str) -> None:
    adapters["error"], code, text = EXITS[case]
    shown = run("snapshot", "--adapter", "scripted")
    assert (shown.exit_code, text in shown.stderr) == (code, True)
    assert "GPUs" not in shown.stdout


def test_the_command_line_says_what_a_partial_look_lacks(adapters: dict[str, Any]) -> None:
    adapters["scope"] = SnapshotScope(namespaces=("team-a",), denied=(("pods", "forbidden"),))
    shown = run("snapshot", "--adapter", "scripted")
    assert (shown.exit_code, "partial: 1 namespace readable" in shown.stderr) == (5, True)
    assert "a/late" in shown.stdout


def test_options_are_texts_or_json() -> None:
    assert scheduler_commands.options_of(["url=http://x?a=b", 'names=["a"]']) == {"url": "http://x?a=b", "names": ["a"]}
    for wrong in ("url", "names=[a", "=x"):
        with pytest.raises(GpuledgerError, match="option"):
            scheduler_commands.options_of([wrong])


def test_history_comes_in_day_by_day_and_goes_on_where_it_ended(tmp_path: Path, adapters: dict[str, Any]) -> None:
    words = ("history", "--adapter", "watched", "--from", "2026-03-01", "--to", "2026-03-04", "--format", "json")
    where = ("--warehouse", str(tmp_path / "w.duckdb"))
    adapters["gaps"] = [datetime(2026, 3, 2, tzinfo=UTC)]
    first = run(*words, *where)
    assert (first.exit_code, '"workload":2' in first.stdout.replace(" ", "")) == (1, True)
    assert "no accounting" in first.stdout
    adapters["gaps"] = []
    second = run(*words, *where)
    assert (second.exit_code, '"workload":1' in second.stdout.replace(" ", "")) == (0, True)
    assert '"days_had_before":2' in second.stdout.replace(" ", "")
