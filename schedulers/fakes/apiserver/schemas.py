"""Structural validation by the OpenAPI schema of a CustomResourceDefinition: prune, fill in defaults, judge.

What the published schemas use is here. Rules in CEL (`x-kubernetes-validations`) are not evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from schedulers.fakes.apiserver.judging import KINDS, Fault, bounds, fault

Schema = Mapping[str, Any]

_META = ("apiVersion", "kind", "metadata")


@dataclass(slots=True)
class Verdict:
    """What a schema says of an object: its form after pruning and defaults, faults, and the unknown fields' paths."""

    value: Any = None
    faults: list[Fault] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def judge(schema: Schema, value: Mapping[str, Any]) -> Verdict:
    """Judge a whole object. Its apiVersion, kind and metadata are the server's matter, and stay as they are."""
    verdict = Verdict()
    verdict.value = _object(schema, value, "", verdict, is_root=True)
    return verdict


def _value(schema: Schema, value: Any, path: str, verdict: Verdict) -> Any:
    if value is None and schema.get("nullable"):
        return None
    if wrong := _wrong_type(schema, value, path):
        verdict.faults.append(wrong)
        return value
    verdict.faults.extend(bounds(schema, value, path))
    _logic(schema, value, path, verdict)
    if isinstance(value, Mapping):
        return _object(schema, value, path, verdict)
    if isinstance(value, list):
        return _items(schema, value, path, verdict)
    return value


def _wrong_type(schema: Schema, value: Any, path: str) -> Fault | None:
    is_either = schema.get("x-kubernetes-int-or-string")
    wanted = ("integer", "string") if is_either else (schema["type"],) if "type" in schema else ()
    if not wanted or any(KINDS[name](value) for name in wanted):
        return None
    actual = next((name for name, judged in KINDS.items() if judged(value)), "null")
    text = f'Invalid value: "{actual}": {path} in body must be of type {",".join(wanted)}: "{actual}"'
    return Fault("FieldValueTypeInvalid", path, text)


def _accepts(schema: Schema, value: Any) -> bool:
    verdict = Verdict()
    _value(schema, value, "", verdict)
    return not verdict.faults


def _logic(schema: Schema, value: Any, path: str, verdict: Verdict) -> None:
    """`anyOf`, `oneOf`, `allOf` and `not` only judge: they neither prune nor fill in."""
    for keyword, enough in _COUNTS.items():
        if keyword in schema and not enough(
            sum(_accepts(each, value) for each in schema[keyword]), len(schema[keyword])
        ):
            verdict.faults.append(fault(path, value, f"must validate {_WORDS[keyword]} ({keyword})"))
    if "not" in schema and _accepts(schema["not"], value):
        verdict.faults.append(fault(path, value, "must not validate the schema (not)"))


_COUNTS: Mapping[str, Callable[[int, int], bool]] = {
    "anyOf": lambda count, _: count >= 1,
    "oneOf": lambda count, _: count == 1,
    "allOf": lambda count, of: count == of,
}
_WORDS = {"anyOf": "at least one schema", "oneOf": "one and only one schema", "allOf": "all the schemas"}


def _object(schema: Schema, value: Mapping[str, Any], path: str, verdict: Verdict, *, is_root: bool = False) -> Any:
    known: Mapping[str, Schema] = schema.get("properties", {})
    is_own = is_root or schema.get("x-kubernetes-embedded-resource", False)
    out: dict[str, Any] = {}
    for key, each in value.items():
        here = f"{path}.{key}" if path else key
        if is_own and key in _META:
            out[key] = each
        elif key in known:
            if each is not None or "default" not in known[key] or known[key].get("nullable"):
                out[key] = _value(known[key], each, here, verdict)
        else:
            out.update(_undeclared(schema, key, each, here, verdict))
    _complete(schema, out, path, verdict)
    return out


def _complete(schema: Schema, out: dict[str, Any], path: str, verdict: Verdict) -> None:
    """Fill in the defaults of what is missing, and name what is still missing and required."""
    for key, each in schema.get("properties", {}).items():
        if key not in out and "default" in each:
            out[key] = _value(each, each["default"], f"{path}.{key}", verdict)
    for key in schema.get("required", ()):
        if key not in out:
            verdict.faults.append(Fault("FieldValueRequired", f"{path}.{key}".lstrip("."), "Required value"))


def _undeclared(schema: Schema, key: str, value: Any, path: str, verdict: Verdict) -> dict[str, Any]:
    """A key that the schema does not name: a map's entry, kept as it is, or pruned."""
    others = schema.get("additionalProperties")
    if isinstance(others, Mapping):
        return {key: _value(others, value, path, verdict)}
    if others or schema.get("x-kubernetes-preserve-unknown-fields"):
        return {key: value}
    verdict.unknown.append(path)
    return {}


def _items(schema: Schema, value: Sequence[Any], path: str, verdict: Verdict) -> list[Any]:
    item = schema.get("items", {})
    out = [_value(item, each, f"{path}[{index}]", verdict) for index, each in enumerate(value)]
    how = schema.get("x-kubernetes-list-type", "atomic")
    if how == "atomic":
        return out
    keys = schema.get("x-kubernetes-list-map-keys", ())
    seen: list[Any] = []
    for index, each in enumerate(out):
        identity = tuple(each.get(key) for key in keys) if how == "map" and isinstance(each, Mapping) else each
        if identity in seen:
            verdict.faults.append(Fault("FieldValueDuplicate", f"{path}[{index}]", f"Duplicate value: {identity!r}"))
        seen.append(identity)
    return out


class Schemas:
    """The schemas of published definitions, to judge objects by: `check` gives every fault in words."""

    def __init__(self, definitions: Sequence[Mapping[str, Any]]) -> None:
        self.definitions = tuple(definitions)
        self._schemas: dict[tuple[str, str], Schema] = {}
        for definition in definitions:
            spec = definition["spec"]
            for version in spec["versions"]:
                key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
                self._schemas[key] = version["schema"]["openAPIV3Schema"]

    @classmethod
    def read(cls, *folders: Path) -> Schemas:
        """Every CustomResourceDefinition in the YAML files under `folders`."""
        files = sorted(file for folder in folders for file in folder.rglob("*.yaml"))
        return cls([each for file in files for each in _definitions(file)])

    def __len__(self) -> int:
        return len(self._schemas)

    def check(self, item: Mapping[str, Any]) -> list[str]:
        """The faults of an object, unknown fields included; none where it is valid.

        Raises LookupError for a kind that no definition has.
        """
        verdict = judge(self._schemas[(item["apiVersion"], item["kind"])], item)
        return [f"{each.field}: {each.message}" for each in verdict.faults] + [
            f'unknown field "{path}"' for path in verdict.unknown
        ]


@lru_cache(maxsize=256)
def _definitions(file: Path) -> tuple[Mapping[str, Any], ...]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with file.open("rb") as stream:
        documents = list(yaml.load_all(stream, Loader=loader))
    return tuple(each for each in documents if each and each.get("kind") == "CustomResourceDefinition")
