"""What Slurm remembers: waits in two parts, attempts, summaries that nobody can judge."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gpuledger.attribution import Rules
from gpuledger.model import Window
from gpuledger.testing import FakeClock
from schedulers.rows import SnapshotRows
from schedulers.slurm import Slurm
from schedulers.slurm.command_jobs import SACCT_COLUMNS, accounted
from schedulers.slurm.facts import Job
from schedulers.slurm.history import waits
from schedulers.slurm.jobs import JobRows
from schedulers.slurm.options import SlurmOptions
from schedulers.slurm.summary import check, fault
from tests.schedulers.reading import rows
from tests.schedulers.slurm_facts import HOUR, NOW, Told, job, ran

PROBLEMS = Path(__file__).resolve().parents[3] / "shared" / "problems"


def _waits(jobs: list[Job]) -> dict[str, list[tuple[str, float]]]:
    maker = JobRows(rows=SnapshotRows("slurm", "default", NOW + 240 * HOUR), rules=Rules(), hosts={})
    return {
        reading.job.label: [(row.cause, (row.until_at - row.from_at) / HOUR) for row in waits(reading) if row.until_at]
        for reading in maker.add(jobs)
    }


def test_095_the_wait_for_gpus_begins_when_nothing_else_is_in_the_way() -> None:
    path = PROBLEMS / "095-slurm-eligible.csv"
    if not path.exists():
        pytest.skip("optional: ../shared is absent: this checkout has no public problem inputs beside it")
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        number, submit, eligible, start, reason = line.split(",")
        cells = {"JobID": number, "Submit": submit, "Eligible": eligible, "Start": start, "Reason": reason,
                 "NodeList": "n1", "State": "RUNNING", "AllocTRES": "gres/gpu=1"}  # fmt: skip
        lines.append("|".join(cells.get(name, "") for name in SACCT_COLUMNS).encode())
    found = _waits(accounted(lines, SACCT_COLUMNS, []))
    assert found == {"701": [("dependency", 8.0), ("unknown", 1.0)], "702": [("held", 2.0), ("unknown", 0.25)]}
    assert sum(told_[1][1] for told_ in found.values()) / 2 == 0.625


def test_the_last_reason_says_why_gpus_were_waited_for() -> None:
    late = ran(1, "n1", 1, "COMPLETED", reason="AssocGrpGRES", submit_at=NOW, eligible_at=NOW, start_at=NOW + HOUR)
    never = job(2, "CANCELLED", submit_at=NOW, eligible_at=NOW + HOUR, end_at=NOW + 2 * HOUR)
    assert _waits([late, never]) == {"1": [("quota", 1.0)], "2": [("held", 1.0), ("unknown", 1.0)]}


def test_137_a_summary_that_cannot_be_read_is_no_job_without_fault() -> None:
    path = PROBLEMS / "137-malformed-summary.json"
    if not path.exists():
        pytest.skip("optional: ../shared is absent: this checkout has no public problem inputs beside it")
    given = json.loads(path.read_text(encoding="utf-8"))
    found = check((str(one["jobid"]), one["summary"]) for one in given)
    assert found.idle == ("273033",)
    assert [name for name, _ in found.unjudged] == ["273034", "273035"]
    assert all(why.startswith("could not judge") for _, why in found.unjudged)
    assert str(found) == "checked 1 of 3"


def test_summaries_of_jobstats_are_unpacked() -> None:
    told_ = {"nodes": {"n1": {"gpu_utilization": {"0": 0, "1": 41.5}}}, "total_time": 9}
    packed = "JS1:" + base64.b64encode(gzip.compress(json.dumps(told_).encode())).decode()
    found = check([("1", packed), ("2", "JS1:None"), ("3", packed[:-9]), ("4", '{"nodes": {}}')])
    assert found.idle == ()
    assert [name for name, _ in found.unjudged] == ["2", "3", "4"]
    assert fault(packed) == ""


def test_history_lists_jobs_whose_summary_nobody_can_judge() -> None:
    told_ = Told()
    over = {"start_at": NOW - HOUR, "end_at": NOW - HOUR / 2, "submit_at": NOW - 2 * HOUR}
    told_.past = [
        ran(1, "n1", 1, "COMPLETED", summary='{"gpu_utilization":{"n1":{"0":0.0}}}', **over),
        ran(2, "n1", 1, "COMPLETED", summary='{"gpu_utilization":{"n1":{', **over),
        ran(3, "n1", 1, "COMPLETED", **over),
        ran(4, "n1", 0, "COMPLETED", **over),
    ]
    for options, listed in (({}, ["2"]), ({"summaries": True}, ["2", "3"])):
        reader = Slurm(SlurmOptions(**options), clock=FakeClock(NOW), transport=told_)
        chunk = next(reader.history(Window(NOW - 3 * HOUR, NOW)))
        problems = rows(chunk, "quality_event")
        assert [row["subject"].split("/")[1].split("@")[0] for row in problems] == listed
        assert all("could not judge" in row["detail"] for row in problems)


def test_attempts_are_counted_once_over_days_and_from_before_the_window() -> None:
    told_ = Told()
    days_ago = [NOW - timedelta(days=days) for days in (3, 2, 1)]
    told_.past = [
        ran(7, "n1", 1, "REQUEUED", submit_at=begin, start_at=begin, end_at=begin + 20 * HOUR, restarts=None)
        for begin in days_ago
    ]
    stranger = days_ago[2] + HOUR
    told_.past.append(
        ran(7, "n1", 1, "COMPLETED", account="bio", submit_at=stranger, start_at=stranger, end_at=NOW, restarts=None)
    )
    reader = Slurm(SlurmOptions(), clock=FakeClock(NOW), transport=told_)
    found = {}
    for chunk in reader.history(Window(NOW - timedelta(days=1, hours=12), NOW)):
        found.update({row["workload_id"]: row["attempt"] for row in rows(chunk, "workload")})
    assert found == {
        f"slurm/7@{int(days_ago[1].timestamp())}.1": 1,
        f"slurm/7@{int(days_ago[2].timestamp())}.2": 2,
        f"slurm/7@{int(stranger.timestamp())}.0": 0,
    }


def test_what_was_cancelled_before_it_began_asked_for_its_gpus() -> None:
    told_ = Told()
    asked = {"nodes": "None assigned", "tres_req": "cpu=4,node=2,gres/gpu=8", "node_count": 2, "end_at": NOW - HOUR / 2}
    told_.past = [job(1, "CANCELLED", **asked)]
    chunk = next(Slurm(SlurmOptions(), clock=FakeClock(NOW), transport=told_).history(Window(NOW - 3 * HOUR, NOW)))
    work = rows(chunk, "workload")[0]
    assert (work["num_gpu"], work["pod_count"], work["status"], work["started_at"]) == (4, 2, "cancelled", None)
    assert rows(chunk, "pod") == rows(chunk, "quality_event") == []


def test_an_attempt_that_is_told_twice_is_one() -> None:
    told_ = Told()
    told_.past = [ran(1, "n1", 1, "COMPLETED", end_at=NOW)] * 2
    (chunk,) = Slurm(SlurmOptions(), clock=FakeClock(NOW), transport=told_).history(Window(NOW - 2 * HOUR, NOW))
    assert (len(rows(chunk, "workload")), len(rows(chunk, "pod")), len(rows(chunk, "workload_event"))) == (1, 1, 4)


def _resized(*ends: tuple[str, int, int, str]) -> list[Job]:
    """Rows of a job that began 6 h ago: (nodes, GPUs, hours ago that it ended, state); each has a submit time anew."""
    begin, found = NOW - 6 * HOUR, list[Job]()
    for nodes, count, ago, state in ends:
        submit = found[-1].end_at if found else begin - HOUR
        found.append(
            ran(7, nodes, count, state, submit_at=submit, eligible_at=submit, start_at=begin, restarts=None,
                end_at=NOW - ago * HOUR if ago else None, node_count=1 + nodes.count(","))
        )  # fmt: skip
    return found


@pytest.mark.parametrize("restarts", [None, 0])
@pytest.mark.parametrize("hours", [8, 3])
def test_a_job_that_was_resized_is_one_that_held_less_later(hours: int, restarts: int | None) -> None:
    told_ = Told()
    told_.past = [
        replace(one, restarts=restarts) for one in _resized(("n1,n2", 4, 4, "RESIZING"), ("n1", 2, 1, "COMPLETED"))
    ]
    window = Window(NOW - hours * HOUR, NOW)
    (chunk,) = Slurm(SlurmOptions(), clock=FakeClock(NOW), transport=told_).history(window)
    (work,) = rows(chunk, "workload")
    assert work["workload_id"] == f"slurm/7@{int((NOW - 7 * HOUR).timestamp())}.0"
    assert (work["attempt"], work["started_at"], work["ended_at"]) == (0, NOW - 6 * HOUR, NOW - HOUR)
    held = {row["node"]: (row["gpu_count"], row["ended_at"] - row["started_at"]) for row in rows(chunk, "pod")}
    assert held["n1"] == (2, 5 * HOUR)
    assert held["n2"] == (2, 2 * HOUR)


def test_a_job_that_grows_holds_each_count_in_its_time() -> None:
    told_ = Told()
    told_.past = _resized(("n1", 2, 4, "RESIZING"), ("n1,n2", 8, 3, "RESIZING"), ("n1,n2", 8, 0, "RUNNING"))
    (chunk,) = Slurm(SlurmOptions(), clock=FakeClock(NOW), transport=told_).history(Window(NOW - 9 * HOUR, NOW))
    held = [(row["node"], row["gpu_count"], row["started_at"], row["ended_at"]) for row in rows(chunk, "pod")]
    assert held == [
        ("n1", 2, NOW - 6 * HOUR, NOW - 4 * HOUR), ("n1", 4, NOW - 4 * HOUR, None), ("n2", 4, NOW - 4 * HOUR, None),
    ]  # fmt: skip
    assert len({row["uid"] for row in rows(chunk, "pod")}) == 3
    assert rows(chunk, "workload")[0]["status"] == "running"


def test_a_row_of_a_resized_job_ends_though_the_next_one_is_not_told() -> None:
    told_ = Told()
    told_.past = _resized(("n1", 2, 4, "RESIZING"))
    (chunk,) = Slurm(SlurmOptions(), clock=FakeClock(NOW), transport=told_).history(Window(NOW - 9 * HOUR, NOW))
    assert [row["ended_at"] for row in rows(chunk, "pod")] == [NOW - 4 * HOUR]
