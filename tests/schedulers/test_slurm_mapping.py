"""From facts to rows: reasons, waits, nodes and queues, each worked by hand."""

from __future__ import annotations

import json

import pytest

from gpuledger.attribution.rules import parse
from schedulers.slurm.facts import Association, Limits, Partition, Reservation
from schedulers.slurm.holding import Wish
from schedulers.slurm.nodes import host_gpus
from schedulers.slurm.reasons import REASONS, told
from schedulers.slurm.transport import places
from tests.schedulers.reading import rows
from tests.schedulers.slurm_facts import HOUR, NOW, Told, host, job, ran, snapshot


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("Resources", "capacity"),
        ("Priority", "priority"),
        ("Dependency", "dependency"),
        ("DependencyNeverSatisfied", "dependency"),
        ("BeginTime", "held"),
        ("JobHeldUser", "held"),
        ("JobHeldAdmin", "held"),
        ("job requeued in held state", "held"),
        ("launch failed requeued held", "held"),
        ("JobArrayTaskLimit", "held"),
        ("AssocGrpGRES", "quota"),
        ("AssocGrpGRESMinutes", "quota"),
        ("AssocGrpCpuLimit", "quota"),
        ("AssocMaxJobsLimit", "quota"),
        ("AssociationJobLimit", "quota"),
        ("QOSGrpGRES", "quota"),
        ("QOSMaxGRESPerUser", "quota"),
        ("QOSMaxGRESPerAccount", "quota"),
        ("QOSMaxJobsPerUserLimit", "quota"),
        ("QOSMaxCpuPerUserLimit", "quota"),
        ("QOSMaxNodePerUserLimit", "quota"),
        ("MaxGRESPerAccount", "quota"),
        ("QOSMaxGRESPerJob", "exceeds_max"),
        ("QOSMaxGRESPerNode", "exceeds_max"),
        ("QOSMaxGRESMinutesPerJob", "exceeds_max"),
        ("QOSMinGRES", "exceeds_max"),
        ("QOSMaxWallDurationPerJobLimit", "exceeds_max"),
        ("AssocMaxWallDurationPerJobLimit", "exceeds_max"),
        ("AssocMaxGRESPerJob", "exceeds_max"),
        ("PartitionNodeLimit", "exceeds_max"),
        ("PartitionTimeLimit", "exceeds_max"),
        ("PartitionConfig", "exceeds_max"),
        ("AccountingPolicy", "quota"),
        ("MaxMemPerLimit", "exceeds_max"),
        ("InvalidAccount", "own_config"),
        ("InvalidQOS", "own_config"),
        ("QOSNotAllowed", "own_config"),
        ("ReservationDeleted", "own_config"),
        ("BadConstraints", "placement"),
        ("ReqNodeNotAvail, UnavailableNodes:gpu4", "health"),
        ("ReqNodeNotAvail, May be reserved for other job", "reservation"),
        ("ReqNodeNotAvail, Reserved for maintenance", "reservation"),
        ("NodeDown", "health"),
        ("PartitionDown", "health"),
        ("PartitionInactive", "health"),
        ("Reservation", "reservation"),
        ("Licenses", "cpu_mem"),
        ("BurstBufferStageIn", "storage"),
        ("Prolog", "startup"),
        ("None", "scheduler"),
        ("SchedDefer", "scheduler"),
        ("SomethingOfNextYear", "unknown"),
    ],
)
def test_reasons_have_their_causes(reason: str, cause: str) -> None:
    assert REASONS.tell(reason).cause == cause


@pytest.mark.parametrize(
    ("free", "wish", "cause"),
    [
        ((3, 7), Wish(gpus=8, per_node=8, nodes=1), "fragmentation"),
        ((3, 4), Wish(gpus=8, per_node=8, nodes=1), "capacity"),
        ((3, 8), Wish(gpus=8, per_node=8, nodes=1), "cpu_mem"),
        ((8, 7), Wish(gpus=16, per_node=8, nodes=2), "capacity"),
        ((0, 0), Wish(gpus=0, per_node=0, nodes=1), "cpu_mem"),
    ],
)
def test_resources_means_what_is_short(free: tuple[int, int], wish: Wish, cause: str) -> None:
    near = [host_gpus(host(f"n{number}", 8 - count)) for number, count in enumerate(free)]
    assert told(job(1, "PENDING", reason="Resources"), wish, near).cause == cause


def test_nodes_that_are_down_drained_or_reserved_are_looked_at() -> None:
    waiting = job(
        1, "PENDING", reason="Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority"
    )
    one = Wish(gpus=1, per_node=1, nodes=1)
    assert told(waiting, one, [host_gpus(host("n1", 8))]).cause == "reservation"
    assert told(waiting, one, [host_gpus(host("n1", 0, "IDLE", "DRAIN"))]).cause == "health"


