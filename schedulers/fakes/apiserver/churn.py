"""A cluster that never stands still, and in which no GPU is ever held twice: what a torn read would show.

All nodes are full but for a few holes. A move deletes a pod and creates another in a hole that an earlier deletion
left, so a reader that mixes two versions sees a GPU with two pods, or more or fewer GPUs held than there ever were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import numpy as np

from schedulers.fakes.apiserver.resources import Resource
from schedulers.fakes.apiserver.store import Object, Store, encoded

GPU = "nvidia.com/gpu"
GPUS_PER_NODE = 8
DEVICES = "churn.example/devices"
"""The annotation that says which GPUs of its node a pod holds: "0,1"."""

SIZES = (1, 1, 1, 1, 2, 2)
"""GPUs of the pods of each node."""

_TICK_SECONDS = 0.01
_NODES_PER_LEAF = 16
_LEAVES_PER_SPINE = 8

_FIELDS = {
    "spec.restartPolicy": "Never",
    "spec.schedulerName": "default-scheduler",
    "spec.serviceAccountName": "default",
    "status.phase": "Running",
}
"""What a pod can be selected by, the same for all but their nodes."""

Place = tuple[int, tuple[int, ...]]
"""A node's number, and GPUs of it."""


@dataclass(slots=True)
class Churn:
    """A cluster of `nodes` nodes and `pods` pods in `store`; `change` makes one step of its life.

    `holes` pods fewer than would fit are there at any time, of each size. The same seed gives the same life.
    """

    store: Store
    nodes: int = 1_250
    pods: int = 20_000
    holes: int = 25
    seed: int = 1
    made: int = 0
    changes: int = 0
    _places: dict[str, Place] = field(default_factory=dict)
    _names: list[str] = field(default_factory=list)
    _free: dict[int, list[Place]] = field(default_factory=dict)
    _templates: dict[int, bytes] = field(default_factory=dict)
    _pods_resource: Resource = field(init=False)
    _rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._pods_resource = self.store.resource("", "pods")
        self.store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "churn"}})
        for node in range(self.nodes):
            self.store.put(_node(node, 0))
        places = [place for node in range(self.nodes) for place in _whole(node)]
        for size in sorted(set(SIZES)):
            sized = [place for place in places if len(place[1]) == size]
            self._rng.shuffle(sized)
            self._free[size] = sized[: self.holes]
            for place in sized[self.holes :]:
                self._create(place)
        for number in range(max(self.pods - len(self._names), 0)):
            self._write(f"web-{number:06d}", (number % self.nodes, ()), 0)

    @property
    def held_gpus(self) -> tuple[int, int]:
        """The fewest and the most GPUs that are held at any version."""
        full = self.nodes * GPUS_PER_NODE - self.holes * sum(set(SIZES))
        return full - max(SIZES), full

    def change(self) -> None:
        """One write or two: a move (a deletion, then a creation elsewhere), or news of a pod or a node."""
        self.changes += 1
        kind = self._rng.random()
        if kind < 0.1:
            self.store.put(_node(int(self._rng.integers(self.nodes)), self.changes))
        elif kind < 0.4:
            name = self._names[int(self._rng.integers(len(self._names)))]
            self._write(name, self._places[name], self.changes)
        else:
            self._move()

    def _move(self) -> None:
        position = int(self._rng.integers(len(self._names)))
        name = self._names[position]
        place = self._places.pop(name)
        self._names[position] = self._names[-1]
        self._names.pop()
        self.store.drop(self._pods_resource, ("churn", name))
        free = self._free[len(place[1])]
        hole = free.pop(int(self._rng.integers(len(free))))
        free.append(place)
        self._create(hole)

    def _create(self, place: Place) -> None:
        self.made += 1
        name = f"train-{self._rng.integers(10**6):06d}-{self.made:07d}"
        self._write(name, place, 0)
        self._places[name] = place
        self._names.append(name)

    def _write(self, name: str, place: Place, beat: int) -> None:
        """Write a pod: the bytes of one like it with its own name, place and version put in, which is quick."""
        node, devices = place
        template = self._templates.get(len(devices))
        if template is None:
            template = self._templates[len(devices)] = _template(len(devices))
        own = {
            b"@NAME@": name.encode(),
            b"@NODE@": node_name(node).encode(),
            b"@TEAM@": b"%d" % (node % 20),
            b"@DEVICES@": ",".join(map(str, devices)).encode(),
            b'"@BEAT@"': b"%d" % beat,
        }

        def tail(version: int) -> bytes:
            text = template
            for mark, value in {**own, b"@VERSION@": b"%d" % version}.items():
                text = text.replace(mark, value)
            return text

        labels = {"app": name, "kueue.x-k8s.io/queue-name": f"team-{node % 20}"}
        fields = {**_FIELDS, "spec.nodeName": node_name(node)}
        self.store.commit_bytes(self._pods_resource, ("churn", name), tail, labels, fields)

    def run(self, stop: Event, *, changes_per_second: float) -> None:
        """Change until `stop` is set, as fast as asked for or as the machine can."""
        clock = self.store.clock
        begin, first = clock.now(), self.changes
        while not stop.is_set():
            due = (clock.now() - begin).total_seconds() * changes_per_second
            while self.changes - first < due and not stop.is_set():
                self.change()
            clock.sleep(_TICK_SECONDS)


