"""Work that reads busy and makes no progress: hung collectives and kernels that spin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from analyzers.claim_rule import evidence
from analyzers.efficiency_rule import EfficiencyRule, SubjectKey, by_subject, fact
from analyzers.options import option
from gpuledger.model import Window
from gpuledger.ports import QueryRunner

ACTIONS: Mapping[str, str] = {
    "hung_collective": "restart_from_checkpoint",
    "no_progress": "restart_from_checkpoint",
    "busy_without_work": "notify",
}

NETWORK = (
    "stalled_bytes_per_second",
    "moving_bytes_per_second",
    "stalled_fabric_bytes_per_second",
    "moving_fabric_bytes_per_second",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledAllocationOptions:
    """Options of the rule; docs/rules/stalled_allocation.md says where each default comes from."""

    min_stalled_minutes: float = option(10.0, unit="minutes", low=10.0)
    flat_network_ratio: float = option(0.05, unit="ratio", low=0.0)
    flat_network_bytes_per_second: float = option(1e6, unit="bytes/second", low=0.0)


class StalledAllocation(EfficiencyRule):
    """Work that reads busy and makes no progress.

    **Finds** standstills of at least 10 minutes: utilization at or above 90 % on all GPUs of a job, and no step ended
    where the job tells its steps; where it tells none, tensor activity below 2 % (on Ascend AI Cores below 5 %), DRAM
    below 5 % and power in the lower 40 % of the span between idle and TDP.

    **Ignores** jobs of which one GPU still computes (rule gang_straggler, if it is slow), GPUs at rest (rule
    idle_allocation), low but real activity (rule low_activity), and long steps: the wait for a step grows with the
    job's usual distance between steps.

    **Evidence** utilization, tensor and DRAM activity, power, and what the network carried before and during it.

    **GPU-hours counted** the observed minutes of the standstill times the share held, once; they are `alloc_stalled`
    in the ledger.

    **Acts on it** restart from the last checkpoint (`restart_from_checkpoint`), or ask the owner (`notify`).
    """

    name = "stalled_allocation"
    version = 1
    options_class: ClassVar[type[Any]] = StalledAllocationOptions
    gap: ClassVar[timedelta] = timedelta(minutes=5)

    def facts(
        self, runner: QueryRunner, window: Window, rows: Sequence[Mapping[str, Any]]
    ) -> Mapping[SubjectKey, Mapping[str, Any]]:
        """The network of each subject, its cards' and its nodes', while it stood still and while it moved."""
        return by_subject(runner.query("stalled_network", from_at=window.from_at, to_at=window.to_at), rows)

    def finding(
        self, row: Mapping[str, Any], facts: Mapping[str, Any], chosen: StalledAllocationOptions
    ) -> Mapping[str, Any] | None:
        """A standstill with its most telling cause."""
        minutes = (row["window_end"] - row["window_start"]).total_seconds() / 60
        if minutes < chosen.min_stalled_minutes or row["gpu_hours"] <= 0:
            return None
        network = facts["rows"][0] if facts.get("rows") else {}
        is_flat = _is_flat(network, chosen)
        cause = _cause(row, card_count=network.get("card_count", 1), is_flat=is_flat)
        measured = {
            "gpu_util_ratio": 0.9,
            "tensor_active_ratio": 0.02,
            "dram_active_ratio": 0.05,
            "sm_active_ratio": None,
            "core_active_ratio": 0.05,
            "power_watts": None,
        }
        told = [
            fact(metric, network[metric], None, row, "stalled_network")
            for metric in NETWORK
            if network.get(metric) is not None
        ]
        return {
            "cause_code": cause,
            "action_code": ACTIONS[cause],
            "evidence": (*evidence(self.name, row, measured), *told),
            "guardrails": {"is_network_flat": is_flat},
        }


def _is_flat(network: Mapping[str, Any], chosen: StalledAllocationOptions) -> bool | None:
    """Whether the network carried next to nothing during the standstill; None where it was not measured.

    Where both the cards' links and the nodes' fabric were measured, both must be flat.
    """
    stalled_and_moving = (NETWORK[:2], NETWORK[2:])
    told = [
        _is_quiet(network[during], network.get(before), chosen)
        for during, before in stalled_and_moving
        if network.get(during) is not None
    ]
    return all(told) if told else None


def _is_quiet(during: float, before: float | None, chosen: StalledAllocationOptions) -> bool:
    return bool(
        during < chosen.flat_network_bytes_per_second
        or (before is not None and during < chosen.flat_network_ratio * before)
    )


def _cause(row: Mapping[str, Any], *, card_count: int, is_flat: bool | None) -> str:
    has_steps = "step" in row["basis"]
    if card_count > 1 and (is_flat or (is_flat is None and not has_steps)):
        return "hung_collective"
    return "no_progress" if has_steps else "busy_without_work"
