"""Kubernetes: nodes, pods, quotas and devices as of one moment; the base of the adapters that stand on it.

An adapter of the family names the kinds that it reads beyond the core's, the rights for them, and has a mapping of its
own over the same moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from threading import Event
from typing import Any, ClassVar, Self

from gpuledger.attribution import Rules
from gpuledger.clock import Clock
from gpuledger.ports import SchedulerSnapshot
from schedulers.kubernetes.client import Api
from schedulers.kubernetes.core import CORE_KINDS, CORE_RIGHTS, LISTED, core_rows, finish, scope_of
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.options import KubernetesOptions
from schedulers.kubernetes.pods import Object
from schedulers.kubernetes.quiet import no_collecting
from schedulers.kubernetes.quotas import as_ceilings
from schedulers.kubernetes.watching import read_moment, watch_moments
from schedulers.options import parsed
from schedulers.rights import Right
from schedulers.rows import SnapshotRows


class KubernetesFamily:
    """Reads one cluster. What a class names of these is beyond the core's.

    `kinds` are read, with `rights`; `listed` are records that a snapshot always has, be it without rows; `from_kind`
    says which records cannot be listed whole without a kind ({"clusterqueues.kueue.x-k8s.io": ("queue", "quota")}).
    `has_queues` where it shares GPUs out by queues of its own: a ResourceQuota is then a ceiling beside them.
    """

    name: ClassVar[str] = "kubernetes"
    kinds: ClassVar[tuple[Kind, ...]] = ()
    rights: ClassVar[tuple[Right, ...]] = ()
    listed: ClassVar[tuple[str, ...]] = ()
    from_kind: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    has_queues: ClassVar[bool] = True
    options_class: ClassVar[type[KubernetesOptions]] = KubernetesOptions

    def __init__(self, options: KubernetesOptions, *, cluster: str, rules: Rules, clock: Clock) -> None:
        self.options = options
        self.cluster = cluster
        self._rules = rules
        self._clock = clock

    @classmethod
    def from_options(cls, options: Mapping[str, Any], *, cluster: str = "default", rules: Rules, clock: Clock) -> Self:
        """A reader as configured; connects when it is first asked. Raises ConfigError naming a wrong option."""
        return cls(parsed(cls.options_class, cls.name, options), cluster=cluster, rules=rules, clock=clock)

    @classmethod
    def all_kinds(cls) -> tuple[Kind, ...]:
        """Everything that it reads; of a kind that core and adapter both name the adapter's word counts."""
        return tuple({kind.key: kind for kind in (*CORE_KINDS, *cls.kinds)}.values())

    @classmethod
    def all_rights(cls) -> tuple[Right, ...]:
        """The least that it needs to be granted."""
        return (*CORE_RIGHTS, *cls.rights)

    @property
    def scheduler(self) -> str:
        """Its name as records say it: the adapter's, and the cluster's where that has one."""
        return self.name if self.cluster == "default" else f"{self.name}/{self.cluster}"

    def enrich(self, moment: Moment, core: CoreFacts, rows: SnapshotRows) -> None:
        """The adapter's own mapping, after the core's: adds to `rows`, replaces rows of `core.workloads`."""

    def extra(self, api: Api, moment: Moment) -> Mapping[str, Sequence[Object]]:  # noqa: ARG002 adapters use them
        """What can be read only object by object, under keys of the adapter's own; it is younger than the moment.

        Called when the moment was read. Refusals are the adapter's to catch: what it leaves out is not known.
        """
        return {}

    def further_requests(self, pod: Object) -> Mapping[str, float]:  # noqa: ARG002 adapters use it
        """GPU resources that `pod` holds by other means than its containers' requests (annotations)."""
        return {}

    def mapped(self, moment: Moment) -> SchedulerSnapshot:
        """The records of `moment`: a pure function of it."""
        rows = SnapshotRows(self.scheduler, self.cluster, moment.taken_at)
        with no_collecting():
            core = core_rows(moment, rows, self._rules, self.options, self.further_requests)
            if self.has_queues:
                as_ceilings(rows)
            self.enrich(moment, core, rows)
            finish(core)
        return rows.snapshot(moment.version, scope_of(moment, self.from_kind), (*LISTED, *self.listed))

    def snapshot(self) -> SchedulerSnapshot:
        with no_collecting():  # until the objects are gone again: whoever turns it on among them pays for a walk
            return self._snapshot()

    def _snapshot(self) -> SchedulerSnapshot:
        with Api.connect(self.options) as api:
            moment = self._with_extra(api, read_moment(api, self.all_kinds(), self.options, self._clock))
        return self.mapped(moment)

    def watch(self, stop: Event, *, every_seconds: float) -> Iterator[SchedulerSnapshot]:
        with Api.connect(self.options) as api:
            for moment in watch_moments(api, self.all_kinds(), self.options, self._clock, stop, every_seconds):
                yield self.mapped(self._with_extra(api, moment))

    def _with_extra(self, api: Api, moment: Moment) -> Moment:
        return moment.plus(self.extra(api, moment))  # noqa: S610 no database here


class Kubernetes(KubernetesFamily):
    """Kubernetes' own scheduler."""

    has_queues = False
