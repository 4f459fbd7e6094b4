"""Slurm's commands as scripts that print what a test wrote: how they are asked, and what their failures become."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.errors import NotPermitted, SchedulerUnreachable
from gpuledger.model import Window
from gpuledger.testing import FakeClock
from schedulers.slurm import Slurm
from schedulers.slurm.command_jobs import SQUEUE_WIDTHS
from tests.schedulers.reading import check_snapshot, rows
from tests.schedulers.test_slurm_texts import line_of

NODE = (
    "NodeName=n1 Arch=x86_64 CPUTot=64 Gres=gpu:h100:8 GresDrain=N/A GresUsed=gpu:h100:2(IDX:0-1) OS=Linux 6 #1 "
    "RealMemory=512000 State=MIXED+DRAIN Partitions=gpu LastBusyTime=2026-03-01T20:00:00 CfgTRES=cpu=64 "
    "Comment=moved State=IDLE Reason=bad | card [root@2026-03-01T22:00:00]"
)
JOB = (
    "JobId=1 JobName=x UserId=ann(1) JobState=RUNNING Reason=None NodeList=n1 JOB_GRES=gpu:h100:2"
    "   Nodes=n1 CPU_IDs=0 Mem=100 GRES=gpu:h100:2(IDX:0-1) MinCPUsNode=1"
)
LIVE = (
    "ClusterName=c Account=root UserName= Partition= ID=1 GrpTRES=cpu=N(2),gres/gpu=N(2)\n"
    "ClusterName=c Account=ml UserName= Partition= ID=2 GrpTRES=cpu=N(2),gres/gpu=8(2)\n"
    "QOS=normal(1) UsageRaw=0 GrpTRES=gres/gpu=N(2) MaxWallPJ="
)
MARK = b"\x1f"
"""Stands in what is printed for the mark that a command is asked to print after each column."""
WIDE = len(SQUEUE_WIDTHS) - 1
FIELDS = "Account AdminComment AllocTRES\nEligible End JobID JobIDRaw JobName NNodes NodeList Start State Submit User"


class Commands:
    """A folder of commands that print files, and remember how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.says("squeue", line_of(JobID="1", State="RUNNING", Account="ml", UserName="ann", Partition="gpu",
                                    QOS="normal", SubmitTime="2026-03-01T20:00:00", EligibleTime="2026-03-01T20:00:00",
                                    StartTime="2026-03-01T21:00:00", NodeList="n1", NumNodes="1", RestartCnt="0",
                                    tres_alloc="cpu=4,mem=8G,node=1,gres/gpu=2", Name="dé|x").replace(
                                        b"|", MARK, WIDE) + MARK)  # fmt: skip
        for what, text in {
            "job": JOB,
            "node": NODE,
            "partition": "PartitionName=gpu State=UP Nodes=n1",
            "reservation": "No reservations in the system",
            "config": "ClusterName             = c",
            "topology": "SwitchName=leaf Level=0 Nodes=n1",
            "assoc_mgr": LIVE,
        }.items():
            self.says(f"scontrol.{what}", text.encode())
        self.says("sacctmgr.assoc", b"root||||1||\nml|||root|8|gres/gpu=8|\nml|ann|||1|gres/gpu=4|")
        self.says("sacctmgr.qos", b"normal|0|||||\nhigh|9|normal||gres/gpu=4||")
        self.says("sacctmgr.tres", b"cpu|\ngres|gpu\ngres|gpu:h100")
        self.says("sacct.--helpformat", FIELDS.encode())
        self.says("sacct", b"ann|1|1|COMPLETED\n".replace(b"|", MARK))
        for name, word in {"squeue": "", "scontrol": "show", "sacctmgr": "show", "sacct": "-"}.items():
            self.script(name, self._printing(word))

    def _printing(self, word: str) -> str:
        marked = r"mark=$(printf %s \"$*\" | sed -n 's/.*[=2]\(|[0-9a-f]*|\).*/\1/p'); file=$0.out"
        pick = {
            "": marked,
            "-": f'{marked}; [ "$1" = --helpformat ] && file="$0.--helpformat.out"',
            "show": 'while [ "$1" != show ]; do shift; done; file="$0.$2.out"',
        }[word]
        called = f'echo "$0 $TZ $LC_ALL ${{SQUEUE_STATES:-unset}} $*" >> "{self.folder}/calls"'
        return f'{called}; {pick}; sed "s/{MARK.decode()}/$mark/g" "$file"'

    def script(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def says(self, name: str, text: bytes) -> None:
        (self.folder / f"{name}.out").write_bytes(text + b"\n")

    def reader(self, **options: Any) -> Slurm:
        given = {"commands_in": str(self.folder), **options}
        return Slurm.from_options(given, rules=Rules(), clock=FakeClock())


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_what_commands_print_becomes_records(commands: Commands) -> None:
    reader = commands.reader()
    snapshot = reader.snapshot()
    check_snapshot(snapshot, reader)
    assert rows(snapshot, "quality_event") == []
    work = rows(snapshot, "workload")[0]
    assert (work["name"], work["num_gpu"], work["memory_mib"], work["cpu_milli"]) == ("dé|x", 2, 8192, 4000)
    state = rows(snapshot, "node_state")[0]
    assert (state["allocated"], state["free"], state["reason"]) == (2, 0, "DRAIN: bad | card")
    assert rows(snapshot, "condition") == []
    assert [(row["leaf"], row["spine"]) for row in rows(snapshot, "node")] == [("leaf", None)]
    quota = {row["queue"]: (row["nominal_gpus"], row["limit_gpus"]) for row in rows(snapshot, "quota")}
    assert quota == {
        "root": (None, None), "ml": (8, 8), "ml/user/ann": (None, 4), "qos/normal": (None, None),
        "qos/high": (None, None), "qos/high/per-user": (None, 4),
    }  # fmt: skip
    used = {row["queue"]: row["used"] for row in rows(snapshot, "queue_resource") if row["resource"] == "gres/gpu"}
    assert (used["root"], used["ml"], used["qos/normal"]) == (2, 2, 2)


def test_commands_are_asked_in_utc_and_by_nobody_elses_settings(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TZ": "Asia/Shanghai", "LC_ALL": "C", "SQUEUE_STATES": "PD"}.items():
        monkeypatch.setenv(name, value)
    commands.reader().snapshot()
    calls = (commands.folder / "calls").read_text(encoding="utf-8").splitlines()
    assert {tuple(line.split()[1:4]) for line in calls} == {("UTC", "C.UTF-8", "unset")}
    assert [line for line in calls if "show assoc " in line and "cluster=c" in line]


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (
            "echo 'slurm_load_jobs error: Unable to contact controller' >&2; exit 1",
            SchedulerUnreachable,
            "contact",
        ),
        ("echo 'slurm_load_jobs error: Access/permission denied' >&2; exit 1", NotPermitted, "permission denied"),
        ("echo 'squeue: error: Invalid job format specification: x' >&2", SchedulerUnreachable, "Invalid"),
        ("exit 3", SchedulerUnreachable, "said nothing"),
        ("sleep 60", SchedulerUnreachable, "no answer in 0.5 s"),
    ],
)
def test_a_failure_names_the_command(commands: Commands, body: str, error: type[Exception], words: str) -> None:
    commands.script("squeue", f"exec 1>/dev/null; {body}" if "sleep" not in body else "exec sleep 60")
    with pytest.raises(error, match=words) as caught:
        commands.reader(timeout_seconds=0.5 if "sleep" in body else 60).snapshot()
    assert str(caught.value).startswith("squeue -a -h -t all" if "sleep" not in body else "s")


