"""What the analyzers produce: findings and recommendations."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A fact with evidence, about GPU-hours that are in the ledger (algorithms.md, section 0).

    `gpu_hours_recoverable` never exceeds `gpu_hours_wasted`, which never exceeds `gpu_hours_observed`. Advice wastes
    nothing: what it is about is observed, what it may bring is in `expected_gain`. `gpu_hours_lost`: what a fault cost.
    `confidence` is 0 to 1, coverage multiplied in. `evidence` lists metric, value, threshold, sample count,
    coverage and the query; `guardrails`, `expected_gain` and `data_quality` are plain values.
    `is_open`: it lasted until the end of what was known. `kind` is the workload's, `vendor` the card's.
    """

    analyzer: str
    rule_id: str
    rule_version: int
    subject_kind: str
    subject_id: str
    tenant: str = ""
    user: str = ""
    window_start: datetime
    window_end: datetime
    gpu_hours_observed: float
    gpu_hours_wasted: float
    gpu_hours_recoverable: float
    confidence: float
    basis: str
    cause_code: str
    action_code: str
    category: str = "waste"
    severity: str = "warning"
    gpu_hours_lost: float = 0.0
    is_open: bool = False
    queue: str = ""
    kind: str = ""
    vendor: str = ""
    evidence: tuple[dict[str, Any], ...] = ()
    action_params: dict[str, Any] = field(default_factory=dict)
    guardrails: dict[str, Any] = field(default_factory=dict)
    expected_gain: dict[str, Any] = field(default_factory=dict)
    data_quality: dict[str, Any] = field(default_factory=dict)

    @property
    def finding_id(self) -> str:
        """Stable identity: a hash of analyzer, subject and window start."""
        key = f"{self.analyzer}\x1f{self.subject_kind}\x1f{self.subject_id}\x1f{self.window_start.isoformat()}"
        return hashlib.sha256(key.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaChange:
    """One queue's nominal quota of one flavor, before and after, in GPUs."""

    queue: str
    tenant: str
    flavor: str
    nominal_gpus_before: float
    nominal_gpus_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One pod's move to another node, by ending it there and starting it here. In the order of a list, each has room.

    `gpus` are whole cards. `is_detour`: to a spare place, from which a later move takes the pod on.
    """

    workload_id: str
    pod: str
    from_node: str
    to_node: str
    gpus: float
    is_detour: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A proposed change with its gain, guard and undo.

    `expected_gpu_hours` is what the change brings: for quota the unmet demand over the observed window that it would
    have met, had work been that of the window; for moves what can start less what moving loses. `guardrails` says what
    must still hold when it is applied.
    """

    recommendation_id: str
    kind: str
    title: str
    changes: tuple[QuotaChange | Move, ...]
    expected_gpu_hours: float
    window_start: datetime
    window_end: datetime
    confidence: float
    guardrails: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
