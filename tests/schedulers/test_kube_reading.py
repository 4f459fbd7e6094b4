"""One moment from a server: at one version, begun anew when it is forgotten, in part where not all is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.clock import SystemClock
from gpuledger.errors import ConfigError, InconsistentSnapshot, NotPermitted, SchedulerError, SchedulerUnreachable
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.fakes.apiserver import Access, Asked, Fault, Serving, Store, Subject, serve
from schedulers.fakes.web import Answer, Request, serving
from schedulers.kubernetes.family import Kubernetes
from tests.schedulers.kubernetes_objects import NOW, by, node, pod, quota

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"
TOKEN = "reader"
READ = ["get", "list", "watch"]


def _reader(api: Serving, clock: Any = None, **options: Any) -> Kubernetes:
    return Kubernetes.from_options({"url": api.url, **options}, rules=Rules(), clock=clock or FakeClock(NOW))


def _store(*pods: dict[str, Any]) -> Store:
    store = Store(clock=FakeClock(NOW))
    for item in (node("n1"), node("n2"), *pods):
        store.put(item)
    return store


def _names(snapshot: SchedulerSnapshot) -> set[str]:
    return set(snapshot.records["pod"]["pod"].to_pylist())


def _lists(api: Serving, plural: str) -> list[Asked]:
    return [asked for asked in api.asked if asked.plural == plural and asked.verb == "list"]


def test_every_kind_is_listed_at_the_version_of_the_first() -> None:
    store = _store(pod("a", 8, on="n1"))
    version = str(store.version)

    def change(asked: Asked) -> Fault | None:
        if asked.plural == "nodes":  # after the pods were read somebody moves
            store.remove(pod("a"))
            store.put(pod("b", 8, on="n2"))
        return None

    with serve(store, faults=change) as api:
        snapshot = _reader(api).snapshot()
        assert snapshot.version == version
        assert _lists(api, "pods")[0].query.get("resourceVersion") is None
        (nodes,) = _lists(api, "nodes")
        assert (nodes.query["resourceVersion"], nodes.query["resourceVersionMatch"]) == (version, "Exact")
    assert _names(snapshot) == {"a"}
    assert {name: row["free"] for name, row in by(snapshot, "node_state", "node").items()} == {"n1": 0.0, "n2": 8.0}


def test_pages_of_one_list_are_of_one_version() -> None:
    store = _store(*(pod(f"p{number:02d}", 0) for number in range(25)))

    def change(asked: Asked) -> Fault | None:
        if asked.plural == "pods" and "continue" in asked.query:
            store.put(pod("zz-late", 1, on="n1"))
        return None

    with serve(store, faults=change) as api:
        snapshot = _reader(api, page_objects=10).snapshot()
        assert len(_lists(api, "pods")) == 3
        assert [asked.query.get("resourceVersion") for asked in _lists(api, "pods")] == [None, None, None]
    assert "zz-late" not in _names(snapshot)


def _forgetting(store: Store, times: int) -> Callable[[Asked], Fault | None]:
    """Before each of the first `times` lists of nodes what was before is forgotten."""
    left = [times]

    def forget(asked: Asked) -> Fault | None:
        if asked.plural == "nodes" and left[0]:
            left[0] -= 1
            store.put(pod("web", 0))
            store.forget_before(store.version)
        return None

    return forget


def test_a_version_that_is_forgotten_is_begun_anew() -> None:
    store = _store(pod("a", 8, on="n1"))
    with serve(store, faults=_forgetting(store, 2)) as api:
        snapshot = _reader(api).snapshot()
        assert len(_lists(api, "pods")) == 3
    assert snapshot.version == str(store.version)
    assert _names(snapshot) == {"a"}


def test_a_server_that_forgets_again_and_again_is_refused() -> None:
    store = _store(pod("a", 8, on="n1"))
    with serve(store, faults=_forgetting(store, 9)) as api, pytest.raises(InconsistentSnapshot, match=api.url):
        _reader(api).snapshot()


def _no_exact(store: Store, *, moves: bool) -> Callable[[Asked], Fault | None]:
    """A server that does not list at a version that it is given; pods move between its lists."""

    def fault(asked: Asked) -> Fault | None:
        if "resourceVersionMatch" in asked.query:
            return Fault(refusal=501)
        if moves and asked.plural == "nodes" and asked.verb == "list" and asked.query.get("resourceVersion") is None:
            store.remove(pod("a"))
            store.put(pod("b", 8, on="n2"))
        return None

    return fault


def test_where_no_version_can_be_asked_for_watches_bring_the_lists_together() -> None:
    store = _store(pod("a", 8, on="n1"))
    with serve(store, faults=_no_exact(store, moves=True), bookmark_seconds=0.1) as api:
        snapshot = _reader(api, SystemClock()).snapshot()
    # The nodes were listed last: what had happened to the pods by then is in.
    assert _names(snapshot) == {"b"}
    assert {name: row["free"] for name, row in by(snapshot, "node_state", "node").items()} == {"n1": 8.0, "n2": 0.0}


def test_lists_that_cannot_be_brought_together_are_refused() -> None:
    store = _store(pod("a", 8, on="n1"))
    apart = _no_exact(store, moves=True)

    def fault(asked: Asked) -> Fault | None:
        return Fault(refusal=410) if asked.verb == "watch" else apart(asked)

    with serve(store, faults=fault) as api, pytest.raises(InconsistentSnapshot, match="lists its kinds at versions"):
        _reader(api, SystemClock()).snapshot()


def _access(cluster: list[dict[str, Any]], **namespaces: list[dict[str, Any]]) -> Access:
    given = {name.replace("_", "-"): rules for name, rules in namespaces.items()}
    return Access({TOKEN: Subject("system:serviceaccount:obs:collector", cluster, given)})


def _rule(*resources: str) -> dict[str, Any]:
    return {"apiGroups": ["*"], "resources": list(resources), "verbs": READ}


@contextmanager
def _limited(tmp_path: Path, store: Store, access: Access, **options: Any) -> Iterator[tuple[Serving, Kubernetes]]:
    token = tmp_path / "token"
    token.write_text(TOKEN, encoding="utf-8")
    with serve(store, access=access) as api:
        yield api, _reader(api, token_file=str(token), **options)


def _teams() -> Store:
    store = _store()
    for name in ("team-a", "team-b"):
        store.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for number in range(3):
        store.put(pod(f"p{number}", 2, on="n1"))
    store.put(pod("hidden", 8, on="n2", namespace="team-b"))
    store.put(quota("gpus", {"requests.nvidia.com/gpu": "8"}))
    return store


def _sees_team_a_alone(snapshot: SchedulerSnapshot) -> None:
    assert sum(snapshot.records["pod"]["gpu_count"].to_pylist()) == 6.0
    assert set(snapshot.records["pod"]["namespace"].to_pylist()) == {"team-a"}
    assert snapshot.scope.namespaces == ("team-a",)
    assert str(snapshot.scope).startswith("partial: 1 namespace readable")
    # Who holds the rest of the nodes is not known: nothing is said to be free.
    assert "node_state" not in snapshot.records
    assert "node_state" in snapshot.scope.unlisted


def test_121_one_namespace_is_readable_and_the_rest_is_unknown(tmp_path: Path) -> None:
    access = _access([_rule("nodes", "namespaces", "events", "priorityclasses")], team_a=[_rule("*")])
    with _limited(tmp_path, _teams(), access) as (_, reader):
        snapshot = reader.snapshot()
    _sees_team_a_alone(snapshot)
    assert ("pods", _FORBIDDEN) in snapshot.scope.denied
    assert by(snapshot, "quota", "queue")["team-a/gpus"]["limit_gpus"] == 8.0


_FORBIDDEN = (
    'pods is forbidden: User "system:serviceaccount:obs:collector" cannot list resource "pods" in API group "" '
    "at the cluster scope"
)


def test_121_the_servers_words_are_those_of_the_public_problem() -> None:
    path = PROBLEMS / "121-rbac-403.json"
    if not path.exists():
        pytest.skip("../shared is absent: this checkout has no public problem inputs beside it")
    given = json.loads(path.read_text(encoding="utf-8"))
    assert given["/api/v1/pods"]["message"] == _FORBIDDEN
    shown = given["/api/v1/namespaces/team-a/pods"]["items"]
    assert [item["gpus"] for item in shown] == [2, 2, 2]


def test_namespaces_that_are_named_are_read_even_where_no_list_of_them_is(tmp_path: Path) -> None:
    access = _access([], team_a=[_rule("*")])
    with _limited(tmp_path, _teams(), access, namespaces=["team-a"]) as (api, reader):
        snapshot = reader.snapshot()
        assert not [asked for asked in _lists(api, "pods") if not asked.namespace]
    _sees_team_a_alone(snapshot)
    assert {"node", "scheduler_node", "condition"} <= snapshot.scope.unlisted


def test_who_may_read_nothing_is_told_so_and_not_that_there_is_nothing(tmp_path: Path) -> None:
    with _limited(tmp_path, _teams(), _access([])) as (api, reader), pytest.raises(NotPermitted) as caught:
        reader.snapshot()
    assert api.url in str(caught.value)
    assert "pods is forbidden" in str(caught.value)
    assert TOKEN not in str(caught.value).replace("collector", "")


def test_a_token_that_nobody_knows_is_not_permitted(tmp_path: Path) -> None:
    access = Access({"other": Subject("somebody")})
    with _limited(tmp_path, _teams(), access) as (_, reader), pytest.raises(NotPermitted, match="401"):
        reader.snapshot()


def test_without_pods_nodes_are_told_and_nothing_of_them_is_free(tmp_path: Path) -> None:
    with _limited(tmp_path, _teams(), _access([_rule("nodes", "namespaces")])) as (_, reader):
        snapshot = reader.snapshot()
    assert snapshot.records["node"].num_rows == 2
    assert "node_state" not in snapshot.records
    assert {"pod", "workload", "wait", "quota"} <= snapshot.scope.unlisted
    assert {what for what, _ in snapshot.scope.denied} >= {"pods", "resourcequotas"}


def test_a_cluster_without_an_optional_kind_is_read_without_it() -> None:
    store = Store(clock=FakeClock(NOW), without=("scheduling.k8s.io/v1", "resource.k8s.io/v1"))
    store.put(node("n1"))
    with serve(store) as api:
        snapshot = _reader(api).snapshot()
        assert not _lists(api, "priorityclasses")
    assert snapshot.scope.is_complete


def test_a_server_that_is_busy_is_asked_again() -> None:
    store, left = _store(pod("a", 8, on="n1")), [2]

    def busy(asked: Asked) -> Fault | None:
        if asked.plural == "nodes" and left[0]:
            left[0] -= 1
            return Fault(refusal=429)
        return None

    clock = FakeClock(NOW)
    with serve(store, faults=busy) as api:
        assert _names(_reader(api, clock).snapshot()) == {"a"}
    assert len(clock.slept) == 2


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    store, left = _store(pod("a", 8, on="n1")), [1]

    def broken(asked: Asked) -> Fault | None:
        if asked.plural == "pods" and left[0]:
            left[0] -= 1
            return Fault(cut_after_bytes=40)
        return None

    with serve(store, faults=broken) as api:
        assert _names(_reader(api).snapshot()) == {"a"}


def test_nobody_at_the_address_is_unreachable_and_named() -> None:
    with serve(Store()) as api:
        url = api.url
    reader = Kubernetes.from_options({"url": url}, rules=Rules(), clock=FakeClock(NOW))
    with pytest.raises(SchedulerUnreachable, match=url):
        reader.snapshot()


def test_a_kubeconfig_that_is_not_there_is_a_wrong_setting(tmp_path: Path) -> None:
    reader = Kubernetes.from_options({"kubeconfig": str(tmp_path / "none")}, rules=Rules(), clock=FakeClock(NOW))
    with pytest.raises(ConfigError, match="kubeconfig"):
        reader.snapshot()


def test_a_kubeconfig_says_where_and_as_whom(tmp_path: Path) -> None:
    with serve(_teams(), access=_access([_rule("*")])) as api:
        config = {
            "current-context": "other",
            "clusters": [{"name": "c", "cluster": {"server": api.url}}],
            "contexts": [{"name": "mine", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
        }
        path = tmp_path / "config"
        path.write_text(json.dumps(config), encoding="utf-8")
        options = {"kubeconfig": str(path), "context": "mine"}
        snapshot = Kubernetes.from_options(options, rules=Rules(), clock=FakeClock(NOW)).snapshot()
    assert snapshot.records["pod"].num_rows == 4
    assert snapshot.scope.is_complete


def test_errors_of_the_server_are_the_schedulers() -> None:
    store = _store()

    def fault(asked: Asked) -> Fault | None:
        return Fault(refusal=418) if asked.plural == "pods" else None

    with serve(store, faults=fault) as api, pytest.raises(SchedulerError, match="/api/v1/pods: 418"):
        _reader(api).snapshot()


@pytest.mark.parametrize("body", [[], None, {"items": [None]}, {"items": {"a": 1}}, {"metadata": "none"}])
def test_what_is_no_list_of_objects_is_no_answer(body: Any) -> None:
    def answered(asked: Request) -> Answer:
        kinds = [{"name": name} for name in ("pods", "nodes", "resourcequotas")]
        known = {"/api": {"versions": ["v1"]}, "/apis": {"groups": []}, "/api/v1": {"resources": kinds}}
        return Answer(known.get(asked.path, body))

    with serving(answered) as url:
        reader = Kubernetes.from_options({"url": url}, rules=Rules(), clock=FakeClock(NOW))
        with pytest.raises(SchedulerUnreachable, match=f"{url}/api/v1/pods"):
            reader.snapshot()
