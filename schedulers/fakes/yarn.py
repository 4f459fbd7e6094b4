"""A ResourceManager in memory that answers as Hadoop's documents and source say, not as our reader expects.

Made from ResourceManagerRest.md, UsingGpus.md, the classes in `resourcemanager/webapp/dao` (SchedulerInfo, NodeInfo,
AppInfo, ContainerInfo) and the recorded answers in Hadoop's own tests (`src/test/resources/webapp`). No real
ResourceManager was run. It places nothing: containers are where whoever made it says, and all sums follow from them.

Two dialects: "jettison" (releases up to 3.4: lists are lists, the type of a scheduler is `type`), and "moxy" (after:
a list of one is its element, an empty one is "", the type is `@xsi.type`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import Any
from urllib.parse import urlencode

from schedulers.fakes.web import Answer, Hung, Request, serving

LARGEST = 9_223_372_036_854_775_807
BASE = "/ws/v1/cluster"
CLUSTER_ID = 1_772_400_000_000
"""When the fake was started, in milliseconds: part of the ids of applications."""


@dataclass
class FakeNode:
    """A NodeManager that offers GPUs. `labels` are node labels (partitions): YARN has one a node."""

    host: str
    gpus: int
    state: str = "RUNNING"
    label: str = ""
    rack: str = "/rack1"
    memory_mb: int = 1_048_576
    vcores: int = 128
    report: str = ""

    @property
    def id(self) -> str:
        """host:port."""
        return f"{self.host}:8041"


@dataclass
class FakeContainer:
    """One container of an application."""

    node: str
    gpus: int
    memory_mb: int = 65_536
    vcores: int = 8


@dataclass
class FakeApp:
    """An application. The first of `containers` is its master's; `asks` are (GPUs, containers) not given yet."""

    number: int
    queue: str
    state: str
    user: str = "ana"
    name: str = "train"
    kind: str = "SPARK"
    containers: list[FakeContainer] = field(default_factory=list)
    asks: list[tuple[int, int]] = field(default_factory=list)
    diagnostics: str = ""
    started_ms: int = CLUSTER_ID + 60_000
    launched_ms: int = 0
    priority: int = 0

    @property
    def id(self) -> str:
        """As YARN writes it."""
        return f"application_{CLUSTER_ID}_{self.number:04d}"


@dataclass
class FakeQueue:
    """A leaf or a parent: guaranteed and most GPUs in the default partition, and children."""

    name: str
    least_gpus: int
    most_gpus: int
    children: list[FakeQueue] = field(default_factory=list)
    state: str = "RUNNING"
    weight: float = -1.0


def _resource(gpus: float, memory_mb: int = 0, vcores: int = 0) -> dict[str, Any]:
    def one(name: str, value: float, units: str) -> dict[str, Any]:
        return {
            "attributes": {}, "maximumAllocation": LARGEST, "minimumAllocation": 0, "name": name,
            "resourceType": "COUNTABLE", "units": units, "value": value,
        }  # fmt: skip

    named = [one("memory-mb", memory_mb, "Mi"), one("vcores", vcores, ""), one("yarn.io/gpu", gpus, "")]
    return {"memory": memory_mb, "vCores": vcores, "resourceInformations": {"resourceInformation": named}}


def _sum(held: list[FakeContainer]) -> dict[str, Any]:
    return _resource(sum(one.gpus for one in held), sum(one.memory_mb for one in held), sum(one.vcores for one in held))


def _moxy(told: Any, key: str = "") -> Any:
    """`told` as the newer releases write it."""
    if isinstance(told, dict):
        return {("@xsi.type" if name == "type" else name): _moxy(value, name) for name, value in told.items()}
    if isinstance(told, list):
        if not told:
            return ""
        alone = len(told) == 1 and key not in ("resourceInformation", "queueAcl")
        return _moxy(told[0]) if alone else [_moxy(one) for one in told]
    return told


