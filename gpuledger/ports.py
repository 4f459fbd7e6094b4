"""The extension points, each as small as it can be. Adapters implement them; `gpuledger.app` wires them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Event
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from gpuledger.model import Finding, Holding, QuotaChange, Reading, Recommendation, SourceRead, Window
from gpuledger.policy import Policy


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
    """A rule's findings and the totals that it prints beside them. An empty list is an answer.

    `claims` are the pieces of the ledger that the findings speak of, for a rule that claims any.
    """

    findings: Sequence[Finding]
    totals: Mapping[str, Any] = field(default_factory=dict)
    claims: pa.Table | None = None


class Rule(Protocol):
    """A rule: named queries in, findings out. Its docstring is its user documentation."""

    name: str
    version: int

    def run(
        self, runner: QueryRunner, window: Window, options: Mapping[str, Any], policy: Policy | None = None
    ) -> RuleResult:
        """Judge `window`. `options` are the site's, over which `policy` sets those of some work.

        Raises RuleError when it cannot run, BadInput for an unknown option.
        """
        ...


@runtime_checkable
class ClaimingRule(Rule, Protocol):
    """A rule that can be run hour by hour: what it claims of an hour does not change once that hour is final.

    `reach`: an hour is final for the rule when the ledger is final up to `reach` after its end.
    """

    reach: timedelta

    def claims(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> pa.Table:
        """The claims of the whole hours of `window` (`analyzers.claims.SCHEMA`)."""
        ...

    def judge(
        self,
        runner: QueryRunner,
        claims: pa.Table,
        window: Window,
        options: Mapping[str, Any],
        policy: Policy | None = None,
    ) -> RuleResult:
        """Findings from `claims`, those of hours analysed before among them. `window` is all that is known."""
        ...


class Recommender(Protocol):
    """A recommender: named queries in, guarded proposals out. It changes nothing."""

    name: str
    version: int

    def recommend(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> Sequence[Recommendation]:
        """Propose from the history in `window`; an empty list is an answer. Raises BadInput for an unknown option."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotScope:
    """What of a scheduler could be read. What was denied is unknown, which is neither zero nor gone.

    `namespaces` are those that could be read where the whole cluster could not; `denied` holds (what, the scheduler's
    answer) for each read that was refused. `unlisted` are the records that the snapshot does not list whole (a denied
    or an absent interface): of those, what is missing has not ended.
    """

    namespaces: tuple[str, ...] = ()
    denied: tuple[tuple[str, str], ...] = ()
    unlisted: frozenset[str] = frozenset()

    @property
    def is_complete(self) -> bool:
        """Whether everything that was asked for was read."""
        return not self.denied and not self.namespaces

    def __str__(self) -> str:
        """The word "complete", or "partial: ..." and what is missing."""
        if self.is_complete:
            return "complete"
        count = len(self.namespaces)
        parts = [f"{count} namespace{'s' if count != 1 else ''} readable"] if count else []
        parts += [f"{what}: {answer}" for what, answer in self.denied]
        return "partial: " + "; ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerSnapshot:
    """What a scheduler knew at `taken_at`: Arrow tables by record name, and an opaque version to compare with.

    All tables are of one moment. A record that is absent was not asked for; one that is there and empty has no rows.
    Rows are as of `taken_at`: what is dated begins when the scheduler says so, else at `taken_at`, and has no end
    while it lasts. A `queue_state` has the duration of an instant (0.001 s); who stores it knows until when it held.
    """

    taken_at: datetime
    version: str
    records: Mapping[str, pa.Table]
    scope: SnapshotScope = field(default_factory=SnapshotScope)


class SchedulerReader(Protocol):
    """A scheduler to read from: what it has, gave away, and lets wait.

    `name` is the adapter's; `cluster` tells several of a kind apart ("default" where there is one). A class of readers
    has `from_options(options, *, cluster, rules, clock)`, which raises ConfigError naming a wrong option.
    """

    @property
    def name(self) -> str: ...

    @property
    def cluster(self) -> str: ...

    def snapshot(self) -> SchedulerSnapshot:
        """Read everything once, as of one moment.

        Raises SchedulerUnreachable, NotPermitted, or InconsistentSnapshot. One object that cannot be understood costs
        itself and becomes a quality event of kind `unreadable_object`.
        """
        ...


@runtime_checkable
class WatchingReader(SchedulerReader, Protocol):
    """A reader whose scheduler tells what changes, so that nothing need be listed again."""

    def watch(self, stop: Event, *, every_seconds: float) -> Iterator[SchedulerSnapshot]:
        """The first snapshot, then one for each change: at most one in `every_seconds`, none while nothing changes.

        Reconnects by itself; ends when `stop` is set. Raises as `snapshot` does when the scheduler stays away.
        """
        ...


@runtime_checkable
class HistoryReader(SchedulerReader, Protocol):
    """A reader whose scheduler remembers finished work."""

    def history(self, window: Window) -> Iterator[SchedulerSnapshot]:
        """What ran or waited in `window`, in chunks: workloads, pods, events and waits, oldest first."""
        ...


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


class Scheduler(SchedulerReader, Protocol):
    """A scheduler to read from and, guarded, to write to."""

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
