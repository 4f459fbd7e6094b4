"""Collects the rows of one snapshot, and what was wrong with the objects that they came from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import Any

from gpuledger.errors import BadInput
from gpuledger.model import RECORDS, QualityEvent, to_table
from gpuledger.ports import SchedulerSnapshot, SnapshotScope

INSTANT_SECONDS = 0.001
"""The duration of a queue's state in a snapshot: until when it held is not known yet."""


@dataclass(slots=True)
class SnapshotRows:
    """Rows by record name, as a mapping from a scheduler's objects adds them. `scheduler` dates and names problems.

    `cluster` is put before the names of queues and workloads where it is not "default", so that clusters may have
    queues and jobs of the same names.
    """

    scheduler: str
    cluster: str
    taken_at: datetime
    _rows: dict[str, list[Any]] = field(default_factory=dict)
    _names: dict[type[Any], str] = field(default_factory=lambda: {record.cls: name for name, record in RECORDS.items()})

    def named(self, name: str) -> str:
        """The name of a queue, cohort or workload of this cluster as records say it."""
        return name if self.cluster == "default" else f"{self.cluster}/{name}"

    def add(self, *rows: Any) -> None:
        """Take rows of any records in."""
        for row in rows:
            self._rows.setdefault(self._names[type(row)], []).append(row)

    def listed(self, *records: str) -> None:
        """Say that these records were read, even where they have no row."""
        for record in records:
            self._rows.setdefault(record, [])

    def of(self, record: str) -> list[Any]:
        """The rows of `record` so far; changing the list changes the snapshot."""
        return self._rows.setdefault(record, [])

    def problem(self, kind: str, subject: str, detail: str, *, subject_kind: str = "node", count: int = 1) -> None:
        """Note a quality event about `subject`; `count` as its kind says."""
        self.add(
            QualityEvent(
                ts=self.taken_at,
                source=self.scheduler,
                subject_kind=subject_kind,
                subject=subject,
                kind=kind,
                detail=detail,
                count=count,
            )
        )

    def sparing(self, subject: str, subject_kind: str = "workload") -> Sparing:
        """An object that cannot be understood costs itself: what the block raises becomes a problem that names it."""
        return Sparing(self, subject, subject_kind)

    def snapshot(self, version: str, scope: SnapshotScope, also: Iterable[str] = ()) -> SchedulerSnapshot:
        """Everything as Arrow tables. `also` names records that were read and may have no row."""
        self.listed(*also)
        records = {record: to_table(record, rows) for record, rows in sorted(self._rows.items())}
        return SchedulerSnapshot(taken_at=self.taken_at, version=version, records=records, scope=scope)


class Sparing:
    """A block that may fail on one object. A class: a generator would cost more than most objects do."""

    __slots__ = ("_rows", "_subject", "_subject_kind")

    def __init__(self, rows: SnapshotRows, subject: str, subject_kind: str) -> None:
        self._rows, self._subject, self._subject_kind = rows, subject, subject_kind

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> bool:
        if not isinstance(error, BadInput | LookupError | TypeError | ValueError | AttributeError):
            return False
        detail = f"{type(error).__name__}: {error}"
        self._rows.problem("unreadable_object", self._subject, detail, subject_kind=self._subject_kind)
        return True
