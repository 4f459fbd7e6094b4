"""A scheduler in memory: to try a quota move on, and the reference of the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Self

import pyarrow as pa

from gpuledger.clock import Clock, SystemClock
from gpuledger.errors import ApplyFailed, BadInput, SchedulerError, StaleSnapshot
from gpuledger.model import Queue, Quota, QuotaChange, complete, to_table
from gpuledger.ports import DryRun, Plan, PlanStep, SchedulerSnapshot

Key = tuple[str, str]
"""(queue, flavor)."""

Fault = Callable[[PlanStep], str | None]
"""Asked before each write of `apply`: a text is the reason why this write fails."""


def _never(_: PlanStep) -> None:
    return None


def _target(queue: str, flavor: str) -> str:
    return f"queue/{queue}/{flavor}" if flavor else f"queue/{queue}"


class FakeScheduler:
    """Queues with nominal quotas and a version that every write moves on.

    `fault` lets a test make a write fail; `written` lists the targets of every write that happened.
    """

    name = "fake"
    cluster = "default"

    def __init__(
        self,
        quotas: Mapping[Key, float],
        tenants: Mapping[str, str],
        *,
        clock: Clock | None = None,
        fault: Fault = _never,
    ) -> None:
        self._quotas = dict(quotas)
        self._tenants = dict(tenants)
        self._clock = clock or SystemClock()
        self._version = 1
        self.fault = fault
        self.written: list[str] = []

    @classmethod
    def from_quotas(cls, table: pa.Table, *, clock: Clock | None = None) -> Self:
        """Start from `quota` records; of several for one queue and flavor the one that began last counts.

        A quota that has no limit, or none that was reported, cannot be moved and is left out.
        """
        rows = sorted(complete("quota", table).to_pylist(), key=lambda row: row["from_at"])
        last = {(row["queue"], row["flavor"]): row["nominal_gpus"] for row in rows}
        quotas = {key: gpus for key, gpus in last.items() if gpus is not None}
        return cls(quotas, {row["queue"]: row["tenant"] for row in rows}, clock=clock)

    @property
    def version(self) -> str:
        """What a plan is compared with; moves on with every write."""
        return str(self._version)

    def quota(self, queue: str, flavor: str = "") -> float:
        """The nominal quota in force. Raises SchedulerError for an unknown queue."""
        try:
            return self._quotas[queue, flavor]
        except KeyError:
            raise SchedulerError(f"no queue {_target(queue, flavor)}") from None

    def set_quota(self, queue: str, nominal_gpus: float, flavor: str = "") -> None:
        """Somebody else changes a quota: every plan made before is stale."""
        self.quota(queue, flavor)
        self._quotas[queue, flavor] = nominal_gpus
        self._version += 1

    def snapshot(self) -> SchedulerSnapshot:
        """All queues and quotas as of now."""
        now = self._clock.now()
        queues = [
            Queue(queue=queue, tenant=tenant, scheduler=self.name) for queue, tenant in sorted(self._tenants.items())
        ]
        quotas = [
            Quota(queue=queue, tenant=self._tenants[queue], flavor=flavor, nominal_gpus=gpus, from_at=now)
            for (queue, flavor), gpus in sorted(self._quotas.items())
        ]
        records = {"queue": to_table("queue", queues), "quota": to_table("quota", quotas)}
        return SchedulerSnapshot(taken_at=now, version=self.version, records=records)

    def plan(self, changes: Sequence[QuotaChange]) -> Plan:
        """Steps that shrink donors before recipients grow, so that the sum never exceeds what it was.

        Raises StaleSnapshot when a "before" is not in force any more, SchedulerError for an unknown queue, and BadInput
        for a negative quota or a queue named twice.
        """
        seen: set[Key] = set()
        for change in changes:
            if (change.queue, change.flavor) in seen:
                raise BadInput(_target(change.queue, change.flavor), "is named twice")
            seen.add((change.queue, change.flavor))
            if change.nominal_gpus_after < 0:
                raise BadInput(_target(change.queue, change.flavor), "cannot have less than no quota")
            self._expect(change, change.nominal_gpus_before)
        ordered = sorted(
            changes, key=lambda one: (one.nominal_gpus_after > one.nominal_gpus_before, one.queue, one.flavor)
        )
        return Plan(scheduler=self.name, version=self.version, steps=tuple(map(_step, ordered)))

    def dry_run(self, plan: Plan) -> DryRun:
        """Say for every step whether it would be accepted; changes nothing."""
        stale = plan.version != self.version
        messages, accepted = [], not stale
        for step in plan.steps:
            held = self._quotas.get((step.change.queue, step.change.flavor))
            fits = held == step.change.nominal_gpus_before and not stale
            accepted = accepted and fits
            verdict = "would be accepted" if fits else f"would be refused: quota is {held}, version {self.version}"
            messages.append(f"{step.target}: {step.undo['nominal']:g} -> {step.body['nominal']:g} GPUs {verdict}")
        return DryRun(accepted=accepted, messages=tuple(messages))

    def apply(self, plan: Plan) -> None:
        """Write the steps in order; when one fails, put the earlier ones back, last first."""
        if plan.version != self.version:
            raise StaleSnapshot(f"planned from version {plan.version}, now {self.version}")
        for step in plan.steps:
            self._expect(step.change, step.change.nominal_gpus_before)
        done: list[PlanStep] = []
        for step in plan.steps:
            if reason := self.fault(step):
                for earlier in reversed(done):
                    self._write(earlier, earlier.undo)
                targets = [earlier.target for earlier in reversed(done)]
                raise ApplyFailed(f"{step.target}: {reason}", compensated=targets)
            self._write(step, step.body)
            done.append(step)

    def verify(self, plan: Plan) -> bool:
        """Whether every queue of `plan` has the quota that it planned."""
        return all(
            self._quotas.get((step.change.queue, step.change.flavor)) == step.body["nominal"] for step in plan.steps
        )

    def undo(self, plan: Plan) -> None:
        """Restore what `plan` changed, last step first. Raises StaleSnapshot when a quota was changed again since."""
        for step in plan.steps:
            self._expect(step.change, step.change.nominal_gpus_after)
        for step in reversed(plan.steps):
            self._write(step, step.undo)

    def _expect(self, change: QuotaChange, nominal_gpus: float) -> None:
        held = self.quota(change.queue, change.flavor)
        if held != nominal_gpus:
            raise StaleSnapshot(f"{_target(change.queue, change.flavor)} has {held:g} GPUs, not {nominal_gpus:g}")

    def _write(self, step: PlanStep, body: Mapping[str, float]) -> None:
        self._quotas[step.change.queue, step.change.flavor] = body["nominal"]
        self._version += 1
        self.written.append(step.target)


def _step(change: QuotaChange) -> PlanStep:
    return PlanStep(
        target=_target(change.queue, change.flavor),
        body={"nominal": change.nominal_gpus_after},
        undo={"nominal": change.nominal_gpus_before},
        change=change,
    )
