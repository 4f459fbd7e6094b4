"""What the core mapping worked out, for the mappings of the schedulers that stand on Kubernetes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuledger.attribution import Attribution, Owner, Rules, Subject, attribute
from gpuledger.model import Wait, Workload
from schedulers.kubernetes.hami import Card
from schedulers.kubernetes.names import counts_gpus
from schedulers.kubernetes.pods import Object, created_at, meta, owner_of, requests_of, started_at, uid_of
from schedulers.reasons import Told, root
from schedulers.rows import SnapshotRows

OwnerKey = tuple[str, str, str]
"""(kind, namespace, name) of an object that owns pods."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreFacts:
    """The core's view of one moment; an adapter's own mapping may change `workloads` and what waits.

    `workloads` are the rows of all work with GPUs that has pods, by workload id; an adapter may replace them
    (`dataclasses.replace`) and add those without pods. They are written when its mapping is done.
    `waits` holds, for each workload that waits, everything that is in its way; `say` adds to it, and the most specific
    becomes the row. `claimed` is how many devices pods hold or ask for by claims (DRA), by uid; `cards_of_node` are
    those that HAMi registered; `gpu_resources` are names that count GPUs here beyond those that are known everywhere.
    """

    rows: SnapshotRows
    rules: Rules
    gpu_resources: frozenset[str] = frozenset()
    nodes: Mapping[str, Object] = field(default_factory=dict)
    pods_by_uid: dict[str, Object] = field(default_factory=dict)
    pods_by_owner: dict[OwnerKey, list[Object]] = field(default_factory=dict)
    pods_by_workload: dict[str, list[Object]] = field(default_factory=lambda: defaultdict(list))
    workloads: dict[str, Workload] = field(default_factory=dict)
    waits: dict[str, list[Wait]] = field(default_factory=lambda: defaultdict(list))
    gpu_count_of_node: dict[str, int] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    model_of_node: dict[str, str] = field(default_factory=dict)
    further: Callable[[Object], Mapping[str, float]] = lambda _: {}
    cards_of_node: dict[str, Sequence[Card]] = field(default_factory=dict)
    claimed: dict[str, float] = field(default_factory=dict)
    requests: dict[str, Mapping[str, float]] = field(default_factory=dict)
    attributions: dict[str, Attribution] = field(default_factory=dict)

    def counts(self, resource: str) -> bool:
        """Whether `resource` (the cluster's spelling) counts GPUs, slices of them or shares in them."""
        return counts_gpus(resource) or resource in self.gpu_resources

    def requests_of(self, pod: Object) -> Mapping[str, float]:
        """What `pod` holds of every resource, in the cluster's spelling. Raises BadInput for what is no quantity."""
        uid = uid_of(pod, self.rows.cluster)
        if uid not in self.requests:
            self.requests[uid] = {**requests_of(pod), **self.further(pod)}
        return self.requests[uid]

    def gpus_of(self, pod: Object) -> dict[str, float]:
        """What `pod` holds of the resources that count GPUs: {"nvidia.com/gpu": 8.0}."""
        return {name: count for name, count in self.requests_of(pod).items() if count > 0 and self.counts(name)}

    def whose(self, namespace: str, name: str, labels: Mapping[str, str], owner: Owner | None = None) -> Attribution:
        """Whose an object that makes pods with `labels` is, as of the moment; its id has the cluster's prefix."""
        found = attribute(Subject(namespace, name, owner), labels, self.rows.taken_at, self.rules)
        return replace(found, workload_id=self.rows.named(found.workload_id))

    def attribution_of(self, pod: Object) -> Attribution:
        """Whose `pod` is by the attribution rules, as of its start."""
        uid = uid_of(pod, self.rows.cluster)
        if uid not in self.attributions:
            named = meta(pod)
            at = started_at(pod) or created_at(pod) or self.rows.taken_at
            subject = Subject(named["namespace"], named["name"], owner_of(pod))
            found = attribute(subject, named.get("labels") or {}, at, self.rules)
            self.attributions[uid] = replace(found, workload_id=self.rows.named(found.workload_id))
        return self.attributions[uid]

    def workload_of(self, pod: Object) -> str:
        """The id of the workload that `pod` belongs to, the same that kube-state-metrics' reader gives."""
        return self.attribution_of(pod).workload_id

    def say(self, wait: Wait, status: str = "pending") -> None:
        """One thing that is in a workload's way; of several the most specific shows in its row, and its status."""
        self.waits[wait.workload_id].append(wait)
        main = self.main_wait(wait.workload_id)
        known = self.workloads.get(wait.workload_id)
        if known and main:
            words = ": ".join(text for text in (main.reason, main.message) if text)
            self.workloads[wait.workload_id] = replace(
                known, status=status, pending_cause=main.cause, pending_reason=words or None
            )

    def main_wait(self, workload_id: str) -> Wait | None:
        """The most specific of what is in the workload's way; None where it does not wait."""
        waits = self.waits.get(workload_id) or []
        told = [Told(one.cause, one.reason, one.message or "") for one in waits]
        chosen = root(told)
        return waits[told.index(chosen)] if chosen else None

    def unsay(self, workload_id: str, status: str) -> None:
        """Take back all that was said to be in the workload's way: it is `status`."""
        self.waits.pop(workload_id, None)
        if known := self.workloads.get(workload_id):
            self.workloads[workload_id] = replace(known, status=status, pending_cause=None, pending_reason=None)
