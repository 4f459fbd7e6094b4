from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, ApiRefusal, Asked, Fault, Serving, Store, Subject, serve

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
MERGE = {"Content-Type": "application/merge-patch+json"}


def _pod(name: str, namespace: str = "a", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, **more}


def _store(**options: Any) -> Store:
    store = Store(clock=FakeClock(NOW), **options)
    for name in ("a", "b"):
        store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    return store


@pytest.fixture
def api() -> Iterator[Serving]:
    with serve(_store()) as serving:
        yield serving


@pytest.fixture
def http(api: Serving) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=api.url) as client:
        yield client


def _names(answer: httpx.Response) -> list[str]:
    return [item["metadata"]["name"] for item in answer.json()["items"]]


def test_tells_what_it_serves(http: httpx.Client) -> None:
    assert http.get("/version").json()["minor"] == "34"
    assert http.get("/api").json()["versions"] == ["v1"]
    groups = {group["name"]: group for group in http.get("/apis").json()["groups"]}
    assert groups["batch"]["preferredVersion"] == {"groupVersion": "batch/v1", "version": "v1"}
    listed = {entry["name"]: entry for entry in http.get("/api/v1").json()["resources"]}
    assert listed["pods"]["namespaced"] is True
    assert listed["pods"]["shortNames"] == ["po"]
    assert {"get", "list", "watch"} <= set(listed["pods"]["verbs"])
    assert listed["nodes"]["namespaced"] is False
    assert listed["pods/status"]["verbs"] == ["get", "patch", "update"]


def test_betas_are_off_unless_asked_for() -> None:
    path = "/apis/scheduling.k8s.io/v1beta1/workloads"
    with serve(Store()) as api:
        assert httpx.get(api.url + path).status_code == 404
    with serve(Store(also=("scheduling.k8s.io/v1beta1",), without=("apps/v1",))) as api:
        assert httpx.get(api.url + path).json()["kind"] == "WorkloadList"
        assert httpx.get(api.url + "/apis/apps/v1").status_code == 404


def test_what_is_absent_is_answered_as_the_api_does(http: httpx.Client) -> None:
    unknown = http.get("/apis/nothing.example/v1/things")
    assert (unknown.status_code, unknown.text) == (404, "404 page not found\n")
    answer = http.get("/api/v1/namespaces/a/pods/p0")
    assert answer.status_code == 404
    assert answer.json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'pods "p0" not found',
        "reason": "NotFound",
        "code": 404,
        "details": {"name": "p0", "kind": "pods"},
    }


def test_pages_of_a_list_are_of_one_version(api: Serving, http: httpx.Client) -> None:
    for name in ("p1", "p2", "p3"):
        api.store.put(_pod(name))
    first = http.get("/api/v1/pods", params={"limit": 2})
    version = first.json()["metadata"]["resourceVersion"]
    assert (_names(first), first.json()["metadata"]["remainingItemCount"]) == (["p1", "p2"], 1)
    api.store.remove(_pod("p3"))
    api.store.put(_pod("p4"))
    second = http.get("/api/v1/pods", params={"limit": 2, "continue": first.json()["metadata"]["continue"]})
    assert _names(second) == ["p3"]
    assert second.json()["metadata"] == {"resourceVersion": version}
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    assert _names(http.get("/api/v1/pods", params=exact)) == ["p1", "p2", "p3"]
    newer = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
    assert _names(http.get("/api/v1/pods", params=newer)) == ["p1", "p2", "p4"]


def test_lists_by_namespace_label_and_field(api: Serving, http: httpx.Client) -> None:
    api.store.put(_pod("p1", spec={"nodeName": "n1"}, status={"phase": "Running"}))
    api.store.put(_pod("p2", "b", spec={"nodeName": "n1"}, status={"phase": "Failed"}))
    labelled = _pod("p3", spec={}, status={"phase": "Pending"})
    labelled["metadata"]["labels"] = {"team": "x", "tier": "1"}
    api.store.put(labelled)
    assert _names(http.get("/api/v1/namespaces/a/pods")) == ["p1", "p3"]
    for query, names in {
        "fieldSelector=spec.nodeName%3Dn1": ["p1", "p2"],
        "fieldSelector=spec.nodeName%3Dn1,status.phase!%3DFailed": ["p1"],
        "fieldSelector=metadata.name%3Dp3": ["p3"],
        "fieldSelector=metadata.namespace%3Db": ["p2"],
        "labelSelector=team": ["p3"],
        "labelSelector=!team": ["p1", "p2"],
        "labelSelector=team in (x,y),tier%3D1": ["p3"],
        "labelSelector=team notin (x)": ["p1", "p2"],
        "labelSelector=tier!%3D1": ["p1", "p2"],
    }.items():
        assert _names(http.get(f"/api/v1/pods?{query}")) == names, query
    assert http.get("/api/v1/pods?fieldSelector=spec.hostname%3Dx").json()["reason"] == "BadRequest"


