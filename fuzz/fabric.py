"""Mutated recordings of network adapters through both their readers: the kernel's files, and node_exporter's page.

    python fuzz/fabric.py --seconds 60 [--seed 1]

No exception, no hang. Every row fits its record: unique by its key, values in their bounds, known words. A read
without a row is a failed read. A page reads the same warm as cold.
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

from collector.fabric import page, sysfs
from collector.fabric.ports import Reader
from fuzz._harness import main, mutated
from gpuledger.model import RECORDS, LinkReading, to_table
from gpuledger.ports import Observation

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT.parent / "shared" / "fixtures" / "exposition"
RECORDINGS = ROOT / "tests" / "collector" / "recordings"
NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
MAX_SIZE = 30_000
KEY = RECORDS["link_reading"].key
PREFIX = "sys/class/infiniband/"
TOKENS = (
    *(b"{", b"}", b'"', b",", b"=", b" ", b"\n", b"\t", b"/", b"\\", b"#", b"\x00", b"\xff", "é".encode()),
    *(b"N/A (no PMA)", b"-1", b"NaN", b"+Inf", b"1e999", b"1e300", b"4294967295", b"18446744073709551615", b"9" * 40),
    *(b"4: ACTIVE", b"99: ?", b" Gb/sec (4X EDR)", "\u0661".encode(), b"../../", b"ports/1/", b"counters_ext/"),
    *(b'device="', b'port="1"', b"node_infiniband_", b"_bytes_total", b'node_uname_info{nodename="x"} 1\n'),
    b"node_infiniband_state_id{" + b'device="' + b"y" * 3000 + b'",port="1"} 4\n',
)


@cache
def corpus() -> tuple[bytes, ...]:
    """Recordings to begin with: ours, and the fixtures where they lie."""
    paths = [*RECORDINGS.glob("infiniband_*.txt"), *RECORDINGS.glob("node_exporter_*.prom")]
    paths += [*FIXTURES.glob("infiniband_*.txt"), *FIXTURES.glob("node_exporter_*.prom")]
    return tuple(path.read_bytes()[:MAX_SIZE] for path in sorted(paths))


def make(rng: random.Random) -> bytes:
    """One mutated recording, now and then two in one."""
    content = rng.choice(corpus())
    if rng.random() < 0.2:
        content = content[: rng.randrange(len(content) + 1)] + rng.choice(corpus())
    return mutated(rng, content, TOKENS)[:MAX_SIZE]


def check(content: bytes) -> None:
    """Raises AssertionError, or what the code under test raises."""
    target = page.Target(name="t")
    cold, warm = page.parse(content, NOW, target), page.parse(content, NOW, target)
    assert _facts(cold) == _facts(warm), "warm is not cold"
    small = page.Target(name="t", max_series=7)
    for seen in (cold, page.parse(content, NOW, small), page.parse(content, NOW, small)):
        _check(seen)
    lines = (line.partition("\t") for line in content.decode(errors="replace").split("\n"))
    files = {path.removeprefix(PREFIX): text for path, _, text in lines}
    _check(sysfs.parse(files, NOW, Reader("n1", "infiniband", "t", 15.0)))


def _check(seen: Observation) -> None:
    rows: list[Any] = list(seen.others.get("link_reading", ()))
    (read,) = seen.reads
    assert read.ok == bool(rows), "a read that gave nothing is not told as failed"
    assert len({tuple(getattr(row, name) for name in KEY) for row in rows}) == len(rows), "a port twice"
    for column in dataclasses.fields(LinkReading):
        low, high = column.metadata.get("low"), column.metadata.get("high")
        choices = column.metadata.get("choices")
        for value in (getattr(row, column.name) for row in rows):
            assert choices is None or value in choices, f"{column.name} is {value}"
            assert low is None or value is None or (math.isfinite(value) and low <= value <= high), column.name
    assert to_table("link_reading", rows).num_rows == len(rows)
    assert to_table("quality_event", seen.others.get("quality_event", ())).num_rows >= 0


def _facts(seen: Observation) -> str:
    # The page's own name of its node counts from the line that says it on.
    rows = [dataclasses.replace(row, node="") for row in seen.others.get("link_reading", ())]
    reads = [dataclasses.replace(read, node="") for read in seen.reads]
    return repr((reads, rows, seen.others.get("quality_event")))


if __name__ == "__main__":
    main("fabric", make, check)
