"""What a person is shown of a snapshot: that there is none of a thing, or that it could not be seen, are two things."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gpuledger.app.schedulers.showing import print_snapshot, shown
from gpuledger.model import to_table
from gpuledger.ports import SchedulerSnapshot, SnapshotScope

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)


def _lines(capsys: pytest.CaptureFixture[str], scope: SnapshotScope, *records: str) -> list[str]:
    tables = {record: to_table(record, []) for record in records}
    print_snapshot(shown(SchedulerSnapshot(taken_at=NOW, version="1", records=tables, scope=scope)))
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


def test_what_is_not_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    lines = _lines(capsys, SnapshotScope(), "node_state", "queue", "wait", "workload")
    assert lines[2:] == ["GPUs: none", "queues (GPUs): none", "waits: none"]


def test_what_could_not_be_seen_is_not_said_to_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    scope = SnapshotScope(denied=(("nodes", "forbidden"),), unlisted=frozenset({"queue"}))
    lines = _lines(capsys, scope, "queue", "wait", "workload")
    assert lines[2:] == [
        "GPUs: not told",
        "queues (GPUs): a part, for an interface is denied or absent",
        "waits: none",
    ]
