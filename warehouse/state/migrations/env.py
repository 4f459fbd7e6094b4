"""Alembic's entry: runs the migrations on the URL that `warehouse.state.store.migrate` gives."""

from __future__ import annotations

from alembic import context
from sqlalchemy import create_engine

from warehouse.state.models import Base

engine = create_engine(context.config.attributes["url"])
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=Base.metadata, render_as_batch=True)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
