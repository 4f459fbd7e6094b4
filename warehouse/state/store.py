"""Reads and writes the state store: recommendations, the alert outbox, reports; what findings need is beside it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, event, select
from sqlalchemy.engine import Engine
from sqlalchemy.exc import ArgumentError
from sqlalchemy.orm import Session

from gpuledger.errors import ConfigError
from warehouse.state.lives import FindingLives
from warehouse.state.models import OutboxEntry, ReportRun, StoredRecommendation
from warehouse.state.reviews import FindingReviews


def migrate(url: str) -> None:
    """Bring the store at `url` to the newest schema."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.attributes["url"] = url
    command.upgrade(config, "head")


class StateStore(FindingLives, FindingReviews):
    """The state store at an SQLAlchemy URL: SQLite beside the warehouse, or PostgreSQL."""

    def __init__(self, url: str) -> None:
        self.engine: Engine = create_engine(url)
        if self.engine.dialect.name == "sqlite":
            event.listen(self.engine, "connect", _durable_sqlite)

    @classmethod
    def open(cls, url: str) -> StateStore:
        """Open the store, migrated."""
        if url.startswith("sqlite:///") and url != "sqlite:///:memory:":
            Path(url.removeprefix("sqlite:///")).parent.mkdir(parents=True, exist_ok=True)
        try:
            migrate(url)
        except (ArgumentError, ImportError) as error:
            raise ConfigError(f"state_url: {error}") from error
        return cls(url)

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()

    def save_recommendation(self, recommendation_id: str, kind: str, body: Mapping[str, Any], now: datetime) -> None:
        """Store a recommendation; one that was proposed before keeps its status and takes the new numbers."""
        with Session(self.engine) as session, session.begin():
            row = session.get(StoredRecommendation, recommendation_id)
            if row is None:
                row = StoredRecommendation(
                    recommendation_id=recommendation_id, kind=kind, status="proposed", created_at=now, body={}
                )
                session.add(row)
            row.body = dict(body)

    def recommendations(self) -> list[dict[str, Any]]:
        """The stored recommendations, newest first."""
        with Session(self.engine) as session:
            rows = session.scalars(select(StoredRecommendation).order_by(StoredRecommendation.created_at.desc()))
            return [{**row.body, "status": row.status, "created_at": row.created_at.isoformat()} for row in rows]

    def enqueue(self, channel: str, key: str, message: Mapping[str, Any], now: datetime) -> bool:
        """Put a message into the outbox, once for each channel and key. Gives whether it is new."""
        with Session(self.engine) as session, session.begin():
            known = session.scalar(
                select(OutboxEntry.entry_id).where(OutboxEntry.channel == channel, OutboxEntry.key == key)
            )
            if known is not None:
                return False
            session.add(
                OutboxEntry(
                    channel=channel,
                    key=key,
                    message=dict(message),
                    status="pending",
                    attempts=0,
                    created_at=now,
                    due_at=now,
                )
            )
            return True

    def due_messages(self, now: datetime, limit: int = 100) -> list[tuple[int, str, dict[str, Any], int]]:
        """(entry, channel, message, attempts so far) of pending messages that are due, oldest first."""
        with Session(self.engine) as session:
            rows = session.scalars(
                select(OutboxEntry)
                .where(OutboxEntry.status == "pending", OutboxEntry.due_at <= now)
                .order_by(OutboxEntry.entry_id)
                .limit(limit)
            )
            return [(row.entry_id, row.channel, row.message, row.attempts) for row in rows]

    def settle_message(
        self, entry_id: int, status: str, *, detail: str, now: datetime, retry_in: timedelta | None = None
    ) -> None:
        """Record an attempt: delivered, dead, or pending until `retry_in` has passed."""
        with Session(self.engine) as session, session.begin():
            row = session.get_one(OutboxEntry, entry_id)
            row.status, row.detail = status, detail
            row.attempts += 1
            row.due_at = now + (retry_in or timedelta())
            if status == "delivered":
                row.delivered_at = now

    def outbox_counts(self) -> dict[str, int]:
        """How many messages are pending, delivered and dead."""
        with Session(self.engine) as session:
            counts = {"pending": 0, "delivered": 0, "dead": 0}
            for status in session.scalars(select(OutboxEntry.status)):
                counts[status] += 1
            return counts

    def report_made(self, report: str, period: str) -> bool:
        """Whether `report` exists for `period`."""
        with Session(self.engine) as session:
            return session.get(ReportRun, (report, period)) is not None

    def record_report(self, report: str, period: str, path: Path, now: datetime) -> None:
        """Note that `report` was made for `period`."""
        with Session(self.engine) as session, session.begin():
            session.merge(ReportRun(report=report, period=period, made_at=now, path=str(path)))


def _durable_sqlite(connection: Any, _record: Any) -> None:
    connection.execute("pragma journal_mode=wal")
    connection.execute("pragma synchronous=full")
    connection.execute("pragma busy_timeout=5000")
