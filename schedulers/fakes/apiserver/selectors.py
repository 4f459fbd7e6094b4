"""Label and field selectors, as the API's query parameters say them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from schedulers.fakes.apiserver.statuses import ApiRefusal

FIELDS: Mapping[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.phase",
    ),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "namespaces"): ("status.phase",),
    ("", "events"): ("involvedObject.kind", "involvedObject.name", "involvedObject.namespace", "reason", "type"),
}
"""The fields that can be selected by, beyond metadata.name and metadata.namespace, for (group, plural)."""

Matches = Callable[[Mapping[str, str], Mapping[str, str]], bool]

_SET = re.compile(r"^\s*([^\s=!,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s=!,()]+)\s*(==|=|!=)\s*([^\s=!,()]*)\s*$")
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s=!,()]+)\s*$")


def fields_of(resource: tuple[str, str], item: Mapping[str, Any]) -> dict[str, str]:
    """The selectable fields of an object, as text; an absent one is ""."""
    found = {}
    for path in FIELDS.get(resource, ()):
        value: Any = item
        for part in path.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        found[path] = "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    if "spec.unschedulable" in found:
        found["spec.unschedulable"] = found["spec.unschedulable"] or "false"
    return found


def _label_term(term: str) -> Callable[[Mapping[str, str]], bool]:
    if match := _SET.match(term):
        key, operator, listed = match.groups()
        values = {value.strip() for value in listed.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUAL.match(term):
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTS.match(term):
        absent, key = match.groups()
        return lambda labels: (key in labels) is not bool(absent)
    raise ApiRefusal(400, f"unable to parse requirement: {term!r}")


def _field_term(term: str, resource: tuple[str, str]) -> Callable[[Mapping[str, str]], bool]:
    match = _EQUAL.match(term)
    if not match:
        raise ApiRefusal(400, f"invalid field selector: {term!r}")
    key, operator, value = match.groups()
    if key not in {"metadata.name", "metadata.namespace", *FIELDS.get(resource, ())}:
        raise ApiRefusal(400, f"field label not supported: {key}")
    is_equal = operator != "!="
    return lambda fields: (fields.get(key, "") == value) is is_equal


@dataclass(frozen=True, slots=True)
class Selector:
    """What a list or a watch asks for; without terms, everything."""

    labels: tuple[Callable[[Mapping[str, str]], bool], ...] = ()
    fields: tuple[Callable[[Mapping[str, str]], bool], ...] = ()

    @classmethod
    def parse(cls, labels: str, fields: str, resource: tuple[str, str]) -> Selector:
        """From the query's `labelSelector` and `fieldSelector`. Raises ApiRefusal (400)."""
        label_terms = [term for term in re.split(r",(?![^(]*\))", labels) if term.strip()]
        field_terms = [term for term in fields.split(",") if term.strip()]
        return cls(
            tuple(_label_term(term) for term in label_terms),
            tuple(_field_term(term, resource) for term in field_terms),
        )

    @property
    def is_empty(self) -> bool:
        """Whether it selects everything."""
        return not self.labels and not self.fields

    def matches(self, key: tuple[str, str], labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Whether the object at `key` (namespace, name) with these labels and fields is selected."""
        if not all(term(labels) for term in self.labels):
            return False
        if not self.fields:
            return True
        known = {"metadata.namespace": key[0], "metadata.name": key[1], **fields}
        return all(term(known) for term in self.fields)
