"""What is known of one pod, put together from its series in whatever order they come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite

from gpuledger.attribution.resources import is_gpu, is_shared, shared

ENDED = ("Succeeded", "Failed")

_PHASES = ("Unknown", "Pending", "Running", *ENDED)
"""Of two phases at one instant the later of these counts."""

Requests = dict[tuple[str, str], float]
"""(container, resource) to how many."""


@dataclass(slots=True)
class PodFacts:
    """One pod by uid. Times are UTC; `seen_at` is the newest sample that spoke of it."""

    uid: str
    namespace: str
    name: str
    seen_at: datetime
    placed: tuple[bool, datetime, str] | None = None
    target_node: str | None = None
    owner_kind: str | None = None
    owner_name: str | None = None
    owner_rank: int = -1
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

    def note_node(self, node: str, at: datetime, *, is_own: bool, is_moved: bool) -> None:
        """A label `node` (`is_moved`: it stood in `exported_node`); not `is_own`: it is where the exporter runs."""
        if is_own:
            word = (is_moved, at, node)
            self.placed = max(word, self.placed or word)
        elif not is_moved:
            self.target_node = node

    @property
    def node(self) -> str | None:
        """Where the kubelet runs it.

        The label of a pod without a place is empty, and then Prometheus puts the target's in its place, without
        `exported_node`: until the pod started such a node says nothing.
        """
        if self.placed is None:
            return None
        is_moved, _, node = self.placed
        is_foreign = not is_moved and node == self.target_node and self.started_at is None
        return None if is_foreign else node

    def note_created(self, at: datetime) -> None:
        """When the pod was made. A later one is another pod of that name, where series carry no uid."""
        if self.created_at is not None and at <= self.created_at:
            return
        is_another = self.created_at is not None
        self.created_at = at
        if is_another:
            self._forget_before(at)

    def _forget_before(self, at: datetime) -> None:
        for name in ("start_time", "completed_at", "over_since", "gone_at"):
            known = getattr(self, name)
            if known is not None and known < at:
                setattr(self, name, None)
        if self.running_since is not None and self.running_since < at:
            is_running = self.phase == "Running" and self.phase_at is not None and self.phase_at >= at
            self.running_since = self.phase_at if is_running else None

    def note_owner(self, kind: str, name: str, rank: int) -> None:
        """An owner: the highest `rank` counts in whatever order; of several that do not control the first by name."""
        is_first = rank > 0 or (kind, name) < (self.owner_kind or kind, self.owner_name or name)
        if rank > self.owner_rank or (rank == self.owner_rank and is_first):
            self.owner_kind, self.owner_name, self.owner_rank = kind, name, rank

    def note_phase(self, phase: str, at: datetime) -> None:
        """The phase as of `at`; an older sample than the one known says nothing but when it first ran."""
        if phase == "Running":
            self.running_since = min(at, self.running_since or at)
        if self.phase_at is not None and (at, _order(phase)) < (self.phase_at, _order(self.phase)):
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
        """When its containers ended, else when it was first seen over, else when it was last listed; None: it runs.

        A pod that runs may show a completion time: of a container that ended before the others.
        """
        has_ended = self.phase is None or self.phase in ENDED
        end = (self.completed_at or self.over_since if has_ended else None) or self.gone_at
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
        asked = (resource for resource in names if self.asked(resource) > 0)
        return (shared(name) if is_shared(name, asked) else name), found[name]


def _asked(requests: Requests, limits: Requests, resource: str) -> dict[str, float]:
    """By container: its request, else its limit (for GPUs they are the same, and either may be left out of a page)."""
    found = {container: count for (container, name), count in limits.items() if name == resource}
    found.update({container: count for (container, name), count in requests.items() if name == resource})
    return found


def _order(phase: str | None) -> int:
    return _PHASES.index(phase) if phase in _PHASES else -1


def own(labels: Mapping[str, str], name: str) -> str | None:
    """The label that the exporter itself wrote.

    Where the target has a label of that name, Prometheus moves the exporter's to `exported_*`, or with `honor_labels`
    keeps it in its place.
    """
    return labels.get(f"exported_{name}") or labels.get(name)


def instant(seconds: float) -> datetime | None:
    """A Unix time as kube-state-metrics writes it; None for what is no time."""
    if not isfinite(seconds) or not 0 < seconds < 7e9:
        return None
    return datetime.fromtimestamp(seconds, UTC)
