"""From KAI's pod groups to what queues hold and to workloads that wait; parts of cards, and who really holds a card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuledger.errors import BadInput
from schedulers.kai.fractions import fraction_of
from schedulers.kai.groups import PodGroup, is_unplaced, wait_of
from schedulers.kai.spec import QueueSpec
from schedulers.kubernetes.equivalents import card_mib, of_pod
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.names import counts_gpus, parts_gpus
from schedulers.kubernetes.pods import Object, holds_node, meta, node_of, uid_of
from schedulers.queue_work import QueueWork

GPU_GROUP = "runai-gpu-group"
"""Label of a reservation pod and of those that share its card; for each of several cards "runai-gpu-group/<group>"."""

_SHARED = "nvidia_com_gpu_shared"


def cards_of(pod: Object, core: CoreFacts) -> float | None:
    """The whole cards that `pod` holds or wants, parts included; None where that cannot be told."""
    asked = fraction_of(pod)
    return of_pod(core, pod) if asked is None else asked.cards(card_mib(core, node_of(pod)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMapping:
    """Takes pod groups in one by one. `work` is what the queues hold and wait for, by queue.

    Only pods with GPUs are counted; a gang waits for its other pods, too.
    """

    core: CoreFacts
    specs: Mapping[str, QueueSpec]
    work: dict[str, QueueWork] = field(default_factory=dict)

    def take(self, group: PodGroup) -> None:
        """One group. Raises BadInput for what is no amount or no time."""
        work = self.work.setdefault(group.queue, QueueWork())
        wanted: list[float | None] = []
        everyone, group = group, replace(group, pods=[pod for pod in group.pods if self._has_gpus(pod)])
        for pod in group.pods:
            if holds_node(pod):
                work.hold(_of_gpus(self.core.requests_of(pod)), cards_of(pod, self.core))
            elif is_unplaced(pod):
                wanted.append(cards_of(pod, self.core))
                work.want(_of_gpus(self.core.requests_of(pod)), wanted[-1])
        for workload_id in sorted({self.core.workload_of(pod) for pod in group.pods} & self.core.workloads.keys()):
            self._place(workload_id, group)
            if everyone.is_waiting and self.core.workloads[workload_id].status != "running":
                self._wait(workload_id, everyone, wanted)

    def _has_gpus(self, pod: Object) -> bool:
        """Whether it asks for GPUs; one that cannot be understood has cost itself already."""
        try:
            return bool(self.core.gpus_of(pod))
        except BadInput:
            return False

    def _place(self, workload_id: str, group: PodGroup) -> None:
        known = self.core.workloads[workload_id]
        own = [pod for pod in group.pods if self.core.workload_of(pod) == workload_id]
        asked = [(fraction_of(pod), node_of(pod)) for pod in own]
        parts = [one.share(card_mib(self.core, node)) if one else None for one, node in asked]
        told = [part for part in parts if part is not None]
        self.core.workloads[workload_id] = replace(
            known,
            queue=self.core.rows.named(group.queue) if group.queue in self.specs else "",
            is_gang=known.is_gang or group.min_member > 1,
            min_replicas=group.min_member,
            gpu_milli=round(max(told) * 1000) if told and len(told) == len(asked) else known.gpu_milli,
        )

    def _wait(self, workload_id: str, group: PodGroup, wanted: Sequence[float | None]) -> None:
        known = [gpus for gpus in wanted if gpus is not None]
        wait = wait_of(
            group,
            self.core.main_wait(workload_id),
            workload_id,
            self.core.rows.taken_at,
            is_queue_known=group.queue in self.specs,
        )
        status = "held" if wait.cause == "held" else "pending"
        self.core.unsay(workload_id, status)
        self.core.say(replace(wait, gpus=sum(known) if len(known) == len(wanted) else None), status)


def settle_reservations(core: CoreFacts, namespaces: Sequence[str]) -> None:
    """Reservation pods are nobody's work: the card that one holds is theirs who share it.

    Sightings name the reservation pod. Where all sharers are one workload its row says whose it is; where they are
    several it says nobody, and their parts are in their own rows. A node has no copies of cards for that.
    """
    sharers: dict[str, set[str]] = {}
    reserved: dict[str, Object] = {}
    for pod in core.pods_by_uid.values():
        if meta(pod).get("namespace") in namespaces:
            reserved[uid_of(pod, core.rows.cluster)] = pod
        elif holds_node(pod):
            for group in _gpu_groups(pod):
                sharers.setdefault(group, set()).add(core.workload_of(pod))
    gone = {core.workload_of(pod) for pod in reserved.values()}
    for workload_id in gone:
        core.unsay(workload_id, "running")
        core.workloads.pop(workload_id, None)
        core.pods_by_workload.pop(workload_id, None)
    events = core.rows.of("workload_event")
    events[:] = [row for row in events if row.workload_id not in gone]
    pods = core.rows.of("pod")
    for at, row in enumerate(pods):
        if row.uid in reserved:
            owners = set().union(*(sharers.get(group, ()) for group in _gpu_groups(reserved[row.uid])))
            pods[at] = replace(row, workload_id=owners.pop() if len(owners) == 1 else None)
    states = core.rows.of("node_state")
    states[:] = [row for row in states if row.resource != _SHARED or row.capacity]


def _gpu_groups(pod: Object) -> set[str]:
    labels: Mapping[str, str] = meta(pod).get("labels") or {}
    return {value for name, value in labels.items() if name == GPU_GROUP or name.startswith(f"{GPU_GROUP}/")}


def _of_gpus(amounts: Mapping[str, float]) -> dict[str, float]:
    return {name: amount for name, amount in amounts.items() if counts_gpus(name) or parts_gpus(name)}
