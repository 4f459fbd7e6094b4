"""Mutated training logs through the reader of lines, whole and in pieces, and what dates them.

    python fuzz/training_log.py --seconds 60 [--seed 1]

No exception, no hang. Every row fits its record, values in their bounds; no two steps in turn end at once. A piece
that is read again gives the same rows.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from datetime import UTC, datetime
from functools import cache
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.training_log import FORMATS, Declared, LineReader, Progress, Rows, Subject, progress_rows
from fuzz._harness import main, mutated
from gpuledger.model import RECORDS, to_table

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT.parent / "shared" / "fixtures" / "exposition"
NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
MAX_SIZE = 20_000
OWN = (
    b" [2026-03-02 08:00:10] iteration 1/ 10 | elapsed time per iteration (ms): 1e4 | global batch size: 8 |\n" * 3,
    b"[2026-03-02 08:00:50] successfully saved checkpoint from iteration 3 to /x\n",
    b"[2026-03-02 08:01:00,5] [INFO] [Rank 3] step=10, skipped=0, CurrSamplesPerSec=128.0\n",
    b"2026-03-02 08:00:10,000 - step: 20  loss:  3.1  tps: 7,500  tflops: 410.5\n",
    b"(W pid=1) step:5 - timing_s/gen:60.0 - timing_s/step:100.0 - perf/throughput:np.float64(3.0)\n",
)
TOKENS = (
    *(b"|", b":", b"/", b"\n", b"\r", b"[", b"]", b"\x00", b"\xff", b"\x1b[36m", "é".encode(), "\u0661".encode()),
    *(b"nan", b"-inf", b"1e999", b"-1", b"9" * 40, b"0", b"2026-02-30 25:61:61", b"9999-12-31 23:59:59+00:00"),
    *(b"iteration ", b"step:", b"step=", b"timing_s/step:", b"[rank-9/9]", b"elapsed time per iteration (s): 0"),
    *(b"saving checkpoint at iteration 7\n", b"validation loss at iteration 7\n", b"[after x] datetime:"),
)


@cache
def corpus() -> tuple[bytes, ...]:
    """Logs to begin with: ours, and the fixtures where they lie."""
    return (*OWN, b"".join(OWN), *(path.read_bytes()[:MAX_SIZE] for path in sorted(FIXTURES.glob("train_*.log"))))


def make(rng: random.Random) -> bytes:
    """One mutated log, now and then two in one."""
    content = rng.choice(corpus())
    if rng.random() < 0.3:
        content += rng.choice(corpus())
    return mutated(rng, content, TOKENS)[:MAX_SIZE]


def check(content: bytes) -> None:
    """Raises AssertionError, or what the code under test raises."""
    for form in FORMATS:
        if form != "pattern":
            _check(_rows(LineReader(form), [content.split(b"\n")]))
    own = LineReader("pattern", pattern=r"(?P<time>\S+ \S+)?.*?step[:=](?P<step>\d+)(?:.*?(?P<step_seconds>[\d.e]+))?")
    _check(_rows(own, [content.split(b"\n")]))
    lines = content.split(b"\n")
    _check(_rows(LineReader(), [lines[: len(lines) // 2], lines[len(lines) // 2 :]]))
    again = _rows(LineReader(), [lines])
    assert repr(again.records()) == repr(_rows(LineReader(), [lines]).records()), "a piece that is read again differs"


def _rows(reader: LineReader, pieces: list[list[bytes]]) -> Rows:
    known, all_rows = Progress(), Rows()
    for piece in pieces:
        declared = Declared(gpus=8, samples=16.0, sequence_tokens=128)
        rows = progress_rows(reader.read(piece), Subject(workload_id="j"), declared, known, ended_at=NOW)
        for name in ("steps", "phases", "checkpoints"):
            getattr(all_rows, name).extend(getattr(rows, name))
    return all_rows


def _check(rows: Rows) -> None:
    for record, made in rows.records().items():
        assert record != "job_step" or all(one.ts != after.ts for one, after in pairwise(made)), "two steps at once"
        for column in dataclasses.fields(RECORDS[record].cls):
            low, high = column.metadata.get("low"), column.metadata.get("high")
            for value in (getattr(row, column.name) for row in made):
                inside = low is None or value is None or (math.isfinite(value) and low <= value <= (high or math.inf))
                assert inside, f"{column.name} is {value}"
        assert to_table(record, made).num_rows == len(made)


if __name__ == "__main__":
    main("training_log", make, check)
