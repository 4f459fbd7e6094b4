"""Slurm's texts: resources, hosts, arrays, columns; GPUs are counted once, and a cut text is no number."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpuledger.errors import BadInput
from schedulers.slurm.columns import at, padded, plain, words
from schedulers.slurm.command_jobs import (
    SACCT_COLUMNS,
    SQUEUE_WIDTHS,
    accounted,
    placed,
    queued,
    squeue_format,
    taken_apart,
)
from schedulers.slurm.facts import Job
from schedulers.slurm.holding import hold
from schedulers.slurm.names import array_size, hosts
from schedulers.slurm.tres import CUT, gpu_count, gpus, gres, held_gpus, share_of, tres

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"
AT = datetime(2026, 3, 2, 8, tzinfo=UTC)


def problem(name: str) -> list[bytes]:
    path = PROBLEMS / name
    if not path.exists():
        pytest.skip("optional: ../shared is absent: this checkout has no public problem inputs beside it")
    return path.read_bytes().splitlines()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cpu=10,gres/gpu:a100=4,gres/gpu=4,mem=100G,node=1", 4),
        ("gres/gpu:a100=2,gres/gpu:h100=1", 3),
        ("gres/gpu=2", 2),
        ("cpu=64,mem=10G", 0),
        ("gres/gpu:rtx=1,gres/gpu=1,gres/gpumem=9000M,gres/gpuutil=55", 1),
        ("gres/gpu:1g.10gb=7", 7),
    ],
)
def test_typed_and_generic_entries_are_the_same_cards(text: str, expected: float) -> None:
    assert gpus(tres(text)) == expected


def test_130_typed_and_generic() -> None:
    lines = [line.decode().split("|") for line in problem("130-typed-and-generic.csv")[1:]]
    counts = {job: held_gpus(text) for job, _, text, _ in lines}
    assert counts == {"301": 4, "302": 3, "303": 2, "304": 0, "305": 1}
    assert sum(counts[job] * int(seconds) / 3600 for job, _, _, seconds in lines) == 10.0


def test_131_a_cut_field_is_unparsed_and_not_zero() -> None:
    totals, unparsed = 0.0, []
    for line in problem("131-squeue-na.csv")[1:]:
        number, account, state, nodes, per_node, text = line.decode().split("|")
        job = Job(
            job_id=int(number), account=account, states=words(state), submit_at=AT, node_count=int(nodes),
            nodes=f"n[1-{nodes}]", per_node="" if per_node == "N/A" else per_node, tres_alloc=text,
        )  # fmt: skip
        held = hold(job)
        if held.total is None:
            unparsed.append(number)
        else:
            totals += held.total
            assert sum(held.by_node.values()) == held.total
    assert (totals, unparsed) == (9, ["403"])


@pytest.mark.parametrize("text", ["cpu=2,mem=512M,node=", "cpu=2,gres/gp", "", "N/A", f"gres/gpu=1{CUT}"])
def test_an_allocation_that_breaks_off_says_so(text: str) -> None:
    with pytest.raises(BadInput):
        held_gpus(text)


def test_gres_has_types_indexes_sockets_and_neighbours() -> None:
    found = gres("gpu:h100:2(IDX:0-1,5),shard:h100:4(4/8),gpu:1g.10gb:7(S:0-1),nvme:1,gpu")
    assert [(one.kind, one.type, one.count) for one in found] == [
        ("gpu", "h100", 2), ("shard", "h100", 4), ("gpu", "1g.10gb", 7), ("gpu", "", 1),
    ]  # fmt: skip
    assert found[0].indexes == (0, 1, 5)
    assert gpu_count(gres("gpu:h100:0(IDX:N/A)")) == 0
    assert [gpu_count(gres(text)) for text in ("gres:gpu:4", "gres/gpu:h100=4", "gres/gpu=3", "N/A", "")] == [
        4,
        4,
        3,
        0,
        0,
    ]


def test_slices_are_parts_of_cards_where_their_model_is_known() -> None:
    assert share_of("a100_3g.20gb") == pytest.approx(3 / 7)
    assert share_of("1g.10gb") is None
    assert share_of("h100") == 1


def test_hosts_are_written_in_ranges() -> None:
    assert hosts("gpu[1-3,07],login") == ("gpu1", "gpu2", "gpu3", "gpu07", "login")
    assert hosts("r[1-2]n[08-09]x") == ("r1n08x", "r1n09x", "r2n08x", "r2n09x")
    assert hosts("None assigned") == hosts("(null)") == hosts("") == ()
    for wrong in ("gpu[1-", "gpu[a-b]", "gpu[0-999999999]"):
        with pytest.raises(BadInput):
            hosts(wrong)


@pytest.mark.parametrize(("text", "size"), [("2-9%2", 8), ("[0,3-9:3]", 4), ("5", 1), ("0-99:10%1", 10)])
def test_arrays_have_as_many_tasks_as_their_ranges(text: str, size: int) -> None:
    assert array_size(text) == (size, False)
    assert array_size("1,3,...") == (2, True)


def line_of(**cells: str) -> bytes:
    """A line of `squeue -O` with these columns, the others empty."""
    told = {name: cells.pop(name.replace("-", "_"), "N/A") for name in SQUEUE_WIDTHS}
    assert not cells
    return b"|".join(f"{text:<{SQUEUE_WIDTHS[name]}}".encode()[: SQUEUE_WIDTHS[name]] for name, text in told.items())


def test_a_column_that_squeue_cut_is_marked() -> None:
    wide = "gres/gpu=1," * 60
    row = padded(line_of(tres_alloc=wide, Name="a|b"), SQUEUE_WIDTHS)
    assert row["tres-alloc"].endswith(CUT)
    assert row["Name"] == "a|b"
    with pytest.raises(BadInput):
        padded(b"1|2", SQUEUE_WIDTHS)
    assert squeue_format("|x|").startswith("JobID:12|x|,")
    assert squeue_format("|x|").endswith("Name:500|x|")


def test_172_names_keep_spaces_letters_and_wrong_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = problem("172-slurm-names.csv")[1:]
    for language in ("C", "en_US.UTF-8"):
        monkeypatch.setenv("LANG", language)
        rows = [plain(b"|".join((job, tres_, seconds, name)), ("JobID", "T", "S", "Name"))
                for job, name, tres_, seconds in (line.split(b"|") for line in lines)]  # fmt: skip
        assert [row["Name"] for row in rows] == ["dédé job", "训练 01", "bad\ufffdname"]
        assert sum(held_gpus(row["T"]) * int(row["S"]) / 3600 for row in rows) == 6.0


def past(**cells: str) -> bytes:
    told = {"JobIDRaw": "7", "JobID": "7", "State": "COMPLETED", "Submit": "2026-03-02T08:00:00", "NodeList": "n1"}
    told |= {"Start": "2026-03-02T08:30:00", "End": "2026-03-02T09:30:00", "AllocTRES": "gres/gpu=1"} | cells
    return "|".join(told.get(name, "") for name in SACCT_COLUMNS).encode()


def test_133_an_id_that_comes_again_is_another_job() -> None:
    lines = [line.decode().split("|") for line in problem("133-recycled-id.csv")[1:]]
    broken: list[tuple[str, str]] = []
    jobs = accounted(
        [
            past(JobIDRaw=j, JobID=j, User=user, State=state, Submit=submit, Start=start, End=end, AllocTRES=text)
            for j, user, state, submit, start, end, text, _ in lines
        ],
        SACCT_COLUMNS,
        broken,
    )
    assert not broken
    assert len({job.key for job in jobs}) == 2
    assert [(job.user, job.is_holding, job.end_at is None) for job in jobs] == [
        ("user01", False, False), ("user02", True, True),
    ]  # fmt: skip
    hours = [held_gpus(job.tres_alloc) * int(line[7]) / 3600 for job, line in zip(jobs, lines, strict=True)]
    assert hours == [1.0, 3.0]


def test_sacct_says_arrays_components_and_who_never_started() -> None:
    broken: list[tuple[str, str]] = []
    lines = [
        past(JobIDRaw="15", JobID="3_0", JobName="a|b"),
        past(JobIDRaw="13", JobID="12+1"),
        past(JobID="9", JobIDRaw="9", NodeList="None assigned", AllocTRES="", State="CANCELLED by 0"),
        b"torn",
        past(Submit="yesterday"),
    ]
    jobs = accounted(lines, SACCT_COLUMNS, broken)
    assert [(job.label, job.job_id, job.name, job.start_at is None) for job in jobs] == [
        ("3_0", 15, "a|b", False), ("13", 13, "", False), ("9", 9, "", True),
    ]  # fmt: skip
    assert [what for what, _ in broken] == ["torn", "7"]
    assert jobs[2].states == {"CANCELLED"}


def test_squeue_lines_become_jobs_and_one_that_is_torn_costs_itself() -> None:
    broken: list[tuple[str, str]] = []
    lines = [
        line_of(JobID="2", State="RUNNING", SubmitTime="2026-03-02T08:00:00", StartTime="2026-03-02T08:01:00",
                NodeList="n[1-2]", NumNodes="2", tres_alloc="gres/gpu=5", Name="two", RestartCnt="1"),
        line_of(JobID="3", ArrayJobID="3", ArrayTaskID="2-9", State="PENDING", Reason="Priority",
                SubmitTime="2026-03-02T08:00:00", tres_alloc="gres/gpu=1"),
        b"4|torn",
        line_of(JobID="5", State="RUNNING"),
    ]  # fmt: skip
    jobs = queued(lines, {2: [("n1", "gpu:h100:3(IDX:0-2)"), ("n2", "gpu:h100:2(IDX:0-1)")]}, broken)
    assert [what for what, _ in broken] == ["4", "5"]
    assert hold(jobs[0]).by_node == {"n1": 3, "n2": 2}
    assert (jobs[0].key, jobs[1].key) == (f"2@{int(AT.timestamp())}.1", f"3@{int(AT.timestamp())}.0")
    assert (jobs[1].tres_req, jobs[1].tres_alloc, jobs[1].array_tasks) == ("gres/gpu=1", "", "2-9")


def test_what_was_cancelled_while_it_waited_never_began() -> None:
    """Slurm gives it the time of its end for a start, and no nodes."""
    at_once = {"StartTime": "2026-03-02T09:00:00", "EndTime": "2026-03-02T09:00:00", "NumNodes": "2"}
    line = line_of(JobID="6", State="CANCELLED", SubmitTime="2026-03-02T08:00:00", tres_alloc="gres/gpu=5", **at_once)
    (never,) = queued([line], {}, [])
    assert (never.start_at, never.end_at is not None, never.tres_req, never.tres_alloc) == (
        None,
        True,
        "gres/gpu=5",
        "",
    )


def test_a_name_that_imitates_the_places_of_gpus_places_nothing() -> None:
    real = " JOB_GRES=gpu:4   Nodes=n[1-2] CPU_IDs=0 Mem=100 GRES=gpu:2(IDX:0-1) MinCPUsNode=1 "
    fake = " JOB_GRES=gpu:8   Nodes=n9 CPU_IDs=0 Mem=1 GRES=gpu:8(IDX:0-7) MinCPUsNode=1 "
    found = placed([f"JobId=1 JobName=x{real}", f"JobId=2 JobName=x{fake}{real}", "JobId=3 JobName=none"])
    assert found == {1: [("n1", "gpu:2(IDX:0-1)"), ("n2", "gpu:2(IDX:0-1)")]}


def test_tasks_that_ran_before_wait_for_themselves() -> None:
    array = Job(job_id=3, array_job_id=3, array_tasks="0,3-5", states=frozenset({"PENDING"}), submit_at=AT)
    told = (
        "JobId=15 ArrayJobId=3 ArrayTaskId=0 JobName=x UserId=a(1) JobState=PENDING Reason=JobArrayTaskLimit "
        "Dependency=(null) Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 SubmitTime=2026-03-02T09:00:00 "
        "EligibleTime=Unknown AccrueTime=Unknown"
    )
    one, rest = taken_apart([array], [told, "JobId=16 ArrayJobId=3 ArrayTaskId=1 JobState=RUNNING"])
    assert (one.label, one.restarts, one.submit_at.hour, one.eligible_at) == ("3_0", 2, 9, None)
    assert (rest.array_tasks, rest.label) == ("3,4,5", "3")


def test_states_have_flags_and_marks() -> None:
    assert words("IDLE+DRAIN") == {"IDLE", "DRAIN"}
    assert words("down*") == {"DOWN", "NOT_RESPONDING"}
    assert words("idle~") == {"IDLE", "POWERED_DOWN"}
    assert words("CANCELLED by 1000") == {"CANCELLED"}


def test_times_are_utc_or_not_known() -> None:
    assert at("2026-03-02T08:00:00") == AT
    assert at("Unknown") is None
    with pytest.raises(BadInput):
        at("tomorrow")
