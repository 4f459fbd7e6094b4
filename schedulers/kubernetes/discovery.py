"""Which of the kinds that we understand a cluster serves, and at which path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from gpuledger.errors import SchedulerError
from schedulers.kubernetes.client import Api, Refused
from schedulers.kubernetes.moment import Kind


@dataclass(frozen=True, slots=True)
class Served:
    """A kind that the cluster has, in `version`."""

    kind: Kind
    version: str

    @property
    def group_version(self) -> str:
        """The group and version of its objects: `v1`, `kueue.x-k8s.io/v1beta2`."""
        return f"{self.kind.group}/{self.version}" if self.kind.group else self.version

    def path(self, namespace: str | None = None) -> str:
        """Where its list is: of one namespace, or of the whole cluster."""
        base = f"/apis/{self.group_version}" if self.kind.group else f"/api/{self.version}"
        scope = f"/namespaces/{namespace}" if namespace is not None else ""
        return f"{base}{scope}/{self.kind.plural}"


def discover(api: Api, kinds: Iterable[Kind], sleep: Callable[[float], None]) -> list[Served]:
    """The kinds that the cluster has, each in the best version that both sides know.

    An absent optional kind is left out. Where discovery is refused the best version is taken on trust. Raises
    SchedulerError naming a kind that must be there and is not.
    """
    groups = _groups(api, sleep)
    plurals: dict[str, frozenset[str] | None] = {}
    found = []
    for kind in kinds:
        served = _served(api, kind, groups, plurals, sleep)
        if served is not None:
            found.append(served)
        elif not kind.is_optional:
            raise SchedulerError(f"{api.url} has no {kind.key} in a version of {', '.join(kind.versions)}")
    return found


def _served(
    api: Api,
    kind: Kind,
    groups: Mapping[str, list[str]] | None,
    plurals: dict[str, frozenset[str] | None],
    sleep: Callable[[float], None],
) -> Served | None:
    known = kind.versions if groups is None else [one for one in kind.versions if one in groups.get(kind.group, ())]
    for version in known:
        served = Served(kind, version)
        if served.group_version not in plurals:
            plurals[served.group_version] = _plurals(api, served, sleep)
        listed = plurals[served.group_version]
        if listed is None or kind.plural in listed:
            return served
    return None


def _groups(api: Api, sleep: Callable[[float], None]) -> dict[str, list[str]] | None:
    """Groups and their versions; None where we may not ask."""
    try:
        core, rest = api.get("/api", sleep), api.get("/apis", sleep)
    except Refused as error:
        if error.status == 403:
            return None
        raise
    versions = {group["name"]: [one["version"] for one in group["versions"]] for group in rest.get("groups") or ()}
    return {**versions, "": list(core.get("versions") or ())}


def _plurals(api: Api, served: Served, sleep: Callable[[float], None]) -> frozenset[str] | None:
    """The plurals of a group's version; None where we may not ask, nothing where it is not there after all."""
    base = f"/apis/{served.group_version}" if served.kind.group else f"/api/{served.version}"
    try:
        answer = api.get(base, sleep)
    except Refused as error:
        return None if error.status == 403 else frozenset()
    return frozenset(one["name"] for one in answer.get("resources") or ())
