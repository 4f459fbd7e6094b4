"""From one moment of a cluster to records: the part that every adapter of the family shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gpuledger.attribution import Rules
from gpuledger.ports import SnapshotScope
from schedulers.kubernetes.allocations import allocation_rows
from schedulers.kubernetes.claims import Devices, claims_of, devices_of
from schedulers.kubernetes.facts import CoreFacts
from schedulers.kubernetes.gangs import mark_gangs
from schedulers.kubernetes.hami import held_by
from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.nodes import allocate, claim_state_rows, node_rows, state_rows
from schedulers.kubernetes.options import KubernetesOptions
from schedulers.kubernetes.placing import Room
from schedulers.kubernetes.pods import Object, created_at, meta, name_of, owner_of, started_at, uid_of
from schedulers.kubernetes.quotas import quota_rows
from schedulers.kubernetes.thinning import thin_event, thin_node, thin_pod
from schedulers.kubernetes.waiting import wait_rows
from schedulers.kubernetes.workloads import pod_rows, workload_rows
from schedulers.rights import Right
from schedulers.rows import SnapshotRows

NODES = Kind("", "nodes", ("v1",), is_namespaced=False, is_optional=False, keep=thin_node)
PODS = Kind("", "pods", ("v1",), is_optional=False, keep=thin_pod)
QUOTAS = Kind("", "resourcequotas", ("v1",), is_optional=False)
EVENTS = Kind("", "events", ("v1",), keep=thin_event, is_loose=True, fields="type=Warning")
PRIORITIES = Kind("scheduling.k8s.io", "priorityclasses", ("v1",), is_namespaced=False)

SLICES = Kind("resource.k8s.io", "resourceslices", ("v1", "v1beta2", "v1beta1"), is_namespaced=False)
CLAIMS = Kind("resource.k8s.io", "resourceclaims", ("v1", "v1beta2", "v1beta1"))
PODGROUPS = Kind("scheduling.k8s.io", "podgroups", ("v1beta1", "v1alpha3", "v1alpha2"))
WORKLOADS = Kind("scheduling.k8s.io", "workloads", ("v1beta1", "v1alpha3", "v1alpha2", "v1alpha1"))

CORE_KINDS = (NODES, PODS, QUOTAS, EVENTS, PRIORITIES, SLICES, CLAIMS, PODGROUPS, WORKLOADS)

CORE_RIGHTS = (
    Right("", ("nodes", "pods", "resourcequotas", "events")),
    Right("", ("namespaces",), ("list",)),
    Right("scheduling.k8s.io", ("priorityclasses", "podgroups", "workloads")),
    Right("resource.k8s.io", ("resourceslices", "resourceclaims")),
)

FROM_KIND: Mapping[str, tuple[str, ...]] = {
    "nodes": ("node", "scheduler_node", "node_state", "condition"),
    "pods": ("pod", "workload", "workload_event", "wait", "allocation", "node_state"),
    "resourcequotas": ("quota", "queue", "queue_resource", "queue_state"),
}
"""The records that cannot be listed whole without a kind."""

LISTED = ("node", "scheduler_node", "condition", "pod", "workload", "workload_event", "wait", "allocation")
"""Records that a snapshot always has, be it without rows."""


def core_rows(
    moment: Moment,
    rows: SnapshotRows,
    rules: Rules,
    options: KubernetesOptions,
    further: Callable[[Object], Mapping[str, float]],
) -> CoreFacts:
    """Adds the rows of nodes, pods, quotas and devices; gives what the adapter's own mapping starts from."""
    core = _facts(moment, rows, rules, options, further)
    devices = devices_of(moment.of(SLICES), moment.of(CLAIMS), rows, options.gpu_resources)
    _claimed(core, devices, [pod for pod, _ in moment.gone])
    nodes = node_rows(core, options.topology_labels, devices)
    allocate(core, nodes)
    if is_whole(moment):
        state_rows(core, nodes)
        claim_state_rows(core, nodes, devices)
        rows.listed("node_state")
    members = pod_rows(core, moment.gone)
    workload_rows(core, members)
    allocation_rows(core, members, devices)
    wait_rows(core, Room.of(core, nodes if is_whole(moment) else {}), moment.of(EVENTS))
    mark_gangs(core, moment.of(PODGROUPS), moment.of(WORKLOADS))
    quota_rows(core, {name_of(one): one for one in moment.of(QUOTAS)})
    if moment.has(QUOTAS):
        rows.listed(*FROM_KIND["resourcequotas"])
    return core


def _claimed(core: CoreFacts, devices: Devices, gone: Sequence[Object]) -> None:
    for pod in (*core.pods_by_uid.values(), *gone):
        claims = claims_of(pod)
        wanted = devices.wanted(claims) if claims else None
        if wanted or (wanted is not None and len(claims) == len(pod["spec"]["resourceClaims"])):
            core.claimed[uid_of(pod, core.rows.cluster)] = wanted


def is_whole(moment: Moment) -> bool:
    """Whether every pod was shown, so that what is not held is free."""
    return moment.has(PODS) and moment.has(NODES) and not moment.scope.namespaces


def _facts(
    moment: Moment,
    rows: SnapshotRows,
    rules: Rules,
    options: KubernetesOptions,
    further: Callable[[Object], Mapping[str, float]],
) -> CoreFacts:
    core = CoreFacts(
        rows=rows,
        rules=rules,
        gpu_resources=frozenset(options.gpu_resources),
        nodes={name_of(node): node for node in moment.of(NODES)},
        priorities={name_of(one): int(one.get("value") or 0) for one in moment.of(PRIORITIES)},
        further=further,
    )
    for pod in moment.of(PODS):
        with rows.sparing(name_of(pod)):
            _take(core, pod)
    return core


def _take(core: CoreFacts, pod: Object) -> None:
    """A pod that can be understood; any other is left out once and for all, with one problem to show for it."""
    core.requests_of(pod)
    held_by(pod)
    started_at(pod)
    created_at(pod)
    core.pods_by_uid[uid_of(pod, core.rows.cluster)] = pod
    if owner := owner_of(pod):
        core.pods_by_owner.setdefault((owner.kind, meta(pod)["namespace"], owner.name), []).append(pod)


def finish(core: CoreFacts) -> None:
    """Write workloads and the main reason of each that waits, once the adapter's own mapping is done."""
    core.rows.add(*core.workloads.values())
    waits = [core.main_wait(workload_id) for workload_id in core.waits]
    core.rows.add(*(wait for wait in waits if wait))


def scope_of(moment: Moment, further: Mapping[str, Sequence[str]]) -> SnapshotScope:
    """The moment's scope with the records that it could not list whole; `further` adds the adapter's own kinds.

    A kind that was refused for the cluster was listed in some namespaces at best; those of pods are in the scope.
    """
    lost = set(moment.scope.unlisted)
    refused = {what for what, _ in moment.scope.denied} - {PODS.key}
    for kind, records in {**FROM_KIND, **further}.items():
        if not moment.has(kind) or kind in refused:
            lost.update(records)
    if not is_whole(moment):
        lost.add("node_state")
    return SnapshotScope(namespaces=moment.scope.namespaces, denied=moment.scope.denied, unlisted=frozenset(lost))
