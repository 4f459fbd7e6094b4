"""Our judgement of objects against that of a published validator of JSON Schema, over published definitions."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedulers.fakes.apiserver import Schemas

SHARED = Path(__file__).resolve().parents[3] / "shared"
BODIES = SHARED / "tools" / "bodies.yaml"


@cache
def schemas() -> Schemas:
    if not SHARED.is_dir():
        pytest.skip("../shared is absent: this checkout has no published schemas beside it")
    return Schemas.read(SHARED / "crds")


@cache
def bodies() -> list[dict[str, Any]]:
    if not SHARED.is_dir():
        pytest.skip("../shared is absent: this checkout has no published bodies beside it")
    return list(yaml.safe_load_all(BODIES.read_text(encoding="utf-8")))


def _plain(node: Any, *, is_root: bool = False) -> Any:
    """A structural schema as plain JSON Schema: what Kubernetes adds is said in the standard's words."""
    if not isinstance(node, Mapping):
        return node
    out = {key: value for key, value in node.items() if key not in {"format", "default"}}
    if out.pop("x-kubernetes-int-or-string", False):
        out.pop("type", None)
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if out.pop("nullable", False) and "type" in out:
        out["type"] = [out["type"], "null"]
    keeps = out.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in out
    if "properties" in out and not keeps:
        out["additionalProperties"] = False
    return {key: _inside(key, value, is_root=is_root) for key, value in out.items()}


def _inside(key: str, value: Any, *, is_root: bool) -> Any:
    if key == "properties":
        return {
            name: {"type": "object"} if is_root and name == "metadata" else _plain(each) for name, each in value.items()
        }
    if key in {"items", "additionalProperties", "not"}:
        return _plain(value)
    return [_plain(each) for each in value] if key in {"anyOf", "allOf", "oneOf"} else value


@cache
def _validator(api_version: str, kind: str) -> Any:
    group, version = api_version.split("/")
    for definition in schemas().definitions:
        spec = definition["spec"]
        if (spec["group"], spec["names"]["kind"]) == (group, kind):
            found = next(each for each in spec["versions"] if each["name"] == version)
            return jsonschema.Draft202012Validator(_plain(found["schema"]["openAPIV3Schema"], is_root=True))
    raise LookupError(kind)


def _is_valid(item: Mapping[str, Any]) -> bool:
    return bool(_validator(item["apiVersion"], item["kind"]).is_valid(item))


def test_reads_every_published_definition() -> None:
    assert len(schemas()) == 60


def test_published_bodies_are_valid() -> None:
    for item in bodies():
        assert schemas().check(item) == [], item["kind"]


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _paths(each, (*path, key))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _paths(each, (*path, index))


ODD = st.one_of(
    st.integers(-3, 10**6),
    st.booleans(),
    st.sampled_from(["", "Never", "x", "12", "500m", "-1", "a" * 300]),
    st.just([]),
    st.just({}),
    st.just({"unknown": 1}),
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_body_with_one_odd_value_is_judged_as_the_standard_judges_it(data: st.DataObject) -> None:
    item = copy.deepcopy(data.draw(st.sampled_from(bodies())))
    paths = [path for path in _paths(item) if path[0] not in {"apiVersion", "kind", "metadata"}]
    *way, last = data.draw(st.sampled_from(paths))
    place: Any = item
    for step in way:
        place = place[step]
    if data.draw(st.booleans()) and isinstance(place, dict):
        del place[last]
    else:
        place[last] = data.draw(ODD)
    ours_alone = ("Duplicate value", "of type date-time", "of type int32")  # no words of the standard's
    faults = [each for each in schemas().check(item) if not any(words in each for words in ours_alone)]
    assert (not faults) is _is_valid(item), faults


def test_says_where_and_why() -> None:
    queue = copy.deepcopy(next(each for each in bodies() if each["kind"] == "ClusterQueue"))
    queue["spec"]["queueingStrategy"] = "Later"
    queue["spec"]["colour"] = "red"
    assert schemas().check(queue) == [
        'spec.queueingStrategy: Unsupported value: "Later": supported values: "StrictFIFO", "BestEffortFIFO"',
        'unknown field "spec.colour"',
    ]
    with pytest.raises(LookupError):
        schemas().check({"apiVersion": "x/v1", "kind": "Y"})