def test_a_requeued_job_waits_a_little_by_slurms_own_will() -> None:
    pause = job(1, "PENDING", reason="BeginTime", restarts=1)
    assert told(pause, Wish(gpus=1, per_node=1, nodes=1), []).cause == "scheduler"
    asked = job(1, "PENDING", reason="BeginTime")
    assert told(asked, Wish(gpus=1, per_node=1, nodes=1), []).cause == "held"


@pytest.mark.parametrize(
    ("states", "condition", "ready", "schedulable"),
    [
        (("IDLE", "DRAIN"), "drain", True, False),
        (("DOWN",), "not_ready", False, False),
        (("IDLE", "NOT_RESPONDING"), "not_ready", False, False),
        (("IDLE", "POWERED_DOWN"), "not_ready", False, False),
        (("IDLE", "MAINT"), "drain", True, False),
        (("IDLE", "RESERVED"), None, True, False),
        (("IDLE",), None, True, True),
    ],
)
def test_a_node_that_takes_no_work_has_nothing_free(
    states: tuple[str, ...], condition: str | None, *, ready: bool, schedulable: bool
) -> None:
    there = host("n1", 0, *states, reason="bad card", reason_at=NOW - 2 * HOUR, busy_at=NOW - HOUR)
    found = snapshot(Told(hosts=(there,)))
    state = rows(found, "node_state")[0]
    assert (state["capacity"], state["free"]) == (8, 8 if schedulable else 0)
    assert (state["is_ready"], state["is_schedulable"]) == (ready, schedulable)
    told_ = [(row["condition"], row["reason"]) for row in rows(found, "condition")]
    flags = "+".join(sorted(set(states) - {"IDLE"}))
    assert told_ == ([(condition, f"{flags}: bad card")] if condition else [])


def test_a_node_drains_until_its_last_job_is_gone() -> None:
    drain = {"reason": "bad", "reason_at": NOW - 2 * HOUR, "busy_at": NOW - HOUR}
    busy = Told(ran(1, "n1", 2), hosts=(host("n1", 2, "MIXED", "DRAIN", **drain),))
    assert rows(snapshot(busy), "condition") == []
    empty = snapshot(Told(hosts=(host("n1", 0, "IDLE", "DRAIN", **drain),)))
    assert [row["from_at"] for row in rows(empty, "condition")] == [NOW - HOUR]


def test_maintenance_begins_with_its_reservation() -> None:
    window = Reservation(name="m", nodes="n[1-2]", start_at=NOW - HOUR, end_at=NOW + HOUR, flags=frozenset({"MAINT"}))
    found = snapshot(Told(hosts=(host("n1", 0, "IDLE", "MAINT"),), reservations=(window,)))
    assert [row["from_at"] for row in rows(found, "condition")] == [NOW - HOUR]


def test_cards_slices_and_shards_are_told_apart() -> None:
    there = host("n1", 0, gres="gpu:a100:2,gpu:a100_1g.5gb:14,shard:a100:8", gres_used="gpu:a100:0,gpu:a100_1g.5gb:3",
                 gres_drained="gpu:a100:1")  # fmt: skip
    found = snapshot(Told(ran(1, "n1", 3), hosts=(there,)))
    states = {row["resource"]: row for row in rows(found, "node_state")}
    assert {name: row["capacity"] for name, row in states.items()} == {
        "gres_gpu": 2, "gres_gpu_a100_1g_5gb": 14, "gres_shard": 8,
    }  # fmt: skip
    assert (states["gres_gpu"]["allocatable"], states["gres_gpu"]["free"]) == (1, 1)
    assert states["gres_gpu_a100_1g_5gb"]["allocated"] == 3
    assert (rows(found, "node")[0]["gpu_count"], rows(found, "node")[0]["model"]) == (4, "A100")


def test_parts_of_cards_are_no_cards() -> None:
    """MPS counts hundredths of the cards that stand beside it."""
    there = host("n1", 0, gres="gpu:a100:2,mps:a100:200", gres_used="gpu:a100:1(IDX:0),mps:a100:50(50/100,0/100)")
    found = snapshot(Told(ran(1, "n1", 1), hosts=(there,)))
    states = {row["resource"]: (row["allocated"], row["free"]) for row in rows(found, "node_state")}
    assert states == {"gres_gpu": (1, 1), "gres_mps": (50, 150)}
    assert host_gpus(there).free == 1


def test_jobs_that_come_or_go_may_have_their_gpus_or_not() -> None:
    for used in (2, 5):
        going = Told(ran(1, "n1", 2), ran(2, "n1", 3, "COMPLETING"), hosts=(host("n1", used),))
        assert rows(snapshot(going), "node_state")[0]["allocated"] == used


