"""What a finding is about, whose it is, every change of where it stands, and what people said of samples."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TEXTS = (
    ("subject_kind", 32),
    ("subject_id", 512),
    ("workload_id", 512),
    ("node", 256),
    ("tenant", 256),
    ("queue", 256),
    ("kind", 64),
    ("vendor", 32),
    ("category", 16),
    ("owner", 256),
    ("source", 16),
    ("reason", 32),
    ("continues", 32),
)


def upgrade() -> None:
    with op.batch_alter_table("finding_state", schema=None) as batch_op:
        for name, length in TEXTS:
            batch_op.add_column(sa.Column(name, sa.String(length=length), nullable=False, server_default=""))
        batch_op.add_column(sa.Column("rule_version", sa.Integer(), nullable=False, server_default="0"))
        batch_op.add_column(sa.Column("is_open", sa.Boolean(), nullable=False, server_default=sa.false()))
        for name in ("window_start", "window_end", "expires_at"):
            batch_op.add_column(sa.Column(name, sa.DateTime(timezone=True), nullable=True))
        batch_op.create_index("ix_finding_state_subject", ["analyzer", "subject_id"], unique=False)

    op.create_table(
        "finding_change",
        sa.Column("entry_id", sa.Integer(), autoincrement=True, nullable=False),
        sa.Column("finding_id", sa.String(length=32), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(length=128), nullable=False),
        sa.Column("before", sa.String(length=16), nullable=False),
        sa.Column("after", sa.String(length=16), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("owner", sa.String(length=256), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("entry_id"),
    )
    with op.batch_alter_table("finding_change", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_finding_change_finding_id"), ["finding_id"], unique=False)

    op.create_table(
        "finding_review",
        sa.Column("finding_id", sa.String(length=32), nullable=False),
        sa.Column("sample", sa.String(length=32), nullable=False),
        sa.Column("analyzer", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=64), nullable=False),
        sa.Column("vendor", sa.String(length=32), nullable=False),
        sa.Column("stratum_count", sa.Integer(), nullable=False),
        sa.Column("drawn_count", sa.Integer(), nullable=False),
        sa.Column("drawn_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("verdict", sa.String(length=16), nullable=False),
        sa.Column("judged_by", sa.String(length=128), nullable=False),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("finding_id", "sample"),
    )


def downgrade() -> None:
    op.drop_table("finding_review")
    with op.batch_alter_table("finding_change", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_finding_change_finding_id"))
    op.drop_table("finding_change")
    with op.batch_alter_table("finding_state", schema=None) as batch_op:
        batch_op.drop_index("ix_finding_state_subject")
        for name in ("window_start", "window_end", "expires_at", "is_open", "rule_version"):
            batch_op.drop_column(name)
        for name, _ in TEXTS:
            batch_op.drop_column(name)
