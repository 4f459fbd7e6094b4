"""Writes: create, replace, patch, delete; the main resource and its status subresource apart."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from schedulers.fakes.apiserver.requests import Asked
from schedulers.fakes.apiserver.resources import Resource, of_definition
from schedulers.fakes.apiserver.schemas import judge
from schedulers.fakes.apiserver.statuses import ApiRefusal, already_exists, conflict, invalid, named, not_found
from schedulers.fakes.apiserver.store import Object, Store

MERGE = "application/merge-patch+json"
_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\Z")
_FIRST_STATUS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("", "pods"): {"phase": "Pending"},
    ("", "namespaces"): {"phase": "Active"},
}


@dataclass(frozen=True, slots=True)
class Written:
    """A write's answer: HTTP code, object, and the warnings of its headers."""

    code: int
    item: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class Writing:
    """One write request. Everything happens under the store's lock."""

    store: Store
    resource: Resource
    asked: Asked
    warnings: list[str] = field(default_factory=list)

    def create(self, sent: Object) -> Written:
        """POST. Raises ApiRefusal (400, 404, 409, 422)."""
        item = self._of_request(sent)
        metadata = item["metadata"]
        if metadata.get("resourceVersion"):
            raise ApiRefusal(400, "resourceVersion should not be set on objects to be created", reason="BadRequest")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{uuid4().hex[:5]}"
        self._check_name(metadata.get("name", ""))
        self._check_namespace()
        if self._has_status:
            item.pop("status", None)
            item.update({"status": dict(_FIRST_STATUS[self.resource.key])} if self._starts_with_status else {})
        item = self._judged(item)
        metadata = item["metadata"]
        key = (self.asked.namespace, metadata["name"])
        with self.store.lock:
            if self.store.table(self.resource).get(key) is not None:
                raise already_exists(self.resource.group, self.resource.plural, key[1])
            own = {"uid": str(uuid4()), "creationTimestamp": self.store.now_text(), "generation": 1}
            item["metadata"] = {**metadata, **own}
            return Written(201, self._commit(key, item), tuple(self.warnings))

    def replace(self, sent: Object) -> Written:
        """PUT of the object or its status. Raises ApiRefusal (400, 404, 409, 422)."""
        item = self._of_request(sent)
        if item["metadata"].get("name") != self.asked.name:
            raise ApiRefusal(400, "the name of the object does not match the name on the URL")
        if self.resource.is_custom and not item["metadata"].get("resourceVersion"):
            error = (
                "FieldValueInvalid",
                "metadata.resourceVersion",
                "Invalid value: 0: must be specified for an update",
            )
            raise invalid(self.resource.group, self.resource.kind, self.asked.name, [error])
        with self.store.lock:
            return self._update(self._existing(), item)

    def merge(self, patch: Any, content_type: str) -> Written:
        """PATCH by JSON merge patch (RFC 7386). Raises ApiRefusal (400, 404, 409, 415, 422)."""
        if content_type.partition(";")[0] != MERGE:
            message = f"the body of the request was in an unknown format - accepted media types include: {MERGE}"
            raise ApiRefusal(415, message)
        with self.store.lock:
            before = self._existing()
            return self._update(before, self._of_request(merged(before, patch)))

    def delete(self, options: Mapping[str, Any]) -> Written:
        """DELETE; with finalizers the object only gets its deletion time. Raises ApiRefusal (404, 409)."""
        with self.store.lock:
            before = self._existing()
            metadata = before["metadata"]
            for name, wanted in (options.get("preconditions") or {}).items():
                if metadata.get(name) != wanted:
                    why = f"Precondition failed: {name} in precondition: {wanted}, in object meta: {metadata.get(name)}"
                    raise conflict(self.resource.group, self.resource.plural, self.asked.name, why)
            if metadata.get("finalizers"):
                metadata.setdefault("deletionTimestamp", self.store.now_text())
                return Written(200, self._commit(self._key, before))
            if not self._is_dry:
                self.store.drop(self.resource, self._key)
            details = {**named(self.resource.group, self.resource.plural, self.asked.name), "uid": metadata["uid"]}
            status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
            return Written(200, status)

    # Parts

    @property
    def _key(self) -> tuple[str, str]:
        return (self.asked.namespace, self.asked.name)

    @property
    def _has_status(self) -> bool:
        return self.asked.version in self.resource.with_status

    @property
    def _starts_with_status(self) -> bool:
        return self.resource.key in _FIRST_STATUS

    @property
    def _is_dry(self) -> bool:
        return self.asked.query.get("dryRun") == "All"

    def _existing(self) -> Object:
        before = self.store.get(self.resource, self._key)
        if before is None:
            raise not_found(self.resource.group, self.resource.plural, self.asked.name)
        return {**before, "apiVersion": self.resource.api_version(self.asked.version)}

    def _of_request(self, sent: Any) -> Object:
        if not isinstance(sent, dict) or not isinstance(sent.get("metadata", {}), dict):
            raise ApiRefusal(400, "the object provided is unrecognized: not a JSON object")
        wanted = {"apiVersion": self.resource.api_version(self.asked.version), "kind": self.resource.kind}
        for name, value in wanted.items():
            if sent.get(name, value) != value:
                message = f"the {name} in the data ({sent[name]}) does not match the expected {name} ({value})"
                raise ApiRefusal(400, message)
        metadata = dict(sent.get("metadata", {}))
        if (
            self.resource.is_namespaced
            and metadata.setdefault("namespace", self.asked.namespace) != self.asked.namespace
        ):
            message = "the namespace of the provided object does not match the namespace sent on the request"
            raise ApiRefusal(400, message)
        return {**wanted, **sent, "metadata": metadata}

    def _check_name(self, name: str) -> None:
        if not name:
            error = ("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")
            raise invalid(self.resource.group, self.resource.kind, name, [error])
        if not _NAME.match(name):
            text = f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric'
            error = ("FieldValueInvalid", "metadata.name", f"{text} characters, '-' or '.'")
            raise invalid(self.resource.group, self.resource.kind, name, [error])

    def _check_namespace(self) -> None:
        if self.resource.is_namespaced:
            namespaces = self.store.resource("", "namespaces")
            if self.store.get(namespaces, ("", self.asked.namespace)) is None:
                raise not_found("", "namespaces", self.asked.namespace)

    def _judged(self, item: Object) -> Object:
        """The object after pruning and defaults, or its refusal."""
        if not self.resource.is_custom:
            return item
        verdict = judge(self.resource.schemas[self.asked.version], item)
        how = self.asked.query.get("fieldValidation", "Warn")
        if verdict.unknown and how == "Strict":
            listed = ", ".join(f'unknown field "{path}"' for path in verdict.unknown)
            message = f"{self.resource.kind} in version {self.asked.version!r} cannot be handled"
            raise ApiRefusal(400, f"{message} as a {self.resource.kind}: strict decoding error: {listed}")
        if how != "Ignore":
            self.warnings += [f'unknown field "{path}"' for path in verdict.unknown]
        if verdict.faults:
            faults = [(each.reason, each.field, each.message) for each in verdict.faults]
            raise invalid(self.resource.group, self.resource.kind, item["metadata"].get("name", ""), faults)
        judged: Object = verdict.value
        return judged

    def _update(self, before: Object, item: Object) -> Written:
        old, sent = before["metadata"], item["metadata"]
        if sent.get("resourceVersion") not in {None, "", old["resourceVersion"]}:
            raise conflict(self.resource.group, self.resource.plural, self.asked.name)
        if sent.get("uid") not in {None, old["uid"]}:
            why = f"Precondition failed: UID in precondition: {sent['uid']}, UID in object meta: {old['uid']}"
            raise conflict(self.resource.group, self.resource.plural, self.asked.name, why)
        item = self._judged(self._parted(before, item))
        if _matter(item) != _matter(before):
            item["metadata"]["generation"] = old.get("generation", 0) + 1
        if item == before:
            return Written(200, before, tuple(self.warnings))
        if old.get("deletionTimestamp") and not item["metadata"].get("finalizers"):
            if not self._is_dry:
                self.store.drop(self.resource, self._key)
            return Written(200, item, tuple(self.warnings))
        return Written(200, self._commit(self._key, item), tuple(self.warnings))

    def _parted(self, before: Object, item: Object) -> Object:
        """What of the sent object this request may write: all but the status, or the status alone."""
        server = {
            name: before["metadata"].get(name) for name in ("uid", "creationTimestamp", "generation", "resourceVersion")
        }
        kept = {**item["metadata"], **{name: value for name, value in server.items() if value is not None}}
        if self.asked.subresource == "status":
            status = {"status": item["status"]} if "status" in item else {}
            return {**{name: value for name, value in before.items() if name != "status"}, **status}
        if not self._has_status:
            return {**item, "metadata": kept}
        status = {"status": before["status"]} if "status" in before else {}
        return {**{name: value for name, value in item.items() if name != "status"}, **status, "metadata": kept}

    def _commit(self, key: tuple[str, str], item: Object) -> Object:
        if self._is_dry:
            return item
        if self.resource.plural == "customresourcedefinitions":
            of_definition(item)
            self.store.define(item)
            return self.store.get(self.resource, key) or item
        self.store.commit(self.resource, key, item)
        return item


def _matter(item: Mapping[str, Any]) -> dict[str, Any]:
    """What of an object its generation counts: neither metadata nor status."""
    return {name: value for name, value in item.items() if name not in {"metadata", "status"}}


def merged(before: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386), applied: null removes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return patch
    out = dict(before) if isinstance(before, dict) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = merged(out.get(name), value)
    return out


def decoded(text: bytes) -> Any:
    """A request's body. Raises ApiRefusal (400)."""
    try:
        return json.loads(text) if text else {}
    except ValueError as error:
        raise ApiRefusal(400, f"error decoding the body: {error}") from None
