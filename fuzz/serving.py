"""Mutated pages through the sources of vLLM and SGLang servers.

    python fuzz/serving.py --seconds 60 [--seed 1]

No exception, no hang. Every row fits its record: unique by its key, values in their bounds, nothing that is not finite.
A page that gives no row is a failed read. A page reads the same warm as cold, but for renames, which are told once.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.serving import Dialect, Target, parse
from collector.sources.sglang import DIALECT as SGLANG
from collector.sources.vllm import DIALECT as VLLM
from fuzz._harness import main, mutated
from gpuledger.model import RECORDS, EngineReading, to_table
from gpuledger.ports import Observation

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT.parent / "shared" / "fixtures" / "exposition"
RECORDINGS = ROOT / "tests" / "collector" / "recordings"
NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
MAX_PAGE = 40_000
SMALL_CACHE = 7
KEY = RECORDS["engine_reading"].key
BOUNDS = {
    column.name: (column.metadata["low"], column.metadata["high"])
    for column in dataclasses.fields(EngineReading)
    if "low" in column.metadata
}
TOKENS = (
    *(
        b"{",
        b"}",
        b'"',
        b",",
        b"=",
        b" ",
        b"\n",
        b"\\",
        b"#",
        b"_total",
        b"_sum",
        b"_count",
        b"_bucket",
        b"\x00",
        b"\xff",
    ),
    *(b"vllm:", b"sglang:", b"sglang_", b'engine="', b'dp_rank="', b'tp_rank="', b'pp_rank="-1"', b'pid="1",'),
    *(b'model_name="', b'engine_type="prefill"', b'engine_type="decode"', b'pod="p",', b'exported_pod="q",'),
    *(b" NaN", b" +Inf", b" -Inf", b" -1", b" 1e999", b" 1e308", b" 87.58", b" 1e18", b" 1000000000000000001"),
    *(b" 1772445600000", b" 9223372036854775807", b" -1", "é".encode(), "\u0661".encode(), b"9" * 30),
    *(b"vllm:gpu_cache_usage_perc 0.5\n", b"vllm:kv_cache_usage_perc 0.5\n", b'model_name="' + b"y" * 3000 + b'"'),
)


@cache
def corpus() -> tuple[bytes, ...]:
    """Pages to begin with: ours, and the fixtures where they lie."""
    paths = [*RECORDINGS.glob("vllm_*.prom"), *RECORDINGS.glob("sglang_*.prom")]
    paths += [*FIXTURES.glob("vllm_*.prom"), *FIXTURES.glob("sglang_*.prom")]
    return tuple(path.read_bytes()[:MAX_PAGE] for path in sorted(paths))


def make(rng: random.Random) -> bytes:
    """One mutated page, now and then two in one."""
    content = rng.choice(corpus())
    if rng.random() < 0.2:
        content = content[: rng.randrange(len(content) + 1)] + rng.choice(corpus())
    return mutated(rng, content, TOKENS)[:MAX_PAGE]


def check(content: bytes) -> None:
    """Raises AssertionError, or what the code under test raises."""
    for dialect in (VLLM, SGLANG):
        _check(content, dialect)


def _check(content: bytes, dialect: Dialect) -> None:
    target = Target(dialect, name="t", pod="p")
    cold, warm = parse(content, NOW, target), parse(content, NOW, target)
    assert _facts(cold) == _facts(warm), "warm is not cold"
    small = Target(dialect, name="t", pod="p", max_series=SMALL_CACHE)
    for _ in range(2):
        parse(content, NOW, small)
    rows: list[Any] = list(cold.others.get("engine_reading", ()))
    (read,) = cold.reads
    assert read.ok == bool(rows), "a read that gave nothing is not told as failed"
    assert len({tuple(getattr(row, name) for name in KEY) for row in rows}) == len(rows), "an engine twice"
    for row in rows:
        for name, (low, high) in BOUNDS.items():
            value = getattr(row, name)
            assert value is None or (math.isfinite(value) and low <= value <= high), f"{name} is {value}"
    assert to_table("engine_reading", rows).num_rows == len(rows)
    assert to_table("quality_event", cold.others.get("quality_event", ())).num_rows >= 0


def _facts(observation: Observation) -> str:
    told = [event for event in observation.others.get("quality_event", ()) if event.kind != "renamed_metric"]
    return repr((observation.reads, observation.others.get("engine_reading"), told))


if __name__ == "__main__":
    main("serving", make, check)
