"""A real Slurm: both ways of asking give the same records, and these are what Slurm's own commands say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuledger.errors import NotPermitted, SchedulerUnreachable
from gpuledger.model import Window
from gpuledger.ports import SchedulerSnapshot
from tests.schedulers.reading import check_snapshot, rows
from tests.servers.slurm import Cluster, accounts, running, until

pytestmark = pytest.mark.slow

NAME = "训练 01|é x"


@dataclass
class Scene:
    """What was made of the cluster: job numbers by name."""

    cluster: Cluster
    began_at: datetime
    jobs: dict[str, str] = field(default_factory=dict)

    def workload(self, snapshot: SchedulerSnapshot, name: str) -> dict[str, Any]:
        number = self.jobs[name]
        found = [row for row in rows(snapshot, "workload") if row["workload_id"].startswith(f"slurm/{number}@")]
        assert len(found) == 1, f"{name} ({number}): {found}"
        return found[0]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    began_at = datetime.now(UTC) - timedelta(seconds=5)
    with running() as cluster:
        accounts(cluster)
        scene = Scene(cluster, began_at)
        _fill(scene)
        yield scene


def _fill(scene: Scene) -> None:
    """Eight GPUs of gpu1, five of gpu2, one of gpu3; gpu4 is drained; ten jobs wait, each for its own reason."""
    submit, jobs = scene.cluster.submit, scene.jobs
    scene.cluster.run("scontrol", "update", "node=gpu4", "state=drain", "reason=bad | card")
    jobs["named"] = submit(NAME, "-w", "gpu1", "--gpus=4")
    jobs["pair"] = submit("pair", "-N2", "-w", "gpu1,gpu2", "--gres=gpu:4")
    jobs["array"] = submit("array", "--array=0-9%1", "-w", "gpu2", "--gres=gpu:1")
    jobs["het"] = submit("het", "-w", "gpu3", "--gres=gpu:1", ":", "-n1")
    for number in (jobs["named"], jobs["pair"], f"{jobs['array']}_0", jobs["het"]):
        scene.cluster.until_state(number, "RUNNING")
    jobs["held"] = submit("held", "-H", "--gres=gpu:2")
    jobs["begin"] = submit("begin", "--begin=now+3600", "--gres=gpu:2")
    jobs["dependent"] = submit("dependent", "-d", f"afterany:{jobs['named']}", "--gres=gpu:2")
    jobs["quota"] = submit("quota", "--gres=gpu:8", "-N2", account="team-a")
    jobs["qos"] = submit("qos", "-q", "high", "-N2", "--gres=gpu:8")
    jobs["limit"] = submit("limit", "-p", "small", "-N2", "--gres=gpu:1")
    jobs["drained"] = submit("drained", "-w", "gpu4", "--gres=gpu:1")
    jobs["apart"] = submit("apart", "-N1", "--gres=gpu:8")
    jobs["behind"] = submit("behind", "-N1", "--gres=gpu:8")
    for name, (reason, _) in WAITS.items():
        scene.cluster.until_state(jobs[name], f"PENDING {reason}")


WAITS: Mapping[str, tuple[str, str]] = {
    "held": ("JobHeldUser", "held"),
    "begin": ("BeginTime", "held"),
    "dependent": ("Dependency", "dependency"),
    "quota": ("AssocGrpGRES", "quota"),
    "qos": ("QOSMaxGRESPerUser", "quota"),
    "limit": ("PartitionNodeLimit", "exceeds_max"),
    "drained": ("ReqNodeNotAvail", "health"),
    "apart": ("Resources", "fragmentation"),
    "behind": ("Priority", "priority"),
}
"""Slurm's reason and our cause, by job. Ten GPUs are free, and no node has the eight that "apart" wants."""


@pytest.fixture(params=["command", "rest"])
def options(request: pytest.FixtureRequest, scene: Scene) -> dict[str, Any]:
    return scene.cluster.command_options if request.param == "command" else scene.cluster.rest_options


def _timeless(snapshot: SchedulerSnapshot) -> dict[str, list[str]]:
    return {
        record: sorted(
            str({name: "taken" if value == snapshot.taken_at else value for name, value in row.items()})
            for row in table.to_pylist()
        )
        for record, table in snapshot.records.items()
    }


