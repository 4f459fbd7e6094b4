"""What rules that claim pieces of the ledger share: claims joined to stretches, options by policy, findings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar

import pyarrow as pa

from analyzers.claims import SCHEMA, stretches
from analyzers.confidence import Confidence, confidence
from analyzers.options import read_options
from gpuledger.model import Finding, Window, vendor_of
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

OPEN_WITHIN = timedelta(minutes=5)
"""A stretch that ends this close to the end of what is known is open still."""


class ClaimRule(ABC):
    """A rule whose SQL gives claims. A subclass says what a stretch of them means.

    `gap` is the longest hole inside one finding; with `by_cause` stretches of different causes are different findings.
    """

    name: str
    version: int
    options_class: ClassVar[type[Any]]
    category: ClassVar[str] = "waste"
    reach: timedelta = timedelta(hours=1)
    gap: ClassVar[timedelta] = timedelta()
    by_cause: ClassVar[bool] = False

    def claims(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> pa.Table:
        """What the rule's SQL claims of the whole hours of `window`."""
        hours = window.whole_hours()
        chosen = read_options(self.options_class, options)
        rows = runner.query(self.name, from_at=hours.from_at, to_at=hours.to_at, **self.parameters(chosen))
        return rows.select(SCHEMA.names).cast(SCHEMA)

    def parameters(self, chosen: Any) -> Mapping[str, Any]:  # noqa: ARG002 subclasses use it
        """Further parameters of the rule's SQL, from its options."""
        return {}

    def judge(
        self,
        runner: QueryRunner,
        claims: pa.Table,
        window: Window,
        options: Mapping[str, Any],
        policy: Policy | None = None,
    ) -> RuleResult:
        """A finding for each stretch of `claims` that its options let count; totals give GPU-hours by cause."""
        policy = policy or Policy()
        read_options(self.options_class, options)  # a wrong option is told even where nothing is found
        rows = stretches(claims, gap=self.gap, by_cause=self.by_cause).to_dicts()
        facts = self.facts(runner, window, rows) if rows else {}
        findings, known_until_at = [], _known_until(runner, window)
        for row in rows:
            chosen = read_options(self.options_class, policy.options(self.name, options, row))
            found = self.finding(
                row, facts.get((row["subject_kind"], row["subject_id"], row["workload_id"]), {}), chosen
            )
            if found is not None:
                findings.append(self._finding(row, found, known_until_at))
        return RuleResult(findings=findings, totals=self.totals(findings), claims=claims)

    def run(
        self, runner: QueryRunner, window: Window, options: Mapping[str, Any], policy: Policy | None = None
    ) -> RuleResult:
        """Claim and judge the whole hours that `window` touches."""
        return self.judge(runner, self.claims(runner, window, options), window.whole_hours(), options, policy)

    def facts(
        self,
        runner: QueryRunner,  # noqa: ARG002 subclasses use it
        window: Window,  # noqa: ARG002 subclasses use it
        rows: Sequence[Mapping[str, Any]],  # noqa: ARG002 subclasses use it
    ) -> Mapping[tuple[str, str, str], Mapping[str, Any]]:
        """What else must be known of the subjects of `rows`, by (kind, id, workload)."""
        return {}

    @abstractmethod
    def finding(self, row: Mapping[str, Any], facts: Mapping[str, Any], chosen: Any) -> Mapping[str, Any] | None:
        """What a stretch means: fields of the finding over the common ones; None where it does not count.

        `cause_code`, `action_code` and `evidence` must be there.
        """

    def totals(self, findings: Sequence[Finding]) -> Mapping[str, Any]:
        """Figures beside the findings: GPU-hours by cause."""
        by_cause: dict[str, float] = {}
        for one in findings:
            hours = one.gpu_hours_wasted if self.category == "waste" else one.gpu_hours_observed
            by_cause[one.cause_code] = by_cause.get(one.cause_code, 0.0) + hours
        return {"gpu_hours": sum(by_cause.values()), "gpu_hours_by_cause": by_cause}

    def sureness(self, row: Mapping[str, Any]) -> Confidence:
        """How sure a stretch is."""
        return confidence(
            coverage_ratio=row["coverage_ratio"], is_shared=bool(row["is_shared"]), basis=row["basis"] or ""
        )

    def _finding(self, row: Mapping[str, Any], found: Mapping[str, Any], known_until_at: datetime) -> Finding:
        sure = self.sureness(row)
        wasted = row["gpu_hours"] if self.category == "waste" else 0.0
        common = {
            "analyzer": self.name,
            "rule_id": self.name,
            "rule_version": self.version,
            "category": self.category,
            "subject_kind": row["subject_kind"],
            "subject_id": row["subject_id"],
            "tenant": row["tenant"] or "",
            "user": row["user"] or "",
            "queue": row["queue"] or "",
            "kind": row["kind"] or "",
            "vendor": vendor_of(row["model"]),
            "window_start": row["window_start"],
            "window_end": row["window_end"],
            "gpu_hours_observed": row["held_gpu_hours"],
            "gpu_hours_wasted": wasted,
            "gpu_hours_recoverable": wasted,
            "confidence": sure.value,
            "basis": row["basis"] or "",
            "is_open": row["window_end"] >= known_until_at - OPEN_WITHIN,
            "action_params": {"workload_id": row["workload_id"], "gpu_count": row["gpu_count"], "kind": row["kind"]},
            "data_quality": {
                "coverage_ratio": row["coverage_ratio"],
                "is_shared_card": bool(row["is_shared"]),
                "confidence_parts": sure.parts(),
            },
        }
        return Finding(**{**common, **found})


def _known_until(runner: QueryRunner, window: Window) -> datetime:
    """Until when anything is known of `window`: its end, or the ledger's."""
    end: datetime | None = runner.query("ledger_end").to_pylist()[0]["to_at"]
    return min(window.to_at, end) if end else window.to_at


def evidence(name: str, row: Mapping[str, Any], thresholds: Mapping[str, float | None]) -> tuple[dict[str, Any], ...]:
    """The measured means of a stretch with their thresholds (None: shown without one), those that were measured."""
    return tuple(
        {
            "metric": metric,
            "value": row[metric],
            "threshold": threshold,
            "n_samples": round(row["observed_minutes"]),
            "coverage": row["coverage_ratio"],
            "query": name,
        }
        for metric, threshold in thresholds.items()
        if row[metric] is not None
    )
