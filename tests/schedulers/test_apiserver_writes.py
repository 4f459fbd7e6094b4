from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Serving, Store, serve

MERGE = {"Content-Type": "application/merge-patch+json"}
QUEUES = "/apis/sched.example/v1/queues"


def definition(**more: Any) -> dict[str, Any]:
    """A kind of our own with two versions and a status subresource; v1 is stored."""
    spec = {
        "type": "object",
        "required": ["weight"],
        "properties": {
            "weight": {"type": "integer", "minimum": 1, "maximum": 100, "format": "int32"},
            "mode": {"type": "string", "enum": ["Strict", "BestEffort"], "default": "BestEffort"},
            "quota": {
                "x-kubernetes-int-or-string": True,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": r"^[0-9]+(Gi)?$",
            },
            "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 5}},
            "parent": {"type": "string", "nullable": True},
            "names": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 3},
            "extra": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        },
    }
    status = {
        "type": "object",
        "properties": {"pending": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
    }
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}}
    versions: list[dict[str, Any]] = [
        {"name": name, "served": True, "storage": name == "v1", "schema": schema, "subresources": {"status": {}}}
        for name in ("v1alpha1", "v1")
    ]
    names = {"plural": "queues", "kind": "Queue", "shortNames": ["q"], "singular": "queue", "listKind": "QueueList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "queues.sched.example"},
        "spec": {"group": "sched.example", "scope": "Cluster", "names": names, "versions": versions, **more},
    }


def queue(name: str = "q1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sched.example/v1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, **spec},
    }


@pytest.fixture
def api() -> Iterator[Serving]:
    store = Store(clock=FakeClock(datetime(2026, 3, 1, 12, tzinfo=UTC)))
    store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}})
    with serve(store) as serving:
        yield serving


@pytest.fixture
def http(api: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api.url) as client:
        yield client


@pytest.fixture
def custom(http: httpx.Client) -> httpx.Client:
    answer = http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=definition())
    assert answer.status_code == 201
    return http


def test_a_definition_makes_a_kind_in_all_its_versions(custom: httpx.Client) -> None:
    groups = {group["name"]: group for group in custom.get("/apis").json()["groups"]}
    assert [each["version"] for each in groups["sched.example"]["versions"]] == ["v1", "v1alpha1"]
    names = [entry["name"] for entry in custom.get("/apis/sched.example/v1alpha1").json()["resources"]]
    assert names == ["queues", "queues/status"]
    assert custom.post(QUEUES, json=queue()).status_code == 201
    older = custom.get("/apis/sched.example/v1alpha1/queues").json()
    assert (older["apiVersion"], older["items"][0]["apiVersion"]) == ("sched.example/v1alpha1",) * 2
    listed = custom.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").json()["items"]
    assert listed[0]["status"]["acceptedNames"]["kind"] == "Queue"


def test_a_store_may_serve_some_versions_only(api: Serving, http: httpx.Client) -> None:
    api.store.define(definition(), only=("v1alpha1",))
    assert http.get(QUEUES).status_code == 404
    assert http.get("/apis/sched.example/v1alpha1/queues").json()["items"] == []


def test_a_new_object_gets_what_the_server_gives(http: httpx.Client) -> None:
    sent = {"metadata": {"name": "p", "uid": "mine", "generation": 9}, "status": {"phase": "Running"}}
    answer = http.post("/api/v1/namespaces/a/pods", json=sent)
    assert answer.status_code == 201
    metadata = answer.json()["metadata"]
    assert (metadata["namespace"], metadata["generation"]) == ("a", 1)
    assert metadata["creationTimestamp"] == "2026-03-01T12:00:00Z"
    assert metadata["uid"] != "mine"
    assert answer.json()["status"] == {"phase": "Pending"}
    again = http.post("/api/v1/namespaces/a/pods", json=sent).json()
    assert (again["code"], again["reason"], again["message"]) == (409, "AlreadyExists", 'pods "p" already exists')
    made = http.post("/api/v1/namespaces/a/pods", json={"metadata": {"generateName": "p-"}}).json()
    assert made["metadata"]["name"].startswith("p-")
    assert len(made["metadata"]["name"]) == 7


