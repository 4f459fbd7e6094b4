"""Follows all kinds by watches, and gives moments: the state at a version that every watch has reached."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Condition, Event, Thread
from time import monotonic
from types import TracebackType
from typing import Self

from gpuledger.clock import Clock
from gpuledger.errors import InconsistentSnapshot, SchedulerUnreachable
from schedulers.kubernetes.books import Book, number
from schedulers.kubernetes.client import Api, Lines
from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.options import KubernetesOptions
from schedulers.kubernetes.pods import Object, meta, name_of, uid_of
from schedulers.kubernetes.reading import Lists, read_lists, thinned

LONGEST_WATCH_SECONDS = 240
SHORTEST_WATCH_SECONDS = 5
"""A server tells of its version when a watch's time is nearly over: so often is every kind sure to be brought up."""

MOST_FAILURES = 8
"""Connections that may fail in a row before the server counts as away."""

ANEW_SECONDS = {True: 3600.0, False: 300.0}
"""How long what may be read is taken as it was found (whether that was all): rights, kinds and namespaces change."""

_TICK_SECONDS = 0.2


class Lost(Exception):
    """A watch cannot go on from where it was: everything is to be listed anew."""


@dataclass(slots=True)
class Following:
    """Watches for each book, a thread each. Use as a context: leaving it ends them."""

    api: Api
    books: list[Book]
    clock: Clock
    watch_seconds: int
    news: Condition = field(default_factory=Condition)
    _over: Event = field(default_factory=Event)
    _failure: Exception | None = None
    _threads: list[Thread] = field(default_factory=list)
    _streams: dict[int, Lines] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for index, book in enumerate(self.books):
            thread = Thread(target=self._follow, args=(index, book), daemon=True, name=f"watch {book.served.kind.key}")
            self._threads.append(thread)
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        with self.news:
            for stream in self._streams.values():
                stream.cut()
        for thread in self._threads:
            thread.join(timeout=_TICK_SECONDS * 10)

    @property
    def common(self) -> int:
        """The newest version up to which all watches have told everything."""
        return min(book.reached for book in self.books if not book.served.kind.is_loose)

    def check(self) -> None:
        """Raises what ended a watch: Lost, or SchedulerUnreachable when the server stayed away."""
        if self._failure is not None:
            raise self._failure

    def _follow(self, index: int, book: Book) -> None:
        failures = 0
        while not self._over.is_set() and self._failure is None:
            before = book.reached
            try:
                self._stream(index, book)
                failures = 0
                self._check_told(book, before)
                self._over.wait(_PAUSE_SECONDS[1] if book.reached == before else 0)
            except SchedulerUnreachable as error:
                failures = 1 if book.reached > before else failures + 1
                if failures >= MOST_FAILURES:
                    self._fail(error)
                self._over.wait(_PAUSE_SECONDS[min(failures, MOST_FAILURES)])
            except Exception as error:
                self._fail(Lost(f"{type(error).__name__}: {error}"))

    def _check_told(self, book: Book, before: int) -> None:
        """Raises Lost where a watch ran out without telling of any version, while others went on.

        The API promises no bookmarks: where none come, quiet kinds would hold all back for ever.
        """
        if book.served.kind.is_loose or self._over.is_set():
            return
        if book.reached == before < max(other.reached for other in self.books if not other.served.kind.is_loose):
            raise Lost(f"the watch of {book.served.kind.key} told of no version")

    def _fail(self, error: Exception) -> None:
        with self.news:
            self._failure = self._failure or error
            self.news.notify_all()

    def _stream(self, index: int, book: Book) -> None:
        fields = {"fieldSelector": book.served.kind.fields} if book.served.kind.fields else {}
        with self.api.lines(
            book.served.path(book.namespace),
            quiet_seconds=self.watch_seconds + 30.0,
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=str(book.reached),
            timeoutSeconds=self.watch_seconds,
            **fields,
        ) as lines:
            with self.news:
                self._streams[index] = lines
                if self._over.is_set():
                    return
            for told in lines:
                if self._over.is_set():
                    return
                self._take(book, told)

    def _take(self, book: Book, told: dict[str, object]) -> None:
        item = told.get("object")
        if not isinstance(item, dict) or told.get("type") == "ERROR":
            raise Lost(str(item)[:300])
        version = number((item.get("metadata") or {}).get("resourceVersion"))
        with self.news:
            if told["type"] == "BOOKMARK":
                book.reached = max(book.reached, version)
            else:
                key = name_of(item)
                book.note(version, key, str(told["type"]), thinned(book.served.kind, item))
            self.news.notify_all()


