"""A finding in the words of its reader: what was seen, what it cost, what to do, what would change the verdict."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gpuledger.model import Finding
from gpuledger.presentation import escaping, numbers
from gpuledger.presentation.texts import Texts, keys

CLAIMS = frozenset({"quota_balance"})
"""Analyzers that make claims on hours of other states (algorithms.md, section 0): they never add to the waste."""

HOURS_OF: Mapping[str, str] = {"advice": "gpu_hours_observed", "health": "gpu_hours_lost"}
"""Which GPU-hours a finding of a category is about, where it is not those wasted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One measured fact of a finding, as text."""

    metric: str
    value: str
    threshold: str
    sample_count: str
    coverage: str
    query: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """A finding as text; `gpu_hours_*` stay numbers, for sorting and for bars.

    `gpu_hours` are those that the finding is about: wasted for waste and quota, lost for health, observed for advice.
    `confidence_parts` are the factors of `confidence` by name; `status` and `owner` are empty where nobody asked them.
    """

    finding_id: str
    analyzer: str
    rule: str
    subject: str
    tenant: str
    from_at: datetime
    to_at: datetime
    gpu_count: float | None
    gpu_hours_observed: float
    gpu_hours_wasted: float
    gpu_hours_recoverable: float
    gpu_hours: float
    category: str
    status: str
    owner: str
    confidence: float
    confidence_parts: Mapping[str, float]
    basis: str
    cause: str
    action: str
    changes: str
    evidence: tuple[Evidence, ...]

    @property
    def is_claim(self) -> bool:
        """Whether its GPU-hours are booked under other states too, so that adding them up would count them twice."""
        return self.analyzer in CLAIMS

    def sentence(self, texts: Texts) -> str:
        """What was seen, with its numbers; blameless."""
        return texts(
            "finding.sentence" if self.gpu_count is None else "finding.sentence_gpus",
            subject=self.subject,
            gpus=numbers.count(self.gpu_count),
            cause=self.cause,
            length=numbers.duration((self.to_at - self.from_at).total_seconds() / 3600, texts.language),
            hours=numbers.gpu_hours(self.gpu_hours, texts.language),
        )


def _decoded(value: Any, empty: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return empty
    return empty if value is None else value


def _figure(value: Any) -> str:
    if value is None:
        return numbers.NO_VALUE
    if isinstance(value, bool) or not isinstance(value, int | float):
        return escaping.one_line(json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value)
    if numbers.is_missing(value):
        return numbers.NO_VALUE
    if 0 < abs(value) < 0.001:
        return "<0.001"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _evidence(row: Mapping[str, Any]) -> Evidence:
    samples = row.get("n_samples", row.get("sample_count"))
    coverage = row.get("coverage", row.get("coverage_ratio"))
    return Evidence(
        metric=escaping.one_line(row.get("metric", numbers.NO_VALUE)),
        value=_figure(row.get("value")),
        threshold=_figure(row.get("threshold")),
        sample_count=_figure(samples),
        coverage=numbers.percent(coverage) if isinstance(coverage, int | float) else numbers.NO_VALUE,
        query=escaping.one_line(row.get("query", numbers.NO_VALUE)),
    )


def _as_row(finding: Finding | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(finding, Finding):
        return {**dataclasses.asdict(finding), "finding_id": finding.finding_id}
    return finding


def view(finding: Finding | Mapping[str, Any], texts: Texts) -> FindingView:
    """A finding, or a row of query `finding_list`, as its reader sees it."""
    row = _as_row(finding)
    analyzer, cause, action = row["analyzer"], row["cause_code"], row["action_code"]
    changes = f"verdict.{analyzer}"
    facts = _decoded(row.get("evidence"), [])
    parameters = _decoded(row.get("action_params"), {})
    gpus = parameters.get("gpu_count") if isinstance(parameters, Mapping) else None
    category = row.get("category") or "waste"
    quality = _decoded(row.get("data_quality"), {})
    parts = quality.get("confidence_parts") if isinstance(quality, Mapping) else None
    return FindingView(
        finding_id=row["finding_id"],
        analyzer=analyzer,
        rule=texts.code("rule", analyzer),
        subject=f"{texts.code('subject', row['subject_kind'])} {escaping.one_line(row['subject_id'])}",
        tenant=texts.tenant(row["tenant"]),
        from_at=row["window_start"],
        to_at=row["window_end"],
        gpu_count=gpus if isinstance(gpus, int | float) and gpus > 1 else None,
        gpu_hours_observed=row["gpu_hours_observed"],
        gpu_hours_wasted=row["gpu_hours_wasted"],
        gpu_hours_recoverable=row["gpu_hours_recoverable"],
        gpu_hours=row[HOURS_OF.get(category, "gpu_hours_wasted")] or 0.0,
        category=category,
        status=row.get("status") or "",
        owner=escaping.one_line(row.get("owner") or ""),
        confidence=row["confidence"],
        confidence_parts=parts if isinstance(parts, Mapping) else {},
        basis=escaping.one_line(row["basis"]),
        cause=texts.code("cause", cause),
        action=texts.code("action", action),
        changes=texts(changes if changes in keys() else "verdict.other"),
        evidence=tuple(_evidence(fact) for fact in facts if isinstance(fact, Mapping)),
    )


def ranked(rows: Sequence[Mapping[str, Any]], texts: Texts) -> list[FindingView]:
    """Rows of query `finding_list` as views, by waste, then by hours, the largest first; equals in a fixed order."""
    views = [view(row, texts) for row in rows]
    return sorted(views, key=lambda seen: (-seen.gpu_hours_wasted, -seen.gpu_hours, seen.finding_id))
