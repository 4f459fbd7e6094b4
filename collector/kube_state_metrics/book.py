"""Remembers what kube-state-metrics said of pods and nodes, and gives the records that changed.

The same book takes whole pages (an agent reads a target), fragments (remote write) and history in order of time
(back-fill). It is a pure function of what it was fed: no clock, no I/O.

A pod ends when its containers did. One that is listed no more ended when it was last listed: on whole pages when two
of them in a row lack it, otherwise when nothing spoke of it for `GRACE`. Should it be listed again it had not ended;
its record then says a `seen_at` after its `ended_at`, and a phase that is not over.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from math import isnan
from typing import Any

from collector.exposition import Series
from collector.kube_state_metrics.nodes import NODE_METRICS, NodeBook
from collector.kube_state_metrics.pods import ENDED, PodFacts, instant, own
from collector.kube_state_metrics.workloads import WorkloadBook
from gpuledger.attribution import Attribution, Owner, Rules, Subject, attribute
from gpuledger.model import Pod

GRACE = timedelta(minutes=5)
"""A pod of which nothing was heard for so long is gone, where no page says that it lists all."""

CHECK = timedelta(seconds=30)
"""How often pods are gone through for those of which nothing was heard: a writer sends many small requests."""

REFRESH = timedelta(minutes=5)
"""How often a pod that does not change is sent again, so that `seen_at` says that it is still listed."""

MAX_PODS = 200_000
"""Pods that are remembered; of those beyond nothing is said, and they are counted."""

_REQUESTS = {
    "kube_pod_container_resource_requests": "requests",
    "kube_pod_container_resource_limits": "limits",
    "kube_pod_init_container_resource_requests": "init_requests",
    "kube_pod_init_container_resource_limits": "init_limits",
}
_TIMES = {"kube_pod_start_time": "start_time", "kube_pod_completion_time": "completed_at"}
_PLACED = frozenset({*_REQUESTS, "kube_pod_info"})
"""The metrics with a `node` of their own: the pod's. On others it is a label of the target: where the exporter runs."""

_POD_METRICS = frozenset(
    {
        *_REQUESTS,
        *_TIMES,
        "kube_pod_created",
        "kube_pod_info",
        "kube_pod_owner",
        "kube_pod_labels",
        "kube_pod_status_phase",
        "kube_pod_resourceclaim_info",
    }
)

METRICS = _POD_METRICS | NODE_METRICS
"""The metrics that the book reads; others need not be fed."""


