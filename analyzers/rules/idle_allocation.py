"""Work that holds GPUs and computes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from analyzers import serving
from analyzers.claim_rule import evidence
from analyzers.efficiency_rule import EfficiencyRule
from analyzers.options import option
from gpuledger.model import Finding, Window
from gpuledger.ports import QueryRunner

ACTIONS: Mapping[str, str] = {
    "no_process": "notify",
    "never_used": "notify",
    "memory_held": "notify",
    "finished_not_released": "stop",
    "idle": "notify",
}

LEDGER_MINUTES = 30.0
"""The shortest stretch that the ledger calls idle: its SQL has seen to it, though an unread hour may hide a part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleAllocationOptions:
    """Options of the rule; docs/rules/idle_allocation.md says where each default comes from."""

    min_idle_minutes: float = option(30.0, unit="minutes", low=30.0)
    min_gpu_hours: float = option(0.0, unit="GPU-hours", low=0.0)
    memory_held_ratio: float = option(0.20, unit="ratio", low=0.0)
    no_process_memory_ratio: float = option(0.02, unit="ratio", low=0.0)


class IdleAllocation(EfficiencyRule):
    """Work that holds GPUs and computes nothing.

    **Finds** stretches of at least 30 minutes in which every GPU of a job, or of one replica of a service, was idle:
    SM activity below 5 % (else graphics engine below 1 %, else utilization below 1 %), no encoding or decoding, and
    power, where it is known, below the idle draw plus 15 % of the span up to TDP.

    **Ignores** minutes in which the server of a pod answered requests (rule low_activity), the time before a workload
    is ready and its grace (15 min for training, 10 min for the rest), replicas of a declared floor (`alloc_standby`),
    hours with less than half of the readings (`alloc_unknown`), short dips, and jobs of which one rank works (rule
    gang_partial_idle). A card that reads busy but does not compute is `alloc_stalled`, not idle (rule
    stalled_allocation).

    **Evidence** the mean of each signal over the stretch with its threshold, the minutes observed, and the coverage;
    that nobody asked anything, where a server of models was read.

    **GPU-hours counted** the observed minutes of the stretch times the share held, once; they are `alloc_idle` in the
    ledger.

    **Acts on it** the owner is told (`notify`), asked to stop what has finished (`stop`), or declares the work as
    standby, which changes the verdict. A replica of a service is shared or scaled down (`share_or_scale_down`), never
    stopped.
    """

    name = "idle_allocation"
    version = 4
    options_class: ClassVar[type[Any]] = IdleAllocationOptions

    def facts(
        self,
        runner: QueryRunner,
        window: Window,
        rows: Sequence[Mapping[str, Any]],
    ) -> Mapping[tuple[str, str, str], Mapping[str, Any]]:
        """When each subject first worked, until when it was held, and what its servers were asked for."""
        loads = serving.loads(runner, window, rows)
        lives = runner.query("subject_lives", from_at=window.from_at, to_at=window.to_at).to_pylist()
        keyed = (((life["subject_kind"], life["subject_id"], life["workload_id"]), life) for life in lives)
        return {key: {**life, "served": loads.get(key, {})} for key, life in keyed}

    def finding(
        self, row: Mapping[str, Any], facts: Mapping[str, Any], chosen: IdleAllocationOptions
    ) -> Mapping[str, Any] | None:
        """A stretch that is long enough and claims anything, with its most telling cause."""
        minutes = (row["window_end"] - row["window_start"]).total_seconds() / 60
        is_too_short = chosen.min_idle_minutes > LEDGER_MINUTES and minutes < chosen.min_idle_minutes
        if is_too_short or row["gpu_hours"] <= max(0.0, chosen.min_gpu_hours - 1e-9):
            return None
        is_until_end = facts["last_at"] <= row["window_end"]
        is_never_used = facts["first_active_at"] is None or facts["first_active_at"] > row["window_start"]
        cause = _cause(row, chosen, is_until_end=is_until_end, is_never_used=is_never_used)
        measured = {
            "sm_active_ratio": 0.05,
            "core_active_ratio": 0.05,
            "gpu_util_ratio": None if row["sm_active_ratio"] is not None else 0.01,
            "fb_used_ratio": chosen.memory_held_ratio,
            "power_watts": None,
        }
        unasked = serving.unasked(facts["served"], row)
        serves = row["kind"] == "inference" or bool(unasked)
        return {
            "cause_code": cause,
            "action_code": "share_or_scale_down" if serves else ACTIONS[cause],
            "evidence": (*evidence(self.name, row, measured), *unasked),
            "guardrails": {"is_until_end": is_until_end, **(serving.NEVER_STOP if serves else {})},
        }

    def totals(self, findings: Sequence[Finding]) -> Mapping[str, Any]:
        """Idle GPU-hours, whole and by cause."""
        totals = super().totals(findings)
        return {"idle_gpu_hours": totals["gpu_hours"], "idle_gpu_hours_by_cause": totals["gpu_hours_by_cause"]}


def _cause(row: Mapping[str, Any], chosen: IdleAllocationOptions, *, is_until_end: bool, is_never_used: bool) -> str:
    """The most telling fact of the stretch; algorithms.md, section A."""
    memory = row["fb_used_ratio"]
    if "no_process" in row["basis"] or (memory is not None and memory < chosen.no_process_memory_ratio):
        return "no_process"
    if is_until_end and not is_never_used:
        return "finished_not_released"
    if is_never_used:
        return "never_used"
    if memory is not None and memory >= chosen.memory_held_ratio:
        return "memory_held"
    return "idle"
