"""The state store's tables: what people and jobs decided, which must outlive any recomputation."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, DateTime, Dialect, Index, String, Text, TypeDecorator, UniqueConstraint
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Instant(TypeDecorator[datetime]):
    """A UTC instant. SQLite keeps no zone: what comes back is UTC all the same."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 SQLAlchemy's signature
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 SQLAlchemy's signature
        return None if value is None else value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Root of the mapped classes."""

    type_annotation_map = {datetime: Instant, dict[str, Any]: JSON}  # noqa: RUF012 SQLAlchemy's own form


class FindingState(Base):
    """Where a finding stands: new, ongoing, resolved, acknowledged, disputed or exempted.

    What it is about is kept here too, so that a decision outlives the finding's row, and a finding whose start moved
    is known again (`continues` names the identity it had before). `source` says who decided: run, person or policy.
    `owner` is a person or team that was named; empty: the tenant and user of the finding.
    """

    __tablename__ = "finding_state"
    __table_args__ = (Index("ix_finding_state_subject", "analyzer", "subject_id"),)

    finding_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    analyzer: Mapped[str] = mapped_column(String(64), index=True)
    status: Mapped[str] = mapped_column(String(16))
    first_seen_at: Mapped[datetime]
    last_seen_at: Mapped[datetime]
    resolved_at: Mapped[datetime | None]
    changed_by: Mapped[str | None] = mapped_column(String(128))
    note: Mapped[str | None] = mapped_column(Text)
    subject_kind: Mapped[str] = mapped_column(String(32), default="")
    subject_id: Mapped[str] = mapped_column(String(512), default="")
    workload_id: Mapped[str] = mapped_column(String(512), default="")
    node: Mapped[str] = mapped_column(String(256), default="")
    tenant: Mapped[str] = mapped_column(String(256), default="")
    queue: Mapped[str] = mapped_column(String(256), default="")
    kind: Mapped[str] = mapped_column(String(64), default="")
    vendor: Mapped[str] = mapped_column(String(32), default="")
    category: Mapped[str] = mapped_column(String(16), default="")
    owner: Mapped[str] = mapped_column(String(256), default="")
    source: Mapped[str] = mapped_column(String(16), default="")
    reason: Mapped[str] = mapped_column(String(32), default="")
    continues: Mapped[str] = mapped_column(String(32), default="")
    rule_version: Mapped[int] = mapped_column(default=0)
    is_open: Mapped[bool] = mapped_column(default=False)
    window_start: Mapped[datetime | None]
    window_end: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]


class FindingChange(Base):
    """A change of where a finding stands or whose it is. Never changed, never deleted."""

    __tablename__ = "finding_change"

    entry_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    finding_id: Mapped[str] = mapped_column(String(32), index=True)
    at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(128))
    before: Mapped[str] = mapped_column(String(16))
    after: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(String(32))
    note: Mapped[str] = mapped_column(Text)
    owner: Mapped[str] = mapped_column(String(256))
    expires_at: Mapped[datetime | None]


class FindingReview(Base):
    """A finding that was drawn for a sample, and what a person said of it: right, wrong or cannot_tell; empty: nothing.

    Of its stratum (rule, kind, vendor) `stratum_count` findings could be drawn, and `drawn_count` were.
    """

    __tablename__ = "finding_review"

    finding_id: Mapped[str] = mapped_column(String(32), primary_key=True)
    sample: Mapped[str] = mapped_column(String(32), primary_key=True)
    analyzer: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(64))
    vendor: Mapped[str] = mapped_column(String(32))
    stratum_count: Mapped[int]
    drawn_count: Mapped[int]
    drawn_at: Mapped[datetime]
    verdict: Mapped[str] = mapped_column(String(16), default="")
    judged_by: Mapped[str] = mapped_column(String(128), default="")
    note: Mapped[str] = mapped_column(Text, default="")
    judged_at: Mapped[datetime | None]


class StoredRecommendation(Base):
    """A recommendation with its dry-run plan, until somebody decides."""

    __tablename__ = "recommendation"

    recommendation_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    kind: Mapped[str] = mapped_column(String(64), index=True)
    status: Mapped[str] = mapped_column(String(16))
    created_at: Mapped[datetime]
    body: Mapped[dict[str, Any]]


class OutboxEntry(Base):
    """A message that must reach a channel: pending, delivered or dead."""

    __tablename__ = "alert_outbox"
    __table_args__ = (UniqueConstraint("channel", "key"), Index("ix_alert_outbox_due", "status", "due_at"))

    entry_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    channel: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(128))
    message: Mapped[dict[str, Any]]
    status: Mapped[str] = mapped_column(String(16))
    attempts: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    due_at: Mapped[datetime]
    delivered_at: Mapped[datetime | None]
    detail: Mapped[str | None] = mapped_column(Text)


class AuditEntry(Base):
    """Who did what to which object, and when. Never changed, never deleted."""

    __tablename__ = "audit_log"

    entry_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=True)
    at: Mapped[datetime] = mapped_column(index=True)
    actor: Mapped[str] = mapped_column(String(128))
    action: Mapped[str] = mapped_column(String(64))
    subject: Mapped[str] = mapped_column(String(256))
    detail: Mapped[dict[str, Any]]


class ReportRun(Base):
    """A report that was made for a period: each period gets exactly one."""

    __tablename__ = "report_run"

    report: Mapped[str] = mapped_column(String(64), primary_key=True)
    period: Mapped[str] = mapped_column(String(64), primary_key=True)
    made_at: Mapped[datetime]
    path: Mapped[str] = mapped_column(Text)
