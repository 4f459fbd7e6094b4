"""Namespaces, nodes, pods and a quota of the cluster, as Kubernetes' own kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from gpuledger.app.simulated_cluster.facts import GPU, LATEST, Facts, Object, Work, namespace_of, owner_of
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.pods import CONTAINER, OBJECT_MINUTES, PodRun
from gpuledger.simulate.script import Hold, Job
from gpuledger.simulate.spec import GPUS_PER_NODE

NAMESPACE_NAMES = ("batch", "dev", "serve", "train")
QUOTA_NAMESPACE = "dev"
QUOTA_NAME = "gpus"
CORDON = "node.kubernetes.io/unschedulable"


def namespace(facts: Facts, name: str) -> Object:
    """A namespace."""
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "creationTimestamp": facts.text(0)},
        "status": {"phase": "Active"},
    }


NodeState = tuple[tuple[int, ...], bool, int, int | None]
"""Cards out of use, whether the node is ready and since when, since when it is cordoned (minutes; None: it is not)."""


def node_state(facts: Facts, host: Host, minute: int) -> NodeState:
    """What of a node can change, at `minute`."""
    active = [outage for outage in facts.outages.get(host.index, ()) if outage.start <= minute < outage.end]
    whole = [outage for outage in active if set(outage.cards) == set(host.cards)]
    lost = {card for outage in active if outage not in whole for card in outage.cards}
    dark = [outage for outage in facts.outages.get(host.index, ()) if outage.condition == "not_ready"]
    changes = [edge for outage in dark for edge in (outage.start, outage.end) if edge <= minute]
    cordoned = [outage.start for outage in whole if outage.condition != "not_ready"]
    return (
        tuple(sorted(lost)),
        not any(outage.condition == "not_ready" for outage in whole),
        max(changes, default=0),
        None if not cordoned else max(min(cordoned), 0),
    )


def node(facts: Facts, host: Host, state: NodeState) -> Object:
    """A host as a node. A card out of use is not allocatable; a host under repair or set aside is cordoned."""
    lost, is_ready, since, cordoned = state
    hardware = host.hardware
    capacity: Counter[str] = sum((facts.offers(card) for card in host.cards), Counter())
    allocatable = capacity - sum((facts.offers(card) for card in lost), Counter())
    amounts = {"cpu": str(hardware.cpu_cores), "memory": f"{hardware.memory_mib}Mi", "pods": "250"}
    copies = {facts.copies[card] for card in host.cards if card in facts.copies}
    labels = {
        "kubernetes.io/hostname": host.name,
        "nvidia.com/gpu.count": str(GPUS_PER_NODE),
        "nvidia.com/gpu.product": hardware.product.replace(" ", "-"),
        "network.topology.nvidia.com/leaf": host.leaf,
        "network.topology.nvidia.com/spine": host.spine,
        "node.gpuledger.example/pool": hardware.pool,
        **({"nvidia.com/gpu.replicas": str(max(copies))} if copies else {}),
    }
    ready = {
        "type": "Ready",
        "status": "True" if is_ready else "Unknown",
        "reason": "KubeletReady" if is_ready else "NodeStatusUnknown",
        "message": "kubelet is posting ready status" if is_ready else "Kubelet stopped posting node status.",
        "lastTransitionTime": facts.text(since),
    }
    taint = {"key": CORDON, "effect": "NoSchedule", "timeAdded": facts.text(cordoned or 0)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": host.name, "labels": labels, "creationTimestamp": facts.text(0)},
        "spec": {} if cordoned is None else {"unschedulable": True, "taints": [taint]},
        "status": {
            "capacity": {**amounts, **_texts(capacity)},
            # A resource whose every device is out of use stays listed, with none to give.
            "allocatable": {**amounts, **_texts({name: allocatable[name] for name in capacity})},
            "conditions": [ready],
        },
    }


def _texts(amounts: dict[str, int] | Counter[str]) -> dict[str, str]:
    return {name: str(count) for name, count in sorted(amounts.items())}


def pod(facts: Facts, run: PodRun, *, is_over: bool) -> Object:
    """A pod with GPUs: it runs, or completed."""
    return _pod(
        facts,
        run.job,
        name=run.name,
        uid=run.uid,
        life=(run.start, run.end if is_over else LATEST),
        place=(facts.script.fleet.hosts[run.host].name, {facts.resource(run): str(len(run.devices))}),
    )


def cpu_pod(facts: Facts, job: Job, hold: Hold, *, is_over: bool) -> Object:
    """A pod without GPUs."""
    return _pod(
        facts,
        job,
        name=hold.pod,
        uid=f"{hold.pod}-{hold.start}",
        life=(hold.start, hold.end if is_over else LATEST),
        place=(facts.script.fleet.hosts[hold.host].name, {}),
    )


def cpu_holds(facts: Facts, minute: int) -> Iterator[tuple[Job, Hold]]:
    """Pods without GPUs whose objects are there at `minute`."""
    for job in facts.script.jobs:
        for hold in job.holds:
            if hold.card is None and hold.start <= minute < hold.end + OBJECT_MINUTES:
                yield job, hold


def template(job: Job, gpus: dict[str, str], *, is_labelled: bool = True) -> Object:
    """What a pod of a job asks for."""
    amounts = {"cpu": f"{job.cpu_milli}m", "memory": f"{job.memory_mib}Mi", **gpus}
    resources = {"requests": amounts, "limits": dict(gpus)}
    container = {"name": CONTAINER, "image": "registry.example/team/work:1", "resources": resources}
    spec = {"containers": [container], "restartPolicy": "Never"}
    return {"metadata": {"labels": labels_of(job)}, "spec": spec} if is_labelled else {"spec": spec}


def labels_of(job: Job) -> dict[str, str]:
    """The labels of a job's pods."""
    return {"kueue.x-k8s.io/queue-name": job.team, "user": job.user}


