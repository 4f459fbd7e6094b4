"""Jobs as `squeue` and `scontrol -d show job` list them, and attempts as `sacct` does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from gpuledger.errors import BadInput
from schedulers.slurm.columns import Row, at, needed_at, padded, plain, whole, words
from schedulers.slurm.facts import WAITING, Job
from schedulers.slurm.names import hosts
from schedulers.slurm.transport import Broken
from schedulers.slurm.tres import CUT, numbers

SQUEUE_WIDTHS: Mapping[str, int] = {
    "JobID": 12,
    "ArrayJobID": 12,
    "ArrayTaskID": 300,
    "State": 24,
    "Reason": 300,
    "RestartCnt": 10,
    "SubmitTime": 22,
    "EligibleTime": 22,
    "StartTime": 22,
    "EndTime": 22,
    "UserName": 64,
    "Account": 100,
    "Partition": 300,
    "QOS": 100,
    "NodeList": 1000,
    "NumNodes": 12,
    "PriorityLong": 14,
    "tres-alloc": 600,
    "tres-per-job": 200,
    "tres-per-node": 200,
    "Name": 500,
}
"""Columns of `squeue -O` and how wide each is asked for; the name last, for it may hold anything."""

SACCT_COLUMNS = (
    "JobIDRaw", "JobID", "User", "Account", "Partition", "QOS", "State", "Reason", "Submit", "Eligible", "Start",
    "End", "Restarts", "NNodes", "NodeList", "Priority", "ReqTRES", "AllocTRES", "AdminComment", "JobName",
)  # fmt: skip
"""Columns of `sacct`; those that a version does not have are not asked for."""

_DETAIL = re.compile(r" JOB_GRES=\S*((?: +Nodes=\S+ CPU_IDs=\S+ Mem=\S+ GRES=\S*)+) +MinCPUsNode=")
_TASK = re.compile(r"JobId=(\d+) ArrayJobId=(\d+) ArrayTaskId=(\d+) ")
_WAITS = re.compile(
    r" JobState=PENDING Reason=(\S+) Dependency=\S+ Requeue=\d Restarts=(\d+) BatchFlag=\d .*?"
    r" SubmitTime=(\S+) EligibleTime=(\S+) AccrueTime="
)
_ON_NODES = re.compile(r"Nodes=(\S+) CPU_IDs=\S+ Mem=\S+ GRES=(\S*)")


def squeue_format(mark: str) -> str:
    """The text for `squeue -O`, with `mark` after each column."""
    return ",".join(f"{name}:{width}{mark}" for name, width in SQUEUE_WIDTHS.items())


def queued(
    lines: Iterable[bytes],
    details: Mapping[int, Sequence[tuple[str, str]]],
    broken: Broken,
    mark: bytes = b"|",
) -> list[Job]:
    """The jobs of `squeue`, with what of them sits where; a line that makes no sense goes to `broken`."""
    found = []
    for line in filter(bytes.strip, lines):
        try:
            found.append(_queued(padded(line, SQUEUE_WIDTHS, mark), details))
        except BadInput as error:
            broken.append((line[:40].split(mark)[0].decode("utf-8", "replace").strip(), str(error)))
    return found


def _queued(row: Row, details: Mapping[int, Sequence[tuple[str, str]]]) -> Job:
    job_id, tasks = whole(row["JobID"], 0), row["ArrayTaskID"]
    states, resources = words(row["State"]), row["tres-alloc"]
    is_task = tasks.isdecimal()
    if row["NodeList"].endswith(CUT):
        raise BadInput("NodeList", "is longer than its column")
    # What was cancelled while it waited has a start, too: the time of its end.
    has_begun = not states & WAITING and bool(hosts(row["NodeList"]))
    return Job(
        job_id=job_id,
        array_job_id=whole(row["ArrayJobID"], None) if tasks else None,
        array_task_id=int(tasks) if is_task else None,
        array_tasks="" if is_task else tasks.replace(CUT, "..."),
        name=row["Name"],
        user=row["UserName"],
        account=row["Account"],
        partition=row["Partition"],
        qos=row["QOS"],
        states=states,
        reason="" if row["Reason"] == "None" else row["Reason"],
        submit_at=needed_at(row["SubmitTime"], "SubmitTime"),
        eligible_at=at(row["EligibleTime"]),
        start_at=at(row["StartTime"]) if has_begun else None,
        end_at=at(row["EndTime"]),
        restarts=whole(row["RestartCnt"], 0),
        nodes=row["NodeList"] if has_begun else "",
        node_count=whole(row["NumNodes"].split("-")[0], 1),
        priority=whole(row["PriorityLong"], 0),
        tres_req="" if has_begun else resources,
        tres_alloc=resources if has_begun else "",
        per_job=row["tres-per-job"],
        per_node=row["tres-per-node"],
        gres_by_node=tuple(details.get(job_id, ())),
    )


def shown_once(lines: Iterable[str]) -> list[str]:
    """Those of `scontrol -o show job` that are of one job alone: a name with a line's end may imitate another's."""
    found: dict[str, list[str]] = {}
    for line in lines:
        found.setdefault(line.split(" ", 1)[0], []).append(line)
    return [told[0] for told in found.values() if len(told) == 1]


def placed(lines: Iterable[str]) -> dict[int, list[tuple[str, str]]]:
    """(node, GRES with indexes) by job, of `scontrol -d -o show job`.

    A job's name or command may imitate the part that tells it: a line with more than one such part tells nothing.
    """
    found: dict[int, list[tuple[str, str]]] = {}
    for line in lines:
        job, told = re.match(r"JobId=(\d+) ", line), _DETAIL.findall(line)
        if job is None or len(told) != 1:
            continue
        found[int(job[1])] = [
            (node, resources) for nodes, resources in _ON_NODES.findall(told[0]) for node in hosts(nodes)
        ]
    return found


def taken_apart(jobs: Iterable[Job], lines: Iterable[str]) -> list[Job]:
    """`jobs`, with those tasks apart from their array that have a record of their own though they wait.

    `squeue` writes all waiting tasks of an array as one; one that ran before has its own attempts and times.
    """
    own: dict[int, list[tuple[int, re.Match[str]]]] = {}
    for line in lines:
        task, told = _TASK.match(line), _WAITS.findall(line)
        if task is not None and len(told) == 1 and (match := _WAITS.search(line)):
            own.setdefault(int(task[2]), []).append((int(task[3]), match))
    return [part for job in jobs for part in _parts(job, own.get(job.array_job_id or 0, []))]


def _parts(job: Job, own: Sequence[tuple[int, re.Match[str]]]) -> Iterable[Job]:
    if not job.array_tasks or job.array_tasks.endswith("..."):
        yield job
        return
    left = set(numbers(job.array_tasks.strip("[]").split("%")[0]))
    for task, match in own:
        if task in left:
            left.remove(task)
            yield replace(
                job,
                array_task_id=task,
                array_tasks="",
                reason=match[1].replace("_", " "),
                restarts=int(match[2]),
                submit_at=needed_at(match[3], "SubmitTime"),
                eligible_at=at(match[4]),
            )
    if left:
        yield replace(job, array_tasks=",".join(map(str, sorted(left))))


def accounted(lines: Iterable[bytes], columns: Sequence[str], broken: Broken, mark: bytes = b"|") -> list[Job]:
    """The attempts of `sacct -X -D`; a line that makes no sense goes to `broken`."""
    found = []
    for line in filter(bytes.strip, lines):
        try:
            found.append(_accounted(plain(line, columns, mark)))
        except BadInput as error:
            broken.append((line.split(mark)[0].decode("utf-8", "replace").strip(), str(error)))
    return found


def _accounted(row: Row) -> Job:
    match = re.fullmatch(r"(\d+)(?:_(?:(\d+)|\[(.*)\]))?(?:\+\d+)?", row["JobID"])
    raw = whole(row.get("JobIDRaw", "").split("_")[0], None)
    if match is None:
        raise BadInput("JobID", f"{row['JobID']!r} is no job")
    nodes = row.get("NodeList", "")
    is_array = match[2] is not None or match[3] is not None
    return Job(
        job_id=raw if raw is not None else int(match[1]),
        array_job_id=int(match[1]) if is_array else None,
        array_task_id=int(match[2]) if match[2] else None,
        array_tasks=match[3] or "",
        name=row.get("JobName", ""),
        user=row.get("User", ""),
        account=row.get("Account", ""),
        partition=row.get("Partition", ""),
        qos=row.get("QOS", ""),
        states=words(row["State"]),
        reason="" if row.get("Reason") == "None" else row.get("Reason", ""),
        submit_at=needed_at(row["Submit"], "Submit"),
        eligible_at=at(row.get("Eligible", "")),
        start_at=at(row["Start"]) if hosts(nodes) or "NodeList" not in row else None,
        end_at=at(row.get("End", "")),
        restarts=whole(row["Restarts"], 0) if "Restarts" in row else None,
        nodes=nodes,
        node_count=whole(row.get("NNodes", ""), 1),
        priority=whole(row.get("Priority", ""), 0),
        tres_req=row.get("ReqTRES", ""),
        tres_alloc=row.get("AllocTRES", ""),
        summary=row.get("AdminComment", ""),
    )