class PodBook:
    """What kube-state-metrics of one cluster said so far. Not safe for threads."""

    def __init__(self, rules: Rules | None = None, cluster: str = "default") -> None:
        self._rules = rules or Rules()
        self._cluster = cluster
        self._pods: dict[str, PodFacts] = {}
        self._sent: dict[str, Pod] = {}
        self._missed: set[str] = set()
        self._nodes = NodeBook(cluster)
        self._workloads = WorkloadBook()
        self._now: datetime | None = None
        self._checked_at: datetime | None = None
        self.refused_pods = 0

    def feed(
        self, samples: Iterable[tuple[Series, float, datetime]], *, is_whole_page: bool
    ) -> Mapping[str, list[Any]]:
        """Take `samples` in; gives the records that are new or changed, by record name (pod, workload, node, ...).

        `is_whole_page`: these are all samples that the source has, so that what is missing is gone.
        """
        touched: set[str] = set()
        for series, value, at in samples:
            if isnan(value):
                continue
            if series.name in NODE_METRICS:
                self._nodes.note(series, value, at)
            elif series.name in _POD_METRICS and (uid := self._note(series, value, at)):
                touched.add(uid)
            self._now = max(at, self._now or at)
        gone = self._gone(touched, is_whole_page=is_whole_page)
        pods = self._changed(touched | gone)
        workloads = self._workloads.changed()
        self._forget(gone)
        heard_since = self._now if is_whole_page or self._now is None else self._now - GRACE
        nodes, offers = self._nodes.changed(heard_since)
        found: dict[str, list[Any]] = {"pod": pods, "workload": workloads, "node": nodes, "scheduler_node": offers}
        return {record: rows for record, rows in found.items() if rows}

    def _note(self, series: Series, value: float, at: datetime) -> str | None:
        """One sample of a pod; gives its uid, or None where the series names no pod."""
        labels = series.labels
        namespace, name = own(labels, "namespace"), own(labels, "pod")
        if not namespace or not name:
            return None
        uid = own(labels, "uid") or f"{self._cluster}/{namespace}/{name}"
        facts = self._pods.get(uid)
        if facts is None:
            if len(self._pods) >= MAX_PODS:
                self.refused_pods += 1
                return None
            facts = self._pods[uid] = PodFacts(uid, namespace, name, at)
        facts.seen_at = max(at, facts.seen_at)
        if node := own(labels, "node"):
            is_moved = bool(labels.get("exported_node"))
            facts.note_node(node, at, is_own=series.name in _PLACED, is_moved=is_moved)
        _take(facts, series, value, at)
        return uid

    def _gone(self, touched: set[str], *, is_whole_page: bool) -> set[str]:
        """Pods that are listed no more; they end at their last sighting."""
        gone: set[str] = set()
        if is_whole_page:
            if touched:  # a page without any pod is one of a source that has not read the API yet
                missing = set(self._pods) - touched
                gone, self._missed = missing & self._missed, missing
        elif self._now is not None and (self._checked_at is None or self._now - self._checked_at >= CHECK):
            self._checked_at = self._now
            gone = {uid for uid, facts in self._pods.items() if self._now - facts.seen_at > GRACE}
        for uid in gone:
            self._pods[uid].gone_at = self._pods[uid].seen_at
        return gone

    def _changed(self, uids: set[str]) -> list[Pod]:
        rows: list[Pod] = []
        for uid in sorted(uids):
            facts = self._pods[uid]
            asked = facts.gpus()
            if asked is None and not facts.has_claim:
                continue
            row, whose = self._record(facts, asked)
            self._workloads.note(facts, whose, row)
            old = self._sent.get(uid)
            if old is None or row.seen_at - old.seen_at >= REFRESH or replace(row, seen_at=old.seen_at) != old:
                self._sent[uid] = row
                rows.append(row)
        return rows

    def _record(self, facts: PodFacts, asked: tuple[str, float] | None) -> tuple[Pod, Attribution]:
        owner = Owner(facts.owner_kind, facts.owner_name) if facts.owner_kind and facts.owner_name else None
        at = facts.started_at or facts.created_at or facts.seen_at
        whose = attribute(Subject(facts.namespace, facts.name, owner), facts.labels, at, self._rules)
        labels = {name.removeprefix("label_"): text for name, text in sorted(facts.labels.items())}
        prefix = "" if self._cluster == "default" else f"{self._cluster}/"
        whose = replace(whose, workload_id=prefix + whose.workload_id)
        return Pod(
            uid=facts.uid,
            cluster=self._cluster,
            namespace=facts.namespace,
            pod=facts.name,
            node=facts.node,
            workload_id=whose.workload_id,
            gpu_count=asked[1] if asked else None,
            resource=asked[0] if asked else "resourceclaim",
            phase=facts.phase,
            owner_kind=facts.owner_kind or None,
            owner_name=facts.owner_name or None,
            labels=json.dumps(labels, ensure_ascii=False) if labels else None,
            created_at=facts.created_at,
            started_at=facts.started_at,
            ended_at=facts.ended_at,
            seen_at=facts.seen_at,
        ), whose

    def _forget(self, gone: set[str]) -> None:
        for uid in gone:
            del self._pods[uid]
            self._sent.pop(uid, None)
            self._workloads.forget(uid)
        self._missed -= gone


def _take(facts: PodFacts, series: Series, value: float, at: datetime) -> None:
    """What one sample says, into `facts`."""
    name, labels = series.name, series.labels
    if name in _REQUESTS:
        key = (own(labels, "container") or "", own(labels, "resource") or "")
        getattr(facts, _REQUESTS[name])[key] = value
    elif name in _TIMES:
        setattr(facts, _TIMES[name], instant(value) or getattr(facts, _TIMES[name]))
    elif name == "kube_pod_created":
        if created_at := instant(value):
            facts.note_created(created_at)
    elif name == "kube_pod_status_phase":
        if value == 1:
            facts.note_phase(own(labels, "phase") or "Unknown", at)
    else:
        _take_words(facts, name, labels)


def _take_words(facts: PodFacts, name: str, labels: Mapping[str, str]) -> None:
    if name == "kube_pod_labels":
        given = {key: text for key, text in labels.items() if key.startswith("label_")}
        if given or not facts.labels:
            facts.labels = given
    elif name == "kube_pod_resourceclaim_info":
        facts.has_claim = True
    else:
        _take_owner(facts, name, labels)


def _take_owner(facts: PodFacts, name: str, labels: Mapping[str, str]) -> None:
    """The controller; `kube_pod_info` repeats it, and counts where `kube_pod_owner` does not show it."""
    is_info = name == "kube_pod_info"
    prefix = "created_by" if is_info else "owner"
    kind, owner = own(labels, f"{prefix}_kind"), own(labels, f"{prefix}_name")
    if kind and owner and kind != "<none>":
        is_controller = own(labels, "owner_is_controller") != "false"
        facts.note_owner(kind, owner, 1 if is_info else 2 if is_controller else 0)


__all__ = ["ENDED", "GRACE", "METRICS", "REFRESH", "PodBook"]
