"""Logs as the trainers of a simulated fleet would write them, from the same progress as the records of the back-fill.

Lines are in Megatron-LM's form; of a job's ranks the last one prints. Checkpoints stand between the steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpuledger.simulate.progress import Progress
from gpuledger.simulate.script import Job, Script

LAST_ITERATION = 1_000_000
SEQUENCE_TOKENS = 4_096


def training_logs(script: Script, begin: int, end: int) -> Iterator[tuple[str, str]]:
    """(workload, text) of each job that tells steps, as written in the script's minutes [`begin`, `end`)."""
    for job in script.jobs:
        if job.progress is not None and job.progress.steps and job.submit < end:
            lines = sorted(_lines(script, job, job.progress, begin, end))
            if lines:
                yield job.workload_id, "".join(text for _, text in lines)


def write_training_logs(script: Script, folder: Path) -> int:
    """One file `<workload>.log` below `folder` for each job that tells steps. Gives how many."""
    folder.mkdir(parents=True, exist_ok=True)
    count = 0
    for workload, text in training_logs(script, 0, script.spec.end_minute):
        (folder / f"{workload}.log").write_text(text, encoding="utf-8")
        count += 1
    return count


def _lines(script: Script, job: Job, progress: Progress, begin: int, end: int) -> Iterator[tuple[float, str]]:
    """(second of the script, line), not in order."""
    for stepping in progress.steps:
        length, first = stepping.step_seconds, stepping.start * 60.0
        batch = max(1, round(stepping.tokens / SEQUENCE_TOKENS))
        rate = stepping.tokens / length / len(job.holds)
        steps = [int((min(minute, stepping.end) * 60 - first) // length) for minute in (begin, end)]
        for step in range(max(1, steps[0]), steps[1] + 1):
            second = first + step * length
            if begin * 60 <= second < end * 60:
                line = f"iteration {step:8}/{LAST_ITERATION:8} | consumed samples: {step * batch:12}"
                line += f" | elapsed time per iteration (ms): {length * 1000:.1f}"
                line += f" | tokens per GPU (tokens/s/GPU): {rate:.4f} | global batch size: {batch:5} |"
                yield second, f" [{_stamp(script, second)}] {line}\n"
    for minute in progress.checkpoints:
        if begin <= minute < end:
            second = minute * 60.0
            saved = f"successfully saved checkpoint from iteration {_step_at(progress, second):7} to /checkpoints\n"
            yield second, f"[{_stamp(script, second)}]  {saved}"


def _step_at(progress: Progress, second: float) -> int:
    """The last step that had ended at `second`."""
    ended = [int((second - of.start * 60) // of.step_seconds) for of in progress.steps if of.start * 60 <= second]
    return max(0, ended[-1]) if ended else 0


def _stamp(script: Script, second: float) -> str:
    return f"{script.spec.instant(second / 60):%Y-%m-%d %H:%M:%S.%f}"
