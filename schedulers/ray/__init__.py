"""Ray: jobs, tasks, actors, placement groups and nodes, as a cluster's dashboard tells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field

from gpuledger.attribution import Rules
from gpuledger.clock import Clock
from gpuledger.ports import SchedulerSnapshot, SnapshotScope
from schedulers.options import parsed
from schedulers.ray.client import Dashboard
from schedulers.ray.jobs import Choices
from schedulers.ray.mapping import Mapper
from schedulers.ray.reading import Answers, read
from schedulers.rest import Rest, RestOptions
from schedulers.rows import SnapshotRows

LAG_TRIES = 3
LAG_SECONDS = 2.5
"""The head sums up what its nodes gave away every 5 s; tasks and actors are told at once. Where the two do not agree it
is read again, until a new sum must have come; what still differs then is told as a problem."""

_OF_KIND: Mapping[str, frozenset[str]] = {
    "tasks": frozenset({"pod", "wait"}),
    "actors": frozenset({"pod", "wait"}),
    "placement_groups": frozenset({"wait"}),
    "nodes": frozenset({"node", "scheduler_node", "node_state"}),
}
"""The records that are not listed whole where rows of a kind are missing."""


class RayOptions(RestOptions):
    """How one Ray cluster is read. `url` is its dashboard's."""

    tenant_key: str = Field("tenant", description="Key of a job's metadata that names its tenant; rules come first.")
    gpu_resource: str = Field("GPU", description="Ray's resource that counts cards: GPU, NPU, TPU.")
    node_label: str | None = Field(None, description="Label of a Ray node that holds the name of its host.")
    on_kubernetes: bool = Field(
        default=False, description="Another adapter lists its pods (KubeRay): give no nodes and no pods."
    )


class Ray:
    """Reads one Ray cluster through its dashboard. Needs the cluster's token where it has one, and no other right."""

    name = "ray"

    def __init__(self, options: RayOptions, *, cluster: str, rules: Rules, clock: Clock) -> None:
        self.cluster = cluster
        self._rest = Rest(options, self.name)
        self._clock = clock
        self._choices = Choices(
            options.gpu_resource, options.tenant_key, options.node_label, options.on_kubernetes, rules
        )

    @classmethod
    def from_options(cls, options: Mapping[str, Any], *, cluster: str = "default", rules: Rules, clock: Clock) -> Self:
        """The reader of the dashboard at `options["url"]`. Raises ConfigError naming a wrong option."""
        return cls(parsed(RayOptions, cls.name, options), cluster=cluster, rules=rules, clock=clock)

    def snapshot(self) -> SchedulerSnapshot:
        """Everything as of one moment. Raises SchedulerUnreachable, NotPermitted, InconsistentSnapshot."""
        with self._rest.connected():
            for attempt in range(LAG_TRIES):
                if attempt:
                    self._clock.sleep(LAG_SECONDS)
                answers = read(Dashboard(self._rest), self._clock, self._choices.resource)
                rows = SnapshotRows(self._scheduler, self.cluster, answers.taken_at)
                mapper = Mapper(answers, rows, self._choices)
                mapper.add()
                if not mapper.lags:
                    break
        return self._finished(answers, rows)

    @property
    def _scheduler(self) -> str:
        return self.name if self.cluster == "default" else f"{self.name}/{self.cluster}"

    def _finished(self, answers: Answers, rows: SnapshotRows) -> SchedulerSnapshot:
        unlisted = frozenset().union(*(_OF_KIND.get(kind, frozenset()) for kind in answers.missing))
        listed = {"workload", "wait", "workload_event", "node_state", "quality_event"}
        listed |= set() if self._choices.is_on_kubernetes else {"node", "scheduler_node", "pod"}
        return rows.snapshot(answers.version, SnapshotScope(unlisted=unlisted), also=sorted(listed))