def _pod(
    facts: Facts, job: Job, *, name: str, uid: str, life: tuple[int, int], place: tuple[str, dict[str, str]]
) -> Object:
    start, end = life
    is_over = end != LATEST
    running = {"running": {"startedAt": facts.text(start)}}
    reason = {"exitCode": 0, "reason": "Completed", "startedAt": facts.text(start)}
    state = {"terminated": {**reason, "finishedAt": facts.text(end)}} if is_over else running
    ready = {"type": "Ready", "status": "False" if is_over else "True", "lastTransitionTime": facts.text(start)}
    if is_over:
        ready |= {"reason": "PodCompleted", "lastTransitionTime": facts.text(end)}
    node_name, gpus = place
    container = {"name": CONTAINER, "image": "registry.example/team/work:1", "imageID": "", "restartCount": 0}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace_of(job),
            "uid": uid,
            "labels": labels_of(job),
            "ownerReferences": [owner_of(job, f"owner-{job.workload_id}")],
            "creationTimestamp": facts.text(start),
        },
        "spec": {**template(job, gpus)["spec"], "nodeName": node_name, "priority": job.priority},
        "status": {
            "phase": "Succeeded" if is_over else "Running",
            "startTime": facts.text(start),
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": facts.text(start)}, ready],
            "containerStatuses": [{**container, "ready": not is_over, "state": state}],
        },
    }


def quota_used(works: Sequence[Work], minute: int) -> int:
    """Whole GPUs that the namespace with a quota holds."""
    return sum(
        work.amount
        for work in works
        if work.resource == GPU and namespace_of(work.job) == QUOTA_NAMESPACE and work.is_running(minute)
    )


def quota(facts: Facts, used: int) -> Object:
    """The ResourceQuota of the notebooks' namespace: as many GPUs as there are cards, so that it never binds."""
    cards = len(facts.script.fleet.cards)
    hard = {f"requests.{GPU}": str(cards)}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": QUOTA_NAME, "namespace": QUOTA_NAMESPACE, "creationTimestamp": facts.text(0)},
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": {f"requests.{GPU}": str(used)}},
    }