def test_old_versions_are_gone(api: Serving, http: httpx.Client) -> None:
    for name in ("p1", "p2"):
        api.store.put(_pod(name))
    first = http.get("/api/v1/pods", params={"limit": 1}).json()["metadata"]
    api.store.put(_pod("p3"))
    api.store.remove(_pod("p1"))
    api.store.forget_before(api.store.version)
    answer = http.get("/api/v1/pods", params={"limit": 1, "continue": first["continue"]})
    assert (answer.status_code, answer.json()["reason"]) == (410, "Expired")
    again = answer.json()["metadata"]["continue"]
    assert _names(http.get("/api/v1/pods", params={"continue": again})) == ["p2", "p3"]
    exact = {"resourceVersion": first["resourceVersion"], "resourceVersionMatch": "Exact"}
    assert http.get("/api/v1/pods", params=exact).status_code == 410
    watch = {"watch": "1", "resourceVersion": first["resourceVersion"]}
    event = json.loads(http.get("/api/v1/pods", params=watch).text)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
        ({"resourceVersionMatch": "Newest", "resourceVersion": "1"}, 422),
        ({"resourceVersion": "9999"}, 504),
        ({"resourceVersion": "x"}, 400),
        ({"continue": "x"}, 400),
        ({"watch": "1", "resourceVersionMatch": "NotOlderThan"}, 422),
        ({"watch": "1", "sendInitialEvents": "true"}, 422),
    ],
)
def test_parameters_that_the_api_refuses(http: httpx.Client, query: dict[str, str], code: int) -> None:
    answer = http.get("/api/v1/pods", params=query)
    assert (answer.status_code, answer.json()["code"]) == (code, code)


def _events(http: httpx.Client, until: int, path: str = "/api/v1/pods", **query: str) -> list[tuple[str, str]]:
    """The first `until` events of a watch: type, and name or version."""
    found: list[tuple[str, str]] = []
    with http.stream("GET", path, params={"watch": "1", **query}) as answer:
        for line in answer.iter_lines():
            event = json.loads(line)
            metadata = event["object"]["metadata"]
            found.append((event["type"], metadata.get("name") or metadata["resourceVersion"]))
            if len(found) == until:
                break
    return found


def test_a_watch_tells_every_change_in_order(api: Serving, http: httpx.Client) -> None:
    begin = str(api.store.version)
    api.store.put(_pod("p1", status={"phase": "Pending"}))
    api.store.put(_pod("p1", status={"phase": "Running"}))
    api.store.put(_pod("p2", "b", status={"phase": "Running"}))
    api.store.remove(_pod("p1"))
    changes = [("ADDED", "p1"), ("MODIFIED", "p1"), ("ADDED", "p2"), ("DELETED", "p1")]
    assert _events(http, 4, resourceVersion=begin) == changes
    assert _events(http, 3, "/api/v1/namespaces/a/pods", resourceVersion=begin) == [*changes[:2], changes[3]]
    running = {"resourceVersion": begin, "fieldSelector": "status.phase=Running"}
    assert _events(http, 3, **running) == [("ADDED", "p1"), ("ADDED", "p2"), ("DELETED", "p1")]
    assert _events(http, 1) == [("ADDED", "p2")]


def test_a_watch_sees_writes_made_while_it_waits(api: Serving, http: httpx.Client) -> None:
    writer = threading.Timer(0.1, lambda: api.store.put(_pod("later")))
    writer.start()
    assert _events(http, 1, resourceVersion=str(api.store.version)) == [("ADDED", "later")]
    writer.join()


