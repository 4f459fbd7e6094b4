"""Faults of cards, links, drivers and nodes: what each means, whom it hit, and what it cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from analyzers.health.incidents import Incident, Key, describe, incidents, key_of, without_planned
from analyzers.health.losses import Part, away_part, still_part, total, was_ended, work_parts
from analyzers.options import option, read_options
from gpuledger.model import Finding, Window
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

CAUSES: Mapping[str, str] = {
    "hw_fatal": "hw_fatal",
    "link": "link_fault",
    "driver": "driver_fault",
    "user_app": "user_app",
    "info": "fault_note",
    "unknown": "unknown_code",
}

SEVERITIES: Mapping[str, str] = {"hw_fatal": "critical", "link": "critical", "driver": "warning", "unknown": "warning"}
"""Of classes; the others are `info`, and `warning` where the card's hardware is behind them."""

TRUST: Mapping[str, float] = {"allocation": 1.0, "sighting": 0.9, "ledger": 0.7}
"""How sure it is that the named work was on the card, by who says so."""

FRESH = timedelta(minutes=15)
"""A fault that was told this recently is open, whatever conditions say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareFaultOptions:
    """Options of the rule; docs/rules/hardware_fault.md says where each default comes from."""

    assumed_checkpoint_hours: float = option(1.0, unit="hours", low=0.0)
    escalate_after_reboots: int = option(2, unit="reboots", low=1)


@dataclass(frozen=True, slots=True)
class _Hit:
    """What is known beside an incident: the work on its cards, and what was lost."""

    works: tuple[Mapping[str, Any], ...]
    parts: tuple[Part, ...]
    away: Mapping[str, Any] | None
    counted_with: str = ""


class HardwareFault:
    """Faults of cards, links, drivers and nodes.

    **Finds** each fault that a driver, a counter, a fabric or a scheduler told, once: the same code of a card within
    5 minutes is one, and what follows another fault (XID 45, 154, sympathetic 94 and 95, counters of the same error)
    is told with it. The newest catalogue of the vendor says whose it is and what to do; where the driver announced
    what it recommends (XID 154) that counts, and after two reboots that did not help the hardware must be looked at.

    **Ignores** codes that ask for nothing (they are in the totals), faults of nodes that were drained or under repair
    already, an XID that a card only goes on showing, and ends of work that somebody wanted (finished, cancelled,
    preempted). Slow clocks are rule throttling, nodes that come and go flapping_node, those that fail too often
    lemon_node.

    **Evidence** class, action and catalogue; the work on the card with its gang; each part of the loss with its bounds.

    **GPU-hours counted** none as waste. `gpu_hours_lost`: GPUs x (since the last checkpoint + detect + requeue + init),
    cards out of use, peers that stood still. Work that several faults ended, and a stretch out of use, count once.

    **Acts on it** operations, by the action; what the work itself did goes to its owner.
    """

    name = "hardware_fault"
    version = 1
    category = "health"

    def run(
        self, runner: QueryRunner, window: Window, options: Mapping[str, Any], policy: Policy | None = None
    ) -> RuleResult:
        """Judge the faults of `window`."""
        chosen = read_options(HardwareFaultOptions, options)
        policy = policy or Policy()
        span = {"from_at": window.from_at, "to_at": window.to_at}
        rows = runner.query("hardware_fault", **span).to_pylist()
        everything = incidents(rows, escalate_after_reboots=chosen.escalate_after_reboots)
        own = [one for one in everything if one.fault["ts"] >= window.from_at]
        happened, planned = without_planned(own)
        told = [one for one in happened if one.action != "ignore"]
        beside = _Beside.of(runner, window) if told else _Beside({}, {}, {})
        findings: list[Finding] = []
        counted: dict[tuple[Any, ...], str] = {}
        for one in told:
            first = next(iter(beside.works(one)), {})
            own_options = read_options(HardwareFaultOptions, policy.options(self.name, options, _subject(first)))
            hit = beside.hit(one, window, own_options, counted)
            findings.append(_finding(one, hit, window))
        findings.sort(key=lambda finding: (-finding.gpu_hours_lost, finding.window_start, finding.subject_id))
        return RuleResult(findings=findings, totals=_totals(findings, happened, planned))


def _subject(work: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "tenant": work.get("tenant", ""),
        "queue": work.get("queue", ""),
        "kind": work.get("work_kind", ""),
        "workload_id": work.get("workload_id", ""),
    }


@dataclass(frozen=True, slots=True)
class _Beside:
    """Rows about faults, by the fault's key."""

    work_by_key: Mapping[Key, Sequence[Mapping[str, Any]]]
    away_by_key: Mapping[Key, Mapping[str, Any]]
    still_by_key: Mapping[Key, Sequence[Mapping[str, Any]]]

    @classmethod
    def of(cls, runner: QueryRunner, window: Window) -> _Beside:
        span = {"from_at": window.from_at, "to_at": window.to_at}
        works: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
        still: dict[Key, list[Mapping[str, Any]]] = defaultdict(list)
        for row in runner.query("hardware_fault_work", **span).to_pylist():
            works[key_of(row)].append(row)
        for row in runner.query("hardware_fault_peers", **span).to_pylist():
            still[key_of(row)].append(row)
        away = {key_of(row): row for row in runner.query("hardware_fault_away", **span).to_pylist()}
        return cls(works, away, still)

    def works(self, one: Incident) -> tuple[Mapping[str, Any], ...]:
        """The work on the incident's cards: as the fault itself shows it, and what only its followers do."""
        found: dict[str, Mapping[str, Any]] = {}
        for key in one.keys:
            for work in self.work_by_key.get(key, ()):
                found.setdefault(work["workload_id"], work)
        return tuple(found.values())

    def hit(
        self, one: Incident, window: Window, chosen: HardwareFaultOptions, counted: dict[tuple[Any, ...], str]
    ) -> _Hit:
        """Work and losses of `one`; `counted` remembers which fault has an end of work already."""
        works, counted_with = self.works(one), ""
        parts: list[Part] = []
        name = f"{one.fault['gpu_uuid'] or one.fault['node']}/{one.name}"
        for work in works:
            end = work["workload_id"], work["ended_at"]
            if not was_ended(work):
                stood = [
                    row for key in one.keys for row in self.still_by_key.get(key, ()) if row["workload_id"] == end[0]
                ]
                if stood and (end[0], "still", stood[0]["still_until_at"]) not in counted:
                    counted[end[0], "still", stood[0]["still_until_at"]] = name
                    parts.append(still_part(stood[0]))
            elif end in counted:
                counted_with = counted[end]
            else:
                counted[end] = name
                parts += work_parts(
                    work,
                    assumed_checkpoint_hours=chosen.assumed_checkpoint_hours,
                    known_until_at=window.to_at,
                )
        aways = [self.away_by_key[key] for key in one.keys if key in self.away_by_key]
        parts += [part for part in map(away_part, aways) if part is not None]
        return _Hit(works, tuple(parts), aways[0] if aways else None, counted_with)


