"""The ResourceManager's REST interface: one round of reading. Nothing here makes records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pydantic import Field

from gpuledger.errors import BadInput, NotPermitted, SchedulerUnreachable
from schedulers.rest import Query, Rest, RestOptions
from schedulers.yarn.answers import GPU, Json, by_partition, listed, total, within

APP_STATES = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
NODE_STATES = "NEW,RUNNING,UNHEALTHY,DECOMMISSIONING,LOST,REBOOTED"
"""Every state but those of nodes that were taken out on purpose."""
BASE = "/ws/v1/cluster"

Read = TypeVar("Read")


class YarnOptions(RestOptions):
    """Options of the adapter `yarn`. Kerberos (SPNEGO) is not supported."""

    user: str | None = Field(None, description="Sent as `user.name`, for clusters that believe what they are told.")
    containers_at_most: int = Field(
        200, ge=0, le=10_000, description="Of how many applications with GPUs to ask where their containers are."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """One round: queues before and after the rest, nodes, applications, containers by application id.

    None is what may not be read; `denied` says so. `unasked` applications with GPUs were not asked for containers.
    """

    before: Json | None
    after: Json | None
    nodes: Sequence[Json] | None
    apps: Sequence[Json] | None
    containers: Mapping[str, Sequence[Json]]
    denied: tuple[tuple[str, str], ...] = ()
    unasked: int = 0


class YarnApi:
    """Reads what `Heard` holds."""

    def __init__(self, options: YarnOptions) -> None:
        self._options = options
        query: Query = {"user.name": options.user} if options.user else {}
        self._rest = Rest(options, "yarn", query=query)

    @property
    def where(self) -> str:
        """The address, as errors name it."""
        return self._options.url

    def hear(self) -> Heard:
        """One round of reading. Raises SchedulerUnreachable, or NotPermitted where nothing may be read."""
        denied: list[tuple[str, str]] = []
        with self._rest.connected():
            before = self._allowed("queues", denied, self._queues)
            nodes = self._allowed("nodes", denied, lambda: self._rows("/nodes", "nodes", "node", NODE_STATES))
            apps = self._allowed("applications", denied, lambda: self._rows("/apps", "apps", "app", APP_STATES))
            after = None if before is None else self._allowed("queues", denied, self._queues)
            holding = [str(app.get("id")) for app in apps or () if _holds_gpus(app)]
            containers = self._containers(holding[: self._options.containers_at_most], denied)
        if before is None and nodes is None and apps is None:
            raise NotPermitted(denied[0][1])
        return Heard(
            before=before, after=after, nodes=nodes, apps=apps, containers=containers,
            denied=tuple(dict.fromkeys(denied)), unasked=max(len(holding) - self._options.containers_at_most, 0),
        )  # fmt: skip

    def _allowed(self, what: str, denied: list[tuple[str, str]], read: Callable[[], Read]) -> Read | None:
        try:
            return read()
        except NotPermitted as error:
            denied.append((what, str(error)))
            return None

    def _queues(self) -> Json:
        told = within(self._rest.get(f"{BASE}/scheduler"), "scheduler", "schedulerInfo")
        if not isinstance(told, Mapping):
            raise SchedulerUnreachable(f"{self._rest.where(BASE)}/scheduler: answers no schedulerInfo")
        return told

    def _rows(self, path: str, plural: str, singular: str, states: str) -> list[Json]:
        told = self._rest.get(f"{BASE}{path}", {"states": states})
        try:
            return listed(within(told, plural, singular))
        except BadInput:
            raise SchedulerUnreachable(f"{self._rest.where(BASE + path)}: answers no list of {plural}") from None

    def _containers(self, apps: Sequence[str], denied: list[tuple[str, str]]) -> dict[str, list[Json]]:
        """Where the containers of applications are; an application that just ended has none."""
        found: dict[str, list[Json]] = {}
        for name in apps:
            try:
                found[name] = self._containers_of(name)
            except (NotPermitted, SchedulerUnreachable, BadInput) as error:
                denied.append(("containers", str(error)))
                break
        return found

    def _containers_of(self, app: str) -> list[Json]:
        path = f"{BASE}/apps/{app}/appattempts"
        attempts = listed(within(self._rest.find(path), "appAttempts", "appAttempt"))
        if not attempts:
            return []
        last = max(attempts, key=lambda one: int(one.get("id") or 0)).get("appAttemptId")
        return listed(within(self._rest.find(f"{path}/{last}/containers"), "containers", "container"))


def _holds_gpus(app: Json) -> bool:
    try:
        used = by_partition(app.get("resourceInfo"), "resourceUsagesByPartition", "used")
    except BadInput:
        return False
    return app.get("state") == "RUNNING" and total(used, GPU) > 0