def test_a_job_that_is_being_requeued_is_no_attempt_and_still_holds_its_node() -> None:
    """As a 22.05 says it for some seconds: the next attempt's number, the last one's submit time, no end."""
    for end in (None, NOW - HOUR / 2, NOW + 9_000 * HOUR):
        leaving = ran(1, "n1", 4, "COMPLETING", restarts=1, end_at=end)
        found = snapshot(Told(leaving, hosts=(host("n1", 4),)))
        assert rows(found, "workload") == rows(found, "pod") == rows(found, "workload_event") == []
        assert rows(found, "node_state")[0]["allocated"] == 4
    completing = ran(1, "n1", 4, "COMPLETING", restarts=1, end_at=NOW)
    assert len(rows(snapshot(Told(completing, hosts=(host("n1", 4),))), "workload")) == 1


def test_a_node_that_does_not_tell_has_what_its_jobs_have() -> None:
    found = snapshot(Told(ran(1, "n1", 3), hosts=(host("n1", 0, gres_used=""),)))
    assert [(row["allocated"], row["free"]) for row in rows(found, "node_state")] == [(3, 5)]


def test_jobs_on_nodes_are_pods_that_exporters_label() -> None:
    task = ran(15, "n1", 1, array_job_id=3, array_task_id=7, user="ann", qos="high", name="训练")
    where = (host("n1", 1),)
    pod = rows(snapshot(Told(task, hosts=where)), "pod")[0]
    begun = int((NOW - HOUR).timestamp())
    assert (pod["namespace"], pod["pod"], pod["node"], pod["gpu_count"]) == ("slurm", "3_7", "n1", 1)
    assert (pod["uid"], pod["workload_id"]) == (f"slurm/default/3_7@{begun}.0/n1", f"slurm/3_7@{begun}.0")
    assert json.loads(pod["labels"]) == {
        "account": "ml", "job_name": "训练", "partition": "gpu", "qos": "high", "user": "ann",
    }  # fmt: skip
    assert rows(snapshot(Told(task, hosts=where), pod_names="raw"), "pod")[0]["pod"] == "15"


def test_uneven_halves_are_told_only_where_slurm_tells_them() -> None:
    pair = ran(
        1, "n[1-2]", 5, node_count=2, gres_by_node=(("n1", "gpu:h100:3(IDX:0-2)"), ("n2", "gpu:h100:2(IDX:0-1)"))
    )
    found = snapshot(Told(pair, hosts=(host("n1", 3), host("n2", 2))))
    assert [(row["node"], row["gpu_count"]) for row in rows(found, "pod")] == [("n1", 3), ("n2", 2)]
    assert (rows(found, "workload")[0]["num_gpu"], rows(found, "workload")[0]["pod_count"]) == (3, 2)
    blind = snapshot(Told(ran(1, "n[1-2]", 5, node_count=2), hosts=(host("n1", 3), host("n2", 2))))
    assert [row["gpu_count"] for row in rows(blind, "pod")] == [None, None]
    assert [row["kind"] for row in rows(blind, "quality_event")] == ["unparsed_allocation"]


def test_rules_say_whose_an_account_is() -> None:
    rules = parse({"tenant": [{"value": "research/{label:account}", "labels": {"account": "m*"}}]})
    found = snapshot(Told(ran(1, "n1", 1), hosts=(host("n1", 1),)), rules=rules)
    assert {row["tenant"] for row in rows(found, "workload")} == {"research/ml"}
    assert {row["queue"]: row["tenant"] for row in rows(found, "queue")} == {"ml": "research/ml"}


def test_limits_lowered_below_what_runs_and_counts_that_differ_are_told() -> None:
    account = Association(account="ml", limits=Limits(tres={"group": "gres/gpu=2"}))
    facts = {"associations": (account,), "used": {("ml", ""): {"gres/gpu": 5.0}}}
    found = snapshot(Told(ran(1, "n1", 4), hosts=(host("n1", 4),), **facts))
    problems = {row["kind"]: (row["subject"], row["count"]) for row in rows(found, "quality_event")}
    assert problems == {"limit_not_enforced": ("ml", 4), "quota_mismatch": ("ml", 1)}


