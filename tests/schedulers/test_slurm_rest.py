"""slurmrestd in two of its forms, its errors, and what must never leave: the token."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuledger.attribution import Rules
from gpuledger.errors import BadInput, ConfigError, InconsistentSnapshot, NotPermitted, SchedulerUnreachable
from gpuledger.model import Window
from gpuledger.testing import FakeClock
from schedulers.slurm import Slurm
from schedulers.slurm.dialect import at, find, number, tres, words
from schedulers.slurm.rest_facts import association, job, past, qos
from tests.schedulers.reading import rows
from tests.schedulers.worlds.slurm import LIMIT, fake
from tests.servers.slurmrestd import BEGUN, TOKEN, Slurmrestd, old_job, old_node

FIXTURES = Path(__file__).resolve().parents[3] / "shared" / "fixtures" / "schedulers" / "slurm-22.05"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def reader(told: Slurmrestd, stack: ExitStack, folder: Path, *, token: str = TOKEN, **options: Any) -> Slurm:
    path = folder / "token"
    path.write_text(token, encoding="utf-8")
    given = {"transport": "rest", "url": stack.enter_context(told.serve()), "token_file": str(path), **options}
    return Slurm.from_options(given, rules=Rules(), clock=FakeClock())


def test_old_and_new_forms_say_the_same(stack: ExitStack, tmp_path: Path) -> None:
    old, new = fake(), fake()
    new.version = "v0.0.42"
    first, second = (reader(told, stack, tmp_path).snapshot() for told in (old, new))
    for record in first.records:
        assert rows(first, record) == rows(second, record), record
    assert len(rows(second, "workload")) == 5
    assert "/slurm/v0.0.42/jobs" in new.asked


def test_the_best_version_that_both_know_is_asked(stack: ExitStack, tmp_path: Path) -> None:
    told = fake()
    paths: dict[str, Any] = {f"/slurm/{version}/jobs/": {} for version in ("v0.0.37", "v0.0.38", "v0.0.99")}
    told.errors["v3"] = (404, b"")
    told.errors["openapi"] = (200, json.dumps({"paths": paths}).encode())
    reader(told, stack, tmp_path).snapshot()
    assert "/slurm/v0.0.38/jobs" in told.asked


def test_a_version_that_nobody_knows_is_named(stack: ExitStack, tmp_path: Path) -> None:
    told = fake()
    told.version = "v0.0.47"
    with pytest.raises(SchedulerUnreachable, match=r"serves v0\.0\.47; we know v0\.0\.38 to v0\.0\.46"):
        reader(told, stack, tmp_path).snapshot()


def test_an_upgrade_is_followed(stack: ExitStack, tmp_path: Path) -> None:
    told = fake()
    one = reader(told, stack, tmp_path)
    one.snapshot()
    told.version = "v0.0.42"
    with pytest.raises(SchedulerUnreachable):
        one.snapshot()
    assert len(rows(one.snapshot(), "workload")) == 5


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (401, b"Authentication failure", NotPermitted),
        (403, b"", NotPermitted),
        (500, b"", SchedulerUnreachable),
        (200, b"[]", SchedulerUnreachable),
        (200, b"not json", SchedulerUnreachable),
        (
            200,
            b'{"errors": [{"description": "Failed", "error": "Unspecified error"}], "jobs": []}',
            SchedulerUnreachable,
        ),
        (500, b'{"errors": [{"description": "", "error": "Access/permission denied"}], "jobs": []}', NotPermitted),
        (302, b"http://127.0.0.1:1/", SchedulerUnreachable),
    ],
)
def test_an_answer_that_is_none_is_an_error_that_names_the_place(
    stack: ExitStack, tmp_path: Path, status: int, body: bytes, error: type[Exception]
) -> None:
    told = fake()
    told.errors["jobs"] = (status, body)
    with pytest.raises(error, match=r"/slurm/v0\.0\.38/jobs") as caught:
        reader(told, stack, tmp_path).snapshot()
    assert TOKEN not in str(caught.value)


def test_slurms_own_headers_carry_the_token_and_nothing_else_does(stack: ExitStack, tmp_path: Path) -> None:
    told = fake()
    reader(told, stack, tmp_path, token=f"SLURM_JWT={TOKEN}\n", user="reader").snapshot()
    assert {(one["X-SLURM-USER-NAME"], one["X-SLURM-USER-TOKEN"]) for one in told.headers} == {("reader", TOKEN)}
    assert not [one for one in told.headers if "Authorization" in one]
    assert not [path for path in told.asked if TOKEN in path]


def test_a_token_that_ended_is_told_before_it_is_sent(stack: ExitStack, tmp_path: Path) -> None:
    claims = base64.urlsafe_b64encode(json.dumps({"exp": BEGUN - 1, "sun": "root"}).encode()).decode().rstrip("=")
    told = fake()
    with pytest.raises(NotPermitted, match="ended at 2026-03-01T23:59:59Z") as caught:
        reader(told, stack, tmp_path, token=f"e30.{claims}.sig").snapshot()
    assert claims not in str(caught.value)
    assert told.asked == []


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"transport": "rest"}, "url and token_file"),
        ({"transport": "telnet"}, "transport"),
        ({"url": "ftp://x", "transport": "rest", "token_file": "t"}, "http"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
        ({"tokn": "x"}, "tokn"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Slurm.from_options(options, rules=Rules(), clock=FakeClock())


def test_123_a_node_that_joined_between_the_calls_is_read_again(stack: ExitStack, tmp_path: Path) -> None:
    told = fake()
    told.jobs.append(old_job(6, nodes="n3"))
    answers = [told.nodes, [*told.nodes, old_node("n3", 2)]]

    class Growing(Slurmrestd):
        def _body(self, path: str, kind: str) -> dict[str, Any]:
            if kind == "nodes":
                self.nodes = answers.pop(0) if len(answers) > 1 else answers[0]
            return super()._body(path, kind)

    growing = Growing(**{name: getattr(told, name) for name in ("jobs", "nodes", "associations", "qos")})
    one = reader(growing, stack, tmp_path)
    snapshot = one.snapshot()
    assert sum(row["allocated"] for row in rows(snapshot, "node_state")) == 6
    assert {row["capacity"] for row in rows(snapshot, "node_state")} == {8}
    assert len([path for path in growing.asked if path.endswith("/nodes")]) == 2


def test_123_what_goes_on_to_disagree_is_refused(stack: ExitStack, tmp_path: Path) -> None:
    told = fake()
    told.nodes[0] = old_node("n1", 3)
    with pytest.raises(InconsistentSnapshot, match="n1 gave 3 GPUs away, its jobs have 2"):
        reader(told, stack, tmp_path).snapshot()


def test_a_job_that_cannot_be_counted_leaves_its_account_unknown_and_not_zero(stack: ExitStack, tmp_path: Path) -> None:
    told = fake()
    told.jobs[1]["tres_alloc_str"] = "cpu=4,mem=8G,node="
    snapshot = reader(told, stack, tmp_path).snapshot()
    problems = {(row["kind"], row["subject"]) for row in rows(snapshot, "quality_event")}
    assert ("unparsed_allocation", f"slurm/2@{BEGUN - 3600}.0") in problems
    assert "ml" not in {row["queue"] for row in rows(snapshot, "queue_state")}
    used = {row["queue"]: row["used"] for row in rows(snapshot, "queue_resource") if row["resource"] == "gres/gpu"}
    assert (used["ml"], used["root"], used["bio"]) == (None, None, 0)
    pods = {row["pod"]: row["gpu_count"] for row in rows(snapshot, "pod")}
    assert (pods["1"], pods["2"]) == (2, None)


def gone(number_: int, **told: Any) -> dict[str, Any]:
    time = {"submission": BEGUN - 7200, "eligible": BEGUN - 7200, "start": BEGUN - 3600, "end": BEGUN - 1800}
    tres_ = {"allocated": [{"type": "gres", "name": "gpu", "count": 4}, {"type": "mem", "name": None, "count": 100}]}
    return {
        "job_id": number_, "name": "x", "account": "ml", "user": "ann", "partition": "gpu", "qos": "normal",
        "array": {"job_id": 0, "task_id": None}, "association": {"user": "ann"}, "allocation_nodes": 1, "nodes": "n1",
        "state": {"current": "COMPLETED", "reason": "None"}, "time": time, "tres": tres_,
        "comment": {"administrator": None},
    } | told  # fmt: skip


def test_history_asks_by_days_in_seconds_and_counts_attempts(stack: ExitStack, tmp_path: Path) -> None:
    first = gone(9, state={"current": "REQUEUED", "reason": "None"})
    times = {"submission": BEGUN - 1800, "eligible": BEGUN - 1680, "start": BEGUN - 1600, "end": BEGUN - 100}
    told = fake()
    told.past = [first, gone(9, time=times)]
    chunks = list(
        reader(told, stack, tmp_path).history(
            Window(datetime(2026, 2, 28, 12, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
        )
    )
    assert len(chunks) == 2
    asked = [path.partition("?")[2] for path in told.asked if "/slurmdb/" in path and "/jobs?" in path]
    assert "uts1772280000" in asked[0]
    assert "uts1772323200" in asked[0]
    assert [(row["workload_id"], row["status"], row["attempt"]) for row in rows(chunks[1], "workload")] == [
        (f"slurm/9@{BEGUN - 7200}.0", "cancelled", 0), (f"slurm/9@{BEGUN - 1800}.1", "finished", 1),
    ]  # fmt: skip
    assert [row["gpu_count"] for row in rows(chunks[1], "pod")] == [4, 4]
    assert set(chunks[1].scope.unlisted) == {"workload", "pod", "wait", "workload_event"}


@pytest.mark.parametrize(
    ("version", "asked"),
    [
        ("v0.0.38", ["skip_steps=true"]),
        ("v0.0.39", []),
        ("v0.0.40", ["skip_steps=true", "show_duplicates=true", "disable_truncate_usage_time=true"]),
        ("v0.0.46", ["skip_steps=true", "show_duplicates=true", "disable_truncate_usage_time=true"]),
    ],
)
def test_every_attempt_is_asked_for_with_its_own_times(
    stack: ExitStack, tmp_path: Path, version: str, asked: list[str]
) -> None:
    told = fake()
    told.version = version
    window = Window(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
    list(reader(told, stack, tmp_path).history(window))
    (query,) = [
        path.partition("?")[2].split("&") for path in told.asked if path.startswith("/slurmdb/") and "?" in path
    ]
    assert query[2:] == asked


def test_no_finished_jobs_are_an_empty_answer_and_no_error(stack: ExitStack, tmp_path: Path) -> None:
    told = fake()
    one = reader(told, stack, tmp_path)
    one.snapshot()
    nothing = {"errors": [{"description": "Nothing found", "error": "Nothing found with query"}], "jobs": []}
    told.errors["jobs"] = (200, json.dumps(nothing).encode())
    window = Window(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
    assert [rows(chunk, "workload") for chunk in one.history(window)] == [[]]


def test_numbers_have_two_forms_and_no_sentinels() -> None:
    assert [number(value) for value in (5, {"set": True, "infinite": False, "number": 5})] == [5, 5]
    for none in (None, 4_294_967_294, 0xFFFFFFFFFFFFFFFE, -1, {"set": False, "number": 0}, {"infinite": True}):
        assert number(none) is None
    with pytest.raises(BadInput):
        number("many")
    assert at(0) is None
    assert words(["MIXED", "DRAIN"]) == words("mixed+drain") == {"MIXED", "DRAIN"}
    assert tres([{"type": "gres", "name": "gpu:h100", "count": 0}, {"type": "cpu", "count": None}]) == "gres/gpu:h100=0"
    assert find({"QOS": [1]}, "qos.list") == find({"qos": [1]}, "qos.list") == [1]


def test_an_accounting_that_counts_no_gpus_has_no_history_of_them(stack: ExitStack, tmp_path: Path) -> None:
    for version in ("v0.0.38", "v0.0.42"):
        told = fake()
        told.version = version
        window = Window(datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 3, 2, tzinfo=UTC))
        assert len(list(reader(told, stack, tmp_path).history(window))) == 1
        del told.tres[1:]
        with pytest.raises(SchedulerUnreachable, match=r"/tres: the accounting counts no GPUs"):
            next(reader(told, stack, tmp_path).history(window))


def test_accounts_of_other_clusters_of_one_accounting_are_not_ours(stack: ExitStack, tmp_path: Path) -> None:
    told = fake()
    for one in told.associations:
        one["cluster"] = "here"
    other = {**told.associations[1], "cluster": "there", "max": {"tres": {"total": [{**LIMIT, "count": 99}]}}}
    told.associations += [other, {**other, "account": "theirs"}]
    asked = reader(told, stack, tmp_path)
    unknown = asked.snapshot()
    assert "here, there" in str(dict(unknown.scope.denied))
    assert rows(unknown, "quota") == []
    told.jobs[0]["cluster"] = "here"
    for _ in range(2):
        known = asked.snapshot()
        assert known.scope.is_complete
        limits = {row["queue"]: row["nominal_gpus"] for row in rows(known, "quota")}
        assert limits == {"root": None, "ml": 8, "bio": None, "qos/normal": None}
        told.jobs[0]["cluster"] = ""  # it is known by now


def test_a_share_that_is_the_parents_is_no_number() -> None:
    given = {"account": "ml", "shares_raw": 0x7FFFFFFF}
    assert association(given).share is None
    assert association({**given, "shares_raw": {"set": True, "infinite": False, "number": 7}}).share == 7


def test_what_was_cancelled_while_it_waited_never_began() -> None:
    told = old_job(1, job_state="CANCELLED", nodes="", tres_alloc_str="", gres_detail=[], start_time=BEGUN)
    never = job({**told, "end_time": BEGUN})
    assert (never.start_at, never.end_at is not None, never.tres_alloc) == (None, True, "")
    assert "gres/gpu=2" in never.tres_req


def _recorded(name: str, plural: str) -> list[dict[str, Any]]:
    path = FIXTURES / name
    if not path.exists():
        pytest.skip("optional: ../shared is absent: this checkout has no recorded answers beside it")
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))[plural]
    return found


def test_what_a_real_22_05_answered_is_read() -> None:
    jobs = [job(one) for one in _recorded("slurm_v0.0.38_jobs.json", "jobs")]
    assert [(one.label, one.account, sorted(one.states)) for one in jobs[:2]] == [
        ("1", "team-a", ["RUNNING"]), ("2", "team-a", ["COMPLETED"]),
    ]  # fmt: skip
    assert jobs[0].gres_by_node == (("gpu1", "gpu:h100:6(IDX:0-5)"),)
    accounts = {
        (one.account, one.user): one
        for one in map(association, _recorded("slurmdb_v0.0.38_associations.json", "associations"))
    }
    assert accounts["team-a", ""].limits.tres == {"group": "gres/gpu=10"}
    assert (accounts["team-b", ""].parent, accounts["team-b", ""].share) == ("root", 40)
    limits = {one.name: one.limits.tres for one in map(qos, _recorded("slurmdb_v0.0.38_qos.json", "QOS"))}
    assert limits["normal"] == {"user": "gres/gpu=12"}
    assert limits["high"]["group"] == "gres/gpu=8"
    first = past(_recorded("slurmdb_v0.0.38_jobs.json", "jobs")[0])
    assert (first.label, first.nodes, first.restarts) == ("1", "gpu1", None)
    assert "gres/gpu=6" in first.tres_alloc
