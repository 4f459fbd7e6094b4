"""Objects of one kind over the versions of the store: what was there at each, within a bounded window."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Key = tuple[str, str]
"""Namespace ("" for a kind of the whole cluster) and name: objects are listed in this order."""

FIRST: Key = ("", "")


@dataclass(frozen=True, slots=True)
class Version:
    """An object as it was from `version` on. `tail` is its JSON after `{"apiVersion":...,"kind":...,`; None: deleted.

    A deleted object keeps what it was selected by.
    """

    version: int
    tail: bytes | None
    labels: Mapping[str, str]
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """One write: what the object was before (None: it was not there), and what it became (a `tail` of None: gone)."""

    key: Key
    before: Version | None
    after: Version

    @property
    def version(self) -> int:
        """The version that the write made."""
        return self.after.version


class Table:
    """All objects of one kind. Not safe by itself: the store's lock is held by who calls.

    Nothing is copied on a list: a page walks the sorted keys from where the last one ended, and takes from each key's
    few versions the one that was in force.
    """

    def __init__(self) -> None:
        self._keys: list[Key] = []
        self._chains: dict[Key, list[Version]] = {}
        self._changes: list[Change] = []
        self._numbers: list[int] = []
        self.listeners: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return sum(1 for _ in self.current())

    def get(self, key: Key) -> Version | None:
        """The object now; None where there is none."""
        chain = self._chains.get(key)
        return chain[-1] if chain and chain[-1].tail is not None else None

    def write(self, key: Key, after: Version) -> None:
        """Put the next version of the object at `key`, and tell who watches."""
        before = self.get(key)
        chain = self._chains.get(key)
        if chain is None:
            chain = self._chains[key] = []
            insort(self._keys, key)
        chain.append(after)
        self._changes.append(Change(key, before, after))
        self._numbers.append(after.version)
        for listener in self.listeners:
            listener()

    def current(self) -> Iterator[tuple[Key, Version]]:
        """Every object now, in order."""
        for key in self._keys:
            last = self._chains[key][-1]
            if last.tail is not None:
                yield key, last

    def at(self, version: int, after: Key | None = None, namespace: str = "") -> Iterator[tuple[Key, Version]]:
        """Every object as of `version` in order, of one namespace where it is given, beginning after key `after`."""
        start = bisect_left(self._keys, (namespace, "")) if namespace else 0
        if after is not None:
            start = max(start, bisect_right(self._keys, after))
        for index in range(start, len(self._keys)):
            key = self._keys[index]
            if namespace and key[0] != namespace:
                return
            for each in reversed(self._chains[key]):
                if each.version <= version:
                    if each.tail is not None:
                        yield key, each
                    break

    def count_after(self, key: Key, namespace: str = "") -> int:
        """About how many objects follow `key`: keys whose objects were deleted of late count too."""
        end = bisect_left(self._keys, (namespace + "\0", "")) if namespace else len(self._keys)
        return end - bisect_right(self._keys, key)

    def since(self, version: int) -> Sequence[Change]:
        """The changes after `version`, oldest first."""
        return self._changes[bisect_right(self._numbers, version) :]

    def forget(self, floor: int) -> None:
        """Keep only what is needed to tell of versions from `floor` on."""
        count = bisect_right(self._numbers, floor)
        for change in self._changes[:count]:
            chain = self._chains.get(change.key)
            if chain is None:
                continue
            while len(chain) > 1 and chain[1].version <= floor:
                del chain[0]
            if chain[0].tail is None and chain[0].version <= floor:
                del chain[0]
            if not chain:
                del self._chains[change.key]
                del self._keys[bisect_left(self._keys, change.key)]
        del self._changes[:count]
        del self._numbers[:count]
