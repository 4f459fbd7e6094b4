"""What the efficiency rules share: facts by subject, and a run that gives only the claims that a finding speaks of."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa

from analyzers.claim_rule import ClaimRule
from analyzers.claims import KEY
from gpuledger.model import Finding, Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

SubjectKey = tuple[str, str, str]
"""(subject_kind, subject_id, workload_id): what a finding is about."""


class EfficiencyRule(ClaimRule):
    """A claiming rule whose options, or the history of its subject, may leave claims without a finding."""

    def run(
        self, runner: QueryRunner, window: Window, options: Mapping[str, Any], policy: Policy | None = None
    ) -> RuleResult:
        """Claim and judge the whole hours that `window` touches; `claims` are those of the findings alone."""
        result = super().run(runner, window, options, policy)
        if result.claims is None:
            return result
        return dataclasses.replace(result, claims=claims_of(result.claims, result.findings))


def claims_of(claims: pa.Table, findings: Sequence[Finding]) -> pa.Table:
    """Those of `claims` that lie inside a finding of their subject."""
    rows = [
        (one.subject_kind, one.subject_id, one.action_params["workload_id"], one.window_start, one.window_end)
        for one in findings
    ]
    instant = pl.Datetime("us", "UTC")
    schema = {**dict.fromkeys(KEY, pl.String()), "window_start": instant, "window_end": instant}
    spoken = pl.DataFrame(rows, schema=schema, orient="row")
    numbered = pl.DataFrame(pl.from_arrow(claims)).select(*KEY, "from_at", "until_at").with_row_index("row")
    kept = (
        numbered.join(spoken, on=[*KEY])
        .filter(pl.col("from_at") >= pl.col("window_start"), pl.col("until_at") <= pl.col("window_end"))
        .select(pl.col("row").unique().sort())
    )
    return claims.take(pa.array(kept["row"].to_numpy()))


def by_subject(facts: pa.Table, rows: Iterable[Mapping[str, Any]]) -> dict[SubjectKey, dict[str, Any]]:
    """The rows of a query of facts as {subject: {"rows": [...]}}, of the subjects of `rows` alone."""
    wanted = {(row["subject_kind"], row["subject_id"], row["workload_id"]) for row in rows}
    keys = pl.DataFrame(sorted(wanted), schema=dict.fromkeys(KEY, pl.String()), orient="row")
    found: dict[SubjectKey, dict[str, Any]] = {}
    for fact in pl.DataFrame(pl.from_arrow(facts)).join(keys, on=[*KEY], how="semi").iter_rows(named=True):
        key = (fact["subject_kind"], fact["subject_id"], fact["workload_id"])
        found.setdefault(key, {"rows": []})["rows"].append(fact)
    return found


def fact(metric: str, value: Any, threshold: Any, row: Mapping[str, Any], query: str) -> dict[str, Any]:
    """One piece of evidence that is no mean of claims, with the stretch's samples and coverage."""
    return {
        "metric": metric,
        "value": value,
        "threshold": threshold,
        "n_samples": round(row["observed_minutes"]),
        "coverage": row["coverage_ratio"],
        "query": query,
    }


def in_stretch(hour_at: datetime, row: Mapping[str, Any]) -> bool:
    """Whether the hour that begins at `hour_at` touches the stretch of `row`."""
    is_touching: bool = row["window_start"] - timedelta(hours=1) < hour_at < row["window_end"]
    return is_touching