def twice_held(pods: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], list[str]]:
    """The GPUs (node, device) that more than one of `pods` (the API's objects) hold; none at any one version."""
    holders: dict[tuple[str, str], list[str]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        devices = (metadata.get("annotations") or {}).get(DEVICES, "")
        for device in filter(None, devices.split(",")):
            holders.setdefault((pod["spec"]["nodeName"], device), []).append(metadata["name"])
    return {gpu: names for gpu, names in holders.items() if len(names) > 1}


def _whole(node: int) -> list[Place]:
    """A node's GPUs, as its pods hold them."""
    places, first = [], 0
    for size in SIZES:
        places.append((node, tuple(range(first, first + size))))
        first += size
    return places


def node_name(number: int) -> str:
    """The name of node `number`."""
    return f"gpu-node-{number:04d}"


def _node(number: int, beat: int) -> Object:
    leaf = number // _NODES_PER_LEAF
    amounts = {"cpu": "192", "memory": "2113929216Ki", "pods": "110", GPU: str(GPUS_PER_NODE)}
    labels = {
        "kubernetes.io/hostname": node_name(number),
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": str(GPUS_PER_NODE),
        "network.topology.nvidia.com/leaf": f"leaf-{leaf:03d}",
        "network.topology.nvidia.com/spine": f"spine-{leaf // _LEAVES_PER_SPINE:02d}",
        "topology.kubernetes.io/zone": "zone-a",
    }
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": f"posting ready status {beat}"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node_name(number), "labels": labels},
        "spec": {"podCIDR": f"10.{number // 256}.{number % 256}.0/24"},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def _template(gpus: int) -> bytes:
    """The JSON of a pod with `gpus` GPUs after its kind, with marks where pods differ."""
    amounts = {"cpu": "8", "memory": "64Gi", **({GPU: str(gpus)} if gpus else {})}
    variables = [{"name": f"SETTING_{number}", "value": f"value of setting {number}"} for number in range(12)]
    container = {
        "name": "main",
        "image": "registry.example/team/image:1.2.3",
        "command": ["python", "-m", "train"],
        "args": ["--config", "/etc/train/config.yaml"],
        "env": variables,
        "resources": {"requests": amounts, "limits": amounts},
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    at = "2026-03-01T00:00:00Z"
    kinds = ("PodScheduled", "Initialized", "ContainersReady", "Ready")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": at} for kind in kinds]
    state = {
        "name": "main",
        "image": container["image"],
        "imageID": f"registry.example/team/image@sha256:{'ab' * 32}",
        "ready": True,
        "restartCount": "@BEAT@",
        "state": {"running": {"startedAt": at}},
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "@NAME@", "uid": "owner-of-@NAME@", "controller": True}
    pod = {
        "metadata": {
            "name": "@NAME@",
            "namespace": "churn",
            "uid": "uid-of-@NAME@",
            "resourceVersion": "@VERSION@",
            "creationTimestamp": at,
            "labels": {"app": "@NAME@", "kueue.x-k8s.io/queue-name": "team-@TEAM@"},
            "annotations": {DEVICES: "@DEVICES@"} if gpus else {},
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": "@NODE@",
            "containers": [container],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "restartPolicy": "Never",
            "schedulerName": "default-scheduler",
            "serviceAccountName": "default",
            "tolerations": [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {"phase": "Running", "startTime": at, "conditions": conditions, "containerStatuses": [state]},
    }
    return encoded(pod)[1:]
