"""How many whole cards resources of flavors are, and how many workloads want."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from gpuledger.attribution.resources import is_whole
from gpuledger.model import slice_share
from schedulers import cards
from schedulers.kubernetes.equivalents import of_resource
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.names import underscored
from schedulers.kubernetes.pods import meta
from schedulers.kueue.jobs import Job
from schedulers.kueue.quotas import Amounts, Key, Queues

MIG_PREFIX = "nvidia.com/mig-"


@dataclass(slots=True)
class Cards:
    """Counts cards: a slice or a copy is its part of the card on the nodes of its flavor, where these agree."""

    core: CoreFacts
    queues: Queues
    _shares: dict[Key, Fraction | None] = field(default_factory=dict)
    _nodes: dict[str, list[str]] = field(default_factory=dict)
    _anywhere: cards.Cards = field(init=False)

    def __post_init__(self) -> None:
        self._anywhere = cards.Cards(self.core)

    def share(self, key: Key) -> Fraction | None:
        """How much of a card one unit of `key` is; None where it is no GPU, or that cannot be told."""
        if key not in self._shares:
            found = self._share(*key) if self.core.counts(key[1]) else None
            self._shares[key] = None if found is None else Fraction(found).limit_denominator(1000)
        return self._shares[key]

    def gpus(self, amounts: Amounts) -> Fraction:
        """`amounts` in whole cards; what has no known share is left out."""
        return sum((amount * (self.share(key) or 0) for key, amount in amounts.items()), Fraction(0))

    def _share(self, flavor: str, resource: str) -> float | None:
        if resource in cards.SHARES:
            return None
        if not self.queues.labels.get(flavor):
            return self._anywhere.share(resource)
        counts = {of_resource(self.core, resource, 1.0, name) for name in self._nodes_of(flavor)}
        if len(counts) == 1:
            return counts.pop()
        if counts:
            return None
        if resource.startswith(MIG_PREFIX):
            return slice_share(self.queues.models.get(flavor), resource.removeprefix(MIG_PREFIX))
        return 1.0 if is_whole(underscored(resource)) or resource in self.core.gpu_resources else None

    def _nodes_of(self, flavor: str) -> list[str]:
        """Nodes with GPUs that carry the labels of a flavor; a flavor without labels is of any node."""
        if flavor not in self._nodes:
            wanted = self.queues.labels.get(flavor, {}).items()
            self._nodes[flavor] = [
                name
                for name in sorted({*self.core.gpu_count_of_node, *self.core.model_of_node})
                if wanted and wanted <= (meta(self.core.nodes[name]).get("labels") or {}).items()
            ]
        return self._nodes[flavor]

    def are_wanted(self, job: Job) -> bool:
        """Whether its pods hold or want GPUs, by name or by claim."""
        named = any(self.core.counts(name) for name in job.requested)
        return named or job.id in self.core.workloads or any(pods.has_claims for pods in job.pod_sets)

    def wanted(self, job: Job) -> float | None:
        """What it asks for in whole GPUs; None where it wants parts of cards whose size is not known."""
        parts = [(amount, self._for(job, name)) for name, amount in job.requested.items() if self.core.counts(name)]
        if not parts or any(share is None for _, share in parts):
            return None
        return float(sum((amount * share for amount, share in parts if share is not None), Fraction(0)))

    def shape(self, job: Job) -> tuple[Mapping[str, float], int, int]:
        """Requests of its largest pods, their GPUs, and thousandths of a card that each of these is."""
        by_gpus = {self._count(one.per_pod): one.per_pod for one in reversed(job.pod_sets)}
        per_pod = by_gpus[max(by_gpus)] if by_gpus else {}
        gpus = {name: count for name, count in per_pod.items() if count and self.core.counts(name)}
        if not gpus:
            return per_pod, 0, 0
        name = min(gpus, key=lambda one: (-gpus[one], one))
        share = self._for(job, name)
        return per_pod, round(gpus[name]), 1000 if share is None else round(share * 1000)

    def _count(self, per_pod: Mapping[str, float]) -> float:
        return sum(count for name, count in per_pod.items() if self.core.counts(name))

    def _for(self, job: Job, resource: str) -> Fraction | None:
        """The share of `resource` in all flavors that `job` was given, or that its queue offers; of any node's else."""
        given = {pods.flavors[resource] for pods in job.pod_sets if resource in pods.flavors}
        queue = self.queues.queues.get(job.queue or "")
        offered: Iterable[str] = given or {
            flavor for flavor, name in (queue.limits if queue else {}) if name == resource
        }
        shares = {self.share((flavor, resource)) for flavor in offered}
        if len(shares) == 1:
            return shares.pop()
        anywhere = None if shares else self._anywhere.share(resource)
        return None if anywhere is None else Fraction(anywhere).limit_denominator(1000)
