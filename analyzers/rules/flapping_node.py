"""Nodes that come and go, or break in more than one way."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from analyzers.health.incidents import Incident, incidents, without_planned
from analyzers.options import option, read_options
from gpuledger.model import Finding, Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult


@dataclass(frozen=True, slots=True, kw_only=True)
class FlappingNodeOptions:
    """Options of the rule; docs/rules/flapping_node.md says where each default comes from."""

    flap_count: int = option(3, unit="times", low=2)
    flap_hours: float = option(24.0, unit="hours", low=0.0)
    fatal_count: int = option(2, unit="faults", low=2)
    fatal_days: float = option(30.0, unit="days", low=0.0)


class FlappingNode:
    """Nodes that come and go, or break in more than one way.

    **Finds** nodes that stopped being ready three times or more within 24 hours, and nodes with two or more different
    fatal faults within 30 days.

    **Ignores** nodes that were drained or under repair when it happened; the same fault again (hardware_fault escalates
    it, lemon_node counts it); faults that are the work's own.

    **Evidence** each time with how long it lasted; each fault with its card.

    **GPU-hours counted** none: what a fault took away is counted by hardware_fault. The hours that the node was away
    are in the evidence.

    **Acts on it** operations cordon the node (`cordon_node`), or have it looked at (`inspect_hardware`).
    """

    name = "flapping_node"
    version = 1
    category = "health"

    def run(
        self,
        runner: QueryRunner,
        window: Window,
        options: Mapping[str, Any],
        policy: Policy | None = None,  # noqa: ARG002 nodes are nobody's work
    ) -> RuleResult:
        """Judge what ended in `window`; what began before is looked back for as far as the options say."""
        chosen = read_options(FlappingNodeOptions, options)
        back = window.from_at - timedelta(hours=chosen.flap_hours)
        rows = runner.query(self.name, from_at=back, to_at=window.to_at).to_pylist()
        lost: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for row in rows:
            lost[row["node"]].append(row)
        flaps = [
            _flapping(node, episode, window, chosen)
            for node, own in sorted(lost.items())
            for episode in _episodes(own, chosen.flap_count, timedelta(hours=chosen.flap_hours))
            if episode[-1]["from_at"] >= window.from_at
        ]
        fatal_from_at = window.from_at - timedelta(days=chosen.fatal_days)
        faults = runner.query("hardware_fault", from_at=fatal_from_at, to_at=window.to_at).to_pylist()
        breaking = list(_breaking([row for row in faults if row["ts"] >= fatal_from_at], window, chosen))
        return RuleResult(
            findings=[*flaps, *breaking],
            totals={"not_ready_count": len(rows), "flapping_nodes": len(flaps), "breaking_nodes": len(breaking)},
        )


def _episodes(rows: Sequence[Mapping[str, Any]], least: int, within: timedelta) -> Iterator[list[Mapping[str, Any]]]:
    """Stretches of a node's losses in which any `least` that follow each other lie within `within`, both ends in."""
    begin: int | None = None
    end = 0
    for last in range(least - 1, len(rows)):
        first = last - least + 1
        if rows[last]["from_at"] - rows[first]["from_at"] > within:
            continue
        if begin is not None and first > end:
            yield list(rows[begin : end + 1])
            begin = None
        begin = first if begin is None else begin
        end = last
    if begin is not None:
        yield list(rows[begin : end + 1])


def _hours(row: Mapping[str, Any], now: datetime) -> float | None:
    if row["until_at"] is None:
        return None
    return float((min(row["until_at"], now) - row["from_at"]) / timedelta(hours=1))


def _base(node: str, window_start: datetime, window_end: datetime) -> dict[str, Any]:
    return {
        "analyzer": FlappingNode.name,
        "rule_id": FlappingNode.name,
        "rule_version": FlappingNode.version,
        "category": "health",
        "severity": "warning",
        "subject_kind": "node",
        "subject_id": node,
        "window_start": window_start,
        "window_end": window_end,
        "gpu_hours_observed": 0.0,
        "gpu_hours_wasted": 0.0,
        "gpu_hours_recoverable": 0.0,
        "confidence": 1.0,
    }


def _fact(metric: str, value: Any, threshold: float | None, count: int, query: str) -> dict[str, Any]:
    return {
        "metric": metric,
        "value": value,
        "threshold": threshold,
        "n_samples": count,
        "coverage": None,
        "query": query,
    }


def _flapping(node: str, episode: Sequence[Mapping[str, Any]], window: Window, chosen: FlappingNodeOptions) -> Finding:
    lengths = [_hours(row, window.to_at) for row in episode]
    known = [length for length in lengths if length is not None]
    last = episode[-1]
    end = min(window.to_at, last["until_at"] or last["from_at"])
    away = sum(known) * last["gpu_count"]
    base = _base(node, episode[0]["from_at"], end)
    return Finding(
        **{**base, "gpu_hours_observed": away},
        basis=", ".join(sorted({row["source"] for row in episode})),
        cause_code="not_ready_again",
        action_code="cordon_node",
        is_open=last["from_at"] >= window.to_at - timedelta(hours=chosen.flap_hours),
        evidence=(
            _fact("not_ready_count", len(episode), chosen.flap_count, len(episode), FlappingNode.name),
            _fact("not_ready_gpu_hours", away, None, len(known), FlappingNode.name),
        ),
        action_params={
            "node": node,
            "times": [row["from_at"].isoformat() for row in episode],
            "reasons": sorted({row["reason"] for row in episode if row["reason"]}),
        },
        data_quality={"times_without_end": len(lengths) - len(known)},
    )


def _breaking(rows: Sequence[Mapping[str, Any]], window: Window, chosen: FlappingNodeOptions) -> Iterator[Finding]:
    happened, _ = without_planned(incidents(rows))
    by_node: dict[str, list[Incident]] = defaultdict(list)
    for one in happened:
        if one.fault_class == "hw_fatal" and one.fault["node"]:
            by_node[one.fault["node"]].append(one)
    for node, own in sorted(by_node.items()):
        group = _distinct(own, chosen.fatal_count, timedelta(days=chosen.fatal_days))
        if group and group[-1].fault["ts"] >= window.from_at:
            names = sorted({one.name for one in group})
            yield Finding(
                **{
                    **_base(f"{node}/faults", group[0].fault["ts"], group[-1].last_at),
                    "vendor": group[0].fault["vendor"],
                },
                basis=", ".join(sorted({source for one in group for source in one.fault["sources"]})),
                cause_code="breaks_in_several_ways",
                action_code="inspect_hardware",
                is_open=group[-1].fault["ts"] >= window.to_at - timedelta(days=chosen.fatal_days),
                evidence=(
                    _fact("distinct_fatal_faults", len(names), chosen.fatal_count, len(group), "hardware_fault"),
                ),
                action_params={
                    "node": node,
                    "faults": names,
                    "gpus": sorted({one.fault["gpu_uuid"] for one in group} - {""}),
                },
            )


def _distinct(own: Sequence[Incident], least: int, within: timedelta) -> list[Incident]:
    """The newest stretch of a node's fatal faults, no longer than `within`, with `least` different ones or more."""
    for last in range(len(own) - 1, -1, -1):
        first = last
        while first > 0 and own[last].fault["ts"] - own[first - 1].fault["ts"] <= within:
            first -= 1
        if len({one.name for one in own[first : last + 1]}) >= least:
            return list(own[first : last + 1])
    return []