@pytest.mark.parametrize(
    ("path", "sent", "code"),
    [
        ("/api/v1/namespaces/none/pods", {"metadata": {"name": "p"}}, 404),
        ("/api/v1/namespaces/a/pods", {"metadata": {}}, 422),
        ("/api/v1/namespaces/a/pods", {"metadata": {"name": "Big_Name"}}, 422),
        ("/api/v1/namespaces/a/pods", {"metadata": {"name": "p", "namespace": "b"}}, 400),
        ("/api/v1/namespaces/a/pods", {"kind": "Node", "metadata": {"name": "p"}}, 400),
        ("/api/v1/namespaces/a/pods", {"metadata": {"name": "p", "resourceVersion": "3"}}, 400),
        ("/api/v1/namespaces/a/pods", ["no object"], 400),
        ("/api/v1/pods", {"metadata": {"name": "p"}}, 404),
    ],
)
def test_creates_that_the_api_refuses(http: httpx.Client, path: str, sent: Any, code: int) -> None:
    assert http.post(path, json=sent).status_code == code


def test_spec_and_status_are_written_apart(custom: httpx.Client) -> None:
    custom.post(QUEUES, json={**queue(), "status": {"pending": 9}})
    path, metadata = f"{QUEUES}/q1", {"metadata": {"name": "q1"}}
    assert "status" not in custom.get(path).json()
    patched = custom.patch(
        f"{path}/status", json={"spec": {"weight": 7}, "status": {"pending": 2}}, headers=MERGE
    ).json()
    assert (patched["spec"]["weight"], patched["status"], patched["metadata"]["generation"]) == (1, {"pending": 2}, 1)
    patched = custom.patch(path, json={"spec": {"weight": 7}, "status": {"pending": 5}}, headers=MERGE).json()
    assert (patched["spec"]["weight"], patched["status"], patched["metadata"]["generation"]) == (7, {"pending": 2}, 2)
    version = patched["metadata"]["resourceVersion"]
    same = custom.patch(path, json={"spec": {"weight": 7}}, headers=MERGE).json()
    assert same["metadata"]["resourceVersion"] == version
    labelled = custom.patch(path, json={"metadata": {"labels": {"x": "y"}}}, headers=MERGE).json()["metadata"]
    assert (labelled["generation"], labelled["labels"]) == (2, {"x": "y"})
    assert custom.put(path, json={**queue(), **metadata}).json()["code"] == 422
    replaced = custom.put(path, json={**queue(weight=3), "metadata": labelled}).json()
    assert (replaced["spec"]["weight"], replaced["status"]) == (3, {"pending": 2})


