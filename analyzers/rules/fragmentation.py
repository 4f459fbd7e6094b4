"""Free GPUs that no wanted shape can use: the ledger's stranded stretches, and the FGD index beside them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from analyzers.options import option, read_options
from gpuledger.model import Finding, Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

WEIGHTINGS = ("demand", "pods", "all", "published")

ACTIONS: Mapping[str, str] = {
    "fractional": "defragment",
    "insufficient_whole": "defragment",
    "cpu": "adjust_shape",
    "memory": "adjust_shape",
    "model": "review",
    "node_too_small": "review",
}
"""What helps against each cause of the ledger. Moving work cannot change a node's model or size: nothing to recover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentationOptions:
    """Options of the rule; docs/rules/fragmentation.md says where each default comes from."""

    weighting: str = option("demand", unit="name", choices=WEIGHTINGS)
    at: datetime | None = option(None, unit="instant")  # noqa: RUF009 a field, as the others
    history_days: float | None = option(None, unit="days", low=0.0)
    min_stranded_hours: float = option(1.0, unit="hours", low=0.0)
    gang_nodes: int = option(2, unit="nodes", low=1)


class Fragmentation:
    """Free GPUs that nobody can use as they are.

    **Finds** stretches of at least one hour in which free shares of a node were stranded: no shape that is pending
    (or, when nothing is pending, no usual shape of the last 28 days) fits on the node with those shares in use.
    One finding for each node, cause and stretch without a gap.

    **Ignores** GPUs that are free and usable, cards under a condition, spare nodes, stretches shorter than
    `min_stranded_hours` (they are in the totals), and cards that are held but idle (rule idle_allocation).

    **Evidence** the ledger's `free_stranded` spans with their cause; beside them, as an index and never as a state, the
    FGD expectation of how many free GPUs the requested shapes could not use, under four weightings.

    **GPU-hours counted** the stranded share-hours of the stretch, once. Recoverable are those that moving or reshaping
    work can free; none where the card's model or the node's size is the cause.

    **Acts on it** repack shared cards and move small jobs together (`defragment`), or ask for less CPU or memory per
    GPU (`adjust_shape`).
    """

    name = "fragmentation"
    version = 1

    def run(
        self,
        runner: QueryRunner,
        window: Window,
        options: Mapping[str, Any],
        policy: Policy | None = None,  # noqa: ARG002 the port's signature
    ) -> RuleResult:
        """Judge `window`; the index is taken at option `at`, by default the window's end."""
        chosen = read_options(FragmentationOptions, options)
        at = chosen.at or window.to_at
        stretches = runner.query("fragmentation_stranded", from_at=window.from_at, to_at=window.to_at).to_pylist()
        minimum = chosen.min_stranded_hours * 3600
        findings = [
            _finding(row, chosen)
            for row in stretches
            if (row["until_at"] - row["from_at"]).total_seconds() >= minimum and row["gpu_hours"] > 0
        ]
        findings.sort(key=lambda finding: (-finding.gpu_hours_wasted, finding.subject_id, finding.window_start))
        totals = {"at": at, "weighting": chosen.weighting, **_index(runner, at, chosen)}
        hours, at_end = _by_cause(stretches, "gpu_hours"), _by_cause(stretches, "gpus_at_end")
        totals["stranded_by_cause"] = {
            cause: {"gpu_hours": hours[cause], "gpus_at_end": at_end.get(cause, 0.0)} for cause in hours
        }
        totals["topology"] = runner.query("fragmentation_topology", at=at, gang_nodes=chosen.gang_nodes).to_pylist()
        return RuleResult(findings=findings, totals=totals)


def _by_cause(stretches: Iterable[Mapping[str, Any]], column: str) -> dict[str, float]:
    sums: dict[str, float] = defaultdict(float)
    for row in stretches:
        sums[row["cause"]] += row[column]
    return {cause: value for cause, value in sorted(sums.items()) if value > 0}


def _sum(rows: Iterable[Mapping[str, Any]], column: str) -> float:
    return math.fsum(row[column] or 0 for row in rows)


def _fragmented(rows: Iterable[Mapping[str, Any]], weighting: str, *, is_asked_for: bool) -> float | None:
    measured = [row for row in rows if row["free_gpus"] > 0]
    known = [row[f"{weighting}_fragment_gpus"] for row in measured if row[f"{weighting}_fragment_gpus"] is not None]
    return math.fsum(known) if known or (is_asked_for and not measured) else None


def _index(runner: QueryRunner, at: datetime, chosen: FragmentationOptions) -> dict[str, Any]:
    """The index at `at`; fragments are None where no request shape is known, for then there is nothing to measure."""
    rows = runner.query(
        "fragmentation_index", weighting=chosen.weighting, at=at, history_days=chosen.history_days
    ).to_pylist()
    class_count = max((row["class_count"] for row in rows), default=0)
    free, total = _sum(rows, "free_gpus"), int(_sum(rows, "gpu_count"))
    fragments = {name: _fragmented(rows, name, is_asked_for=class_count > 0) for name in WEIGHTINGS}
    fragmented = fragments[chosen.weighting]
    return {
        "fragmented_gpus": fragmented,
        "total_gpus": total,
        "excluded_gpus": int(_sum(rows, "excluded_gpu_count")),
        "free_gpus": free,
        "frag_ratio": fragmented / free if fragmented is not None and free else None,
        "frag_rate": fragmented / total if fragmented is not None and total else None,
        "class_count": class_count,
        "fragmented_gpus_by_weighting": fragments,
    }


def _finding(row: Mapping[str, Any], chosen: FragmentationOptions) -> Finding:
    hours = (row["until_at"] - row["from_at"]).total_seconds() / 3600
    action = ACTIONS.get(row["cause"], "review")
    wasted = min(row["gpu_hours"], row["node_gpu_hours"])
    return Finding(
        analyzer=Fragmentation.name,
        rule_id=Fragmentation.name,
        rule_version=Fragmentation.version,
        subject_kind="node",
        # One node may be stranded for two causes from the same instant, and the identity does not hold the cause.
        subject_id=f"{row['node']}/{row['cause']}",
        window_start=row["from_at"],
        window_end=row["until_at"],
        gpu_hours_observed=row["node_gpu_hours"],
        gpu_hours_wasted=wasted,
        gpu_hours_recoverable=0.0 if action == "review" else wasted,
        confidence=1.0,
        basis="allocations and request shapes",
        cause_code=row["cause"],
        action_code=action,
        evidence=(
            {
                "metric": "stranded_hours",
                "value": hours,
                "threshold": chosen.min_stranded_hours,
                "n_samples": None,
                "coverage": None,
                "query": "fragmentation_stranded",
            },
            {
                "metric": "mean_stranded_gpus",
                "value": row["gpu_hours"] / hours,
                "threshold": 0,
                "n_samples": None,
                "coverage": None,
                "query": "fragmentation_stranded",
            },
        ),
        action_params={"node": row["node"], "pool": row["pool"]},
    )
