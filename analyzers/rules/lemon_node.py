"""Nodes that fail more often than chance allows among nodes like the rest of the fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from analyzers.health.failures import failures_of
from analyzers.health.incidents import Incident, incidents
from analyzers.health.rates import expected_false_nodes, failure_rate, lemon_threshold
from analyzers.options import option, read_options
from gpuledger.model import Finding, Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult


@dataclass(frozen=True, slots=True, kw_only=True)
class LemonNodeOptions:
    """Options of the rule; docs/rules/lemon_node.md says where each default comes from."""

    history_days: float = option(90.0, unit="days", low=1.0)
    budget_nodes: float = option(0.5, unit="nodes", low=0.0)


class LemonNode:
    """Nodes that fail more often than chance allows.

    **Finds** nodes whose failures in the last 90 days are so many that, were all nodes alike, fewer than half a node of
    the whole fleet would reach them: P(Poisson(rate x exposure) >= k) x nodes < 0.5. Exposure is scheduled time.

    **Ignores** what the work itself caused, notes that ask for nothing, faults under maintenance, faults of which
    nobody saw the beginning, and nodes on which nothing was scheduled. Several faults of a node within
    10 minutes are one failure.

    **Evidence** failures, expected failures, the threshold, the number of nodes that chance alone would show, and the
    fleet's rate with its 95 % interval.

    **GPU-hours counted** none: what each fault cost is in the findings of hardware_fault.

    **Acts on it** operations take the node out and have it looked at (`inspect_hardware`).
    """

    name = "lemon_node"
    version = 1
    category = "health"

    def run(
        self,
        runner: QueryRunner,
        window: Window,
        options: Mapping[str, Any],
        policy: Policy | None = None,  # noqa: ARG002 nodes are nobody's work
    ) -> RuleResult:
        """Judge the `history_days` before the end of `window`."""
        chosen = read_options(LemonNodeOptions, options)
        history = Window(window.to_at - timedelta(days=chosen.history_days), window.to_at)
        span = {"from_at": history.from_at, "to_at": history.to_at}
        exposed = {row["node"]: row for row in runner.query("lemon_exposure", **span).to_pylist()}
        found = incidents(runner.query("hardware_fault", **span).to_pylist())
        counted, apart = failures_of([one for one in found if one.fault["ts"] >= history.from_at])
        failures = {node: own for node, own in counted.items() if node in exposed}
        node_days = sum(row["node_days"] for row in exposed.values())
        totals: dict[str, Any] = {
            "node_count": len(exposed),
            "failure_count": sum(map(len, failures.values())),
            "faults_apart": apart,
            "unscheduled_nodes_with_failures": sorted(counted.keys() - exposed.keys()),
        }
        if node_days <= 0:
            return RuleResult(findings=[], totals={**totals, "failures_per_1000_node_days": None})
        rate = failure_rate(totals["failure_count"], node_days)
        totals["failures_per_1000_node_days"] = 1000 * rate.per_node_day
        totals["interval_per_1000_node_days"] = [1000 * rate.low, 1000 * rate.high]
        findings = []
        for node, own in sorted(failures.items()):
            expected = rate.per_node_day * exposed[node]["node_days"]
            by_chance = expected_false_nodes(len(own), expected, len(exposed))
            if by_chance < chosen.budget_nodes:
                figures = {
                    "expected_failures": expected,
                    "nodes_by_chance": by_chance,
                    "threshold": lemon_threshold(expected, len(exposed), budget_nodes=chosen.budget_nodes),
                    **exposed[node],
                }
                findings.append(_finding(node, own, figures, totals, chosen))
        findings.sort(key=lambda finding: (-finding.confidence, finding.subject_id))
        return RuleResult(findings=findings, totals=totals)


def _finding(
    node: str,
    own: Sequence[Incident],
    figures: Mapping[str, Any],
    totals: Mapping[str, Any],
    chosen: LemonNodeOptions,
) -> Finding:
    def fact(metric: str, value: float, threshold: float | None, query: str) -> dict[str, Any]:
        return {
            "metric": metric,
            "value": value,
            "threshold": threshold,
            "n_samples": len(own),
            "coverage": None,
            "query": query,
        }

    names = sorted({one.name for one in own})
    return Finding(
        analyzer=LemonNode.name,
        rule_id=LemonNode.name,
        rule_version=LemonNode.version,
        category="health",
        severity="warning",
        subject_kind="node",
        subject_id=node,
        vendor=own[0].fault["vendor"],
        window_start=own[0].fault["ts"],
        window_end=own[-1].last_at,
        gpu_hours_observed=figures["node_days"] * 24 * figures["gpu_count"],
        gpu_hours_wasted=0.0,
        gpu_hours_recoverable=0.0,
        confidence=max(0.0, 1.0 - figures["nodes_by_chance"]),
        basis="faults and scheduled time",
        cause_code="fails_too_often",
        action_code="inspect_hardware",
        is_open=True,
        evidence=(
            fact("failures", len(own), figures["threshold"], "hardware_fault"),
            fact("expected_failures", figures["expected_failures"], None, "lemon_exposure"),
            fact("nodes_by_chance", figures["nodes_by_chance"], chosen.budget_nodes, "lemon_exposure"),
            fact("scheduled_node_days", figures["node_days"], None, "lemon_exposure"),
        ),
        action_params={"node": node, "faults": names, "gpus": sorted({one.fault["gpu_uuid"] for one in own} - {""})},
        data_quality={
            "failures_per_1000_node_days": totals["failures_per_1000_node_days"],
            "interval_per_1000_node_days": totals["interval_per_1000_node_days"],
            "node_count": totals["node_count"],
        },
    )
