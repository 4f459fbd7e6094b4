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
FIELDS = "Account AdminComment AllocTRES\nEligible End JobID JobIDRaw JobName NNodes NodeList Start State Submit User"


class Commands:
    """A folder of commands that print files, and remember how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.says("squeue", line_of(JobID="1", State="RUNNING", Account="ml", UserName="ann", Partition="gpu",
                                    QOS="normal", SubmitTime="2026-03-01T20:00:00", EligibleTime="2026-03-01T20:00:00",
                                    StartTime="2026-03-01T21:00:00", NodeList="n1", NumNodes="1", RestartCnt="0",
                                    tres_alloc="cpu=4,mem=8G,node=1,gres/gpu=2", Name="dé|x"))  # fmt: skip
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
        self.says("sacctmgr.assoc", b"root|||||1||\nml||||root|8|gres/gpu=8|\nml|ann|||||1|gres/gpu=4|")
        self.says("sacctmgr.assoc", b"root||||1||\nml|||root|8|gres/gpu=8|\nml|ann|||1|gres/gpu=4|")
        self.says("sacctmgr.qos", b"normal|0|||||\nhigh|9|normal||gres/gpu=4||")
        self.says("sacct.--helpformat", FIELDS.encode())
        self.says("sacct", b"ann|1|1|COMPLETED\n")
        for name, word in {"squeue": "", "scontrol": "show", "sacctmgr": "show", "sacct": "-"}.items():
            self.script(name, self._printing(word))

    def _printing(self, word: str) -> str:
        pick = {
            "": 'file="$0.out"',
            "-": 'file="$0.out"; [ "$1" = --helpformat ] && file="$0.--helpformat.out"',
            "show": 'while [ "$1" != show ]; do shift; done; file="$0.$2.out"',
        }[word]
        return f'echo "$0 $TZ $LC_ALL ${{SQUEUE_STATES:-unset}} $*" >> "{self.folder}/calls"; {pick}; cat "$file"'

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
        "root": (None, None), "ml": (8, 8), "ml/user/ann": (4, 4), "qos/normal": (None, None),
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
    with pytest.raises(SchedulerUnreachable, match="scontrol -d -o show job: No such file"):
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
    commands.says("sacct", line + b"|gres/gpu=2||na|me\nshort")
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
