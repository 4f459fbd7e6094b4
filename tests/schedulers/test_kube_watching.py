"""Following a cluster by watches: what changes is told, once, and nothing is listed anew without need."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.clock import SystemClock
from gpuledger.ports import SchedulerSnapshot, WatchingReader
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, Asked, Fault, Serving, Store, Subject, serve
from schedulers.kubernetes.books import Book
from schedulers.kubernetes.core import NODES, PODS
from schedulers.kubernetes.discovery import Served
from schedulers.kubernetes.family import Kubernetes
from schedulers.kubernetes.reading import thinned
from schedulers.kubernetes.watching import Following, Lost
from tests.schedulers.kubernetes_objects import NOW, by, node, pod


def _reader(api: Serving) -> Kubernetes:
    return Kubernetes.from_options({"url": api.url}, rules=Rules(), clock=SystemClock())


def _store(*pods: dict[str, Any]) -> Store:
    store = Store(clock=FakeClock(NOW))
    for item in (node("n1"), node("n2"), *pods):
        store.put(item)
    return store


def _names(snapshot: SchedulerSnapshot) -> set[str]:
    return set(snapshot.records["pod"]["pod"].to_pylist())


def _lists(api: Serving, plural: str) -> list[Asked]:
    return [asked for asked in api.asked if asked.plural == plural and asked.verb == "list"]


@contextmanager
def _watching(store: Store, **serving: Any) -> Iterator[tuple[Iterator[SchedulerSnapshot], threading.Event]]:
    stop = threading.Event()
    with serve(store, bookmark_seconds=0.05, **serving) as api:
        snapshots = iter(_reader(api).watch(stop, every_seconds=0.05))
        try:
            yield snapshots, stop
        finally:
            stop.set()
            for _ in snapshots:
                continue


def _until(snapshots: Iterator[SchedulerSnapshot], names: set[str]) -> SchedulerSnapshot:
    """The first snapshot in which exactly these pods are there."""
    for snapshot in snapshots:
        rows = snapshot.records["pod"].to_pylist()
        if {row["pod"] for row in rows if row["ended_at"] is None} == names:
            return snapshot
    raise AssertionError(f"never {names}")


def test_a_watch_tells_of_changes_without_listing_anew() -> None:
    store = _store(pod("a", 8, on="n1"))
    stop = threading.Event()
    with serve(store, bookmark_seconds=0.05) as api:
        reader = _reader(api)
        assert isinstance(reader, WatchingReader)
        snapshots = iter(reader.watch(stop, every_seconds=0.05))
        assert _names(next(snapshots)) == {"a"}
        store.put(pod("b", 4, on="n2"))
        second = _until(snapshots, {"a", "b"})
        assert by(second, "node_state", "node")["n2"]["free"] == 4.0
        store.remove(pod("a"))
        third = _until(snapshots, {"b"})
        ended = by(third, "pod", "pod")["a"]
        assert ended["ended_at"] == third.taken_at
        assert by(third, "node_state", "node")["n1"]["free"] == 8.0
        assert int(third.version) >= store.version
        assert len(_lists(api, "pods")) == 1
        stop.set()
        assert list(snapshots) == []


def test_a_pod_that_is_deleted_ended_when_its_containers_did() -> None:
    over = {"containerStatuses": [{"name": "main", "state": {"terminated": {"finishedAt": "2026-03-02T09:30:00Z"}}}]}
    store = _store(pod("a", 8, on="n1"), pod("b", 1, on="n2"))
    with _watching(store) as (snapshots, _):
        next(snapshots)
        store.put(pod("a", 8, on="n1", status=over))
        store.remove(pod("a"))
        row = by(_until(snapshots, {"b"}), "pod", "pod")["a"]
    assert row["ended_at"].isoformat() == "2026-03-02T09:30:00+00:00"


def test_a_watch_that_was_overtaken_lists_anew_and_tells_what_went_meanwhile() -> None:
    store = _store(pod("a", 8, on="n1"), pod("b", 1, on="n2"))
    is_lost = threading.Event()

    def fault(asked: Asked) -> Fault | None:
        return Fault(refusal=410) if asked.verb == "watch" and is_lost.is_set() else None

    with serve(store, bookmark_seconds=0.05, faults=fault) as api:
        stop = threading.Event()
        snapshots = iter(_reader(api).watch(stop, every_seconds=0.05))
        assert _names(next(snapshots)) == {"a", "b"}
        is_lost.set()
        store.remove(pod("a"))
        row = by(_until(snapshots, {"b"}), "pod", "pod")["a"]
        assert row["ended_at"] is not None
        stop.set()
        list(snapshots)


def test_a_heartbeat_is_no_news_and_a_taint_is() -> None:
    served = Served(NODES, "v1")
    first, beat, tainted = node("n1"), node("n1"), node("n1", taints=[{"key": "a", "effect": "NoSchedule"}])
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-03-02T09:59:00Z"
    kept = [thinned(NODES, item) for item in (first, beat, tainted)]
    book = Book.of(served, None, "5", [kept[0] or {}])
    book.note(6, "n1", "MODIFIED", kept[1])
    book.note(8, "n1", "MODIFIED", kept[2])
    assert book.forward(5, NOW) is False
    assert book.forward(7, NOW) is False
    assert book.forward(8, NOW) is True
    assert book.objects == {"n1": kept[2]}


class _NoBookmarks:
    """A server whose watches run out at once; that of pods tells of one change before."""

    def __init__(self, change: dict[str, Any]) -> None:
        self._change = change

    @contextmanager
    def lines(self, path: str, **asked: Any) -> Iterator[_Told]:
        yield _Told([self._change] if path.endswith("/pods") and asked["resourceVersion"] == "5" else [])


class _Told(list[dict[str, Any]]):
    def cut(self) -> None:
        """It has run out already."""


def test_a_watch_that_runs_out_without_a_version_is_listed_anew_where_others_went_on() -> None:
    books = [Book.of(Served(kind, "v1"), None, "5", []) for kind in (PODS, NODES)]
    changed = pod("a", 1)
    changed["metadata"]["resourceVersion"] = "9"
    server: Any = _NoBookmarks({"type": "ADDED", "object": changed})
    with Following(server, books, FakeClock(NOW), 5) as following:
        with following.news:
            following.news.wait_for(lambda: following._failure, timeout=30)
        with pytest.raises(Lost, match="nodes told of no version"):
            following.check()


def test_what_a_watch_cannot_take_in_ends_it_and_is_told() -> None:
    books = [Book.of(Served(PODS, "v1"), None, "5", [])]
    server: Any = _NoBookmarks({"type": "ADDED", "object": {"metadata": {"name": "a"}, "spec": "none"}})
    with Following(server, books, FakeClock(NOW), 5) as following:
        with following.news:
            following.news.wait_for(lambda: following._failure, timeout=30)
        with pytest.raises(Lost, match="AttributeError"):
            following.check()


def _allowed(*rules: dict[str, Any], **namespaces: list[dict[str, Any]]) -> Subject:
    return Subject("reader", list(rules), {name.replace("_", "-"): given for name, given in namespaces.items()})


def test_rights_that_come_and_go_are_seen_and_what_is_hidden_has_not_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedulers.kubernetes.watching.ANEW_SECONDS", {True: 0.0, False: 0.0})
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]}
    part = _allowed({**everything, "resources": ["nodes", "namespaces"]}, team_a=[everything])
    subjects = {"t": part}
    store = _store(pod("a", 1, on="n1"), pod("hidden", 1, on="n2", namespace="team-b"))
    for name in ("team-a", "team-b"):
        store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    token = tmp_path / "token"
    token.write_text("t", encoding="utf-8")
    stop = threading.Event()
    with serve(store, access=Access(subjects)) as api:
        options = {"url": api.url, "token_file": str(token)}
        reader = Kubernetes.from_options(options, rules=Rules(), clock=SystemClock())
        snapshots = iter(reader.watch(stop, every_seconds=0.05))
        assert _names(next(snapshots)) == {"a"}
        subjects["t"] = _allowed(everything)
        assert _names(_until(snapshots, {"a", "hidden"})) == {"a", "hidden"}
        subjects["t"] = part
        assert _names(_until(snapshots, {"a"})) == {"a"}  # the other one is not even there as one that ended
        stop.set()
        for _ in snapshots:
            continue
