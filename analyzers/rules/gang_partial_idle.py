"""Idle ranks of jobs that work on without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from analyzers.claim_rule import evidence
from analyzers.efficiency_rule import EfficiencyRule, SubjectKey, by_subject, fact, in_stretch
from analyzers.options import option
from gpuledger.model import Window
from gpuledger.ports import QueryRunner

NAMED_CARDS = 64
"""A finding names at most so many cards of a kind; how many there are it always says."""

LEDGER_MINUTES = 30.0
"""The shortest stretch that the ledger calls idle; a longer wait is the site's policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GangPartialIdleOptions:
    """Options of the rule; docs/rules/gang_partial_idle.md says where each default comes from."""

    min_idle_minutes: float = option(30.0, unit="minutes", low=30.0)
    min_gpu_hours: float = option(0.0, unit="GPU-hours", low=0.0)


class GangPartialIdle(EfficiencyRule):
    """Idle ranks of jobs that work on without them.

    **Finds** every stretch of at least 30 minutes in which a GPU of a job (of one replica of a service) was idle while
    another one of it was not: a rank that died, a pod that asks for more cards than its program uses.

    **Ignores** stretches of at least 30 minutes in which all GPUs were idle (rule idle_allocation), those in which all
    may have been, as far as they were seen, and GPUs of which nothing is known: silence accuses nobody.

    **Evidence** the idle cards and their nodes, the cards that worked meanwhile, and the mean of each signal on the
    idle ones.

    **GPU-hours counted** the observed minutes of the idle shares, once; with idle_allocation they are all that the
    ledger calls `alloc_idle`, but for what either could claim.

    **Acts on it** the owner looks at the ranks named (`check_ranks`), or asks for fewer cards.
    """

    name = "gang_partial_idle"
    version = 2
    options_class: ClassVar[type[Any]] = GangPartialIdleOptions
    gap: ClassVar[timedelta] = timedelta(minutes=15)

    def facts(
        self, runner: QueryRunner, window: Window, rows: Sequence[Mapping[str, Any]]
    ) -> Mapping[SubjectKey, Mapping[str, Any]]:
        """What each card of each subject did, hour by hour."""
        return by_subject(runner.query("gang_cards", from_at=window.from_at, to_at=window.to_at), rows)

    def finding(
        self, row: Mapping[str, Any], facts: Mapping[str, Any], chosen: GangPartialIdleOptions
    ) -> Mapping[str, Any] | None:
        """A stretch with the cards that were idle in it and those that were not."""
        minutes = (row["window_end"] - row["window_start"]).total_seconds() / 60
        is_too_short = chosen.min_idle_minutes > LEDGER_MINUTES and minutes < chosen.min_idle_minutes
        if is_too_short or row["gpu_hours"] <= max(0.0, chosen.min_gpu_hours - 1e-9):
            return None
        cards = _cards(row, facts.get("rows", ()))
        idle = [card for card in cards if card["idle_gpu_hours"] > 0]
        active = [card for card in cards if card["idle_gpu_hours"] <= 0 < card["active_gpu_hours"]]
        unknown = [card for card in cards if card["idle_gpu_hours"] <= 0 < card["unknown_gpu_hours"]]
        measured = {
            "sm_active_ratio": 0.05,
            "core_active_ratio": 0.05,
            "gpu_util_ratio": None if row["sm_active_ratio"] is not None else 0.01,
            "fb_used_ratio": None,
            "power_watts": None,
        }
        return {
            "cause_code": row["cause"] or "idle_ranks",
            "action_code": "check_ranks",
            "evidence": (
                {**fact("idle_cards", len(idle), None, row, "gang_cards"), "cards": _named(idle)},
                {**fact("active_cards", len(active), None, row, "gang_cards"), "cards": _named(active)},
                *evidence(self.name, row, measured),
            ),
            "action_params": {
                "workload_id": row["workload_id"],
                "gpu_count": row["gpu_count"],
                "kind": row["kind"],
                "idle_cards": _named(idle),
            },
            "guardrails": {"unknown_cards": len(unknown)},
        }


def _cards(row: Mapping[str, Any], hours: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The subject's cards with what they did in the hours that the stretch touches."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    kinds = ("idle_gpu_hours", "active_gpu_hours", "unknown_gpu_hours")
    for one in hours:
        if in_stretch(one["hour_at"], row):
            card = found.setdefault(
                (one["gpu_uuid"], one["slice_id"]),
                {
                    "gpu_uuid": one["gpu_uuid"],
                    "slice_id": one["slice_id"],
                    "node": one["node"],
                    **dict.fromkeys(kinds, 0.0),
                },
            )
            for kind in kinds:
                card[kind] += one[kind]
    return sorted(found.values(), key=lambda card: (-card["idle_gpu_hours"], card["node"], card["gpu_uuid"]))


def _named(cards: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    return [{key: card[key] for key in ("gpu_uuid", "slice_id", "node")} for card in cards[:NAMED_CARDS]]