def test_a_command_that_is_not_there_is_named(commands: Commands) -> None:
    (commands.folder / "scontrol").unlink()
    with pytest.raises(SchedulerUnreachable, match="scontrol -d -a -o show: No such file"):
        commands.reader().snapshot()


def test_without_the_accounting_jobs_and_nodes_are_read_and_quotas_are_unknown(commands: Commands) -> None:
    commands.script("sacctmgr", "echo 'sacctmgr: error: Access/permission denied' >&2; exit 1")
    reader = commands.reader()
    snapshot = reader.snapshot()
    check_snapshot(snapshot, reader)
    assert not snapshot.scope.is_complete
    assert {"queue", "quota"} <= snapshot.scope.unlisted
    assert rows(snapshot, "quota") == []
    assert len(rows(snapshot, "workload")) == 1


def test_without_live_counts_jobs_are_counted(commands: Commands) -> None:
    (commands.folder / "scontrol.assoc_mgr.out").unlink()
    snapshot = commands.reader().snapshot()
    assert not snapshot.scope.is_complete
    assert snapshot.scope.unlisted == frozenset()
    used = {row["queue"]: row["used"] for row in rows(snapshot, "queue_resource") if row["resource"] == "gres/gpu"}
    assert (used["root"], used["ml"]) == (2, 2)


def test_a_cluster_without_a_topology_has_none(commands: Commands) -> None:
    (commands.folder / "scontrol.topology.out").unlink()
    snapshot = commands.reader().snapshot()
    assert snapshot.scope.is_complete
    assert [row["leaf"] for row in rows(snapshot, "node")] == [None]


