"""What people and jobs decided outlives any run: findings' life, decisions, the outbox, the audit log."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, select
from sqlalchemy.orm import Session

from gpuledger.errors import BadInput
from gpuledger.model import Finding
from warehouse.state import StateStore
from warehouse.state.models import AuditEntry, Base, FindingState, OutboxEntry

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)
HOUR = timedelta(hours=1)


def _postgres(folder: Path) -> Iterator[str]:
    if shutil.which("postgres") is None or shutil.which("initdb") is None:
        pytest.skip("optional: no PostgreSQL server on this machine")
    if find_spec("psycopg") is None:
        pytest.skip("optional: no PostgreSQL driver; an operator who wants it installs psycopg")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    subprocess.run(["initdb", "-D", folder, "-A", "trust", "-U", "ledger"], check=True, capture_output=True)
    options = f"-h 127.0.0.1 -p {port} -k {folder}"
    subprocess.run(["pg_ctl", "-D", folder, "-o", options, "-w", "start"], check=True, capture_output=True)
    try:
        yield f"postgresql+psycopg://ledger@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run(["pg_ctl", "-D", folder, "-m", "immediate", "stop"], check=True, capture_output=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'deep' / 'state.sqlite'}"
    else:
        yield from _postgres(tmp_path / "postgres")


@pytest.fixture
def store(url: str) -> Iterator[StateStore]:
    opened = StateStore.open(url)
    yield opened
    opened.close()


def _finding(subject: str, **values: Any) -> Finding:
    fields: dict[str, Any] = {
        "analyzer": "idle",
        "rule_id": "idle",
        "rule_version": 1,
        "subject_kind": "workload",
        "subject_id": subject,
        "window_start": AT,
        "window_end": AT + HOUR,
        "gpu_hours_observed": 1.0,
        "gpu_hours_wasted": 1.0,
        "gpu_hours_recoverable": 1.0,
        "confidence": 1.0,
        "basis": "sm_active",
        "cause_code": "idle",
        "action_code": "notify",
        "is_open": True,
    }
    return Finding(**{**fields, **values})


A, B = _finding("a"), _finding("b")


def _status(store: StateStore, finding: Finding = A) -> str:
    return store.finding_statuses([finding.finding_id])[finding.finding_id]


def test_migrations_make_the_models_tables(store: StateStore, url: str) -> None:
    seen = inspect(store.engine)
    for table in Base.metadata.sorted_tables:
        columns = {column["name"]: column["nullable"] for column in seen.get_columns(table.name)}
        assert columns == {column.name: bool(column.nullable) for column in table.columns}
    again = StateStore.open(url)
    assert again.outbox_counts() == {"pending": 0, "delivered": 0, "dead": 0}
    again.close()


def test_a_finding_is_new_ongoing_resolved_and_back(store: StateStore) -> None:
    assert store.sync_findings("idle", [A, B], AT) == [A, B]
    assert _status(store) == "new"
    assert store.sync_findings("idle", [A, B], AT + HOUR) == []
    assert _status(store) == "ongoing"
    assert store.sync_findings("idle", [B], AT + 2 * HOUR) == []
    assert (_status(store), _status(store, B)) == ("resolved", "ongoing")
    assert store.sync_findings("idle", [B], AT + 3 * HOUR) == []
    assert store.sync_findings("idle", [A, B], AT + 4 * HOUR) == []
    assert _status(store) == "ongoing"
    with Session(store.engine) as session:
        row = session.get_one(FindingState, A.finding_id)
        assert (row.first_seen_at, row.last_seen_at, row.resolved_at) == (AT, AT + 4 * HOUR, None)


def test_runs_of_another_rule_change_nothing(store: StateStore) -> None:
    store.sync_findings("idle", [A], AT)
    store.sync_findings("fragmentation", [], AT)
    assert _status(store) == "new"
    assert store.finding_statuses(["unknown"]) == {}


SAID: dict[str, dict[str, Any]] = {
    "acknowledged": {},
    "disputed": {"reason": "was_working"},
    "exempted": {"expires_at": AT + 10 * HOUR},
}


@pytest.mark.parametrize("decided", SAID)
def test_a_decision_survives_runs_and_is_written_down(store: StateStore, decided: str) -> None:
    store.sync_findings("idle", [A], AT)
    store.decide_finding(A.finding_id, decided, by="ann", note="known", now=AT + HOUR, **SAID[decided])
    for found in ([A], [], [A]):
        store.sync_findings("idle", found, AT + 2 * HOUR)
        assert _status(store) == decided
    with Session(store.engine) as session:
        (entry,) = session.scalars(select(AuditEntry))
    assert (entry.at, entry.actor, entry.action, entry.subject) == (AT + HOUR, "ann", "decide_finding", A.finding_id)
    said = {key: value.isoformat() if key == "expires_at" else value for key, value in SAID[decided].items()}
    assert entry.detail == {"before": "new", "after": decided, "note": "known", **said}


def test_a_decision_on_nothing_or_with_no_such_status_is_refused(store: StateStore) -> None:
    with pytest.raises(BadInput, match="finding_id"):
        store.decide_finding("f0", "acknowledged", by="ann", note="", now=AT)
    store.sync_findings("idle", [A], AT)
    with pytest.raises(BadInput, match="status"):
        store.decide_finding(A.finding_id, "resolved", by="ann", note="", now=AT)
    with Session(store.engine) as session:
        assert session.scalars(select(AuditEntry)).all() == []


def test_the_outbox_keeps_each_key_once_and_retries_when_due(store: StateStore) -> None:
    assert store.enqueue("webhook", "k", {"title": "资源"}, AT)
    assert not store.enqueue("webhook", "k", {"title": "other"}, AT)
    assert store.enqueue("mail", "k", {}, AT)
    first, second = store.due_messages(AT)
    assert first[1:] == ("webhook", {"title": "资源"}, 0)
    store.settle_message(first[0], "pending", detail="503", now=AT, retry_in=HOUR)
    store.settle_message(second[0], "dead", detail="410", now=AT)
    assert store.due_messages(AT + HOUR - timedelta(seconds=1)) == []
    ((entry, _, _, attempts),) = store.due_messages(AT + HOUR)
    assert (entry, attempts) == (first[0], 1)
    store.settle_message(entry, "delivered", detail="200", now=AT + HOUR)
    assert store.due_messages(AT + 24 * HOUR) == []
    assert store.outbox_counts() == {"pending": 0, "delivered": 1, "dead": 1}
    with Session(store.engine) as session:
        row = session.get_one(OutboxEntry, entry)
        assert (row.attempts, row.delivered_at, row.detail) == (2, AT + HOUR, "200")


def test_a_report_and_a_recommendation_are_remembered(store: StateStore) -> None:
    assert not store.report_made("weekly", "2026-W09")
    for _ in range(2):
        store.record_report("weekly", "2026-W09", Path("weekly.html"), AT)
    assert store.report_made("weekly", "2026-W09")
    store.save_recommendation("r", "move_quota", {"gain": 1}, AT)
    store.save_recommendation("r", "move_quota", {"gain": 2}, AT + HOUR)
    ((row),) = store.recommendations()
    assert (row["gain"], row["status"], row["created_at"]) == (2, "proposed", AT.isoformat())
