"""Reads KAI: the core's objects, its queues and pod groups, and which labels say where nodes stand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import httpx
from pydantic import Field

from schedulers.cards import Cards
from schedulers.kai.fractions import SHARED, fraction_of
from schedulers.kai.groups import groups_of
from schedulers.kai.kinds import POD_GROUPS, QUEUES, RESERVATIONS, TOPOLOGIES, group_of, queue_of
from schedulers.kai.mapping import GroupMapping, settle_reservations
from schedulers.kai.metrics import figures_of
from schedulers.kai.queues import EXACT, QueueBook, specs_of, units_of
from schedulers.kai.spec import QueueSpec
from schedulers.kubernetes.client import Api
from schedulers.kubernetes.core import is_whole
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.family import KubernetesFamily
from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.options import KubernetesOptions
from schedulers.kubernetes.pods import Object, meta, name_of
from schedulers.options import Address
from schedulers.rights import Right
from schedulers.rows import SnapshotRows

METRICS = "kai/metrics"
"""Key of what is read beside the moment."""


class KaiOptions(KubernetesOptions):
    """Options of the Kubernetes family, and where KAI keeps its reservations."""

    reservation_namespaces: tuple[str, ...] = Field(
        RESERVATIONS, description="Namespaces of the pods that hold cards for those that share them."
    )
    metrics_url: Address | None = Field(
        None, description="KAI's metrics of queues, to compare with the queues' own figures; none: not compared."
    )


class Kai(KubernetesFamily):
    """Kubernetes with KAI (scheduling.run.ai: Queue v2, PodGroup v2alpha2)."""

    name: ClassVar[str] = "kai"
    kinds: ClassVar[tuple[Kind, ...]] = (QUEUES, POD_GROUPS, TOPOLOGIES)
    rights: ClassVar[tuple[Right, ...]] = (
        Right("scheduling.run.ai", ("queues", "podgroups")),
        Right("kai.scheduler", ("topologies",)),
    )
    listed: ClassVar[tuple[str, ...]] = ("queue", "quota", "queue_resource", "queue_state")
    from_kind: ClassVar[Mapping[str, tuple[str, ...]]] = {
        QUEUES.key: ("queue", "quota", "queue_resource", "queue_state"),
        POD_GROUPS.key: ("wait", "queue_state"),
    }
    options_class: ClassVar[type[KubernetesOptions]] = KaiOptions
    options: KaiOptions

    def further_requests(self, pod: Object) -> Mapping[str, float]:
        """Parts of cards that a pod of KAI's asks for in annotations. Raises BadInput naming a wrong one."""
        if group_of(pod) is None and queue_of(pod) is None:
            return {}
        asked = fraction_of(pod)
        return {SHARED: float(asked.devices)} if asked else {}

    def extra(self, api: Api, moment: Moment) -> Mapping[str, Sequence[Object]]:  # noqa: ARG002 it is no kind
        """The page of metrics, where one is named; what went wrong where it did not come."""
        url = self.options.metrics_url
        if not url:
            return {}
        try:
            answer = httpx.get(url, timeout=self.options.timeout_seconds, trust_env=False)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            return {METRICS: [{"failed": f"{type(error).__name__}: {error}"}]}
        return {METRICS: [{"page": answer.text}]}

    def enrich(self, moment: Moment, core: CoreFacts, rows: SnapshotRows) -> None:
        """Queues, what their work holds and waits for, and where nodes stand."""
        settle_reservations(core, self.options.reservation_namespaces)
        specs = specs_of(moment.of(QUEUES), rows)
        mapping = GroupMapping(core=core, specs=specs)
        for group in groups_of(moment, core):
            with rows.sparing(rows.named(group.key)):
                mapping.take(group)
        is_told = is_whole(moment) and moment.has(POD_GROUPS)
        QueueBook(specs=specs, work=mapping.work if is_told else None, cards=Cards(core)).write(rows)
        self._compare_metrics(moment, specs, rows)
        for topology in moment.of(TOPOLOGIES):
            with rows.sparing(f"topology/{name_of(topology)}", "node"):
                _place(topology, core, rows)

    def _compare_metrics(self, moment: Moment, specs: Mapping[str, QueueSpec], rows: SnapshotRows) -> None:
        for given in moment.of(METRICS):
            if "failed" in given:
                rows.problem("missing_metric", str(self.options.metrics_url), given["failed"], subject_kind="target")
                continue
            with rows.sparing(str(self.options.metrics_url), "target"):
                for name, figures in sorted(figures_of(given["page"]).items()):
                    own = units_of(specs[name].allocated) if name in specs else None
                    told = figures.allocated_gpus
                    if own is not None and told is not None and abs(own - told) > EXACT:
                        words = f"its metric says {told:g} GPUs allocated, its status {own:g}"
                        rows.problem("quota_mismatch", rows.named(name), words, subject_kind="queue")


def _place(topology: Object, core: CoreFacts, rows: SnapshotRows) -> None:
    """Where each node stands in `topology`, level by level as it names them, into the rows of its resources."""
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    states = rows.of("node_state")
    for at, row in enumerate(states):
        labels = meta(core.nodes.get(row.node, {})).get("labels") or {}
        stands = {f"{name_of(topology)}/{label}": labels[label] for label in levels if labels.get(label)}
        if stands:
            known = json.loads(row.topology) if row.topology else {}
            states[at] = replace(row, topology=json.dumps({**known, **stands}, ensure_ascii=False, sort_keys=True))
