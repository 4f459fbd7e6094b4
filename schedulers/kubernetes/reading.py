"""Lists all kinds at one resource version, or refuses.

The first list says the version; every other one is asked for exactly that version. Should it be forgotten meanwhile
(410) all begins anew. Where a server does not list at a version that it is given, watches bring the lists together.
docs/decisions/0016-one-moment.md says what of this the API promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gpuledger.clock import Clock
from gpuledger.errors import InconsistentSnapshot, NotPermitted, SchedulerUnreachable
from gpuledger.ports import SnapshotScope
from schedulers.kubernetes.client import Api, Refused
from schedulers.kubernetes.discovery import Served, discover
from schedulers.kubernetes.moment import Kind, Moment
from schedulers.kubernetes.options import KubernetesOptions
from schedulers.kubernetes.pods import Object
from schedulers.kubernetes.quiet import no_collecting

TRIES = 3
"""How often a moment is begun anew when the server forgot its version."""

GONE = 410
FORBIDDEN = 403
_NO_EXACT = frozenset({400, 422, 501})

_NOISE = frozenset({"managedFields", "selfLink", "generateName", "resourceVersion"})
_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class NoExactVersion(Exception):
    """The server does not list at a version that it is given."""


def thinned(kind: Kind, item: dict[str, Any]) -> Object | None:
    """The part of a fresh object that mappings need; None for one that does not matter."""
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        for name in _NOISE & metadata.keys():
            del metadata[name]
        if annotations := metadata.get("annotations"):
            annotations.pop(_APPLIED, None)
    return kind.keep(item) if kind.keep else item


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects of one list and the version that they are as of."""

    items: list[Object]
    version: str


@dataclass(slots=True)
class Scope:
    """What may be read, as it turns out. `namespaces` is None while the whole cluster is read."""

    namespaces: tuple[str, ...] | None = None
    denied: dict[str, str] = field(default_factory=dict)

    def told(self) -> SnapshotScope:
        """As the snapshot says it."""
        return SnapshotScope(namespaces=self.namespaces or (), denied=tuple(sorted(self.denied.items())))


