"""Logs of training: what lines tell, when it was, and that no line is lost or told twice."""

from __future__ import annotations

import dataclasses
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
import yaml

from collector.sources.training_log import TrainingLogSource
from collector.training_log import Declared, LineReader, Places, Progress, Rows, Subject, progress_rows
from fuzz._harness import deadline
from gpuledger.model import JobStep

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
EXPECTED = Path(__file__).resolve().parents[1] / "expected" / "training_log"
MEGATRON = " [2026-03-02 08:{:02}:{:02}] iteration {:8}/ 1000 | elapsed time per iteration (ms): {:.1f} |\n"


def rows_of(text: str, declared: Declared | None = None, ended_at: datetime = NOW, form: str = "auto") -> Rows:
    lines = LineReader(form).read([line.encode() for line in text.splitlines()])
    return progress_rows(lines, Subject(workload_id="j"), declared or Declared(), Progress(), ended_at=ended_at)


def told(step: JobStep) -> dict:
    blank = {field.name: field.default for field in dataclasses.fields(JobStep)}
    known = {name: value for name, value in dataclasses.asdict(step).items() if value != blank[name]}
    return {
        name: value for name, value in known.items() if name != "workload_id" and not (name == "rank" and not value)
    }


def log(first: int, last: int, seconds: float = 10.0) -> str:
    return "".join(MEGATRON.format(n * 10 // 60, n * 10 % 60, n, seconds * 1000) for n in range(first, last + 1))


def steps(observation) -> list[int]:
    return [step.step for step in observation.others.get("job_step", ())]


@pytest.fixture
def file(tmp_path) -> Path:
    return tmp_path / "logs" / "job-1.log"


@pytest.fixture
def make(file, tmp_path):
    file.parent.mkdir()

    def made(path: str = "{workload}.log", **options) -> TrainingLogSource:
        return TrainingLogSource(f"{file.parent}/{path}", state_directory=tmp_path / "state", **options)

    return made


# --- lines


@pytest.mark.parametrize("name", ["train_megatron", "train_verl"])
def test_a_published_log_gives_exactly_the_expected_steps(shared, name):
    text = (shared / "fixtures/exposition" / f"{name}.log").read_text()
    wanted = yaml.safe_load((EXPECTED / f"{name}.yaml").read_text())["steps"]
    rows = rows_of(text)
    assert (rows.refused, rows.skewed, rows.phases, rows.checkpoints) == (0, 0, [], [])
    assert [told(step) for step in rows.steps] == [
        {name: pytest.approx(value) if isinstance(value, float) else value for name, value in one.items()}
        for one in wanted
    ]


def test_deepspeed_tells_seconds_by_its_rate_and_the_batch():
    text = "[2026-03-02 08:00:10,123] [INFO] [Rank 0] step=10, skipped=0, lr=[0.1], CurrSamplesPerSec=128.0\n"
    rows = rows_of(text, Declared(samples=256, sequence_tokens=4096))
    assert [told(step) for step in rows.steps] == [
        {"ts": datetime(2026, 3, 2, 8, 0, 10, 123000, tzinfo=UTC), "step": 10, "step_seconds": 2.0, "tokens": 1048576.0}
    ]


def test_torchtitan_tells_tokens_a_second_of_each_gpu():
    text = "[titan] 2026-03-02 08:00:10,000 - root - INFO - step: 20  loss:  3.1  tps: 7,500  tflops: 410.5  mfu: 41%\n"
    (step,) = rows_of(text, Declared(gpus=8)).steps
    assert (step.step, step.model_flops_per_gpu_second, step.tokens) == (20, 410.5e12, None)


def test_a_pattern_of_ones_own_tells_what_its_groups_are_named():
    reader = LineReader(
        "pattern", pattern=r"^(?P<time>\S+ \S+) it (?P<step>\d+) took (?P<step_ms>\S+) tok (?P<tokens>\S+)"
    )
    lines = [b"2026-03-02 08:00:00 it 7 took 1500 tok 2048", b"2026-03-02 08:00:02 it 8 took nan tok 2048", b"noise"]
    rows = progress_rows(reader.read(lines), Subject(workload_id="j"), Declared(), Progress(), ended_at=NOW)
    assert [(one.step, one.step_seconds, one.tokens) for one in rows.steps] == [(7, 1.5, 2048.0), (8, None, 2048.0)]
    assert rows.refused == 1


def test_a_log_that_prints_every_tenth_step_tells_them_all():
    rows = rows_of(MEGATRON.format(0, 0, 10, 6000) + MEGATRON.format(1, 0, 20, 6000))
    assert [step.step for step in rows.steps] == [10, *range(11, 21)]
    assert rows.steps[1].ts == datetime(2026, 3, 2, 8, 0, 6, tzinfo=UTC)
    assert {step.step_seconds for step in rows.steps} == {6.0}


def test_a_first_step_that_takes_far_longer_compiled():
    rows = rows_of(MEGATRON.format(5, 0, 1, 180_000) + MEGATRON.format(5, 10, 2, 10_000))
    (phase,) = rows.phases
    assert (phase.phase, phase.from_at, phase.until_at) == (
        "compile",
        datetime(2026, 3, 2, 8, 2, tzinfo=UTC),
        datetime(2026, 3, 2, 8, 5, tzinfo=UTC),
    )


def test_a_checkpoint_is_told_with_how_long_training_stood():
    text = log(1, 2) + "  successfully saved checkpoint from iteration       2 to /ckpt\n"
    text += "[2026-03-02 08:00:50] nothing\n"
    stamped = text.replace("  successfully", "[2026-03-02 08:00:45] successfully")
    rows = rows_of(stamped)
    (saved,) = rows.checkpoints
    assert (saved.ts, saved.step, saved.blocking_seconds) == (datetime(2026, 3, 2, 8, 0, 45, tzinfo=UTC), 2, 25.0)
    assert [(one.phase, one.from_at) for one in rows.phases] == [("checkpoint", saved.ts - timedelta(seconds=25))]


def test_the_parts_of_a_step_of_reinforcement_learning_are_phases():
    text = "step:5 - timing_s/gen:60.0 - timing_s/update_actor:30.0 - timing_s/step:100.0 - critic/kl:0.1\n"
    rows = rows_of(text)
    assert [(one.phase, one.from_at, one.until_at) for one in rows.phases] == [
        ("rollout", NOW - timedelta(seconds=100), NOW - timedelta(seconds=40)),
        ("update", NOW - timedelta(seconds=30), NOW),
    ]


@pytest.mark.parametrize("bad", ["nan", "inf", "-5.0", "1e400", "abc"])
def test_what_is_no_measurement_is_refused_and_the_step_stays(bad):
    rows = rows_of(f" [2026-03-02 08:00:00] iteration 4/ 9 | elapsed time per iteration (ms): {bad} |\n")
    assert [(step.step, step.step_seconds) for step in rows.steps] == [(4, None)]
    assert rows.refused == 1


def test_times_are_of_the_declared_zone_and_the_future_is_no_time():
    (step,) = rows_of(MEGATRON.format(0, 0, 1, 1000), Declared(zone=ZoneInfo("Asia/Shanghai"))).steps
    assert step.ts == datetime(2026, 3, 2, 0, tzinfo=UTC)
    ahead = rows_of(MEGATRON.format(0, 0, 1, 1000), ended_at=datetime(2026, 3, 2, 1, tzinfo=UTC))
    assert (ahead.skewed, ahead.steps[0].ts) == (1, datetime(2026, 3, 2, 1, tzinfo=UTC))


def test_colours_worker_names_and_numpy_numbers_are_seen_through():
    text = "\x1b[36m(TaskRunner pid=12)\x1b[0m step:9 - perf/time_per_step:np.float64(2.5) - perf/throughput:100.0\n"
    (step,) = rows_of(text).steps
    assert (step.step, step.step_seconds) == (9, 2.5)


@pytest.mark.parametrize("tail", [b"-", b"-" + b" " * 60_000])
def test_a_line_of_blanks_takes_no_longer_than_its_length(tail):
    """Found by hand: each blank was tried before and behind the dash, which took minutes."""
    lines = [b"step:1 - a:1", b" " * 60_000 + tail + b"perf/x"]
    with deadline(20.0):  # a hang, not a time: it takes milliseconds
        assert [told.step for told in LineReader("verl").read(lines)] == [1]


# --- files


def test_what_is_appended_is_told_once(file, make):
    source = make()
    file.write_text(log(1, 3))
    assert steps(source.read(NOW)) == [1, 2, 3]
    assert steps(source.read(NOW)) == []
    with file.open("a") as stream:
        stream.write(log(4, 5)[:-20])
    assert steps(source.read(NOW)) == [4]
    with file.open("a") as stream:
        stream.write(log(5, 5)[-20:] + log(6, 6))
    assert steps(source.read(NOW)) == [5, 6]


def test_a_restart_goes_on_where_reading_stood(file, make):
    first = make()
    file.write_text(log(1, 3))
    before = first.read(NOW)
    first.close()
    with file.open("a") as stream:
        stream.write(log(4, 4))
    assert steps(before) == [1, 2, 3]
    assert steps(make().read(NOW + timedelta(minutes=1))) == [4]


def test_after_a_crash_the_same_rows_are_told_again_and_none_is_lost(file, make):
    """Rows of the last two minutes may not have been spooled: they come again, equal in every column."""
    file.write_text("step:1 - timing_s/step:2.0\nstep:2 - timing_s/step:2.0\n")
    old = NOW.timestamp() - 90
    os.utime(file, (old, old))
    before = make().read(NOW).others["job_step"]
    with file.open("a") as stream:
        stream.write("step:3 - timing_s/step:2.0\n")
    after = make().read(NOW + timedelta(seconds=30)).others["job_step"]
    assert [step.step for step in before] == [1, 2]
    assert list(after[:2]) == list(before)
    assert [step.step for step in after] == [1, 2, 3]


def test_a_rotated_log_is_read_to_its_end_and_the_new_one_from_its_beginning(file, make):
    source = make()
    file.write_text(log(1, 3))
    source.read(NOW)
    with file.open("a") as stream:
        stream.write(log(4, 5))
    file.rename(file.with_suffix(".log.1"))
    file.write_text(log(6, 7))
    assert steps(source.read(NOW)) == [4, 5, 6, 7]
    assert steps(source.read(NOW)) == []


def test_a_rotated_log_whose_new_name_is_named_too_is_not_read_twice(file, make):
    source = make("{workload}.log*")
    file.write_text(log(1, 3))
    source.read(NOW)
    file.rename(file.with_suffix(".log.1"))
    file.write_text(log(4, 4))
    assert steps(source.read(NOW)) == [4]


def test_a_log_that_is_cut_short_begins_anew(file, make):
    source = make()
    file.write_text(log(1, 5))
    source.read(NOW)
    file.write_text(log(6, 6))
    assert steps(source.read(NOW)) == [6]


def test_a_long_log_that_is_there_already_is_read_from_its_end(file, make):
    file.write_text(log(1, 50))
    line = len(log(1, 1))
    assert steps(make(first_bytes=3 * line).read(NOW)) == [48, 49, 50]


def test_a_backlog_comes_in_pieces_and_whole(file, make):
    source = make(max_bytes=1024)
    file.write_text(log(1, 50))
    got = []
    for _ in range(20):
        got += steps(source.read(NOW))
    assert got == list(range(1, 51))


def test_each_file_has_its_job_and_rank(file, make):
    for job, rank in (("a", 0), ("b", 3)):
        folder = file.parent / job
        folder.mkdir()
        (folder / f"rank{rank}.log").write_text(log(1, 1))
    source = make("{workload}/rank{rank}.log", workload="{env:QUEUE}-{workload}", environment={"QUEUE": "q"})
    rows = source.read(NOW).others["job_step"]
    assert [(row.workload_id, row.rank) for row in rows] == [("q-a", 0), ("q-b", 3)]


def test_one_unreadable_log_costs_no_other(file, make, monkeypatch):
    file.write_text(log(1, 1))
    other = file.with_name("other.log")
    other.write_text(log(1, 2))
    taken = Path.open

    def opened(path, *args, **kwargs):
        if path == file:
            raise PermissionError(13, "Permission denied", str(path))
        return taken(path, *args, **kwargs)

    monkeypatch.setattr(Path, "open", opened)
    observation = make().read(NOW)
    assert steps(observation) == [1, 2]
    (read,) = observation.reads
    assert (read.ok, read.error) == (False, f"{file}: permission denied")


def test_the_declared_model_is_told_once_for_each_job(file, make):
    source = make(model={"active_parameters": 7e9, "layers": 32, "hidden_size": 4096}, sequence_tokens=4096)
    file.write_text(log(1, 1))
    (model,) = source.read(NOW).others["job_model"]
    assert (model.workload_id, model.active_parameters, model.sequence_tokens) == ("job-1", 7e9, 4096)
    with file.open("a") as stream:
        stream.write(log(2, 2))
    assert "job_model" not in source.read(NOW).others


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"path": "*.log"}, "workload: the path has no part {workload}"),
        ({"workload": "{env:NOBODY}"}, "workload: NOBODY is not set"),
        ({"path": "{workload}/{workload}.log"}, "path: redefinition of group name"),
        ({"format": "caffe"}, "format: must be one of"),
        ({"format": "pattern"}, "pattern: goes with"),
        ({"format": "pattern", "pattern": "("}, "pattern: missing"),
        ({"format": "pattern", "pattern": "(?P<loss>.)"}, "pattern: needs the group `step`"),
        ({"time_zone": "Mars/Olympus"}, "time_zone: no zone"),
        ({"gpus": 0}, "gpus: must be more than 0"),
        ({"model": {"params": 1}}, "model: knows no params"),
        ({"model": {"active_parameters": "7B"}}, "model.active_parameters: must be a number"),
        ({"model": {"precision": "int3"}}, "model.precision: must be one of"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(make, options, said):
    with pytest.raises(ValueError, match="^" + said.replace("(", r"\(").replace("{", r"\{").replace("}", r"\}")):
        make(**options)


def test_places_know_folders_of_any_depth(tmp_path):
    places = Places(f"{tmp_path}/**/{{workload}}/log.txt", "{workload}", {})
    for name in ("a/log.txt", "x/y/b/log.txt"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    assert sorted(subject.workload_id for _, subject in places.files()) == ["a", "b"]


def test_lines_that_were_just_appended_are_not_hours_old(file, make):
    """The clock is that of another zone: the steps are dated by the file, and told as such."""
    source = make()
    file.write_text(log(1, 3))
    source.read(NOW)
    os.utime(file, (NOW.timestamp(), NOW.timestamp()))
    later = NOW + timedelta(minutes=1)
    with file.open("a") as stream:
        stream.write(" [2026-03-02 04:00:50] iteration 4/ 10 | elapsed time per iteration (ms): 10000.0 |\n")
    os.utime(file, (later.timestamp(), later.timestamp()))
    observation = source.read(later)
    assert [(step.step, step.ts) for step in observation.others["job_step"]] == [(4, later)]
    assert [(event.kind, event.count) for event in observation.others["quality_event"]] == [("refused_line", 1)]


def test_lines_that_a_trainer_held_back_keep_their_times(file, make):
    source = make()
    file.write_text(log(1, 3))
    os.utime(file, (NOW.timestamp(), NOW.timestamp()))
    source.read(NOW)
    with file.open("a") as stream:
        stream.write(log(4, 200))
        stream.write(" [2026-03-02 08:59:50] iteration 201/ 300 | elapsed time per iteration (ms): 10000.0 |\n")
    os.utime(file, (NOW.timestamp(), NOW.timestamp()))
    told = source.read(NOW + timedelta(minutes=1)).others
    assert told["job_step"][0].ts == datetime(2026, 3, 2, 8, 0, 40, tzinfo=UTC)
    assert not told["quality_event"]
