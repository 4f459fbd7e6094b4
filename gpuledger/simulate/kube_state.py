"""The fleet's kube-state-metrics page at an instant: pods that ask for GPUs, who owns them, and what nodes offer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from gpuledger.simulate.pods import CONTAINER, OWNER_KINDS, PodRun
from gpuledger.simulate.script import Script
from gpuledger.simulate.spec import GPUS_PER_NODE

PHASES = ("Pending", "Succeeded", "Failed", "Unknown", "Running")
NODE_RESOURCES = ("allocatable", "capacity")
Sample = tuple[str, float]


def kube_state_page(script: Script, runs: list[PodRun], second: int) -> bytes:
    """The page at `second` of the script. A completed pod is listed until its object is deleted."""
    listed = [run for run in runs if run.start * 60 <= second < run.listed_until * 60]
    lines: list[str] = []
    for family, help_text, samples in (*_pod_families(script, listed, second), *_node_families(script)):
        lines += (f"# HELP {family} {help_text}", f"# TYPE {family} gauge")
        lines += [f"{family}{{{labels}}} {_written(value)}" for labels, value in samples]
    return ("\n".join(lines) + "\n").encode()


def _written(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _pod_families(script: Script, listed: list[PodRun], second: int) -> Iterator[tuple[str, str, Iterable[Sample]]]:
    start = int(script.spec.start_at.timestamp())
    nodes = [host.name for host in script.fleet.hosts]
    over = [run for run in listed if run.end * 60 <= second]

    def begun(run: PodRun) -> float:
        return start + run.start * 60

    yield "kube_pod_info", "Information about pod.", [(_info(run, nodes[run.host]), 1) for run in listed]
    yield "kube_pod_owner", "Information about the Pod's owner.", [(_owner(run), 1) for run in listed]
    yield "kube_pod_labels", "Kubernetes labels converted to Prometheus labels.", [(_labels(run), 1) for run in listed]
    yield "kube_pod_created", "Unix creation timestamp.", [(_of(run), begun(run)) for run in listed]
    yield "kube_pod_start_time", "Start time in unix timestamp for a pod.", [(_of(run), begun(run)) for run in listed]
    ends = [(_of(run), float(start + run.end * 60)) for run in over]
    yield "kube_pod_completion_time", "Completion time in unix timestamp for a pod.", ends
    yield (
        "kube_pod_status_phase",
        "The pods current phase.",
        [
            (f'{_of(run)},phase="{phase}"', float(phase == ("Succeeded" if run.end * 60 <= second else "Running")))
            for run in listed
            for phase in PHASES
        ],
    )
    yield (
        "kube_pod_container_resource_requests",
        "The number of requested request resource by a container.",
        [sample for run in listed for sample in _requests(script, run, nodes[run.host])],
    )


def _of(run: PodRun) -> str:
    return f'namespace="{run.namespace}",pod="{run.name}",uid="{run.uid}"'


def _info(run: PodRun, node: str) -> str:
    kind = OWNER_KINDS.get(run.job.kind, "Job")
    return f'{_of(run)},node="{node}",created_by_kind="{kind}",created_by_name="{run.job.workload_id}"'


def _owner(run: PodRun) -> str:
    kind = OWNER_KINDS.get(run.job.kind, "Job")
    return f'{_of(run)},owner_kind="{kind}",owner_name="{run.job.workload_id}",owner_is_controller="true"'


def _labels(run: PodRun) -> str:
    return f'{_of(run)},label_kueue_x_k8s_io_queue_name="{run.job.team}",label_user="{run.job.user}"'


def _requests(script: Script, run: PodRun, node: str) -> Iterator[Sample]:
    of = f'{_of(run)},container="{CONTAINER}",node="{node}"'
    yield f'{of},resource="{run.resource(script)}",unit="integer"', float(len(run.devices))
    yield f'{of},resource="cpu",unit="core"', run.job.cpu_milli / 1000
    yield f'{of},resource="memory",unit="byte"', float(run.job.memory_mib * 2**20)


def _node_families(script: Script) -> Iterator[tuple[str, str, Iterable[Sample]]]:
    yield "kube_node_info", "Information about a cluster node.", [(f'node="{h.name}"', 1) for h in script.fleet.hosts]
    samples = [sample for host in script.fleet.hosts for sample in _offers(script, host.index)]
    for kind in NODE_RESOURCES:
        yield f"kube_node_status_{kind}", f"The {kind} of different resources of a node.", samples


def _offers(script: Script, host: int) -> Iterator[Sample]:
    own = script.fleet.hosts[host]
    slices = [part for card in own.cards for part in script.fleet.cards[card].slices]
    offered: Counter[str] = Counter(own.hardware.part_resource(part) for part in slices)
    whole = sum(not script.fleet.cards[card].slices for card in own.cards)
    offered["nvidia_com_gpu"] = min(whole, GPUS_PER_NODE)
    for resource, count in sorted(offered.items()):
        yield f'node="{own.name}",resource="{resource}",unit="integer"', float(count)
    yield f'node="{own.name}",resource="cpu",unit="core"', float(own.hardware.cpu_cores)
    yield f'node="{own.name}",resource="memory",unit="byte"', float(own.hardware.memory_mib * 2**20)
