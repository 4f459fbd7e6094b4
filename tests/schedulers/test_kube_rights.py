"""What is rendered to deploy/rbac is enough for each adapter of the family, and none of it is too much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuledger.attribution import Rules
from gpuledger.testing import FakeClock
from schedulers.deploying import family
from schedulers.fakes.apiserver import Access, Serving, Store, Subject, serve
from schedulers.kubernetes.family import KubernetesFamily
from tests.schedulers.kubernetes_objects import NOW, node, pod

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT.parent / "shared" / "crds"
TOKEN = "reader"
ADAPTERS = {adapter.name: adapter for adapter in family()}
GANGS = ("scheduling.k8s.io/v1beta1",)


def _rules(name: str) -> list[dict[str, Any]]:
    role = yaml.safe_load((ROOT / "deploy" / "rbac" / f"{name}.yaml").read_text(encoding="utf-8"))
    return [dict(rule) for rule in role["rules"]]


@cache
def _definitions() -> Mapping[tuple[str, str], Mapping[str, Any]]:
    """Every published definition of a kind, by group and plural."""
    found = {}
    for path in sorted(CRDS.glob("*/*.yaml")):
        for one in yaml.load_all(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
            if one and one.get("kind") == "CustomResourceDefinition":
                found[one["spec"]["group"], one["spec"]["names"]["plural"]] = one
    return found


def _store(adapter: type[KubernetesFamily]) -> Store:
    """A cluster in which everything is installed that the adapter reads."""
    if not CRDS.exists():
        pytest.skip("../shared is absent: this checkout has no published schemas beside it")
    store = Store(clock=FakeClock(NOW), also=GANGS)
    for kind in adapter.kinds:
        if definition := _definitions().get((kind.group, kind.plural)):
            store.define(definition)
    store.put(node("n1"))
    store.put(pod("a", 2, on="n1"))
    return store


@contextmanager
def _reading(
    adapter: type[KubernetesFamily], rules: list[dict[str, Any]], folder: Path, **in_namespace: list[dict[str, Any]]
) -> Iterator[tuple[KubernetesFamily, Serving]]:
    """The adapter with these rules, which the caller may change."""
    token = folder / "token"
    token.write_text(TOKEN, encoding="utf-8")
    with serve(_store(adapter), access=Access({TOKEN: Subject("reader", rules, in_namespace)})) as api:
        options = {"url": api.url, "token_file": str(token)}
        yield adapter.from_options(options, rules=Rules(), clock=FakeClock(NOW)), api


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_the_rendered_role_is_enough_and_grants_no_list_that_is_not_read(name: str, tmp_path: Path) -> None:
    with _reading(ADAPTERS[name], _rules(name), tmp_path) as (reader, api):
        snapshot = reader.snapshot()
        listed = {(one.group, one.plural) for one in api.asked if one.plural and one.verb == "list"}
    assert snapshot.scope.denied == ()
    assert snapshot.scope.is_complete
    granted = {
        (group, resource)
        for rule in _rules(name)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if "list" in rule["verbs"]
    }
    # Namespaces are listed only where the whole cluster may not be read.
    assert granted - listed == {("", "namespaces")}
    assert listed <= granted


def _without(rules: list[dict[str, Any]], group: str, resource: str) -> list[dict[str, Any]]:
    return [
        {**rule, "resources": [one for one in rule["resources"] if one != resource or rule["apiGroups"] != [group]]}
        for rule in rules
    ]


@pytest.mark.parametrize("name", sorted(ADAPTERS))
def test_a_kind_that_may_not_be_read_is_named_in_the_scope(name: str, tmp_path: Path) -> None:
    adapter, rules = ADAPTERS[name], _rules(name)
    kinds = adapter.kinds or adapter.all_kinds()
    with _reading(adapter, rules, tmp_path) as (reader, _):
        for kind in kinds:
            rules[:] = _without(_rules(name), kind.group, kind.plural)
            assert rules != _rules(name), f"the role does not grant {kind.key}"
            scope = reader.snapshot().scope
            answer = dict(scope.denied)[kind.key]
            assert f'cannot list resource "{kind.plural}" in API group "{kind.group}"' in answer
            assert str(scope).startswith("partial: ")


def test_what_may_be_listed_in_some_namespaces_only_is_not_listed_whole(tmp_path: Path) -> None:
    rules = _without(_rules("kubernetes"), "", "resourcequotas")
    with _reading(ADAPTERS["kubernetes"], rules, tmp_path, default=_rules("kubernetes")) as (reader, api):
        api.store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
        snapshot = reader.snapshot()
    assert "queue" in snapshot.records
    assert {"queue", "quota", "queue_resource", "queue_state"} <= snapshot.scope.unlisted
    assert "pod" not in snapshot.scope.unlisted


def test_no_role_grants_a_write() -> None:
    for name in ADAPTERS:
        for rule in _rules(name):
            assert set(rule["verbs"]) <= {"get", "list", "watch"}
            assert "*" not in rule["resources"] + rule["apiGroups"]
