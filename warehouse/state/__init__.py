"""The state store: what people and jobs decided."""

from warehouse.state.decisions import DECIDED, REASONS, STATUSES, Decision
from warehouse.state.reviews import VERDICTS, Drawn, Verdict
from warehouse.state.store import StateStore

__all__ = ["DECIDED", "REASONS", "STATUSES", "VERDICTS", "Decision", "Drawn", "StateStore", "Verdict"]
