"""Proposes to move a few pods together, so that work that waits gets room on one node."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from analyzers.options import option, read_options
from analyzers.recommend.consolidate_cycle import Allowance, Cycle, Proposal, Refusal
from analyzers.recommend.consolidate_snapshot import Limits, Snapshot, snapshot
from gpuledger.model import Move, Recommendation, Window
from gpuledger.ports import QueryRunner

CONFIDENCE = {("pending", True): 0.9, ("pending", False): 0.7, ("usual", True): 0.5, ("usual", False): 0.5}
"""By what the room is for, and whether its like has run before, so that its length is known."""

MAX_WANTS = 20
"""Shapes that one cycle plans for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidateOptions:
    """Options of the recommender; docs/rules/consolidate.md says where each default comes from."""

    max_moves: int = option(16, unit="pods", low=0)
    max_moves_ratio: float | None = option(None, unit="ratio of the running pods", low=0.0)
    max_tenant_ratio: float = option(0.5, unit="ratio of a tenant's held GPUs", low=0.0)
    max_checkpoint_age_minutes: float = option(30.0, unit="minutes", low=0.0)
    min_hours_left: float = option(2.0, unit="hours", low=0.0)
    restart_minutes: float = option(15.0, unit="minutes", low=0.0)
    horizon_hours: float = option(24.0, unit="hours", low=0.0)
    history_days: float = option(28.0, unit="days", low=1.0)
    block_seconds: float = option(10.0, unit="seconds", low=0.0)
    cycle_seconds: float = option(30.0, unit="seconds", low=0.0)


class Consolidate:
    """Moves pods together so that work that waits gets room on one node.

    **Finds** the fewest moves that open enough nodes for a shape that waits and has no room, or, where nothing waits,
    for one that is usual. Proves that it then fits.

    **Ignores** parts of cards, notebooks, gangs over several nodes, services at their floor, what ends within two
    hours, and work that would lose more than half an hour since its last checkpoint; what waits for quota.

    **Evidence** the nodes before and after, the pods that start on them, the moves in an order in which each has room.

    **GPU-hours counted** what starts, for as long as its like runs and at most a day, less what the moves lose: the
    restart, and the work since the last checkpoint. It is no waste and is never added to the ledger's.

    **Acts on it** a list of moves, for an operator: no scheduler adapter carries moves out.
    """

    name = "consolidate"
    version = 1

    def recommend(self, runner: QueryRunner, window: Window, options: Mapping[str, Any]) -> Sequence[Recommendation]:
        """One recommendation for each shape that moves help, as of the end of `window`; else one that says why not.

        Nothing where the ledger does not reach the end of `window`.
        """
        chosen = read_options(ConsolidateOptions, options)
        at = window.to_at - timedelta(microseconds=1)
        limits = Limits(
            max_checkpoint_age_hours=chosen.max_checkpoint_age_minutes / 60,
            min_hours_left=chosen.min_hours_left,
            restart_hours=chosen.restart_minutes / 60,
        )
        seen = snapshot(runner, at, limits, chosen.history_days)
        if not seen.hosts:
            return []
        cycle = Cycle(seen, _allowance(seen, chosen))
        answers = [cycle.plan(want, missing) for want, missing in cycle.unmet[:MAX_WANTS]]
        refusals = [one for one in answers if isinstance(one, Refusal)]
        made = [_recommendation(one, seen, refusals, window, chosen) for one in answers if isinstance(one, Proposal)]
        return made or [_no_action(seen, refusals, window, at)]


def _allowance(seen: Snapshot, chosen: ConsolidateOptions) -> Allowance:
    part = seen.running_pods if chosen.max_moves_ratio is None else int(chosen.max_moves_ratio * seen.running_pods)
    return Allowance(
        max_moves=min(chosen.max_moves, part),
        tenant_cards={tenant: chosen.max_tenant_ratio * gpus for tenant, gpus in seen.tenant_gpus.items()},
        horizon_hours=chosen.horizon_hours,
        block_seconds=chosen.block_seconds,
        cycle_seconds=chosen.cycle_seconds,
    )


def _changes(proposal: Proposal) -> tuple[Move, ...]:
    return tuple(
        Move(
            workload_id=step.resident.workload_id,
            pod=pod,
            from_node=step.from_node,
            to_node=step.to_node,
            gpus=float(cards),
            is_detour=step.is_detour,
        )
        for step in proposal.steps
        for pod, cards in zip(step.resident.pods, step.resident.pod_cards, strict=True)
    )