def _finding(one: Incident, hit: _Hit, window: Window) -> Finding:
    fault = one.fault
    lost, low, high = total(hit.parts)
    ends = [one.last_at, *(row["next_ready_at"] or row["ended_at"] for row in hit.works if was_ended(row))]
    if hit.away is not None:
        ends.append(hit.away["away_until_at"])
    is_standing = fault["is_standing"] or bool(hit.away and hit.away["is_open"])
    sole = {name: _sole(hit.works, name) for name in ("tenant", "user", "queue", "work_kind")}
    severity = SEVERITIES.get(one.fault_class, "warning" if one.is_of_hardware else "info")
    return Finding(
        analyzer=HardwareFault.name,
        rule_id=HardwareFault.name,
        rule_version=HardwareFault.version,
        category="health",
        severity=severity,
        subject_kind="gpu" if fault["gpu_uuid"] else "node",
        subject_id=f"{fault['gpu_uuid'] or fault['node']}/{one.name}",
        tenant=sole["tenant"],
        user=sole["user"],
        queue=sole["queue"],
        kind=sole["work_kind"],
        vendor=fault["vendor"],
        window_start=fault["ts"],
        window_end=min(max(ends), max(window.to_at, one.last_at)),
        gpu_hours_observed=lost,
        gpu_hours_wasted=0.0,
        gpu_hours_recoverable=0.0,
        gpu_hours_lost=lost,
        confidence=_confidence(one, hit),
        basis=", ".join(fault["sources"]),
        cause_code=CAUSES[one.fault_class],
        action_code=one.action,
        is_open=is_standing or one.last_at >= window.to_at - FRESH,
        evidence=_evidence(one, hit),
        action_params={
            "node": fault["node"],
            "gpu_uuid": fault["gpu_uuid"],
            "kind": fault["kind"],
            "code": fault["code"],
            "audience": "operations" if one.is_of_hardware or one.fault_class == "unknown" else "owner",
            "jobs": [_job(work) for work in hit.works],
            "gpu_count": sum(work["gang_gpus"] or 0.0 for work in hit.works) or None,
            **describe(one),
        },
        data_quality={
            "gpu_hours_lost_low": low,
            "gpu_hours_lost_high": high,
            "labels": sorted({part.label for part in hit.parts}),
            "is_begin_known": fault["is_begin_known"],
            "work_counted_with": hit.counted_with,
        },
    )


