"""Which part of a growing file was read. Survives rotation, truncation and restarts; reads a bounded piece at a time.

A piece that was read is kept, by where it ended and when, until its rows are surely spooled. After a crash such pieces
are read again with the same instants and give the same rows, so nothing is lost and nothing counts twice.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collector.training_log.steps import Progress, Subject

HEAD_BYTES = 256
QUIET_SECONDS = 60.0
"""A last line without an end is taken as it is once the file has not grown for so long."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file, up to byte `end`; written until `ended_at`, read at `read_at` (seconds since 1970)."""

    end: int
    ended_at: float
    read_at: float


@dataclass(slots=True)
class FileState:
    """What a restart goes on from: a file by inode and first bytes, whose it is, what is spooled, and what may not be.

    `offset` and `known` are as of what is spooled; `pieces` were read after it.
    """

    inode: int
    head: str
    head_bytes: int
    subject: Subject
    offset: int = 0
    known: Progress = field(default_factory=Progress)
    pieces: list[Piece] = field(default_factory=list)
    seen_at: float = 0.0

    @classmethod
    def of(cls, told: dict[str, Any]) -> FileState:
        """From its JSON form. Raises TypeError or KeyError for what is none."""
        subject, known = Subject(**told.pop("subject")), Progress(**told.pop("known"))
        pieces = [Piece(**one) for one in told.pop("pieces")]
        return cls(**told, subject=subject, known=known, pieces=pieces)


@dataclass(slots=True)
class Read:
    """What one piece brought: its lines, and whether the file is now read to its end."""

    lines: list[bytes]
    piece: Piece
    is_whole: bool
    long_lines: int = 0


class Tail:
    """One file. `offset` and `known` are where reading stands now, `state` is what is remembered on disk.

    `is_moved`: it lies elsewhere than where it was read.
    """

    def __init__(self, path: Path, state: FileState) -> None:
        self.path = path
        self.state = state
        self.offset = state.offset
        self.known = replace(state.known)
        self.is_moved = False
        self._open, state.pieces = state.pieces, []
        self._after: list[Progress] = []

    @classmethod
    def begin(cls, path: Path, subject: Subject, offset: int) -> Tail:
        """A file that was not known. Raises OSError."""
        with path.open("rb") as stream:
            head = stream.read(HEAD_BYTES)
            inode = os.fstat(stream.fileno()).st_ino
            if offset:
                stream.seek(offset - 1)
                # In the middle of a line: from the next one on.
                offset += 0 if stream.read(1) in b"\r\n" else len(stream.readline())
        return cls(path, FileState(inode, _digest(head), len(head), subject, offset))

    @property
    def subject(self) -> Subject:
        """Whose log it is."""
        return self.state.subject

    def carry(self, known: Progress) -> None:
        """Go on from what was known of the file that lay here before."""
        self.known, self.state.known = replace(known), replace(known)

    def is_same(self) -> bool:
        """Whether the path still shows the file that was read, not a new one or a shorter one. Raises OSError."""
        with self.path.open("rb") as stream:
            facts = os.fstat(stream.fileno())
            if facts.st_ino != self.state.inode or facts.st_size < self.offset:
                return False
            return _digest(stream.read(self.state.head_bytes)) == self.state.head

    def renamed(self) -> Path | None:
        """Where the file lies that was read, beside its path, after a rotation."""
        try:
            with os.scandir(self.path.parent) as entries:
                names = sorted(entry.name for entry in entries if entry.inode() == self.state.inode)
            for name in names:
                other = self.path.parent / name
                with other.open("rb") as stream:
                    if _digest(stream.read(self.state.head_bytes)) == self.state.head:
                        return other
        except OSError:
            return None
        return None

    def replay(self, path: Path) -> Iterator[Read]:
        """The pieces that may not have been spooled, again. Raises OSError."""
        pieces, self._open = self._open, []
        for piece in pieces:
            yield self._take(path, piece)

    def take(self, path: Path, now: datetime, max_bytes: int, *, is_final: bool = False) -> Read | None:
        """The next piece: whole lines of at most `max_bytes`; None where there is none. Raises OSError."""
        with path.open("rb") as stream:
            facts = os.fstat(stream.fileno())
            self.state.seen_at = now.timestamp()
            self._learn_head(stream.read(HEAD_BYTES))
            stream.seek(self.offset)
            content = stream.read(max_bytes)
        is_whole = self.offset + len(content) >= facts.st_size
        last = max(content.rfind(b"\n"), content.rfind(b"\r")) + 1
        is_ended = is_final or now.timestamp() - facts.st_mtime > QUIET_SECONDS
        size = len(content) if (is_whole and is_ended) or (not last and len(content) == max_bytes) else last
        if not size:
            return None
        ended_at = min(now, datetime.fromtimestamp(max(facts.st_mtime, 1.0), UTC)).timestamp()
        return self._take(path, Piece(self.offset + size, ended_at, now.timestamp()), is_whole=is_whole)

    def noted(self) -> None:
        """The rows of the piece that was taken are made, and `known` is moved on."""
        self._after.append(replace(self.known))

    def settle(self, before: datetime) -> None:
        """What was read before `before` is spooled."""
        while self.state.pieces and self._after and self.state.pieces[0].read_at < before.timestamp():
            self.state.offset = self.state.pieces.pop(0).end
            self.state.known = self._after.pop(0)

    def _learn_head(self, head: bytes) -> None:
        if self.state.head_bytes < len(head) and _digest(head[: self.state.head_bytes]) == self.state.head:
            self.state.head, self.state.head_bytes = _digest(head), len(head)

    def _take(self, path: Path, piece: Piece, *, is_whole: bool = True) -> Read:
        size = max(0, piece.end - self.offset)
        with path.open("rb") as stream:
            stream.seek(self.offset)
            content = stream.read(size)
        self.offset = piece.end
        self.state.pieces.append(piece)
        # A bar that is drawn again and again ends its lines with a carriage return.
        lines = content.replace(b"\r", b"\n").split(b"\n")
        is_cut = not is_whole and len(lines) == 1
        return Read([] if is_cut else lines, piece, is_whole, int(is_cut))


def _digest(head: bytes) -> str:
    return hashlib.blake2b(head, digest_size=8).hexdigest()


def load(path: Path) -> dict[str, FileState] | None:
    """What was read before, by path; None where nothing is known. A file that cannot be understood is no memory."""
    try:
        told = json.loads(path.read_bytes())
        return {name: FileState.of(dict(state)) for name, state in told["files"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def store(path: Path, tails: dict[str, Tail]) -> None:
    """Write where reading stands, in one step. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps({"files": {name: asdict(tail.state) for name, tail in tails.items()}}))
    part.replace(path)