@dataclass
class FakeResourceManager:
    """`root` and what is below it, nodes and applications. `change` may alter any answer before it is sent."""

    root: FakeQueue
    nodes: list[FakeNode]
    apps: list[FakeApp]
    dialect: str = "jettison"
    is_down: bool = False
    is_standby_of: str | None = None
    forbidden: set[str] = field(default_factory=set)
    change: Callable[[str, Any], Any] = lambda _, told: told
    asked: list[Request] = field(default_factory=list)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Gives the address."""
        with serving(self._answer) as url:
            yield url

    def _answer(self, request: Request) -> Answer:
        self.asked.append(request)
        if self.is_down:
            raise Hung
        if self.is_standby_of is not None:
            asked = f"{request.path}?{urlencode(request.query, doseq=True)}"
            words = f"This is standby RM. The redirect url is: {escape(asked)}\n"
            return Answer(words, 307, {"Location": f"{self.is_standby_of}{asked}"})  # as RMWebAppFilter does
        path = request.path.removeprefix(BASE)
        if path.partition("?")[0] in self.forbidden:
            return Answer("<html><body>User is not authorized</body></html>", 403)
        told = self._route(path, request)
        if told is None:
            remote = {"exception": "NotFoundException", "message": path, "javaClassName": "NotFoundException"}
            return Answer({"RemoteException": remote}, 404)
        told = self.change(path, told)
        return Answer(_moxy(told) if self.dialect == "moxy" else told)

    def _route(self, path: str, request: Request) -> Any:
        states = set(request.one("states", "").split(","))
        if path == "/scheduler":
            return {"scheduler": {"schedulerInfo": self._scheduler()}}
        if path == "/nodes":
            return {"nodes": {"node": [self._node(one) for one in self.nodes if one.state in states]}}
        if path == "/apps":
            found = [self._app(one) for one in self.apps if one.state in states]
            return {"apps": {"app": found} if found else None}
        for app in self.apps:
            if path == f"/apps/{app.id}/appattempts":
                return {"appAttempts": {"appAttempt": [{"id": 1, "appAttemptId": _attempt(app)}]}}
            if path == f"/apps/{app.id}/appattempts/{_attempt(app)}/containers":
                return {"containers": {"container": self._containers(app)}}
        return None

    def _scheduler(self) -> dict[str, Any]:
        told = self._queue(self.root, "")
        for absent in ("state", "resourcesUsed", "resources", "numApplications", "absoluteCapacity"):
            told.pop(absent, None)  # CapacitySchedulerInfo, of root, has none of them
        return {**told, "type": "capacityScheduler", "schedulerName": "Capacity Scheduler"}

    def _queue(self, queue: FakeQueue, above: str) -> dict[str, Any]:
        path = f"{above}.{queue.name}" if above else queue.name
        apps = [app for app in self.apps if app.queue == path or app.queue.startswith(f"{path}.")]
        held = [one for app in apps for one in app.containers]
        wanted = sum(gpus * count for app in apps for gpus, count in app.asks)
        told: dict[str, Any] = {
            "type": "capacitySchedulerLeafQueueInfo", "queuePath": path, "queueName": queue.name,
            "capacity": 50.0, "usedCapacity": 0.0, "maxCapacity": 100.0, "absoluteCapacity": 50.0,
            "absoluteMaxCapacity": 100.0, "absoluteUsedCapacity": 0.0, "weight": queue.weight, "normalizedWeight": 0.0,
            "numApplications": len(apps), "maxParallelApps": 2_147_483_647, "isAbsoluteResource": True,
            "state": queue.state, "resourcesUsed": _sum(held), "hideReservationQueues": False, "nodeLabels": ["*"],
            "allocatedContainers": len(held), "reservedContainers": 0,
            "pendingContainers": sum(count for app in apps for _, count in app.asks),
            "capacities": {"queueCapacitiesByPartition": [{
                "partitionName": "", "capacity": 50.0, "weight": queue.weight,
                "queueCapacityVectorInfo": {
                    "configuredCapacityVector": f"[memory-mb=1048576.0,vcores=128.0,yarn.io/gpu={queue.least_gpus}.0]",
                },
                "configuredMinResource": _resource(queue.least_gpus, 1_048_576, 128),
                "configuredMaxResource": _resource(queue.most_gpus, 2_097_152, 256),
                "effectiveMinResource": _resource(queue.least_gpus, 1_048_576, 128),
                "effectiveMaxResource": _resource(queue.most_gpus, 2_097_152, 256),
            }]},
            "resources": {"resourceUsagesByPartition": [{
                "partitionName": "", "used": _sum(held), "reserved": _resource(0), "pending": _resource(wanted),
                "amUsed": _resource(0), "amLimit": _resource(0), "userAmLimit": _resource(0),
            }]},
            "queuePriority": 0, "preemptionDisabled": True,
            "numPendingApplications": sum(app.state == "ACCEPTED" for app in apps),
        }  # fmt: skip
        if queue.children:
            told["queues"] = {"queue": [self._queue(one, path) for one in queue.children]}
            told.pop("type")
        return told

    def _node(self, node: FakeNode) -> dict[str, Any]:
        held = [one for app in self.apps for one in app.containers if one.node == node.host]
        told: dict[str, Any] = {
            "rack": node.rack, "state": node.state, "id": node.id, "nodeHostName": node.host,
            "nodeHTTPAddress": f"{node.host}:8042", "lastHealthUpdate": CLUSTER_ID + 3_600_000, "version": "3.4.1",
            "healthReport": node.report, "numContainers": len(held),
            "nodeLabels": [node.label] if node.label else [],
            "totalResource": _resource(node.gpus, node.memory_mb, node.vcores),
        }  # fmt: skip
        if node.state in ("RUNNING", "DECOMMISSIONING", "UNHEALTHY"):  # others have no report of the scheduler
            used = _sum(held)
            told["usedResource"] = used
            told["availableResource"] = _resource(
                node.gpus - sum(one.gpus for one in held), node.memory_mb - used["memory"], node.vcores - used["vCores"]
            )
        return told

    def _app(self, app: FakeApp) -> dict[str, Any]:
        wanted = sum(gpus * count for gpus, count in app.asks)
        return {
            "id": app.id, "user": app.user, "name": app.name, "queue": app.queue, "state": app.state,
            "finalStatus": "UNDEFINED", "progress": 0.0, "trackingUI": "UNASSIGNED", "diagnostics": app.diagnostics,
            "clusterId": CLUSTER_ID, "applicationType": app.kind, "applicationTags": "", "priority": app.priority,
            "startedTime": app.started_ms, "launchTime": app.launched_ms, "finishedTime": 0, "elapsedTime": 1000,
            "allocatedMB": sum(one.memory_mb for one in app.containers),
            "allocatedVCores": sum(one.vcores for one in app.containers), "reservedMB": 0, "reservedVCores": 0,
            "runningContainers": len(app.containers), "preemptedResourceMB": 0, "preemptedResourceVCores": 0,
            "numNonAMContainerPreempted": 0, "numAMContainerPreempted": 0,
            "resourceRequests": [
                ask for gpus, count in app.asks for ask in (_ask(gpus, count, "*"), _ask(gpus, count, "/rack1"))
            ],
            "resourceInfo": {"resourceUsagesByPartition": [{
                "partitionName": "", "used": _sum(app.containers), "reserved": _resource(0),
                "pending": _resource(wanted),
            }]},
        }  # fmt: skip

    def _containers(self, app: FakeApp) -> list[Mapping[str, Any]]:
        return [
            {
                "containerId": f"container_{CLUSTER_ID}_{app.number:04d}_01_{number:06d}",
                "allocatedMB": one.memory_mb, "allocatedVCores": one.vcores, "assignedNodeId": f"{one.node}:8041",
                "nodeId": f"{one.node}:8041", "priority": 0, "startedTime": app.launched_ms + 5000, "finishedTime": 0,
                "containerExitStatus": 0, "containerState": "RUNNING",
                "allocatedResources": {"entry": [
                    {"key": "memory-mb", "value": str(one.memory_mb)}, {"key": "vcores", "value": str(one.vcores)},
                    {"key": "yarn.io/gpu", "value": str(one.gpus)},
                ]},
            }
            for number, one in enumerate(app.containers, 1)
        ]  # fmt: skip


def _attempt(app: FakeApp) -> str:
    return f"appattempt_{CLUSTER_ID}_{app.number:04d}_000001"


def _ask(gpus: int, count: int, where: str) -> Mapping[str, Any]:
    return {
        "capability": _resource(gpus, 65_536, 8), "numContainers": count, "priority": 1, "resourceName": where,
        "relaxLocality": True, "nodeLabelExpression": "",
    }  # fmt: skip