def test_unlimited_zero_and_a_limit_of_one_type_are_three_things() -> None:
    limits = {
        "open": "",
        "shut": "gres/gpu=0",
        "typed": "gres/gpu:h100=4,cpu=64",
        "both": "gres/gpu=16,gres/gpu:h100=4",
    }
    accounts = tuple(
        Association(account=name, limits=Limits(tres={"group": text} if text else {})) for name, text in limits.items()
    )
    found = snapshot(Told(associations=accounts))
    quota = {(row["queue"], row["flavor"]): row["limit_gpus"] for row in rows(found, "quota")}
    typed = {("typed", ""): None, ("typed", "H100"): 4}
    assert quota == {("open", ""): None, ("shut", ""): 0, **typed, ("both", ""): 16}
    resources = {(row["queue"], row["resource"]): row["limit"] for row in rows(found, "queue_resource")}
    assert (resources["typed", "cpu"], resources["both", "gres/gpu:h100"]) == (64, 4)


def test_a_user_has_what_the_users_jobs_hold_and_no_limit_of_the_account() -> None:
    each = {"job": "gres/gpu=3"}
    tree = (
        Association(account="ml", limits=Limits(tres=each)),
        Association(account="ml", user="ann", parent="ml", limits=Limits(tres={"group": "gres/gpu=4", **each})),
        Association(account="ml", user="bob", parent="ml", limits=Limits(tres=each)),
    )
    jobs = (ran(1, "n1", 3, user="ann"), ran(2, "n1", 1, user="bob"))
    found = snapshot(Told(*jobs, hosts=(host("n1", 4),), associations=tree))
    assert [row["queue"] for row in rows(found, "queue")] == ["ml", "ml/per-job", "ml/user/ann"]
    used = {row["queue"]: (row["limit"], row["used"]) for row in rows(found, "queue_resource")}
    assert used == {"ml": (None, 4), "ml/per-job": (3, None), "ml/user/ann": (4, 3)}


def test_an_account_that_is_its_own_grandparent_ends() -> None:
    loop = (Association(account="ml", parent="x"), Association(account="x", parent="ml"))
    found = snapshot(Told(ran(1, "n1", 2), hosts=(host("n1", 2),), associations=loop))
    assert {row["queue"]: row["used"] for row in rows(found, "queue_resource")} == {"ml": 2, "x": 2}


def test_what_waits_counts_but_not_what_holds_itself_back() -> None:
    ask = {"tres_req": "gres/gpu=4"}
    queue = (
        job(1, "PENDING", reason="Priority", **ask),
        job(2, "PENDING", reason="JobHeldUser", **ask),
        job(3, "PENDING", reason="Priority", array_job_id=3, array_tasks="0-9%2", **ask),
    )
    found = snapshot(Told(*queue, hosts=(host("n1", 0),), partitions=(Partition(name="gpu", nodes="n1"),)))
    assert [row["pending_gpus"] for row in rows(found, "queue_state")] == [44]
    assert {row["workload_id"].split("@")[0]: row["pods"] for row in rows(found, "wait")} == {
        "slurm/1": 1, "slurm/2": 1, "slurm/3": 10,
    }  # fmt: skip


def test_gpus_that_do_not_divide_evenly_are_waited_for_as_they_are() -> None:
    queue = job(1, "PENDING", reason="Priority", tres_req="node=2,gres/gpu=5", node_count=2)
    found = snapshot(Told(queue, hosts=(host("n1", 0),)))
    assert [row["gpus"] for row in rows(found, "wait")] == [5]
    assert [row["pending_gpus"] for row in rows(found, "queue_state")] == [5]


def test_what_ran_on_more_nodes_than_it_asked_for_has_what_it_was_given() -> None:
    wide = ran(1, "n[1-3]", 3, tres_req="cpu=1,node=1,gres/gpu=1", tres_alloc="cpu=3,node=3,gres/gpu=3", node_count=3)
    found = snapshot(Told(wide, hosts=tuple(host(f"n{number}", 1) for number in (1, 2, 3))))
    assert [(row["cpu_milli"], row["pod_count"]) for row in rows(found, "workload")] == [(1000, 3)]


def test_a_job_in_the_future_is_not_eligible_yet() -> None:
    found = snapshot(Told(job(1, "PENDING", reason="BeginTime", eligible_at=NOW + HOUR)))
    assert rows(found, "workload")[0]["eligible_at"] is None
    assert [row["kind"] for row in rows(found, "workload_event")] == ["submitted"]


def test_topology_has_leaves_and_what_is_above_them() -> None:
    tree = ["SwitchName=leaf1 Level=0 Nodes=n[1-2]", "SwitchName=leaf2 Nodes=n3", "SwitchName=top Switches=leaf[1-2]"]
    assert places([*tree, "# a comment", ""]) == {
        "n1": ("leaf1", "top"), "n2": ("leaf1", "top"), "n3": ("leaf2", "top"),
    }  # fmt: skip
    assert places(["BlockName=b1 Nodes=n[1-2]"]) == {"n1": ("b1", None), "n2": ("b1", None)}
