"""The state store: what people and jobs decided."""

from warehouse.state.store import DECIDED, STATUSES, StateStore

__all__ = ["DECIDED", "STATUSES", "StateStore"]
