"""Follows files that grow, are rotated, cut short and replaced; remembers across restarts what was read of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from collector.training_log.steps import Subject
from collector.training_log.tail import Read, Tail, load, store

SPOOLED_AFTER = timedelta(minutes=2)
"""The agent puts rows into its spool far more often; what was read before is there."""
FORGOTTEN_AFTER = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Step:
    """A piece of a log whose rows are to be made. Call `tail.noted()` when `tail.known` has been moved on."""

    tail: Tail
    subject: Subject
    read: Read


class Follower:
    """The files of one source. `memory` is where it writes what was read."""

    def __init__(self, memory: Path, *, first_bytes: int, max_bytes: int) -> None:
        self._memory = memory
        self._first_bytes, self._max_bytes = first_bytes, max_bytes
        self._tails: dict[str, Tail] = {}
        self._is_first = True
        self._is_new = True

    def pieces(self, files: Iterable[tuple[Path, Subject]], now: datetime) -> Iterator[Step | OSError]:
        """What is new in `files`, a piece each; after a restart, first what may have been lost.

        A file that cannot be read is an error in its place, and costs no other.
        """
        if self._is_first:
            yield from self._remember()
        left = self._leave()
        for tail in left.values():
            if tail.is_moved:
                yield from self._take(tail, now, is_final=True)
        for path, subject in files:
            yield from self._follow(path, subject, left, now)
        self._is_first = False

    def keep(self, now: datetime) -> None:
        """Write down what was read: before its rows are handed on. Raises OSError."""
        for name, tail in list(self._tails.items()):
            tail.settle(now - SPOOLED_AFTER)
            gone = now.timestamp() - tail.state.seen_at > FORGOTTEN_AFTER.total_seconds()
            if gone and not tail.state.pieces:
                del self._tails[name]
        store(self._memory, self._tails)

    def close(self) -> None:
        """Everything that was read is spooled: remember so. Raises OSError."""
        if self._is_first:
            return
        for tail in self._tails.values():
            tail.settle(datetime.max.replace(tzinfo=UTC))
        store(self._memory, self._tails)

    def _remember(self) -> Iterator[Step | OSError]:
        states = load(self._memory)
        self._is_new = states is None
        for name, state in (states or {}).items():
            tail = Tail(Path(name), state)
            try:
                place = tail.path if _is_same(tail) else tail.renamed()
                if place is None:
                    continue
                tail.path = place
                self._tails[str(place)] = tail
                yield from (Step(tail, tail.subject, read) for read in tail.replay(place))
            except OSError as error:
                yield error

    def _leave(self) -> dict[str, Tail]:
        """Files that no longer lie where they were read, by their old names; rotated ones stand under their new."""
        left: dict[str, Tail] = {}
        for name, tail in list(self._tails.items()):
            if _is_same(tail):
                continue
            del self._tails[name]
            place = tail.renamed()
            tail.is_moved = place is not None and place != tail.path and str(place) not in self._tails
            if place is not None and tail.is_moved:
                tail.path = place
                self._tails[str(place)] = tail
            left[name] = tail
        return left

    def _follow(self, path: Path, subject: Subject, left: dict[str, Tail], now: datetime) -> Iterator[Step | OSError]:
        try:
            tail = self._tails.get(str(path))
            if tail is None:
                tail = self._tails[str(path)] = self._begin(path, subject)
                if (before := left.get(str(path))) is not None:
                    tail.carry(before.known)
        except OSError as error:
            yield error
            return
        yield from self._take(tail, now)

    def _begin(self, path: Path, subject: Subject) -> Tail:
        is_old = self._is_first and self._is_new
        size = path.stat().st_size
        return Tail.begin(path, subject, max(0, size - self._first_bytes) if is_old else 0)

    def _take(self, tail: Tail, now: datetime, *, is_final: bool = False) -> Iterator[Step | OSError]:
        try:
            read = tail.take(tail.path, now, self._max_bytes, is_final=is_final)
        except OSError as error:
            yield error
            return
        if read is not None:
            yield Step(tail, tail.subject, read)


def _is_same(tail: Tail) -> bool:
    try:
        return tail.is_same()
    except OSError:
        return False
