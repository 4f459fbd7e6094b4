"""How many GPUs workloads want, in whole cards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from schedulers.kubernetes.facts import CoreFacts
from schedulers.kueue.jobs import Job
from schedulers.kueue.quotas import Queues, card_share


@dataclass(frozen=True, slots=True)
class Cards:
    """Counts cards; a slice is its part of the card that its queue offers, where that is one model."""

    core: CoreFacts
    queues: Queues

    def are_wanted(self, job: Job) -> bool:
        """Whether its pods hold or want GPUs, by name or by claim."""
        named = any(self.core.counts(name) for name in job.requested)
        return named or job.id in self.core.workloads or any(pods.has_claims for pods in job.pod_sets)

    def wanted(self, job: Job) -> float | None:
        """What it asks for in whole GPUs; None where it wants parts of cards whose size is not known."""
        model = self._model(job)
        parts = [(amount, card_share(name, model)) for name, amount in job.requested.items() if self.core.counts(name)]
        if not parts or any(share is None for _, share in parts):
            return None
        return float(sum((amount * share for amount, share in parts if share is not None), Fraction(0)))

    def shape(self, job: Job) -> tuple[Mapping[str, float], int, int]:
        """Requests of its largest pods, their GPUs, and thousandths of a card that each of these is."""
        by_gpus = {
            sum(count for name, count in one.per_pod.items() if self.core.counts(name)): one.per_pod
            for one in reversed(job.pod_sets)
        }
        per_pod = by_gpus[max(by_gpus)] if by_gpus else {}
        gpus = {name: count for name, count in per_pod.items() if count and self.core.counts(name)}
        if not gpus:
            return per_pod, 0, 0
        name = min(gpus, key=lambda one: (-gpus[one], one))
        share = card_share(name, self._model(job))
        return per_pod, round(gpus[name]), 1000 if share is None else round(share * 1000)

    def _model(self, job: Job) -> str | None:
        """The model of card that all flavors that it was given, or that its queue offers, have in common."""
        given = {flavor for pods in job.pod_sets for name, flavor in pods.flavors.items() if self.core.counts(name)}
        queue = self.queues.queues.get(job.queue or "")
        offered = given or {flavor for flavor, name in (queue.limits if queue else {}) if self.core.counts(name)}
        models = {self.queues.models.get(flavor) for flavor in offered}
        return models.pop() if len(models) == 1 else None