def test_a_stale_write_is_a_conflict(http: httpx.Client) -> None:
    path = "/api/v1/namespaces/a/pods"
    first = http.post(path, json={"metadata": {"name": "p"}, "spec": {"x": 1}}).json()
    http.patch(f"{path}/p", json={"spec": {"x": 2}}, headers=MERGE)
    answer = http.put(f"{path}/p", json={**first, "spec": {"x": 3}})
    assert (answer.status_code, answer.json()["reason"]) == (409, "Conflict")
    assert answer.json()["message"] == (
        'Operation cannot be fulfilled on pods "p": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    stale = {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "spec": {"x": 4}}
    assert http.patch(f"{path}/p", json=stale, headers=MERGE).status_code == 409
    assert http.patch(f"{path}/p", json={"metadata": {"uid": "other"}}, headers=MERGE).status_code == 409
    assert http.get(f"{path}/p").json()["spec"] == {"x": 2}
    strategic = {"Content-Type": "application/strategic-merge-patch+json"}
    assert http.patch(f"{path}/p", json={}, headers=strategic).status_code == 415


def test_a_dry_run_changes_nothing(api: Serving, custom: httpx.Client) -> None:
    version = api.store.version
    dry = {"dryRun": "All"}
    assert custom.post(QUEUES, params=dry, json=queue()).status_code == 201
    assert custom.post(QUEUES, params=dry, json=queue(weight=0)).status_code == 422
    assert custom.get(f"{QUEUES}/q1").status_code == 404
    assert api.store.version == version


def test_a_deletion_waits_for_finalizers(http: httpx.Client) -> None:
    path = "/api/v1/namespaces/a/configmaps"
    made = http.post(path, json={"metadata": {"name": "c", "finalizers": ["x.example/y"]}}).json()
    wrong = {"preconditions": {"uid": "other"}}
    assert http.request("DELETE", f"{path}/c", json=wrong).status_code == 409
    right = {"preconditions": {"uid": made["metadata"]["uid"]}}
    leaving = http.request("DELETE", f"{path}/c", json=right).json()
    assert leaving["metadata"]["deletionTimestamp"] == "2026-03-01T12:00:00Z"
    http.patch(f"{path}/c", json={"metadata": {"finalizers": None}}, headers=MERGE)
    assert http.get(f"{path}/c").status_code == 404
    http.post(path, json={"metadata": {"name": "d"}})
    assert http.delete(f"{path}/d").json()["status"] == "Success"
    assert http.delete(f"{path}/d").status_code == 404


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"weight": "1"},
            'spec.weight: Invalid value: "string": spec.weight in body must be of type integer: "string"',
        ),
        ({"weight": 0}, "spec.weight: Invalid value: 0: spec.weight in body should be greater than or equal to 1"),
        ({"weight": 101}, "spec.weight: Invalid value: 101: spec.weight in body should be less than or equal to 100"),
        ({"mode": "x"}, 'spec.mode: Unsupported value: "x": supported values: "Strict", "BestEffort"'),
        ({"quota": "4Mi"}, "spec.quota: Invalid value: \"4Mi\": spec.quota in body should match '^[0-9]+(Gi)?$'"),
        ({"quota": "4\n"}, "spec.quota: Invalid value: \"4\\n\": spec.quota in body should match '^[0-9]+(Gi)?$'"),
        (
            {"labels": {"a": "123456"}},
            'spec.labels.a: Invalid value: "123456": spec.labels.a in body should have at most 5',
        ),
        ({"names": ["a", "a"]}, "spec.names[1]: Duplicate value: 'a'"),
        ({"weight": None}, 'spec.weight: Invalid value: "null": spec.weight in body must be of type integer: "null"'),
    ],
)
def test_an_object_that_its_schema_refuses(custom: httpx.Client, spec: dict[str, Any], message: str) -> None:
    answer = custom.post(QUEUES, json=queue(**spec))
    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert answer.json()["message"].startswith(f'Queue.sched.example "q1" is invalid: {message}')
    assert answer.json()["details"]["causes"][0]["field"] in message


def test_a_required_field_is_asked_for(custom: httpx.Client) -> None:
    answer = custom.post(QUEUES, json={"metadata": {"name": "q"}, "spec": {}})
    assert answer.json()["message"] == 'Queue.sched.example "q" is invalid: spec.weight: Required value'


def test_unknown_fields_are_pruned_and_named(custom: httpx.Client) -> None:
    sent = queue(foo=1, extra={"kept": True}, quota=4, parent=None, mode=None)
    answer = custom.post(QUEUES, json=sent)
    assert answer.json()["spec"] == {
        "weight": 1,
        "extra": {"kept": True},
        "quota": 4,
        "parent": None,
        "mode": "BestEffort",
    }
    assert answer.headers["Warning"] == '299 - "unknown field \\"spec.foo\\""'
    strict = custom.post(QUEUES, params={"fieldValidation": "Strict"}, json=queue("q2", foo=1))
    assert strict.status_code == 400
    assert strict.json()["message"].endswith('strict decoding error: unknown field "spec.foo"')
    silent = custom.post(QUEUES, params={"fieldValidation": "Ignore"}, json=queue("q3", foo=1))
    assert "Warning" not in silent.headers


def test_a_definition_must_be_named_for_its_kind(http: httpx.Client) -> None:
    wrong = {**definition(), "metadata": {"name": "queue.sched.example"}}
    answer = http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", json=wrong)
    assert answer.status_code == 422
    assert "must be spec.names.plural" in answer.json()["message"]
    assert http.get(QUEUES).status_code == 404
