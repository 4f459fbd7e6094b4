"""The extension points, each as small as it can be. Adapters implement them; `gpuledger.app` wires them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from gpuledger.model import Finding, Holding, QuotaChange, Reading, Recommendation, SourceRead, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What one read of one source gave. A failed read has a `SourceRead` with ok=False and no readings.

    `others` holds rows of further kinds by record name (pods, nodes, quality events).
    """

    reads: Sequence[SourceRead]
    readings: Sequence[Reading] = ()
    holdings: Sequence[Holding] = ()
    others: Mapping[str, Sequence[Any]] = field(default_factory=dict)


def failed_read(now: datetime, error: str, *, node: str, source: str, interval_seconds: float | None) -> Observation:
    """The observation of a read of `node` that gave nothing, by a source that lists every device."""
    read = SourceRead(
        ts=now, node=node, source=source, scope="device", ok=False, interval_seconds=interval_seconds, error=error
    )
    return Observation(reads=(read,))


class Source(Protocol):
    """A place that readings come from: one exporter endpoint, or the NVML library of this node."""

    name: str
    interval_seconds: float

    def read(self, now: datetime) -> Observation:
        """Read once. Never raises for a source that is down or partly broken: that is an Observation too."""
        ...


class QueryRunner(Protocol):
    """Runs named queries; the only way in which judgement and surfaces reach the warehouse."""

    def query(self, name: str, /, **parameters: Any) -> pa.Table:
        """The rows of query `name`. Raises QueryRefused for an unknown name or wrong parameters."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleResult:
    """A rule's findings and the totals that it prints beside them. An empty list is an answer."""

    findings: Sequence[Finding]
    totals: Mapping[str, Any] = field(default_factory=dict)


class Rule(Protocol):
    """A rule: named queries in, findings out. Its docstring is its user documentation."""

    name: str
    version: int

    def run(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> RuleResult:
        """Judge `window`. Raises RuleError when it cannot run, BadInput for an unknown option."""
        ...


class Recommender(Protocol):
    """A recommender: named queries in, guarded proposals out. It changes nothing."""

    name: str
    version: int

    def recommend(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> Sequence[Recommendation]:
        """Propose from the history in `window`; an empty list is an answer. Raises BadInput for an unknown option."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSnapshot:
    """What a scheduler knew at `taken_at`: Arrow tables by record name, and an opaque version to compare with."""

    taken_at: datetime
    version: str
    records: Mapping[str, pa.Table]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One write in the scheduler's own terms: `target` object, `body` to send, `undo` body that restores it."""

    target: str
    body: Mapping[str, Any]
    undo: Mapping[str, Any]
    change: QuotaChange


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Steps in the order in which they must run (donors shrink first), made from snapshot `version`."""

    scheduler: str
    version: str
    steps: tuple[PlanStep, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """What would happen: `accepted`, and one line for each step with the scheduler's answer."""

    accepted: bool
    messages: tuple[str, ...]


class Scheduler(Protocol):
    """A scheduler to read from and, guarded, to write to."""

    name: str

    def snapshot(self) -> SchedulerSnapshot:
        """Read everything once."""
        ...

    def plan(self, changes: Sequence[QuotaChange]) -> Plan:
        """Turn `changes` into the scheduler's own writes. Raises StaleSnapshot when a "before" is not true any more."""
        ...

    def dry_run(self, plan: Plan) -> DryRun:
        """Try the plan without changing anything."""
        ...

    def apply(self, plan: Plan) -> None:
        """Write it. Raises StaleSnapshot (nothing written) or ApplyFailed (compensated)."""
        ...

    def verify(self, plan: Plan) -> bool:
        """Read back: is every change in force?"""
        ...

    def undo(self, plan: Plan) -> None:
        """Restore what `plan` changed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """An alert for a channel. `key` identifies it for de-duplication, whatever its numbers."""

    key: str
    kind: str
    title: str
    text: str
    severity: str
    created_at: datetime
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A channel's answer to an accepted message."""

    channel: str
    status: str
    detail: str = ""


class Channel(Protocol):
    """A way to reach people or their systems."""

    name: str

    def send(self, message: Message) -> Delivery:
        """Deliver once. Raises DeliveryError with `retryable` set."""
        ...
