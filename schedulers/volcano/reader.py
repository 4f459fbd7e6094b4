"""Reads Volcano: the core's objects, its queues, pod groups and jobs, and its picture of the network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field

from gpuledger.attribution.resources import WHOLE_CARD
from schedulers.cards import Cards
from schedulers.kubernetes.client import Api, Refused
from schedulers.kubernetes.core import EVENTS, FROM_KIND, NODES, is_whole
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.family import KubernetesFamily
from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.options import KubernetesOptions
from schedulers.kubernetes.pods import Object
from schedulers.rights import Right
from schedulers.rows import SnapshotRows
from schedulers.volcano.groups import groups_of
from schedulers.volcano.hypernodes import hyper_nodes, place, tiers_of_nodes
from schedulers.volcano.kinds import HYPER_NODES, JOBS, POD_GROUPS, QUEUES
from schedulers.volcano.mapping import GroupMapping, evictions
from schedulers.volcano.plugin import sharing_of
from schedulers.volcano.queues import QueueBook, specs_of
from schedulers.volcano.waiting import events_of

CONFIGURATION = "volcano/configuration"
GROUP_EVENTS = "volcano/events"
"""Keys of what is read beside the moment."""

REFUSED = "refused"


class VolcanoOptions(KubernetesOptions):
    """Options of the Kubernetes family, and where Volcano's configuration is."""

    configuration_namespace: str = Field("volcano-system", description="Where Volcano's scheduler runs.")
    configuration_name: str = Field("volcano-scheduler-configmap", description="The ConfigMap of its configuration.")
    configuration_key: str = Field("volcano-scheduler.conf", description="The key in that ConfigMap.")


class Volcano(KubernetesFamily):
    """Kubernetes with Volcano (scheduling.volcano.sh/v1beta1)."""

    name: ClassVar[str] = "volcano"
    kinds: ClassVar[tuple[Kind, ...]] = (QUEUES, POD_GROUPS, JOBS, HYPER_NODES)
    rights: ClassVar[tuple[Right, ...]] = (
        Right("scheduling.volcano.sh", ("queues", "podgroups")),
        Right("batch.volcano.sh", ("jobs",)),
        Right("topology.volcano.sh", ("hypernodes",)),
        Right("", ("configmaps",), ("get",), ("volcano-scheduler-configmap",)),
    )
    listed: ClassVar[tuple[str, ...]] = ("queue", "quota", "queue_resource", "queue_state")
    from_kind: ClassVar[Mapping[str, tuple[str, ...]]] = {
        QUEUES.key: ("queue", "quota", "queue_resource", "queue_state"),
        POD_GROUPS.key: ("workload", "wait", "workload_event", "queue_state"),
        JOBS.key: ("workload", "wait", "workload_event"),
        NODES.key: (*FROM_KIND[NODES.key], "queue_resource"),
    }
    options_class: ClassVar[type[KubernetesOptions]] = VolcanoOptions
    options: VolcanoOptions

    def extra(self, api: Api, moment: Moment) -> Mapping[str, Sequence[Object]]:
        """The scheduler's configuration, and the events of pod groups: Volcano tells quota in normal ones."""
        wanted = self.options
        path = f"/api/v1/namespaces/{wanted.configuration_namespace}/configmaps/{wanted.configuration_name}"
        try:
            configuration: Object = api.get(path, self._clock.sleep)
        except Refused as error:
            configuration = {REFUSED: error.answer}
        return {CONFIGURATION: [configuration], GROUP_EVENTS: list(self._group_events(api, moment))}

    def _group_events(self, api: Api, moment: Moment) -> Iterator[Object]:
        """Nothing where events may not be read: the moment's scope has said so already."""
        if not moment.has(EVENTS):
            return
        for namespace in moment.scope.namespaces or ("",):
            path = f"/api/v1/namespaces/{namespace}/events" if namespace else "/api/v1/events"
            try:
                yield from self._pages(api, path)
            except Refused:
                continue

    def _pages(self, api: Api, path: str) -> Iterator[Object]:
        asked: dict[str, str | int] = {
            "fieldSelector": "involvedObject.kind=PodGroup,type=Normal",
            "limit": self.options.page_objects,
        }
        while True:
            answer = api.get(path, self._clock.sleep, **asked)
            yield from answer.get("items") or ()
            following = (answer.get("metadata") or {}).get("continue")
            if not following:
                return
            asked["continue"] = following

    def enrich(self, moment: Moment, core: CoreFacts, rows: SnapshotRows) -> None:
        """Queues, what their work holds and waits for, and where nodes stand."""
        events = events_of((*moment.of(EVENTS), *moment.of(GROUP_EVENTS)))
        cards, specs = Cards(core), specs_of(moment.of(QUEUES), rows)
        free = sum(row.free for row in rows.of("node_state") if row.resource == WHOLE_CARD)
        mapping = GroupMapping(core=core, cards=cards, specs=specs, events=events, free_gpus=free)
        for group in groups_of(moment, core):
            with rows.sparing(rows.named(group.key)):
                mapping.take(group)
        evictions(core, events)
        is_told = is_whole(moment) and moment.has(POD_GROUPS)
        sharing = sharing_of(self._configuration(moment, rows))
        QueueBook(specs=specs, work=mapping.work if is_told else None, sharing=sharing, cards=cards).write(rows)
        place(rows, tiers_of_nodes(hyper_nodes(moment.of(HYPER_NODES), core.nodes, rows)))

    def _configuration(self, moment: Moment, rows: SnapshotRows) -> str | None:
        subject = f"configmap {self.options.configuration_namespace}/{self.options.configuration_name}"
        for given in moment.of(CONFIGURATION):
            if REFUSED in given:
                words = f"{given[REFUSED]}; which plugin shares out the queues is not known, deserved is taken as meant"
                rows.problem("not_permitted", subject, words, subject_kind="target")
                return None
            data: Mapping[str, Any] = given.get("data") or {}
            return data.get(self.options.configuration_key)
        return None
