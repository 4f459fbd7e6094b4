"""Jobs, nodes, partitions, reservations, accounts and QOS as slurmrestd gives them, in any of its versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gpuledger.errors import BadInput
from schedulers.slurm.dialect import at, find, needed_at, number, text, tres, whole, words
from schedulers.slurm.facts import WAITING, Association, Host, Job, Limits, Partition, Qos, Reservation
from schedulers.slurm.names import hosts
from schedulers.slurm.transport import Broken
from schedulers.slurm.tres import tres as amounts

_PARENTS_SHARE = 0x7FFFFFFF
"""How Slurm says "fairshare=parent"."""

Given = Mapping[str, Any]
Fact = TypeVar("Fact")


def each(given: Sequence[Given], name: str, make: Callable[[Given], Fact], broken: Broken) -> tuple[Fact, ...]:
    """`make` of every object; one that makes no sense goes to `broken` under what is at its `name`."""
    found = []
    for one in given:
        try:
            found.append(make(one))
        except (BadInput, LookupError, TypeError, ValueError, AttributeError) as error:
            subject = one.get(name) if isinstance(one, Mapping) else None
            broken.append((str(subject or "?"), f"{type(error).__name__}: {error}"))
    return tuple(found)


def cluster(given: Given) -> str:
    """The cluster that a job or a node names as its own; "" where it does not."""
    return text(given.get("cluster") or given.get("cluster_name"))


def job(given: Given) -> Job:
    """One of /slurm/.../jobs. Raises BadInput."""
    states = words(find(given, "job.state"))
    task, tasks = number(given.get("array_task_id")), text(given.get("array_task_string"))
    array = whole(given.get("array_job_id"), 0)
    nodes = "" if states & WAITING else text(find(given, "job.nodes"))
    # What was cancelled while it waited has a start, too: the time of its end.
    has_begun = bool(hosts(nodes))
    told = text(given.get("state_description")) or text(given.get("state_reason"))
    return Job(
        job_id=int(given["job_id"]),
        array_job_id=array or None,
        array_task_id=int(task) if task is not None and array else None,
        array_tasks=tasks,
        name=text(given.get("name")),
        user=text(given.get("user_name")),
        account=text(given.get("account")),
        partition=text(given.get("partition")),
        qos=text(given.get("qos")),
        states=states,
        reason="" if told == "None" else told,
        submit_at=needed_at(given.get("submit_time"), "submit_time"),
        eligible_at=at(given.get("eligible_time")),
        start_at=at(given.get("start_time")) if has_begun else None,
        end_at=at(given.get("end_time")),
        restarts=whole(given.get("restart_cnt"), 0),
        nodes=nodes,
        node_count=whole(given.get("node_count"), 1) or 1,
        priority=whole(given.get("priority"), 0),
        tres_req="" if has_begun else text(given.get("tres_req_str")),
        tres_alloc=text(given.get("tres_alloc_str")) if has_begun else "",
        per_job=text(given.get("tres_per_job")),
        per_node=text(given.get("tres_per_node")),
        gres_by_node=_placed(nodes, given.get("gres_detail") or []),
        summary=text(given.get("admin_comment")),
    )


def _placed(nodes: str, detail: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`gres_detail` has a text for each node, in their order."""
    names = hosts(nodes)
    return tuple(zip(names, detail, strict=True)) if len(names) == len(detail) else ()


def host(given: Given) -> Host:
    """One of /slurm/.../nodes. Raises BadInput."""
    return Host(
        name=str(given["name"]),
        states=words(given.get("state")) | words(given.get("state_flags") or []),
        gres=text(given.get("gres")),
        gres_used=text(given.get("gres_used")),
        gres_drained=text(given.get("gres_drained")),
        reason=text(given.get("reason")),
        reason_at=at(given.get("reason_changed_at")),
        busy_at=at(given.get("last_busy")),
        partitions=tuple(map(str, given.get("partitions") or ())),
        cpus=whole(given.get("cpus"), 0) or None,
        memory_mib=whole(given.get("real_memory"), 0) or None,
    )


def partition(given: Given) -> Partition:
    """One of /slurm/.../partitions."""
    return Partition(
        name=str(given["name"]),
        states=words(find(given, "partition.state")),
        nodes=text(find(given, "partition.nodes")),
    )


def reservation(given: Given) -> Reservation:
    """One of /slurm/.../reservations."""
    return Reservation(
        name=str(given["name"]),
        nodes=text(given.get("node_list")),
        start_at=at(given.get("start_time")),
        end_at=at(given.get("end_time")),
        flags=words(given.get("flags") or []),
        holders=",".join(filter(None, (text(given.get("accounts")), text(given.get("users"))))),
    )


def association(given: Given) -> Association:
    """One of /slurmdb/.../associations."""
    limits = {"group": tres(find(given, "max.tres.total")), "job": tres(find(given, "max.tres.per.job"))}
    shares = number(given.get("shares_raw"))
    return Association(
        account=str(given["account"]),
        user=text(given.get("user")),
        partition=text(given.get("partition")),
        parent=text(given.get("parent_account")),
        share=None if shares == _PARENTS_SHARE else shares,
        limits=Limits(tres={scope: limit for scope, limit in limits.items() if limit}),
    )


def qos(given: Given) -> Qos:
    """One of /slurmdb/.../qos."""
    limits = {"group": tres(find(given, "limits.max.tres.total"))}
    for scope in ("user", "account", "job"):
        limits[scope] = tres(find(given, f"limits.max.tres.per.{scope}"))
    return Qos(
        name=str(given["name"]),
        priority=whole(find(given, "qos.priority"), 0),
        preempts=tuple(map(str, find(given, "preempt.list") or ())),
        limits=Limits(tres={scope: limit for scope, limit in limits.items() if limit}),
    )


def past(given: Given) -> Job:
    """One of /slurmdb/.../jobs. Raises BadInput."""
    array, task, nodes = whole(find(given, "array.job_id"), 0), number(find(given, "past.task")), find(given, "nodes")
    restarts, asked = number(find(given, "past.restarts")), tres(find(given, "tres.requested"))
    reason = text(find(given, "state.reason"))
    where = "" if nodes == "None assigned" else text(nodes)
    return Job(
        job_id=int(given["job_id"]),
        array_job_id=array or None,
        array_task_id=int(task) if task is not None and array else None,
        array_tasks=text(find(given, "array.task")),
        name=text(given.get("name")),
        user=text(find(given, "association.user")) or text(given.get("user")),
        account=text(given.get("account")),
        partition=text(given.get("partition")),
        qos=text(given.get("qos")),
        states=words(find(given, "past.state")),
        reason="" if reason == "None" else reason,
        submit_at=needed_at(find(given, "time.submission"), "time.submission"),
        eligible_at=at(find(given, "time.eligible")),
        start_at=at(find(given, "time.start")) if where else None,
        end_at=at(find(given, "time.end")),
        restarts=None if restarts is None else int(restarts),
        nodes=where,
        node_count=whole(given.get("allocation_nodes"), 0) or _asked_nodes(asked),
        priority=whole(given.get("priority"), 0),
        tres_req=asked,
        tres_alloc=tres(find(given, "tres.allocated")),
        summary=text(find(given, "past.summary")),
    )


def _asked_nodes(asked: str) -> int:
    """What never started has no nodes; it asked for some."""
    return max(1, int(amounts(asked).get("node", 1)))
