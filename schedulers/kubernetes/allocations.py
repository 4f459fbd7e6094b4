"""Which pod holds which part of which card, where the cluster says so: claims (DRA), and HAMi's annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from gpuledger.model import Allocation
from schedulers.kubernetes.claims import Devices, Given, claims_of
from schedulers.kubernetes.equivalents import card_mib
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.hami import Held, held_by
from schedulers.kubernetes.pods import Object, created_at, name_of, node_of, started_at, uid_of
from schedulers.kubernetes.times import instant
from schedulers.kubernetes.workloads import Member


def allocation_rows(core: CoreFacts, members: Mapping[str, Sequence[Member]], devices: Devices) -> None:
    """Adds an `allocation` row for each part of a card that a pod holds."""
    for group in members.values():
        for member in group:
            with core.rows.sparing(name_of(member.pod)):
                for part in held_by(member.pod):
                    core.rows.add(_of_hami(core, member, part))
                for claim in claims_of(member.pod):
                    _of_claim(core, member, claim, devices)


def _begin(core: CoreFacts, pod: Object) -> datetime:
    return started_at(pod) or created_at(pod) or core.rows.taken_at


def _of_hami(core: CoreFacts, member: Member, part: Held) -> Allocation:
    memory = card_mib(core, node_of(member.pod))
    share = max(part.cores_percent / 100.0, part.memory_mib / memory if memory else 0.0)
    return _row(core, member, part.uuid, "", share or 1.0, _begin(core, member.pod))


def _of_claim(core: CoreFacts, member: Member, claim: str, devices: Devices) -> None:
    sharers = devices.pods.get(claim) or []
    if sharers and uid_of(member.pod, core.rows.cluster) not in sharers:
        return
    for part in devices.given.get(claim, ()):
        if part.device is None or part.device.card is None or part.share is None:
            detail = f"{claim}: {'/'.join(part.key)} tells no card, or no part of it"
            core.rows.problem("unparsed_allocation", core.workload_of(member.pod), detail, subject_kind="workload")
            continue
        since = instant(part.since, "allocationTimestamp") or _begin(core, member.pod)
        slice_id = _slice_id(part)
        share = part.share / max(1, len(sharers))
        core.rows.add(_row(core, member, part.device.card, slice_id, share, since))


def _slice_id(part: Given) -> str:
    device = part.device
    name = "" if device is None or device.is_card else (device.uuid or device.key[2])
    return name or part.share_id


def _row(core: CoreFacts, member: Member, gpu_uuid: str, slice_id: str, share: float, since: datetime) -> Allocation:
    uid = uid_of(member.pod, core.rows.cluster)
    end = member.row.ended_at
    return Allocation(
        allocation_id="/".join(part for part in (uid, gpu_uuid, slice_id) if part),
        workload_id=core.workload_of(member.pod),
        pod=member.row.pod,
        node=member.row.node or "",
        gpu_uuid=gpu_uuid,
        slice_id=slice_id,
        share=min(1.0, share),
        started_at=min(since, end) if end else since,
        ended_at=end,
    )