class Lister:
    """Lists kinds of one cluster, and learns what it may list: `places` are namespaces by kind, None the cluster."""

    def __init__(self, api: Api, options: KubernetesOptions, clock: Clock) -> None:
        self.api = api
        self.options = options
        self.clock = clock
        self.scope = Scope(options.namespaces or None)
        self.places: dict[str, tuple[str | None, ...]] = {}

    def pages(self, served: Served, namespace: str | None, version: str | None) -> Listed:
        """One list, page by page: at exactly `version`, or of now for None."""
        parameters: dict[str, str | int] = {"limit": self.options.page_objects}
        if served.kind.fields:
            parameters["fieldSelector"] = served.kind.fields
        if version is not None:
            parameters |= {"resourceVersion": version, "resourceVersionMatch": "Exact"}
        path, items = served.path(namespace), []
        while True:
            answer = self.api.get(path, self.clock.sleep, **parameters)
            given, about = answer.get("items") or [], answer.get("metadata") or {}
            are_objects = isinstance(given, list) and all(isinstance(one, dict) for one in given)
            if not (are_objects and isinstance(about, dict)):
                raise SchedulerUnreachable(f"{self.api.url}{path}: is no list of objects")
            kept = (thinned(served.kind, item) for item in given)
            items += [item for item in kept if item is not None]
            if not about.get("continue"):
                return Listed(items, str(about.get("resourceVersion") or ""))
            parameters = {name: value for name, value in parameters.items() if not name.startswith("resourceVersion")}
            parameters["continue"] = about["continue"]

    def listed(self, served: Served, version: str | None) -> Listed | None:
        """Everything of a kind that we may read, at `version` (None: as of now); None where nothing was readable."""
        if self.scope.namespaces is None or not served.kind.is_namespaced:
            try:
                found = self.pages(served, None, version)
            except Refused as error:
                if error.status != FORBIDDEN:
                    raise
                self.scope.denied[served.kind.key] = error.answer
                if not served.kind.is_namespaced:
                    return None
            else:
                self.places[served.kind.key] = (None,)
                return found
        return self._by_namespace(served, version)

    def _by_namespace(self, served: Served, version: str | None) -> Listed | None:
        candidates = self.scope.namespaces or self._candidates()
        items: list[Object] = []
        readable = []
        for namespace in candidates:
            try:
                part = self.pages(served, namespace, version)
            except Refused as error:
                if error.status != FORBIDDEN:
                    raise
                self.scope.denied.setdefault(served.kind.key, error.answer)
                continue
            readable.append(namespace)
            items += part.items
            version = version or part.version
        if not readable or version is None:
            return None
        self.places[served.kind.key] = tuple(readable)
        if served.kind.key == "pods":
            self.scope.namespaces = tuple(readable)
        return Listed(items, version)

    def _candidates(self) -> Sequence[str]:
        """Namespaces that may be readable, where the cluster as a whole is not."""
        try:
            answer = self.api.get("/api/v1/namespaces", self.clock.sleep)
        except Refused:
            return (self.api.namespace,)
        return sorted(item["metadata"]["name"] for item in answer.get("items") or ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Lists:
    """All kinds as they were listed: each at `versions`, where the server lists at one version all the same."""

    taken_at: datetime
    objects: Mapping[str, list[Object]]
    versions: Mapping[str, str]
    places: Mapping[str, tuple[str | None, ...]]
    served: Mapping[str, Served]
    scope: SnapshotScope

    def moment(self, version: str) -> Moment:
        """As a moment at `version`."""
        return Moment(
            taken_at=self.taken_at,
            version=version,
            objects=self.objects,
            served={key: one.group_version for key, one in self.served.items()},
            scope=self.scope,
        )


def read_lists(api: Api, kinds: Iterable[Kind], options: KubernetesOptions, clock: Clock) -> Lists:
    """All `kinds` at one version; each at its own where the server does not list at a version that it is given.

    Raises InconsistentSnapshot when the server forgot the version again and again, NotPermitted when neither pods nor
    nodes may be read, SchedulerUnreachable when it does not answer.
    """
    served = ordered(discover(api, kinds, clock.sleep))
    is_exact = True
    for _ in range(TRIES):
        try:
            with no_collecting():
                return _lists(Lister(api, options, clock), served, is_exact=is_exact)
        except NoExactVersion:
            is_exact = False
        except Refused as error:
            if error.status != GONE:
                raise
    raise InconsistentSnapshot(f"{api.url} forgot the version that was being read, {TRIES} times in a row")


def ordered(served: Iterable[Served]) -> list[Served]:
    """Pods first: they say which namespaces may be read, and their list takes longest."""
    return sorted(served, key=lambda one: (one.kind.key != "pods", one.kind.is_loose))


def _lists(lister: Lister, served: Sequence[Served], *, is_exact: bool) -> Lists:
    taken_at = lister.clock.now()
    version: str | None = None
    found: dict[str, Listed] = {}
    for one in served:
        listed = _listed(lister, one, version if is_exact and not one.kind.is_loose else None)
        if listed is None:
            continue
        found[one.kind.key] = listed
        if version is None and not one.kind.is_loose:
            version = listed.version
    check_permitted(lister, found)
    return Lists(
        taken_at=taken_at,
        objects={key: listed.items for key, listed in found.items()},
        versions={key: listed.version for key, listed in found.items()},
        places=lister.places,
        served={one.kind.key: one for one in served if one.kind.key in found},
        scope=lister.scope.told(),
    )


def _listed(lister: Lister, served: Served, version: str | None) -> Listed | None:
    try:
        return lister.listed(served, version)
    except Refused as error:
        if version is not None and error.status in _NO_EXACT:
            raise NoExactVersion(str(error)) from error
        if served.kind.is_loose and error.status != GONE:
            lister.scope.denied[served.kind.key] = error.answer
            return None
        raise


def check_permitted(lister: Lister, objects: Mapping[str, Listed]) -> None:
    """Raises NotPermitted where neither pods nor nodes were shown: nothing could be said of GPUs."""
    if "pods" not in objects and "nodes" not in objects:
        denied = "; ".join(f"{what}: {answer}" for what, answer in sorted(lister.scope.denied.items()))
        raise NotPermitted(f"{lister.api.url} shows neither pods nor nodes: {denied}")