_PAUSE_SECONDS = [0.0, *(min(30.0, 0.2 * 2**failures) for failures in range(MOST_FAILURES))]


def books_of(lists: Lists) -> list[Book]:
    """A book for every list, each at its version."""
    return [
        Book.of(served, namespace, lists.versions[key], lists.objects[key])
        for key, served in lists.served.items()
        for namespace in lists.places[key]
    ]


def _moment(lists: Lists, books: Iterable[Book], version: int, now: datetime) -> Moment:
    objects: dict[str, list[Object]] = {key: [] for key in lists.served}
    gone: list[tuple[Object, datetime]] = []
    for book in books:
        objects[book.served.kind.key] += book.objects.values()
        if book.served.kind.key == "pods":
            gone += book.taken()
    return replace(replace(lists, objects=objects, taken_at=now).moment(str(version)), gone=tuple(gone))


def read_moment(api: Api, kinds: Iterable[Kind], options: KubernetesOptions, clock: Clock) -> Moment:
    """All `kinds` as of one version.

    Raises InconsistentSnapshot when the server cannot be brought to tell of one version, and what `read_lists` raises.
    """
    lists = read_lists(api, kinds, options, clock)
    return together(api, lists, options, clock)


def together(api: Api, lists: Lists, options: KubernetesOptions, clock: Clock) -> Moment:
    """Lists of several versions brought to the newest of them by watches; raises InconsistentSnapshot otherwise."""
    versions = {version for key, version in lists.versions.items() if not lists.served[key].kind.is_loose}
    if len(versions) == 1:
        return lists.moment(versions.pop())
    target, books = max(map(number, versions)), books_of(lists)
    deadline = monotonic() + options.timeout_seconds
    with Following(api, books, clock, SHORTEST_WATCH_SECONDS) as following:
        while following.common < target:
            with following.news:
                following.news.wait(_TICK_SECONDS)
            if following._failure or monotonic() > deadline:  # noqa: SLF001 one module
                raise InconsistentSnapshot(f"{api.url} lists its kinds at versions {', '.join(sorted(versions))}")
    now = clock.now()
    for book in books:
        book.forward(target, now)
    return replace(_moment(lists, books, target, now), gone=())


def watch_moments(
    api: Api, kinds: Iterable[Kind], options: KubernetesOptions, clock: Clock, stop: Event, every_seconds: float
) -> Iterator[Moment]:
    """The first moment, then one for each change, at most one in `every_seconds`, until `stop` is set.

    Lists anew when the server forgot what came after a watch's version, and from time to time. Raises
    SchedulerUnreachable when the server stays away.
    """
    kinds, last = tuple(kinds), None
    while not stop.is_set():
        lists = read_lists(api, kinds, options, clock)
        moment = together(api, lists, options, clock)
        last = _with_gone(moment, last)
        yield last
        objects = {key: [*items] for key, items in moment.objects.items()}
        lists = replace(lists, objects=objects, versions=dict.fromkeys(lists.versions, moment.version))
        try:
            for last in _followed(api, lists, clock, stop, every_seconds):
                yield last
        except Lost:
            continue


def _with_gone(moment: Moment, last: Moment | None) -> Moment:
    """What was there before the lists were made anew, and is not any more, went meanwhile, as far as it can be seen."""
    if last is None or not moment.has("pods"):
        return moment
    there, seen = {uid_of(pod, "") for pod in moment.of("pods")}, moment.scope.namespaces
    known = [pod for pod in last.of("pods") if not seen or meta(pod)["namespace"] in seen]
    return replace(moment, gone=tuple((pod, moment.taken_at) for pod in known if uid_of(pod, "") not in there))


def _followed(api: Api, lists: Lists, clock: Clock, stop: Event, every_seconds: float) -> Iterator[Moment]:
    books = books_of(lists)
    watch_seconds = min(LONGEST_WATCH_SECONDS, max(SHORTEST_WATCH_SECONDS, math.ceil(every_seconds)))
    due, anew = monotonic() + every_seconds, monotonic() + ANEW_SECONDS[lists.scope.is_complete]
    with Following(api, books, clock, watch_seconds) as following:
        has_changed = False
        while not stop.wait(0):
            with following.news:
                following.news.wait(min(_TICK_SECONDS, max(0.01, due - monotonic())))
                following.check()
                now = clock.now()
                version = following.common
                for book in books:
                    upto = book.reached if book.served.kind.is_loose else version
                    has_changed |= book.forward(upto, now)
                ready = has_changed and monotonic() >= due
                moment = _moment(lists, books, version, now) if ready else None
            if moment is not None:
                has_changed, due = False, monotonic() + every_seconds
                yield moment
            if monotonic() >= anew:
                return
