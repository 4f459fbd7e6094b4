"""The objects of a cluster, over versions: what etcd and the registry are to a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC
from threading import RLock
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from gpuledger.clock import Clock, SystemClock
from schedulers.fakes.apiserver.resources import Resource, built_in, of_definition
from schedulers.fakes.apiserver.schemas import judge
from schedulers.fakes.apiserver.selectors import fields_of
from schedulers.fakes.apiserver.statuses import invalid, no_such_path
from schedulers.fakes.apiserver.versions import Key, Table, Version

Object = dict[str, Any]
Answer = Callable[[str, Mapping[str, str]], Mapping[str, Any] | None]
"""An aggregated API: path below its group version and query in, object out; None where there is nothing."""

_DEFINITIONS = ("apiextensions.k8s.io", "customresourcedefinitions")


def encoded(item: Mapping[str, Any]) -> bytes:
    """An object's JSON, in the compact form that goes over the wire."""
    return json.dumps(item, separators=(",", ":"), ensure_ascii=False).encode()


class Store:
    """Objects of built-in and custom kinds, each write a new version of the whole store.

    `clock` dates what is created. `also` are group versions that are off by default (betas, alphas: for example
    "scheduling.k8s.io/v1beta1"), `without` those that this server does not have. About `keep_changes` writes are
    remembered; what is older is gone (410). Safe to use from several threads. `put` and `remove` are for who sets a
    scene: they need no HTTP, and may say everything, also status, uid and times.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        also: tuple[str, ...] = (),
        without: tuple[str, ...] = (),
        keep_changes: int = 50_000,
    ) -> None:
        self.clock: Clock = clock or SystemClock()
        self.lock = RLock()
        self.version = 1
        self.floor = 1
        self.aggregated: dict[str, tuple[list[Mapping[str, Any]], Answer]] = {}
        self._keep_changes = keep_changes
        self._resources: dict[tuple[str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        self._tables: dict[tuple[str, str], Table] = {}
        for resource in built_in(lambda api: api not in without and (api in also or not _is_beta(api))):
            self.serve(resource)

    # What is served

    def serve(self, resource: Resource) -> None:
        """Have a kind, or another form of it."""
        with self.lock:
            self._resources[resource.key] = resource
            self._by_kind[(resource.group, resource.kind)] = resource
            self._tables.setdefault(resource.key, Table())

    def define(self, definition: Mapping[str, Any], only: tuple[str, ...] = ()) -> None:
        """Put a CustomResourceDefinition; `only` serves some of its versions, as an older release would."""
        self.serve(of_definition(definition, only))
        names = definition["spec"]["names"]
        accepted = {"acceptedNames": dict(names), "storedVersions": list(only), "conditions": [_established()]}
        self._write(self.resource(*_DEFINITIONS), {**definition, "status": accepted})

    def aggregate(self, api: str, resources: list[Mapping[str, Any]], answer: Answer) -> None:
        """Have an aggregated API, as "visibility.kueue.x-k8s.io/v1beta1": its resource list, and who answers."""
        self.aggregated[api] = (resources, answer)

    @property
    def resources(self) -> tuple[Resource, ...]:
        """All kinds."""
        return tuple(self._resources.values())

    def resource(self, group: str, plural: str) -> Resource:
        """A kind by group and plural. Raises ApiRefusal (404) for one that is not there."""
        try:
            return self._resources[(group, plural)]
        except KeyError:
            raise no_such_path() from None

    def kind(self, item: Mapping[str, Any]) -> Resource:
        """The kind of an object. Raises ApiRefusal (404) for one that is not there."""
        group, _, version = str(item["apiVersion"]).rpartition("/")
        resource = self._by_kind.get((group, item["kind"]))
        if resource is None or version not in resource.versions:
            raise no_such_path()
        return resource

    def table(self, resource: Resource) -> Table:
        """The versions of a kind's objects; hold `lock` while it is used."""
        return self._tables[resource.key]

    # What is there

    def get(self, resource: Resource, key: Key) -> Object | None:
        """An object as it is now, in its storage version; None where there is none. It is the caller's to change."""
        with self.lock:
            found = self._tables[resource.key].get(key)
        if found is None or found.tail is None:
            return None
        head = {"apiVersion": resource.api_version(resource.storage), "kind": resource.kind}
        return {**head, **json.loads(b"{" + found.tail)}

    def read(self, api_version: str, kind: str, name: str, namespace: str = "") -> Object | None:
        """An object as it is now; None where there is none."""
        return self.get(self.kind({"apiVersion": api_version, "kind": kind}), (namespace, name))

    def all(self, api_version: str, kind: str) -> Iterator[Object]:
        """Every object of a kind as it is now, in order."""
        resource = self.kind({"apiVersion": api_version, "kind": kind})
        with self.lock:
            keys = [key for key, _ in self._tables[resource.key].current()]
        for key in keys:
            if (item := self.get(resource, key)) is not None:
                yield item

    # Writes

    def put(self, item: Mapping[str, Any]) -> Object:
        """Create an object or replace it whole, with its status. A custom one is judged by its schema.

        Missing uid, creation time and generation are filled in. Raises ApiRefusal (422) for one that is not valid.
        """
        if item["kind"] == "CustomResourceDefinition":
            self.define(item)
            return dict(item)
        resource = self.kind(item)
        return self._write(resource, self._judged(resource, item))

    def _judged(self, resource: Resource, item: Mapping[str, Any]) -> Mapping[str, Any]:
        if not resource.is_custom:
            return item
        verdict = judge(resource.schemas[str(item["apiVersion"]).rpartition("/")[2]], item)
        faults = [(each.reason, each.field, each.message) for each in verdict.faults]
        faults += [("FieldValueForbidden", path, "unknown field") for path in verdict.unknown]
        if faults:
            raise invalid(resource.group, resource.kind, item["metadata"]["name"], faults)
        out: Mapping[str, Any] = verdict.value
        return out

    def _write(self, resource: Resource, item: Mapping[str, Any]) -> Object:
        metadata = item["metadata"]
        key = (metadata.get("namespace", "") if resource.is_namespaced else "", metadata["name"])
        with self.lock:
            before = self.get(resource, key)
            written = _with_own_fields(item, before, self)
            self.commit(resource, key, written)
        return written

    def commit(self, resource: Resource, key: Key, item: Object) -> None:
        """Write an object whose metadata is whole, as the next version; its `resourceVersion` is set."""

        def tail(version: int) -> bytes:
            item["metadata"]["resourceVersion"] = str(version)
            return encoded({name: value for name, value in item.items() if name not in {"apiVersion", "kind"}})[1:]

        self.commit_bytes(resource, key, tail, item["metadata"].get("labels") or {}, fields_of(resource.key, item))

    def commit_bytes(
        self,
        resource: Resource,
        key: Key,
        tail: Callable[[int], bytes],
        labels: Mapping[str, str],
        fields: Mapping[str, str],
    ) -> None:
        """Write an object as the next version, from the JSON after its kind that `tail` gives for that version."""
        with self.lock:
            self.version += 1
            version = Version(self.version, tail(self.version), labels, fields)
            self._tables[resource.key].write(key, version)
            self._forget()

    def drop(self, resource: Resource, key: Key) -> bool:
        """Delete an object; whether it was there."""
        with self.lock:
            table = self._tables[resource.key]
            before = table.get(key)
            if before is None:
                return False
            self.version += 1
            table.write(key, Version(self.version, None, before.labels, before.fields))
            self._forget()
            return True

    def remove(self, item: Mapping[str, Any]) -> bool:
        """Delete the object of this kind, namespace and name; whether it was there."""
        metadata = item["metadata"]
        return self.drop(self.kind(item), (metadata.get("namespace", ""), metadata["name"]))

    def forget_before(self, version: int) -> None:
        """Forget the versions before `version`, as a compaction does: reads at them answer 410."""
        with self.lock:
            self.floor = max(self.floor, version)
            for table in self._tables.values():
                table.forget(self.floor)

    def _forget(self) -> None:
        if self.version - self.floor > self._keep_changes * 5 // 4:
            self.forget_before(self.version - self._keep_changes)

    @contextmanager
    def listening(self, resource: Resource, listener: Callable[[], None]) -> Iterator[None]:
        """Have `listener` called after every write of a kind; it must be quick, and not read the store."""
        listeners = self._tables[resource.key].listeners
        with self.lock:
            listeners.append(listener)
        try:
            yield
        finally:
            with self.lock:
                listeners.remove(listener)

    def now_text(self) -> str:
        """The clock's time as the API writes times."""
        return self.clock.now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _is_beta(api: str) -> bool:
    version = api.rpartition("/")[2]
    return "beta" in version or "alpha" in version


def _established() -> Mapping[str, str]:
    return {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"}


def _with_own_fields(item: Mapping[str, Any], before: Object | None, store: Store) -> Object:
    """The object with what the server says of it: uid, creation time, generation."""
    metadata = dict(item["metadata"])
    old = before["metadata"] if before else {}
    name = f"{item['kind']}/{metadata.get('namespace', '')}/{metadata['name']}/{store.version}"
    metadata.setdefault("uid", old.get("uid") or str(uuid5(NAMESPACE_URL, name)))
    metadata.setdefault("creationTimestamp", old.get("creationTimestamp") or store.now_text())
    generation = old.get("generation", 0)
    same = before is not None and before.get("spec") == item.get("spec")
    metadata.setdefault("generation", generation if same and generation else generation + 1)
    return {**item, "metadata": metadata}
