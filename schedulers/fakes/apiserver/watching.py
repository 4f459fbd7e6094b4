"""Watches: what changes, as a stream of JSON lines, from a version on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from schedulers.fakes.apiserver.listing import body
from schedulers.fakes.apiserver.requests import Asked
from schedulers.fakes.apiserver.resources import Resource
from schedulers.fakes.apiserver.selectors import Selector
from schedulers.fakes.apiserver.statuses import ApiRefusal, invalid, too_new, too_old
from schedulers.fakes.apiserver.store import Store, encoded
from schedulers.fakes.apiserver.versions import Change

DEFAULT_TIMEOUT_SECONDS = 1800
"""How long a watch lasts that does not say."""

_LONGEST_WAIT_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A watch's parameters. `begin` None: at the present, after telling of what is there."""

    begin: int | None
    has_initial_events: bool
    marks_initial_end: bool
    has_bookmarks: bool
    timeout_seconds: int
    selector: Selector


def wanted(asked: Asked, resource: Resource) -> Wanted:
    """Read a watch's query. Raises ApiRefusal (400, 422)."""
    match = asked.query.get("resourceVersionMatch", "")
    asks_initial = "sendInitialEvents" in asked.query
    if match and not asks_initial:
        raise _forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
    if asks_initial and match != "NotOlderThan":
        raise _forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    number = asked.number("resourceVersion") or 0
    sends = asked.is_set("sendInitialEvents") if asks_initial else not number
    return Wanted(
        begin=number if number and not sends else None,
        has_initial_events=sends,
        marks_initial_end=asks_initial and sends,
        has_bookmarks=asked.is_set("allowWatchBookmarks"),
        timeout_seconds=asked.number("timeoutSeconds") or DEFAULT_TIMEOUT_SECONDS,
        selector=Selector.parse(
            asked.query.get("labelSelector", ""), asked.query.get("fieldSelector", ""), resource.key
        ),
    )


def _forbidden(message: str) -> ApiRefusal:
    error = ("FieldValueForbidden", "resourceVersionMatch", f"Forbidden: {message}")
    return invalid("meta.k8s.io", "ListOptions", "", [error])


def _line(kind: str, item: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + item + b"}\n"


class Watch:
    """One watch of a kind. `lines` gives bytes to send until its time is over, or `closing` is set."""

    def __init__(
        self, store: Store, resource: Resource, asked: Asked, *, bookmark_seconds: float, closing: asyncio.Event
    ) -> None:
        self.wanted = wanted(asked, resource)
        self._store, self._resource, self._asked = store, resource, asked
        self._bookmark_seconds = bookmark_seconds
        self._closing = closing
        self._woken = asyncio.Event()
        self._woken.set()  # the first look is at once: there may be changes since the version that it begins at
        self._is_called = False
        self._loop = asyncio.get_running_loop()

    def _wake(self) -> None:
        # Called from whichever thread writes; a thousand writes between two rounds of the loop make one call.
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon_threadsafe(self._woken.set)

    async def lines(self) -> AsyncIterator[bytes]:
        """What goes over the wire, some lines at a time; b"" when there was nothing for a while."""
        with self._store.listening(self._resource, self._wake):
            try:
                first, position = self._begin()
            except ApiRefusal as refusal:
                yield _line("ERROR", encoded(refusal.status))
                return
            yield b"".join(first)
            async for chunk in self._following(position):
                yield chunk

    async def _following(self, position: int) -> AsyncIterator[bytes]:
        end = self._loop.time() + self.wanted.timeout_seconds
        bookmark_at = self._loop.time() + self._bookmark_seconds
        while not self._closing.is_set() and (now := self._loop.time()) < end:
            await self._wait(min(end, bookmark_at, now + _LONGEST_WAIT_SECONDS) - now)
            chunk, position = self._news(position)
            if self.wanted.has_bookmarks and self._loop.time() >= min(bookmark_at, end):
                chunk += self._bookmark(position)
                bookmark_at = self._loop.time() + self._bookmark_seconds
            yield chunk
            if b'{"type":"ERROR"' in chunk[:20]:
                return

    async def _wait(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._woken.wait(), max(seconds, 0))
        except TimeoutError:
            return
        finally:
            self._woken.clear()
            self._is_called = False

    def _begin(self) -> tuple[list[bytes], int]:
        store, begin = self._store, self.wanted.begin
        with store.lock:
            if begin is not None:
                if begin < store.floor:
                    raise too_old(begin, store.floor)
                if begin > store.version:
                    raise too_new(begin, store.version)
                return [], begin
            lines = list(self._initial()) if self.wanted.has_initial_events else []
            if self.wanted.marks_initial_end:
                lines.append(self._bookmark(store.version, is_initial_end=True))
            return lines, store.version

    def _initial(self) -> Iterator[bytes]:
        table = self._store.table(self._resource)
        for key, version in table.at(self._store.version, namespace=self._asked.namespace):
            if self.wanted.selector.matches(key, version.labels, version.fields):
                yield _line("ADDED", body(self._resource, self._asked.version, version))

    def _news(self, position: int) -> tuple[bytes, int]:
        with self._store.lock:
            if position < self._store.floor:
                return _line("ERROR", encoded(too_old(position, self._store.floor).status)), position
            changes = self._store.table(self._resource).since(position)
            now = self._store.version
        return b"".join(line for change in changes for line in self._lines_of(change)), now

    def _lines_of(self, change: Change) -> Iterator[bytes]:
        """With a selector, an object that comes into what is selected is ADDED, one that leaves it DELETED."""
        if self._asked.namespace and change.key[0] != self._asked.namespace:
            return
        matches, before, after = self.wanted.selector.matches, change.before, change.after
        was = before is not None and matches(change.key, before.labels, before.fields)
        is_now = after.tail is not None and matches(change.key, after.labels, after.fields)
        if is_now:
            yield _line("MODIFIED" if was else "ADDED", body(self._resource, self._asked.version, after))
        elif was and before is not None:
            last = before if after.tail is None else after
            text = body(self._resource, self._asked.version, last)
            yield _line("DELETED", _at_version(text, last.version, change.version))

    def _bookmark(self, version: int, *, is_initial_end: bool = False) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(version), "creationTimestamp": None}
        if is_initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        item = {
            "kind": self._resource.kind,
            "apiVersion": self._resource.api_version(self._asked.version),
            "metadata": metadata,
        }
        return _line("BOOKMARK", encoded(item))


def _at_version(text: bytes, old: int, new: int) -> bytes:
    """A deleted object's last form carries the version of its deletion."""
    return text.replace(b'"resourceVersion":"%d"' % old, b'"resourceVersion":"%d"' % new, 1)
