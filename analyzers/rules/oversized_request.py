"""Work that holds more than it uses: memory and compute below half, or cards of a pod that it never touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa

from analyzers.claims import SCHEMA
from analyzers.confidence import confidence
from analyzers.fitting import Fit, Need, smallest_fit
from analyzers.options import option, read_options
from gpuledger.model import Finding, Window, vendor_of
from gpuledger.policy import Policy
from gpuledger.ports import QueryRunner, RuleResult

Card = Mapping[str, Any]
"""A row of the query `oversized_request`: one card of one pod, over its life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OversizedRequestOptions:
    """Options of the rule; docs/rules/oversized_request.md says where each default comes from."""

    max_memory_ratio: float = option(0.50, unit="ratio", low=0.0)
    max_compute_ratio: float = option(0.50, unit="ratio", low=0.0)
    min_observed_hours: float = option(24.0, unit="hours", low=0.0)
    min_ended_hours: float = option(1.0, unit="hours", low=0.0)
    headroom_ratio: float = option(0.10, unit="ratio", low=0.0)
    min_coverage_ratio: float = option(0.50, unit="ratio", low=0.0)


class OversizedRequest:
    """Work that holds more than it uses. Advice: nothing of it is waste.

    **Finds** workloads whose 99th percentile of memory in use stayed at or below half of the card, and whose compute
    left room too, over 24 active hours or, if it ended, its whole life of at least an hour (`small_memory`); and pods
    of which some cards worked and others never did (`unused_cards`).

    **Ignores** slices, parts of cards and cards shared by several pods; work whose compute nothing measured, or whose
    memory is full: frameworks that take memory in advance (JAX by default takes three quarters) read full, so memory
    alone neither clears nor convicts. CPU use is not measured, so work that starves for CPU is not told apart.

    **Evidence** the greatest hourly 99th percentile of memory, the greatest hourly mean of SM or core activity (else of
    utilization, which bounds it), the number of cards held and used.

    **GPU-hours counted** what the cards held, as observed, none as wasted; `expected_gain` is the part that the
    smaller request would not hold. Idle hours of unused cards are waste of gang_partial_idle, once, there.

    **Acts on it** a MIG slice or a shared card (`share_or_mig`), a smaller model or fewer cards (`right_size`).
    """

    name = "oversized_request"
    version = 1
    category = "advice"
    every = timedelta(hours=6)

    def run(
        self, runner: QueryRunner, window: Window, options: Mapping[str, Any], policy: Policy | None = None
    ) -> RuleResult:
        """Judge every workload by all that is known of it in `window`."""
        policy = policy or Policy()
        read_options(OversizedRequestOptions, options)
        hours = window.whole_hours()
        rows = runner.query(self.name, from_at=hours.from_at, to_at=hours.to_at).to_pylist()
        findings: list[Finding] = []
        claims: list[dict[str, Any]] = []
        for _, group in groupby(rows, key=lambda row: row["workload_id"]):
            cards = list(group)
            chosen = read_options(OversizedRequestOptions, policy.options(self.name, options, cards[0]))
            for finding, spoken in (*_unused(cards, chosen, hours), *_small(cards, chosen, hours)):
                findings.append(finding)
                claims.extend(_claim(card, finding) for card in spoken)
        findings.sort(key=lambda one: (-one.expected_gain["point"], one.subject_id, one.window_start))
        by_cause: dict[str, float] = {}
        for one in findings:
            by_cause[one.cause_code] = by_cause.get(one.cause_code, 0.0) + one.gpu_hours_observed
        totals = {"gpu_hours": sum(by_cause.values()), "gpu_hours_by_cause": by_cause}
        return RuleResult(findings=findings, totals=totals, claims=pa.Table.from_pylist(claims, schema=SCHEMA))


def _is_life_seen(cards: Sequence[Card], active_hours: float, chosen: OversizedRequestOptions) -> bool:
    """Whether the work was seen for long enough: some hours, or its whole life if that has ended."""
    is_whole = all(card["is_ended"] and not card["is_begun_before"] for card in cards)
    hours = max(card["observed_minutes"] for card in cards) / 60
    return active_hours >= chosen.min_observed_hours or (is_whole and hours >= chosen.min_ended_hours)


def _compute(card: Card) -> float | None:
    """The greatest hourly mean of the counter that grades, else of utilization, which bounds SM activity from above."""
    for metric in ("sm_peak_ratio", "core_peak_ratio", "util_peak_ratio"):
        if card[metric] is not None:
            return float(card[metric])
    return None


def _small(
    cards: Sequence[Card], chosen: OversizedRequestOptions, window: Window
) -> Sequence[tuple[Finding, Sequence[Card]]]:
    """The workload whose working cards are half empty, and what it would fit into."""
    working = [card for card in cards if card["active_minutes"] > 0]
    compute = [_compute(card) for card in working]
    known = [value for value in compute if value is not None]
    is_measured = len(known) == len(working) and all(
        card["fb_used_bytes"] and card["fb_total_bytes"] for card in working
    )
    if not working or not is_measured or min(card["coverage_ratio"] for card in working) < chosen.min_coverage_ratio:
        return ()
    is_long = max(card["active_minutes"] for card in working) >= 60 * chosen.min_ended_hours
    if not is_long or not _is_life_seen(working, working[0]["subject_hours"], chosen):
        return ()
    need = Need(
        model=working[0]["model"],
        card_count=max(sum(card["pod"] == pod for card in working) for pod in {card["pod"] for card in working}),
        memory_bytes=max(card["fb_used_bytes"] for card in working),
        capacity_bytes=min(card["fb_total_bytes"] for card in working),
        compute_ratio=max(known),
    )
    memory_ratio = need.memory_bytes / need.capacity_bytes
    if memory_ratio > chosen.max_memory_ratio or need.compute_ratio > chosen.max_compute_ratio:
        return ()
    fit = smallest_fit(need, headroom_ratio=chosen.headroom_ratio)
    measured = (
        ("fb_used_p99_ratio", memory_ratio, chosen.max_memory_ratio),
        ("compute_peak_ratio", need.compute_ratio, chosen.max_compute_ratio),
        ("card_count", len(working), None),
    )
    subject = ("service" if working[0]["kind"] == "inference" else "job", working[0]["workload_id"])
    verdict = ("small_memory", _action(fit), 1 - fit.share if fit else 0.0)
    parameters = fit.parameters() if fit else {}
    return ((_finding(subject, working, verdict, measured, parameters, window), working),)


