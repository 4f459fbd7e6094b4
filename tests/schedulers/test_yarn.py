"""What the records of YARN are, exactly, in both ways in which its releases write answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.attribution.rules import parse
from gpuledger.errors import BadInput, ConfigError, InconsistentSnapshot, NotPermitted, SchedulerUnreachable
from gpuledger.ports import SchedulerSnapshot
from gpuledger.testing import FakeClock
from schedulers.fakes.yarn import CLUSTER_ID, FakeApp, FakeContainer, FakeNode, FakeQueue, FakeResourceManager
from schedulers.yarn import Yarn
from schedulers.yarn.answers import amounts, by_partition, entries, instant, listed
from schedulers.yarn.apps import REASONS
from tests.schedulers.reading import check_snapshot, rows, timeless
from tests.schedulers.worlds.yarn import fake


def read(manager: FakeResourceManager, rules: Rules | None = None, **options: Any) -> SchedulerSnapshot:
    with manager.serve() as url:
        reader = Yarn.from_options({"url": url, **options}, rules=rules or Rules(), clock=FakeClock())
        snapshot = reader.snapshot()
    check_snapshot(snapshot, reader)
    return snapshot


def by(snapshot: SchedulerSnapshot, record: str, column: str) -> dict[str, dict[str, Any]]:
    return {row[column]: row for row in rows(snapshot, record)}


def apps(snapshot: SchedulerSnapshot, record: str = "workload") -> dict[int, dict[str, Any]]:
    return {int(row["workload_id"].rpartition("_")[2]): row for row in rows(snapshot, record)}


@pytest.mark.parametrize("dialect", ["jettison", "moxy"])
def test_queues_tell_quota_and_what_is_beyond_it(dialect: str) -> None:
    manager = fake()
    manager.dialect = dialect
    snapshot = read(manager)
    quotas = {
        name: (row["nominal_gpus"], row["limit_gpus"], row["borrowing_limit_gpus"], row["not_reported"])
        for name, row in by(snapshot, "quota", "queue").items()
    }
    assert quotas == {
        "root": (24, 24, 0, ""),
        "root.a": (8, 16, 8, ""),
        "root.b": (16, 24, 8, ""),
        "root.b.b1": (8, 16, 8, ""),
    }
    states = by(snapshot, "queue_state", "queue")
    assert set(states) == {"root.a", "root.b.b1"}  # parents hold the same again
    a, b1 = states["root.a"], states["root.b.b1"]
    assert (a["running_gpus"], a["borrowed_gpus"], a["pending_gpus"], a["lent_gpus"]) == (12, 4, 0, None)
    assert (b1["running_gpus"], b1["borrowed_gpus"], b1["pending_gpus"]) == (2, 0, 8)
    assert {name: row["parent"] for name, row in by(snapshot, "queue", "queue").items()} == {
        "root": None, "root.a": "root", "root.b": "root", "root.b.b1": "root.b",
    }  # fmt: skip


def test_resources_keep_their_own_units_and_names() -> None:
    found = {
        row["resource"]: (row["nominal"], row["limit"], row["used"], row["borrowed"], row["pending"])
        for row in rows(read(fake()), "queue_resource")
        if row["queue"] == "root.a"
    }
    assert found == {
        "memory-mb": (1_048_576, 2_097_152, 4 * 65_536, 0, 0),
        "vcores": (128, 256, 32, 0, 0),
        "yarn.io/gpu": (8, 16, 12, 4, 0),
    }


def test_the_largest_number_is_no_limit_and_what_is_absent_is_not_reported() -> None:
    manager = fake()

    def change(path: str, told: Any) -> Any:
        if path == "/scheduler":
            a = told["scheduler"]["schedulerInfo"]["queues"]["queue"][0]["capacities"]["queueCapacitiesByPartition"][0]
            a["effectiveMaxResource"]["resourceInformations"]["resourceInformation"][2]["value"] = 2**63 - 1
            del a["effectiveMinResource"]["resourceInformations"]["resourceInformation"][2]
        return told

    manager.change = change
    row = by(read(manager), "quota", "queue")["root.a"]
    assert (row["nominal_gpus"], row["limit_gpus"], row["not_reported"]) == (None, None, "nominal_gpus")


@pytest.mark.parametrize("dialect", ["jettison", "moxy"])
def test_nodes(dialect: str) -> None:
    manager = fake()
    manager.dialect = dialect
    manager.nodes.append(FakeNode("n4", 8, state="DECOMMISSIONING", label="h100"))
    manager.nodes.append(FakeNode("n5", 8, state="LOST"))
    snapshot = read(manager)
    found = {
        row["node"]: (row["capacity"], row["allocatable"], row["allocated"], row["free"], row["reason"])
        for row in rows(snapshot, "node_state")
    }
    assert found == {
        "n1": (8, 8, 8, 0, None),
        "n2": (8, 8, 6, 2, None),
        "n3": (8, 0, 0, 0, "UNHEALTHY: 1/1 log-dirs are bad"),
        "n4": (8, 8, 0, 0, "DECOMMISSIONING"),
        "n5": (8, 0, 0, 0, "LOST"),
    }
    assert by(snapshot, "node", "node")["n4"]["pool"] == "h100"
    told = {(row["subject"], row["condition"]) for row in rows(snapshot, "condition")}
    assert told == {("n3", "not_ready"), ("n4", "drain"), ("n5", "not_ready")}


def test_two_managers_of_one_host_are_two_nodes() -> None:
    manager = fake()
    told = manager._node(manager.nodes[1])

    def change(path: str, answer: Any) -> Any:
        if path == "/nodes":
            answer["nodes"]["node"].append({**told, "id": "n3:9000", "nodeHostName": "n3"})
        return answer

    manager.change = change
    manager.nodes[2].state = "RUNNING"
    assert {"n3:8041", "n3:9000"} <= set(by(read(manager), "node", "node"))


@pytest.mark.parametrize("dialect", ["jettison", "moxy"])
def test_applications(dialect: str) -> None:
    manager = fake()
    manager.dialect = dialect
    snapshot = read(manager)
    found = {
        number: (row["status"], row["queue"], row["num_gpu"], row["pod_count"], row["pending_cause"])
        for number, row in apps(snapshot).items()
    }
    assert found == {
        1: ("running", "root.a", 4, 3, None),  # three containers of four GPUs; its master has none
        2: ("running", "root.b.b1", 2, 1, None),  # runs, and wants more: no wait
        3: ("pending", "root.a", 0, 0, "quota"),
        4: ("admitted", "root.b.b1", 4, 1, "capacity"),  # its master runs; 2 GPUs are free, and it wants 4
    }
    waits = apps(snapshot, "wait")
    assert waits[3]["reason"] == "ACCEPTED"
    assert waits[3]["message"].startswith("Application is added to the scheduler and is not yet activated.")
    assert waits[3]["gpus"] is None
    assert (waits[4]["message"], waits[4]["gpus"]) == ("pending 4 yarn.io/gpu, used 0", 4)


@pytest.mark.parametrize("dialect", ["jettison", "moxy"])
def test_containers_with_gpus_are_pods(dialect: str) -> None:
    manager = fake()
    manager.dialect = dialect
    pods = [
        (row["pod"], row["node"], row["gpu_count"], row["workload_id"].rpartition("_")[2])
        for row in rows(read(manager), "pod")
    ]
    assert pods == [
        (f"container_{CLUSTER_ID}_0001_01_000002", "n1", 4, "0001"),
        (f"container_{CLUSTER_ID}_0001_01_000003", "n1", 4, "0001"),
        (f"container_{CLUSTER_ID}_0001_01_000004", "n2", 4, "0001"),
        (f"container_{CLUSTER_ID}_0002_01_000002", "n2", 2, "0002"),
    ]


def test_times_are_the_managers() -> None:
    events = [
        (row["kind"], int(row["ts"].timestamp() * 1000) - CLUSTER_ID)
        for row in rows(read(fake()), "workload_event")
        if row["workload_id"].endswith("0001")
    ]
    assert events == [("submitted", 60_000), ("started", 70_000)]


def test_a_leaf_may_be_called_by_its_name_alone_where_only_one_has_it() -> None:
    manager = fake()
    manager.apps[0].queue = "a"
    manager.root.children[1].children.append(FakeQueue("a2", 0, 8))
    manager.apps = [FakeApp(9, "a", "ACCEPTED")]
    assert apps(read(manager))[9]["queue"] == "root.a"
    manager.root.children[1].children.append(FakeQueue("a", 0, 8))
    snapshot = read(manager)
    assert apps(snapshot) == {}
    assert [(row["kind"], row["detail"]) for row in rows(snapshot, "quality_event")] == [
        ("unreadable_object", "BadInput: queue: 'a' names 2 queues")
    ]


@pytest.mark.parametrize(
    ("held", "asks", "most", "cause"),
    [(0, [(4, 1)], 16, "capacity"), (0, [(32, 1)], 16, "exceeds_max"), (14, [(4, 1)], 16, "quota"),
     (0, [(2, 1)], 16, "fragmentation")],
)  # fmt: skip
def test_who_got_no_gpu_at_all_waits_for_what_the_numbers_say(
    held: int, asks: list[tuple[int, int]], most: int, cause: str
) -> None:
    other = [FakeContainer("n1", 8), FakeContainer("n2", max(held - 8, 0))] if held else []
    manager = FakeResourceManager(
        FakeQueue("root", 16, 16, [FakeQueue("a", 8, most), FakeQueue("z", 8, 16)]),
        [FakeNode("n1", 8), FakeNode("n2", 8)],
        [
            FakeApp(1, "root.a", "RUNNING", containers=other),
            FakeApp(
                2, "root.z", "RUNNING", containers=[] if held else [FakeContainer("n1", 7), FakeContainer("n2", 7)]
            ),
            FakeApp(3, "root.a", "RUNNING", containers=[FakeContainer("n1", 0)], asks=asks),
        ],
    )
    assert apps(read(manager))[3]["pending_cause"] == cause


ADDED = "Application is added to the scheduler and is not yet activated. "
ACTIVATED = "Application is Activated, waiting for resources to be assigned for AM. "


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (f"{ADDED}User's AM resource limit exceeded. ", "quota"),
        (f"{ADDED}Skipping AM assignment as cluster resource is empty.  Details : ", "health"),
        (ADDED, "quota"),
        (f"{ACTIVATED}Skipped scheduling for this Node as its black listed. ", "placement"),
        (f"{ACTIVATED} Details : AM Partition = <DEFAULT_PARTITION> ; ", "capacity"),
        ("Scheduler has assigned a container for AM, waiting for AM container to be launched", "startup"),
        ("AM container is launched, waiting for AM container to Register with RM", "startup"),
        ("", "unknown"),
    ],
)
def test_the_capacity_schedulers_words(words: str, cause: str) -> None:
    assert REASONS.tell("ACCEPTED", words).cause == cause


def test_a_standby_names_the_active_one(tmp_path: Path) -> None:
    active = fake()
    (tmp_path / "token").write_text("secret-token", encoding="utf-8")
    with active.serve() as url:
        standby = fake()
        standby.is_standby_of = url
        snapshot = read(standby, token_file=str(tmp_path / "token"), user="ledger")
    assert len(apps(snapshot)) == 4
    assert "authorization" in standby.asked[0].headers
    assert "authorization" not in active.asked[0].headers  # the token stays with the host that it is for


def test_another_scheduler_is_read_in_part() -> None:
    manager = fake()

    def change(path: str, told: Any) -> Any:
        return (
            {"scheduler": {"schedulerInfo": {"type": "fairScheduler", "rootQueue": {}}}}
            if path == "/scheduler"
            else told
        )

    manager.change = change
    snapshot = read(manager)
    assert snapshot.scope.unlisted == {"queue", "quota", "queue_resource", "queue_state"}
    assert "fairScheduler" in str(snapshot.scope)
    assert len(apps(snapshot)) == 4


def test_containers_that_were_not_asked_for_have_not_ended() -> None:
    snapshot = read(fake(), containers_at_most=1)
    assert len(rows(snapshot, "pod")) == 3
    assert snapshot.scope.unlisted == {"pod"}
    assert [(row["kind"], row["count"]) for row in rows(snapshot, "quality_event")] == [("truncated_answer", 1)]


def test_applications_of_others_hide_their_times() -> None:
    manager = fake()
    manager.apps[0].started_ms = manager.apps[0].launched_ms = 0
    snapshot = read(manager)
    assert [(row["kind"], row["count"]) for row in rows(snapshot, "quality_event")] == [("not_permitted", 1)]
    assert apps(snapshot)[1]["started_at"] is None
    assert {row["kind"] for row in rows(snapshot, "workload_event") if row["workload_id"].endswith("0001")} == set()


@pytest.mark.parametrize(
    ("path", "what", "absent"), [("/scheduler", "queues", "queue_state"), ("/nodes", "nodes", "node_state")]
)
def test_what_is_forbidden_is_absent(path: str, what: str, absent: str) -> None:
    manager = fake()
    manager.forbidden = {path}
    snapshot = read(manager)
    assert [denied for denied, _ in snapshot.scope.denied] == [what]
    assert absent in snapshot.scope.unlisted
    assert absent not in snapshot.records
    assert len(apps(snapshot)) == 4


def test_everything_forbidden_is_not_permitted() -> None:
    manager = fake()
    manager.forbidden = {"/scheduler", "/nodes", "/apps"}
    with pytest.raises(NotPermitted, match="403"):
        read(manager)


def test_123_more_given_away_than_there_is_is_refused() -> None:
    manager = FakeResourceManager(
        FakeQueue("root", 64, 64, [FakeQueue("a", 64, 66)]),
        [FakeNode(f"n{number}", 8) for number in range(8)],
        [FakeApp(1, "root.a", "RUNNING", containers=[FakeContainer("joined-since", 2)])],
    )
    manager.apps[0].containers += [FakeContainer(f"n{number}", 8) for number in range(8)]
    with pytest.raises(InconsistentSnapshot, match="queues hold 66 GPUs and nodes have 64, 4 times"):
        read(manager)


def test_a_change_that_all_sums_show_is_one_moment() -> None:
    manager = fake()

    def change(path: str, told: Any) -> Any:
        if path == "/scheduler" and len(manager.apps[1].containers) == 2:
            manager.apps[1].containers.append(FakeContainer("n2", 1))
        return told

    manager.change = change
    assert by(read(manager), "queue_state", "queue")["root.b.b1"]["running_gpus"] == 3


def test_times_that_pass_change_no_version() -> None:
    manager = fake()
    first = read(manager)
    manager.apps[2].diagnostics = manager.apps[2].diagnostics.replace("22:00:09", "22:07:41")
    second = read(manager)
    assert second.version == first.version
    assert timeless(second) == timeless(first)


def test_rules_and_unknown_answers() -> None:
    rules = parse({"tenant": [{"namespace": "yarn", "labels": {"queue": "root.b.*"}, "value": "team-b"}]})
    snapshot = read(fake(), rules)
    assert by(snapshot, "queue_state", "queue")["root.b.b1"]["tenant"] == "team-b"
    assert (apps(snapshot)[2]["tenant"], apps(snapshot)[1]["tenant"]) == ("team-b", "root.a")
    manager = fake()
    manager.change = lambda path, told: "<html>Please log in</html>" if path == "/nodes" else told
    with pytest.raises(SchedulerUnreachable, match="/nodes: answers no JSON"):
        read(manager)
    with pytest.raises(ConfigError, match="containers_at_most"):
        Yarn.from_options({"url": "http://rm", "containers_at_most": -1}, rules=Rules(), clock=FakeClock())


def test_the_ways_to_write_lists_resources_and_times() -> None:
    one = {"name": "yarn.io/gpu", "value": "4"}
    assert listed(None) == listed("") == listed([]) == []
    assert listed(one) == listed([one]) == [one]
    with pytest.raises(BadInput):
        listed(7)
    assert amounts({"resourceInformations": {"resourceInformation": one}}, "x") == {"yarn.io/gpu": 4}
    assert amounts({"memory": 1024, "vCores": 2}, "x") == {"memory-mb": 1024, "vcores": 2}
    assert amounts(None, "x") is None
    for bad in ("many", -1, True, None, "NaN", "Infinity"):
        with pytest.raises(BadInput, match=r"x\.yarn\.io/gpu"):
            amounts({"resourceInformations": {"resourceInformation": {"name": "yarn.io/gpu", "value": bad}}}, "x")
    assert entries({"entry": {"key": "yarn.io/gpu", "value": "2"}}, "x") == entries({"yarn.io/gpu": 2}, "x")
    assert by_partition({"k": {"partitionName": "h100", "used": {"vCores": 1}}}, "k", "used") == {"h100": {"vcores": 1}}
    assert instant(0) is None
    assert instant("1772400000000") == instant(1_772_400_000_000)
    with pytest.raises(BadInput):
        instant(1_772_400_000_000_000)
