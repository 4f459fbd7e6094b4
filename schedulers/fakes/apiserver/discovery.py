"""What the server says that it has: its version, groups, and the resources of a group version."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from schedulers.fakes.apiserver.resources import Resource
from schedulers.fakes.apiserver.statuses import no_such_path
from schedulers.fakes.apiserver.store import Store

SERVER_VERSION = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.0",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2025-08-27T10:00:00Z",
    "goVersion": "go1.24.6",
    "compiler": "gc",
    "platform": "linux/amd64",
}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def answer(store: Store, path: str) -> Mapping[str, Any] | str:
    """The document at a path that names no resource. Raises ApiRefusal (404)."""
    parts = [part for part in path.split("/") if part]
    match parts:
        case ["version"]:
            return SERVER_VERSION
        case ["healthz" | "livez" | "readyz"]:
            return "ok"
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*each) for each in _groups(store)]}
        case ["apis", group]:
            return _one_group(store, group)
        case ["api", version] | ["apis", _, version]:
            return _resources(store, "" if len(parts) == 2 else parts[1], version)
    raise no_such_path()


def _groups(store: Store) -> list[tuple[str, list[str]]]:
    served: dict[str, list[str]] = {}
    apis = [(each.group, version) for each in store.resources for version in each.versions if each.group]
    apis += [(api.partition("/")[0], api.partition("/")[2]) for api in store.aggregated]
    for group, version in apis:
        versions = served.setdefault(group, [])
        if version not in versions:
            versions.append(version)
    return [(group, sorted(versions, key=_rank)) for group, versions in sorted(served.items())]


def _rank(version: str) -> tuple[int, int, int]:
    """The API's order of versions: stable before beta before alpha, then the higher number."""
    match = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if match is None:
        return (3, 0, 0)
    major, stage, minor = match.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0))


def _group(group: str, versions: list[str]) -> Mapping[str, Any]:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _one_group(store: Store, group: str) -> Mapping[str, Any]:
    for name, versions in _groups(store):
        if name == group:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}
    raise no_such_path()


def _resources(store: Store, group: str, version: str) -> Mapping[str, Any]:
    api = f"{group}/{version}" if group else version
    if api in store.aggregated:
        listed = list(store.aggregated[api][0])
    else:
        mine = [each for each in store.resources if each.group == group and version in each.versions]
        if not mine:
            raise no_such_path()
        listed = [entry for each in mine for entry in _entries(each, version)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api, "resources": listed}


def _entries(resource: Resource, version: str) -> list[Mapping[str, Any]]:
    whole: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.is_namespaced,
        "kind": resource.kind,
        "verbs": _VERBS,
    }
    if resource.short_names:
        whole["shortNames"] = list(resource.short_names)
    if resource.categories:
        whole["categories"] = list(resource.categories)
    entries: list[Mapping[str, Any]] = [whole]
    if version in resource.with_status:
        status = {"name": f"{resource.plural}/status", "singularName": "", "verbs": ["get", "patch", "update"]}
        entries.append({**status, "namespaced": resource.is_namespaced, "kind": resource.kind})
    return entries