def _action(fit: Fit | None) -> str:
    if fit is None:
        return "review"
    return "share_or_mig" if fit.how in ("mig", "share") else "right_size"


def _unused(
    cards: Sequence[Card], chosen: OversizedRequestOptions, window: Window
) -> list[tuple[Finding, Sequence[Card]]]:
    """Pods of which some cards worked and others, seen well, never did."""
    found: list[tuple[Finding, Sequence[Card]]] = []
    for pod, group in groupby(cards, key=lambda card: card["pod"]):
        own = list(group)
        working = [card for card in own if card["active_minutes"] > 0]
        unused = [
            card
            for card in own
            if card["active_minutes"] <= 0
            and card["idle_minutes"] >= 60 * chosen.min_ended_hours
            and card["coverage_ratio"] >= chosen.min_coverage_ratio
            and _is_life_seen([card], card["observed_minutes"] / 60, chosen)
        ]
        if not working or not unused:
            continue
        count = len({card["gpu_uuid"] for card in own})
        kept = count - len({card["gpu_uuid"] for card in unused})
        measured = (("cards_held", count, None), ("cards_used", kept, count))
        fit = Fit(how="fewer_cards", share=kept / count, card_count=kept)
        parameters = {**fit.parameters(), "unused_cards": [_named(card) for card in unused]}
        verdict = ("unused_cards", "right_size", 1.0)
        found.append((_finding(("pod", pod), unused, verdict, measured, parameters, window), unused))
    return found


def _named(card: Card) -> dict[str, str]:
    return {"gpu_uuid": card["gpu_uuid"], "node": card["node"]}


def _finding(
    subject: tuple[str, str],
    cards: Sequence[Card],
    verdict: tuple[str, str, float],
    measured: Sequence[tuple[str, float, float | None]],
    parameters: Mapping[str, Any],
    window: Window,
) -> Finding:
    (cause, action, saved), first = verdict, cards[0]
    hours = sum(card["gpu_hours"] for card in cards)
    coverage = min(card["coverage_ratio"] for card in cards)
    is_open = not all(card["is_ended"] for card in cards)
    silent_hours = (window.to_at - first["known_until_at"]).total_seconds() / 3600 if is_open else None
    sure = confidence(coverage_ratio=coverage, is_shared=False, basis=first["basis"], silent_hours=silent_hours)
    samples = round(sum(card["observed_minutes"] for card in cards))
    gain = hours * saved
    return Finding(
        analyzer=OversizedRequest.name,
        rule_id=OversizedRequest.name,
        rule_version=OversizedRequest.version,
        category="advice",
        severity="info",
        subject_kind=subject[0],
        subject_id=subject[1],
        tenant=first["tenant"],
        user=first["user"],
        queue=first["queue"],
        kind=first["kind"],
        vendor=vendor_of(first["model"]),
        window_start=min(card["from_at"] for card in cards),
        window_end=max(card["until_at"] for card in cards),
        gpu_hours_observed=hours,
        gpu_hours_wasted=0.0,
        gpu_hours_recoverable=0.0,
        confidence=sure.value,
        basis=first["basis"],
        cause_code=cause,
        action_code=action,
        is_open=is_open,
        evidence=tuple(
            {
                "metric": metric,
                "value": value,
                "threshold": threshold,
                "n_samples": samples,
                "coverage": coverage,
                "query": OversizedRequest.name,
            }
            for metric, value, threshold in measured
        ),
        action_params={"workload_id": first["workload_id"], "kind": first["kind"], "fit": dict(parameters)},
        expected_gain={
            "point": gain,
            "lo": 0.0,
            "hi": gain,
            "method": "static",
            "formula": "gpu_hours held x (1 - share of the fit)",
        },
        data_quality={"coverage_ratio": coverage, "is_shared_card": False, "confidence_parts": sure.parts()},
    )


def _claim(card: Card, finding: Finding) -> dict[str, Any]:
    """The card's life as one piece: advice is not counted by the hour."""
    said = {name: card.get(name) for name in SCHEMA.names}
    total = card["fb_total_bytes"]
    return {
        **said,
        "subject_kind": finding.subject_kind,
        "subject_id": finding.subject_id,
        "hour_at": card["from_at"].replace(minute=0, second=0, microsecond=0),
        "slice_id": "",
        "state": "",
        "cause": finding.cause_code,
        "is_shared": False,
        "held_gpu_hours": card["gpu_hours"],
        "fb_used_ratio": card["fb_used_bytes"] / total if total and card["fb_used_bytes"] is not None else None,
    }