def test_sacct_is_asked_only_for_columns_that_it_has(commands: Commands) -> None:
    line = b"7|7|ann|ml|COMPLETED|2026-03-01T01:00:00|2026-03-01T01:30:00|2026-03-01T02:00:00|2026-03-01T03:00:00|1|n1"
    commands.says("sacct", (line + b"|gres/gpu=2|").replace(b"|", MARK) + MARK + b"na|me" + MARK + b"\nshort")
    window = Window(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
    (chunk,) = commands.reader().history(window)
    calls = (commands.folder / "calls").read_text(encoding="utf-8").splitlines()
    asked = next(line for line in calls if "--starttime=2026-03-01T00:00:00" in line)
    assert "--format=JobIDRaw,JobID,User,Account,State,Submit,Eligible,Start,End,NNodes,NodeList,AllocTRES" in asked
    assert "Restarts" not in asked
    pods = [(row["pod"], row["gpu_count"], row["ended_at"].hour) for row in rows(chunk, "pod")]
    assert pods == [("7", 2, 3)]
    assert [row["name"] for row in rows(chunk, "workload")] == ["na|me"]
    assert [row["subject"] for row in rows(chunk, "quality_event")] == ["short"]
    waits = [(row["cause"], (row["until_at"] - row["from_at"]).total_seconds()) for row in rows(chunk, "wait")]
    assert waits == [("held", 1800), ("unknown", 1800)]


def test_a_name_with_a_lines_end_makes_no_job_of_its_own(commands: Commands) -> None:
    told = {"State": "PENDING", "SubmitTime": "2026-03-01T20:00:00", "NumNodes": "1", "Reason": "Priority"}
    forged = line_of(JobID="7777", tres_alloc="gres/gpu=500", **told)
    real = line_of(JobID="2", Account="ml", tres_alloc="gres/gpu=1", Name="x", **told).replace(b"|", MARK)
    commands.says("squeue", real + b"\n" + forged + MARK)
    commands.says("scontrol.node", NODE.replace("gpu:h100:2(IDX:0-1)", "gpu:h100:0(IDX:N/A)").encode())
    found = commands.reader().snapshot()
    assert [(row["workload_id"][:8], row["num_gpu"]) for row in rows(found, "workload")] == [("slurm/2@", 1)]
    assert "\n7777" in rows(found, "workload")[0]["name"]
    assert [row for row in rows(found, "quality_event") if row["subject_kind"] == "workload"] == []


def test_a_name_with_a_lines_end_makes_no_attempt_of_its_own(commands: Commands) -> None:
    cells = (b"7", b"7", b"ann", b"ml", b"COMPLETED", *[b"2026-03-01T01:00:00"] * 3, b"2026-03-01T03:00:00", b"1")
    real = MARK.join((*cells, b"n1", b"gres/gpu=2", b""))
    commands.says("sacct", real + MARK + b"x\n" + real.replace(MARK, b"|").replace(b"7", b"9") + b"|y" + MARK)
    window = Window(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
    (chunk,) = commands.reader().history(window)
    assert [row["pod"] for row in rows(chunk, "pod")] == ["7"]
    assert rows(chunk, "workload")[0]["name"].startswith("x\n9|9|")


def test_a_name_with_a_lines_end_hides_no_places_and_tells_none_of_others(commands: Commands) -> None:
    told = {"State": "RUNNING", "SubmitTime": "2026-03-01T20:00:00", "StartTime": "2026-03-01T20:00:00"}
    line = line_of(JobID="1", NodeList="n[1-2]", NumNodes="2", tres_alloc="gres/gpu=5", **told)
    commands.says("squeue", line.replace(b"|", MARK) + b"x" + MARK)
    places = "Nodes=n1 CPU_IDs=0 Mem=1 GRES=gpu:{}(IDX:0)  Nodes=n2 CPU_IDs=0 Mem=1 GRES=gpu:{}(IDX:0) MinCPUsNode=1"
    job = "JobId=1 JobName=x\ny UserId=ann(1) JOB_GRES=gpu:5   " + places.format(3, 2)
    commands.says("scontrol.job", job.encode())
    node = NODE.replace("gpu:h100:2(IDX:0-1)", "gpu:h100:3(IDX:0-2)").replace("bad | card", "bad\ncard State=FAIL")
    second = NODE.replace("NodeName=n1", "NodeName=n2")
    commands.says("scontrol.node", f"{node}\n{second}".encode())
    found = commands.reader().snapshot()
    assert [(row["node"], row["gpu_count"]) for row in rows(found, "pod")] == [("n1", 3), ("n2", 2)]
    state = {row["node"]: row["reason"] for row in rows(found, "node_state")}
    assert state == {"n1": "DRAIN: bad card State=FAIL", "n2": "DRAIN: bad | card"}
    forged = "JobId=3 JobName=z\nJobId=1 JOB_GRES=gpu:5   " + places.format(1, 4)
    commands.says("scontrol.job", f"{job}\n{forged}".encode())
    assert [row["gpu_count"] for row in rows(commands.reader().snapshot(), "pod")] == [None, None]


def test_an_accounting_that_counts_no_gpus_has_no_history_of_them(commands: Commands) -> None:
    commands.says("sacctmgr.tres", b"cpu|\ngres|craynetwork")
    window = Window(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
    with pytest.raises(SchedulerUnreachable, match=r"show tres: the accounting counts no GPUs"):
        next(commands.reader().history(window))


def test_what_hidden_partitions_have_is_asked_for_too(commands: Commands) -> None:
    commands.reader().snapshot()
    calls = (commands.folder / "calls").read_text(encoding="utf-8").splitlines()
    for what in ("job", "node", "partition", "reservation"):
        assert all(" -a " in line for line in calls if line.endswith(f"show {what}"))
