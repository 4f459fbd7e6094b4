"""Batches on disk until the service has them: one file a batch, the oldest dropped first when the disk share is full.

A file appears whole or not at all (written beside, flushed to the disk, renamed), so a killed process loses nothing
that `put` returned for. Its name carries all that is needed without opening it: order, record, rows, checksum, id.
"""

from __future__ import annotations

import fcntl
import os
import re
import threading
import uuid
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog

from gpuledger.errors import ConfigError

_NAME = re.compile(r"(\d{12})-([a-z_]+)-(\d+)-([0-9a-f]{8})-([0-9a-f]{32})\.arrow")
_SET_ASIDE = "set-aside"
_SET_ASIDE_FILES = 20

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """One stored batch. `rows` of `record`, `size_bytes` on disk."""

    path: Path
    record: str
    rows: int
    checksum: int
    batch_id: str
    size_bytes: int


@dataclass(slots=True)
class SpoolCounts:
    """What happened since the process started."""

    dropped_batches: int = 0
    dropped_rows: int = 0
    corrupt_batches: int = 0
    set_aside_batches: int = 0


class Spool:
    """Batches in `directory`, at most `limit_bytes` of them. Safe to use from several threads of one process.

    Raises ConfigError when the directory cannot be used or another process uses it.
    """

    def __init__(self, directory: Path, limit_bytes: int) -> None:
        self._directory = directory
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self.counts = SpoolCounts()
        self._claim = _claim(directory)
        self._batches: dict[str, Batch] = {}
        self._read_directory()
        self._sequence = 1 + max((int(name[:12]) for name in self._batches), default=0)

    def _read_directory(self) -> None:
        for path in sorted(self._directory.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is not None:
                _, record, rows, checksum, batch_id = match.groups()
                size = path.stat().st_size
                self._batches[path.name] = Batch(path, record, int(rows), int(checksum, 16), batch_id, size)
            elif path.suffix == ".part":
                path.unlink(missing_ok=True)  # cut off while it was written; `put` never returned for it
            elif path.suffix == ".arrow":
                self._put_aside(path)
                self.counts.corrupt_batches += 1

    @property
    def batch_count(self) -> int:
        """Batches waiting."""
        return len(self._batches)

    @property
    def size_bytes(self) -> int:
        """Bytes of the batches waiting."""
        with self._lock:
            return sum(batch.size_bytes for batch in self._batches.values())

    def put(self, record: str, table: pa.Table) -> bool:
        """Store `table` durably. Makes room by dropping the oldest; False when it had to drop `table` itself."""
        content = encode(table)
        with self._lock:
            if not self._make_room(len(content)) or not self._write(record, table.num_rows, content):
                self._count_drop(record, table.num_rows)
                return False
        return True

    def oldest(self) -> tuple[Batch, bytes] | None:
        """The batch to send next and its content, or None. Damaged files are set aside and counted."""
        while True:
            with self._lock:
                batch = self._batches[min(self._batches)] if self._batches else None
            if batch is None:
                return None
            try:
                content = batch.path.read_bytes()
            except OSError:
                content = b""
            if zlib.crc32(content) == batch.checksum:
                return batch, content
            self.counts.corrupt_batches += 1
            _log.warning("spool file is damaged", file=batch.path.name, rows=batch.rows)
            self._remove(batch, keep=True)

    def done(self, batch: Batch) -> None:
        """Forget `batch`: the service has it."""
        self._remove(batch, keep=False)

    def set_aside(self, batch: Batch) -> None:
        """Move `batch`, which the service will never take, out of the way; the last few stay for a look."""
        self.counts.set_aside_batches += 1
        self._remove(batch, keep=True)

    def close(self) -> None:
        """Let another process use the directory."""
        os.close(self._claim)

    def _remove(self, batch: Batch, *, keep: bool) -> None:
        with self._lock:
            if self._batches.pop(batch.path.name, None) is None:
                return  # dropped meanwhile to make room
            if keep:
                self._put_aside(batch.path)
            else:
                batch.path.unlink(missing_ok=True)

    def _put_aside(self, path: Path) -> None:
        aside = self._directory / _SET_ASIDE
        try:
            path.rename(aside / path.name)
            for old in sorted(aside.iterdir())[:-_SET_ASIDE_FILES]:
                old.unlink(missing_ok=True)
        except OSError:
            path.unlink(missing_ok=True)

    def _make_room(self, size: int) -> bool:
        if size > self._limit_bytes:
            return False
        used = sum(batch.size_bytes for batch in self._batches.values())
        while self._batches and used + size > self._limit_bytes:
            used -= self._drop_oldest()
        return True

    def _drop_oldest(self) -> int:
        batch = self._batches.pop(min(self._batches))
        batch.path.unlink(missing_ok=True)
        self._count_drop(batch.record, batch.rows)
        return batch.size_bytes

    def _count_drop(self, record: str, rows: int) -> None:
        self.counts.dropped_batches += 1
        self.counts.dropped_rows += rows
        _log.warning("spool is full, batch dropped", record=record, rows=rows)

    def _write(self, record: str, rows: int, content: bytes) -> bool:
        checksum, batch_id = zlib.crc32(content), uuid.uuid4().hex
        name = f"{self._sequence:012d}-{record}-{rows}-{checksum:08x}-{batch_id}.arrow"
        path = self._directory / name
        for _ in range(2):
            try:
                _write_durably(path, content)
            except OSError as error:
                # Most likely the disk is full with other things: one more try in the place of the oldest batch.
                _log.warning("spool cannot write", reason=error.strerror)
                if self._batches:
                    self._drop_oldest()
                continue
            self._batches[name] = Batch(path, record, rows, checksum, batch_id, len(content))
            self._sequence += 1
            return True
        return False


def _claim(directory: Path) -> int:
    """A descriptor whose lock says that this process owns `directory`."""
    try:
        (directory / _SET_ASIDE).mkdir(parents=True, exist_ok=True)
        claim = os.open(directory / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"spool_directory: cannot use {directory}: {error.strerror}") from error
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(claim)
        raise ConfigError(f"spool_directory: another agent uses {directory}") from error
    return claim


def encode(table: pa.Table) -> bytes:
    """`table` as one Arrow IPC stream, zstd."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    content: Any = sink.getvalue()
    return bytes(content)


def _write_durably(path: Path, content: bytes) -> None:
    part = path.with_suffix(".part")
    try:
        with part.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    except OSError:
        part.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