def test_both_ways_give_the_same(scene: Scene) -> None:
    command = scene.cluster.reader(scene.cluster.command_options).snapshot()
    rest = scene.cluster.reader(scene.cluster.rest_options).snapshot()
    assert command.scope.is_complete
    assert rest.scope.is_complete
    assert _timeless(command) == _timeless(rest)
    assert len(rows(command, "workload")) >= 15


def test_the_machines_zone_and_language_change_nothing(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _timeless(scene.cluster.reader(scene.cluster.command_options).snapshot())
    for name, value in {"TZ": "America/New_York", "LANG": "C", "LC_ALL": "C", "SQUEUE_FORMAT": "%i"}.items():
        monkeypatch.setenv(name, value)
    assert _timeless(scene.cluster.reader(scene.cluster.command_options).snapshot()) == before


def test_a_snapshot_is_as_the_model_says(scene: Scene, options: dict[str, Any]) -> None:
    for cluster in ("default", "east"):
        reader = scene.cluster.reader(options, cluster=cluster)
        check_snapshot(reader.snapshot(), reader)


def test_every_reason_has_its_cause_and_squeues_words(scene: Scene, options: dict[str, Any]) -> None:
    snapshot = scene.cluster.reader(options).snapshot()
    told = {name: scene.workload(snapshot, name) for name in WAITS}
    assert {name: row["pending_cause"] for name, row in told.items()} == {
        name: cause for name, (_, cause) in WAITS.items()
    }
    waits = {row["workload_id"]: row for row in rows(snapshot, "wait")}
    for name, row in told.items():
        said = scene.cluster.run("squeue", "-h", "-j", scene.jobs[name], "-o", "%r")
        assert row["pending_reason"] == said
        assert waits[row["workload_id"]]["reason"] == said
        assert row["started_at"] is None
    held = {name for name, row in told.items() if row["status"] == "held"}
    assert held == {"held", "begin", "dependent"}


def test_gpus_by_node_are_those_of_sinfo(scene: Scene, options: dict[str, Any]) -> None:
    snapshot = scene.cluster.reader(options).snapshot()
    told = {row["node"]: row for row in rows(snapshot, "node_state")}
    assert {name: (row["allocated"], row["free"]) for name, row in told.items()} == {
        "gpu1": (8, 0), "gpu2": (5, 3), "gpu3": (1, 7), "gpu4": (0, 0),
    }  # fmt: skip
    said = scene.cluster.run("sinfo", "-h", "-N", "-p", "gpu", "-O", "NodeList:20,GresUsed:60").splitlines()
    for line in said:
        node, used = line.split()
        assert used.startswith(f"gpu:h100:{told[node]['allocated']:g}(")
    by_node: dict[str, float] = {}
    for pod in rows(snapshot, "pod"):
        by_node[pod["node"]] = by_node.get(pod["node"], 0) + pod["gpu_count"]
    assert by_node == {"gpu1": 8, "gpu2": 5, "gpu3": 1}


def test_a_drained_node_is_out_of_use_with_its_reason(scene: Scene, options: dict[str, Any]) -> None:
    snapshot = scene.cluster.reader(options).snapshot()
    condition = rows(snapshot, "condition")
    assert [(row["subject"], row["condition"], row["reason"]) for row in condition] == [
        ("gpu4", "drain", "DRAIN: bad | card")
    ]
    assert scene.began_at <= condition[0]["from_at"] <= snapshot.taken_at
    nodes = {row["node"]: row for row in rows(snapshot, "node")}
    assert {(row["leaf"], row["spine"], row["model"], row["gpu_count"]) for row in nodes.values()} == {
        (f"leaf{number}", "spine", "H100", 8) for number in (1, 2, 3, 4)
    }


def test_names_keep_every_letter(scene: Scene, options: dict[str, Any]) -> None:
    row = scene.workload(scene.cluster.reader(options).snapshot(), "named")
    assert (row["name"], row["num_gpu"], row["pod_count"], row["queue"], row["user"]) == (NAME, 4, 1, "team-b", "root")


def test_an_array_waits_as_one_and_runs_apart(scene: Scene, options: dict[str, Any]) -> None:
    snapshot = scene.cluster.reader(options).snapshot()
    row = scene.workload(snapshot, "array")
    assert (row["pod_count"], row["num_gpu"], row["status"]) == (9, 1, "held")
    assert row["pending_reason"] == "JobArrayTaskLimit"
    task = [pod for pod in rows(snapshot, "pod") if pod["pod"] == f"{scene.jobs['array']}_0"]
    assert [(pod["node"], pod["gpu_count"], pod["namespace"]) for pod in task] == [("gpu2", 1, "slurm")]


def test_a_job_on_two_nodes_is_two_pods_of_one_workload(scene: Scene, options: dict[str, Any]) -> None:
    snapshot = scene.cluster.reader(options).snapshot()
    workload = scene.workload(snapshot, "pair")
    assert (workload["pod_count"], workload["num_gpu"], workload["is_gang"], workload["status"]) == (
        2,
        4,
        True,
        "running",
    )
    pods = [pod for pod in rows(snapshot, "pod") if pod["workload_id"] == workload["workload_id"]]
    assert {(pod["node"], pod["gpu_count"], pod["pod"]) for pod in pods} == {
        ("gpu1", 4, scene.jobs["pair"]), ("gpu2", 4, scene.jobs["pair"]),
    }  # fmt: skip
    start = scene.cluster.run("squeue", "-h", "-j", scene.jobs["pair"], "-o", "%S")
    assert {pod["started_at"] for pod in pods} == {datetime.fromisoformat(start).replace(tzinfo=UTC)}


def test_accounts_are_a_tree_with_limits_use_and_no_invented_ones(scene: Scene, options: dict[str, Any]) -> None:
    snapshot = scene.cluster.reader(options).snapshot()
    queues = {row["queue"]: row["parent"] for row in rows(snapshot, "queue")}
    assert queues["root"] is None
    assert (queues["dept"], queues["team-a"], queues["qos/high/per-user"]) == ("root", "dept", "qos/high")
    quota = {row["queue"]: row for row in rows(snapshot, "quota")}
    assert (quota["team-a"]["nominal_gpus"], quota["team-a"]["limit_gpus"], quota["team-a"]["weight"]) == (10, 10, 60)
    assert (quota["team-b"]["nominal_gpus"], quota["team-b"]["limit_gpus"], quota["team-b"]["weight"]) == (
        None,
        None,
        40,
    )
    assert (quota["qos/high/per-user"]["nominal_gpus"], quota["qos/high/per-user"]["limit_gpus"]) == (None, 12)
    used = {(row["queue"], row["resource"]): row["used"] for row in rows(snapshot, "queue_resource")}
    assert (used["team-b", "gres/gpu"], used["dept", "gres/gpu"], used["team-a", "gres/gpu"]) == (14, 14, 0)
    state = {row["queue"]: row for row in rows(snapshot, "queue_state")}
    assert (state["team-b"]["running_gpus"], state["dept"]["running_gpus"]) == (14, 0)
    assert state["team-a"]["pending_gpus"] == 16
    assert not [row for row in rows(snapshot, "quality_event") if row["kind"] == "quota_mismatch"]


def test_a_wrong_token_is_not_an_empty_cluster(scene: Scene, tmp_path: Any) -> None:
    token = tmp_path / "token"
    token.write_text("not.the.token", encoding="utf-8")
    reader = scene.cluster.reader({**scene.cluster.rest_options, "token_file": str(token)})
    with pytest.raises((NotPermitted, SchedulerUnreachable)) as caught:
        reader.snapshot()
    assert scene.cluster.rest in str(caught.value)
    assert "not.the.token" not in str(caught.value)


def _later(cluster: Cluster, job: str) -> None:
    """Wait for another second in the life of a job that runs."""

    def age() -> str:
        return cluster.run("squeue", "-h", "-j", job, "-o", "%M")

    begun = age()
    until(age, lambda told: told != begun, "a later second")


def _preempt_and_requeue(scene: Scene) -> str:
    """Changes who holds what; the number of the job that was preempted."""
    cluster = scene.cluster
    for name in ("apart", "behind", "drained", "array"):
        cluster.run("scancel", scene.jobs[name])
    victim = cluster.submit("victim", "-w", "gpu3", "--gres=gpu:7", "-q", "low")
    cluster.until_state(victim, "RUNNING")
    winner = cluster.submit("winner", "-w", "gpu3", "--gres=gpu:7", "-q", "high")
    cluster.until_state(winner, "RUNNING")
    smaller = cluster.submit("smaller", "-N2", "-w", "gpu1,gpu2", "--gres=gpu:2")
    cluster.run("scontrol", "requeue", scene.jobs["named"])
    cluster.until_state(smaller, "RUNNING")
    for change in (("scontrol", "update", f"jobid={smaller}", "numnodes=1"), ("scancel", smaller)):
        # The accounting tells two sizes of one second as one.
        _later(cluster, smaller)
        cluster.run(*change)
    scene.jobs["smaller"] = smaller
    cluster.until_state(scene.jobs["named"], "PENDING")
    cluster.until_state(victim, "PENDING")

    def ended() -> str:
        asked = f"--jobs={victim},{smaller},{scene.jobs['named']}"
        return cluster.run("sacct", "-n", "-P", "-X", "-D", asked, "--starttime=now-1hour", "--format=State")

    seen = {"PREEMPTED", "REQUEUED", "RESIZING", "CANCELLED"}
    until(ended, lambda told: all(word in told for word in seen), "the accounting of attempts that ended")
    return victim


def test_requeued_and_preempted_attempts_stay_apart(scene: Scene) -> None:
    """Runs near the end: it changes who holds what."""
    cluster, victim, taken = scene.cluster, _preempt_and_requeue(scene), {}
    for options in (cluster.command_options, cluster.rest_options):
        reader = cluster.reader(options)
        snapshot = reader.snapshot()
        row = next(one for one in rows(snapshot, "workload") if one["workload_id"].startswith(f"slurm/{victim}@"))
        assert (row["attempt"], row["status"], row["pending_cause"]) == (1, "pending", "scheduler")
        assert row["workload_id"].endswith(".1")
        chunks = list(reader.history(Window(scene.began_at, datetime.now(UTC) + timedelta(seconds=5))))
        past = [one for chunk in chunks for one in rows(chunk, "workload")]
        first = next(one for one in past if one["workload_id"].startswith(f"slurm/{victim}@"))
        assert (first["attempt"], first["status"]) == (0, "preempted")
        assert first["workload_id"] != row["workload_id"]
        assert first["started_at"] <= first["ended_at"] <= row["submitted_at"]
        events = {(one["workload_id"], one["kind"]) for chunk in chunks for one in rows(chunk, "workload_event")}
        assert (first["workload_id"], "preempted") in events
        assert "requeued" in {kind for name, kind in events if name.startswith(f"slurm/{scene.jobs['named']}@")}
        taken[str(options)] = [_timeless(chunk) for chunk in chunks]
    command, rest = taken.values()
    assert len(command) == len(rest) == 1
    for record, told in command[0].items():
        assert set(told) ^ set(rest[0][record]) == set(), record
        assert len(told) == len(set(told)) == len(rest[0][record]), record


def test_history_is_what_sacct_says(scene: Scene, options: dict[str, Any]) -> None:
    """GPU-seconds of every attempt that ended, asked in other words."""
    asked = ("--format=JobID,Submit,Start,End,AllocTRES", "--starttime=now-1hour", "--state=PR,RQ,CA,CD,RS")
    expected = 0.0
    for line in scene.cluster.run("sacct", "-a", "-n", "-P", "-X", "-D", *asked, "--endtime=now").splitlines():
        _, submit, start, end, tres = line.split("|")
        counts = [entry.partition("=")[2] for entry in tres.split(",") if entry.startswith("gres/gpu=")]
        if start not in ("Unknown", "None") and end != "Unknown":
            # A row that is submitted after its start goes on from another size.
            begin = max(datetime.fromisoformat(submit), datetime.fromisoformat(start))
            expected += (datetime.fromisoformat(end) - begin).total_seconds() * sum(map(int, counts))
    found = 0.0
    window = Window(scene.began_at, datetime.now(UTC) + timedelta(seconds=5))
    for chunk in scene.cluster.reader(options).history(window):
        found += sum(
            pod["gpu_count"] * (pod["ended_at"] - pod["started_at"]).total_seconds()
            for pod in rows(chunk, "pod")
            if pod["ended_at"]
        )
    assert found == expected
    assert expected > 0