def test_initial_events_end_with_their_bookmark(api: Serving, http: httpx.Client) -> None:
    api.store.put(_pod("p1"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with http.stream("GET", "/api/v1/pods", params={"watch": "1", **query}) as answer:
        lines = answer.iter_lines()
        first, second = json.loads(next(lines)), json.loads(next(lines))
    assert (first["type"], first["object"]["metadata"]["name"]) == ("ADDED", "p1")
    assert (second["type"], second["object"]["kind"]) == ("BOOKMARK", "Pod")
    assert second["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert second["object"]["metadata"]["resourceVersion"] == str(api.store.version)


def test_bookmarks_come_where_they_are_allowed_and_at_the_end() -> None:
    store = _store()
    store.put({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
    query = {"watch": "1", "resourceVersion": str(store.version - 1), "timeoutSeconds": "1"}
    with serve(store) as api:
        bare = httpx.get(api.url + "/api/v1/nodes", params=query).text.splitlines()
        told = httpx.get(api.url + "/api/v1/nodes", params={**query, "allowWatchBookmarks": "true"}).text.splitlines()
    assert [json.loads(line)["type"] for line in bare] == ["ADDED"]
    assert [json.loads(line)["type"] for line in told] == ["ADDED", "BOOKMARK"]
    assert json.loads(told[1])["object"]["metadata"]["resourceVersion"] == str(store.version)


def test_access_is_refused_in_the_servers_words() -> None:
    lists = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    quotas = {"apiGroups": [""], "resources": ["resourcequotas"], "verbs": ["get"], "resourceNames": ["gpus"]}
    collector = Subject("system:serviceaccount:obs:collector", in_namespace={"team-a": [lists, quotas]})
    with serve(_store(), access=Access({"t": collector})) as api:
        http = httpx.Client(base_url=api.url, headers={"Authorization": "Bearer t"})
        with http:
            refused = http.get("/api/v1/pods")
            assert refused.status_code == 403
            assert refused.json()["message"] == (
                'pods is forbidden: User "system:serviceaccount:obs:collector" cannot list resource "pods" '
                'in API group "" at the cluster scope'
            )
            assert refused.json()["details"] == {"kind": "pods"}
            assert http.get("/api/v1/namespaces/team-a/pods").status_code == 200
            assert http.get("/api/v1/namespaces/team-a/resourcequotas/gpus").status_code == 404
            named = http.get("/apis/kueue.x-k8s.io/v1beta1/clusterqueues/q").json()["message"]
            assert named.startswith('clusterqueues.kueue.x-k8s.io "q" is forbidden: User')
            assert http.get("/api/v1/namespaces/team-a/pods?watch=1").status_code == 403
            assert http.get("/apis").status_code == 200
            assert http.get("/logs").json()["message"] == f'forbidden: User "{collector.user}" cannot get path "/logs"'
        assert httpx.get(api.url + "/api/v1/pods", headers={"Authorization": "Bearer u"}).status_code == 401


def test_faults_come_on_request() -> None:
    def faults(asked: Asked) -> Fault | None:
        return {
            "nodes": Fault(refusal=500),
            "pods": Fault(cut_after_bytes=20),
            "services": Fault(refusal=ApiRefusal(429, "too many", details={"retryAfterSeconds": 3})),
            "secrets": Fault(delay_seconds=0.01),
        }.get(asked.plural)

    with serve(_store(), faults=faults) as api, httpx.Client(base_url=api.url) as http:
        assert http.get("/api/v1/nodes").json()["reason"] == "InternalError"
        assert http.get("/api/v1/services").headers["Retry-After"] == "3"
        assert http.get("/api/v1/secrets").json()["items"] == []
        with pytest.raises(httpx.RemoteProtocolError):
            http.get("/api/v1/pods")
        assert [(each.method, each.path) for each in api.asked][-1] == ("GET", "/api/v1/pods")


def test_an_aggregated_api_is_answered_by_who_has_it(api: Serving, http: httpx.Client) -> None:
    asked: list[tuple[str, Any]] = []

    def answer(path: str, query: Any) -> dict[str, Any] | None:
        asked.append((path, dict(query)))
        return {"kind": "PendingWorkloadsSummary", "items": []} if path.endswith("pendingworkloads") else None

    entry = {"name": "clusterqueues/pendingworkloads", "namespaced": False, "kind": "X", "verbs": ["get"]}
    api.store.aggregate("visibility.kueue.x-k8s.io/v1beta1", [entry], answer)
    base = "/apis/visibility.kueue.x-k8s.io/v1beta1"
    assert http.get(base).json()["resources"] == [entry]
    assert http.get(f"{base}/clusterqueues/q/pendingworkloads?limit=5").json()["items"] == []
    assert http.get(f"{base}/clusterqueues/q/other").status_code == 404
    assert asked[0] == ("clusterqueues/q/pendingworkloads", {"limit": "5"})