def _sole(works: Sequence[Mapping[str, Any]], name: str) -> str:
    """The value that all of the work shares; empty where they differ."""
    values = {work[name] or "" for work in works}
    return str(values.pop()) if len(values) == 1 else ""


def _job(work: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "workload_id": work["workload_id"],
        "pod": work["pod"],
        "tenant": work["tenant"],
        "user": work["user"],
        "gang_gpus": work["gang_gpus"],
        "told_by": work["told_by"],
        "end_reason": work["end_reason"] or "",
        "was_ended": was_ended(work),
    }


def _confidence(one: Incident, hit: _Hit) -> float:
    sure = 1.0 if one.fault["is_begin_known"] else 0.5
    return sure * min((TRUST[work["told_by"]] for work in hit.works), default=1.0)


def _evidence(one: Incident, hit: _Hit) -> tuple[dict[str, Any], ...]:
    fault = one.fault
    shared = {"threshold": None, "coverage": None}
    facts: list[dict[str, Any]] = [
        {
            "metric": fault["kind"],
            "value": fault["code"] or fault["event_count"],
            "n_samples": fault["event_count"],
            "query": "hardware_fault",
            **shared,
        }
    ]
    queries = {"away": "hardware_fault_away", "peers_still": "hardware_fault_peers"}
    facts += [
        {
            "metric": f"lost_{part.name}_gpu_hours",
            "value": part.gpu_hours,
            "n_samples": None,
            "query": queries.get(part.name, "hardware_fault_work"),
            **shared,
            **{name: value for name, value in asdict(part).items() if name in ("low", "high", "label", "workload_id")},
        }
        for part in hit.parts
    ]
    return tuple(facts)


def _totals(findings: Sequence[Finding], happened: Sequence[Incident], planned: Sequence[Incident]) -> dict[str, Any]:
    by_class: dict[str, int] = defaultdict(int)
    for one in happened:
        by_class[one.fault_class] += 1
    return {
        "gpu_hours_lost": sum(finding.gpu_hours_lost for finding in findings),
        "incident_count_by_class": dict(sorted(by_class.items())),
        "ignored_count": sum(one.action == "ignore" for one in happened),
        "planned_count": len(planned),
    }
