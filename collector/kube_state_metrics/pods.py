"""What is known of one pod, put together from its series in whatever order they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite

from collector.kube_state_metrics.resources import SHARED_CARD, WHOLE_CARD, is_gpu, is_part

ENDED = ("Succeeded", "Failed")

Requests = dict[tuple[str, str], float]
"""(container, resource) to how many."""


@dataclass(slots=True)
class PodFacts:
    """One pod by uid. Times are UTC; `seen_at` is the newest sample that spoke of it."""

    uid: str
    namespace: str
    name: str
    seen_at: datetime
    node: str | None = None
    owner_kind: str | None = None
    owner_name: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: datetime | None = None
    start_time: datetime | None = None
    completed_at: datetime | None = None
    running_since: datetime | None = None
    over_since: datetime | None = None
    gone_at: datetime | None = None
    phase: str | None = None
    phase_at: datetime | None = None
    has_claim: bool = False
    requests: Requests = field(default_factory=dict)
    limits: Requests = field(default_factory=dict)
    init_requests: Requests = field(default_factory=dict)
    init_limits: Requests = field(default_factory=dict)

    def note_phase(self, phase: str, at: datetime) -> None:
        """The phase as of `at`; an older sample than the one known says nothing but when it first ran."""
        if phase == "Running":
            self.running_since = min(at, self.running_since or at)
        if self.phase_at is not None and at < self.phase_at:
            return
        if phase in ENDED and self.phase not in ENDED:
            self.over_since = at
        self.phase, self.phase_at = phase, at

    @property
    def started_at(self) -> datetime | None:
        """When the kubelet took it, else when it was first seen running."""
        return self.start_time or self.running_since

    @property
    def ended_at(self) -> datetime | None:
        """When its containers ended, else when it was first seen over, else when it was last listed; None: it runs."""
        end = self.completed_at or (self.over_since if self.phase in ENDED else None) or self.gone_at
        return max(end, self.started_at) if end and self.started_at else end

    def asked(self, resource: str) -> float:
        """How many of `resource` the pod holds: Kubernetes' rule for init containers.

        They run one after the other before the others run side by side: the larger of the sum and each of them.
        """
        own, before = (
            _asked(self.requests, self.limits, resource),
            _asked(self.init_requests, self.init_limits, resource),
        )
        return max(sum(own.values()), *before.values(), 0.0)

    def gpus(self) -> tuple[str, float] | None:
        """The GPU resource that it asks for (the largest of several) and how many; None for a pod without."""
        names = {resource for book in (self.requests, self.limits, self.init_requests) for _, resource in book}
        found = {name: count for name in names if is_gpu(name) and (count := self.asked(name)) > 0}
        if not found:
            return None
        name = min(found, key=lambda resource: (-found[resource], resource))
        if name == WHOLE_CARD and any(is_part(resource) and self.asked(resource) > 0 for resource in names):
            return SHARED_CARD, found[name]
        return name, found[name]


def _asked(requests: Requests, limits: Requests, resource: str) -> dict[str, float]:
    """By container: its request, else its limit (for GPUs they are the same, and either may be left out of a page)."""
    found = {container: count for (container, name), count in limits.items() if name == resource}
    found.update({container: count for (container, name), count in requests.items() if name == resource})
    return found


def instant(seconds: float) -> datetime | None:
    """A Unix time as kube-state-metrics writes it; None for what is no time."""
    if not isfinite(seconds) or not 0 < seconds < 7e9:
        return None
    return datetime.fromtimestamp(seconds, UTC)