def _identity(*parts: str) -> str:
    return hashlib.sha256("\x1f".join((Consolidate.name, *parts)).encode()).hexdigest()[:16]


def _refused(refusals: Sequence[Refusal]) -> list[dict[str, Any]]:
    return [{"shape": one.want.name, "reason": one.reason, "because": one.text} for one in refusals]


def _recommendation(
    proposal: Proposal, seen: Snapshot, refusals: Sequence[Refusal], window: Window, chosen: ConsolidateOptions
) -> Recommendation:
    want, changes = proposal.want, _changes(proposal)
    nodes = sorted(node for part in proposal.parts for node in part.opened)
    pods = f"{len(changes)} pod{'s' if len(changes) != 1 else ''}"
    return Recommendation(
        recommendation_id=_identity(
            want.name, *(f"{one.workload_id} {one.pod} {one.from_node} {one.to_node}" for one in changes)
        ),
        kind=Consolidate.name,
        title=f"Move {pods} to make room on {', '.join(nodes)} for {want.name}",
        changes=changes,
        expected_gpu_hours=proposal.net_gpu_hours,
        window_start=window.from_at,
        window_end=window.to_at,
        confidence=CONFIDENCE[want.basis, want.runtime_hours is not None],
        guardrails={
            "planned_at": window.to_at.isoformat(),
            "max_moves": chosen.max_moves,
            "max_tenant_ratio": chosen.max_tenant_ratio,
            "max_checkpoint_age_minutes": chosen.max_checkpoint_age_minutes,
            "beneficiary_must_be_let_in": sorted({seen.blocks[node][0] for node in proposal.places}),
        },
        details={
            "status": "recommended",
            "beneficiary": {
                "basis": want.basis,
                "workload_ids": list(want.workload_ids),
                "tenants": list(want.tenants),
                "gpus_per_pod": want.cards,
                "is_gang": want.is_gang,
                "pods_that_fit_before": proposal.fitting_before,
                "pods_that_fit_after": proposal.fitting_after,
                "pods_that_start": proposal.started_pods,
                "places": dict(proposal.places),
            },
            "opened_nodes": nodes,
            "gpus_that_start": proposal.started_pods * want.cards,
            "used_hours": want.used_hours(chosen.horizon_hours),
            "expected_gain": {"point": proposal.net_gpu_hours, "method": "static"},
            "gain_gpu_hours": proposal.gain_gpu_hours,
            "cost_gpu_hours": proposal.cost_gpu_hours,
            "moves": [
                {"step": i, "unit": step.resident.name, "to_node": step.to_node, "cost_gpu_hours": step.resident.cost}
                for i, step in enumerate(proposal.steps, start=1)
            ],
            "method": sorted({part.method for part in proposal.parts}),
            "gap_nodes": sum(part.gap_nodes for part in proposal.parts),
            "pods_that_stay": dict(seen.stays),
            "not_helped": _refused(refusals),
        },
    )


def _no_action(seen: Snapshot, refusals: Sequence[Refusal], window: Window, at: datetime) -> Recommendation:
    if refusals:
        reason, because = refusals[0].reason, f"of {refusals[0].want.name}: {refusals[0].text}"
    elif seen.wants:
        what = "that waits" if seen.wants[0].basis == "pending" else "that is usual"
        reason, because = "all_fits", f"everything {what} has room already"
    elif seen.quota_waits:
        reason, because = "not_for_room", f"{seen.quota_waits} waiting workloads do not wait for room"
    else:
        reason, because = "nothing_asked", "nothing waits for whole GPUs, and no shape is usual"
    return Recommendation(
        recommendation_id=_identity("no_action", reason, *(one.want.name for one in refusals)),
        kind=Consolidate.name,
        title=f"No moves: {because}",
        changes=(),
        expected_gpu_hours=0.0,
        window_start=window.from_at,
        window_end=window.to_at,
        confidence=1.0,
        details={
            "status": "no_action",
            "reason": reason,
            "because": f"no action because {because}",
            "as_of": at.isoformat(),
            "not_helped": _refused(refusals),
            "pods_that_stay": dict(seen.stays),
            "movable_units": len(seen.residents),
        },
    )
