"""Mutated pages of npu-exporter through the mapping that reads them.

    python fuzz/npu.py --seconds 60 [--seed 1]

No exception, no hang. Every row fits its record: unique by its key, values in their bounds, nothing that is not finite.
A page reads the same warm as cold, and the same page once more tells no fault anew.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.devices.page import parse
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from fuzz._harness import main, mutated
from gpuledger.model import RECORDS, to_table
from gpuledger.ports import Observation

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT.parent / "shared" / "fixtures" / "exposition"
RECORDINGS = ROOT / "tests" / "collector" / "recordings"
NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
MAPPING = load("ascend")
MAX_PAGE = 16_000
SMALL_CACHE = 7
TOKENS = (
    *(b"{", b"}", b'"', b",", b"=", b" ", b"\n", b"\\", b"#", b"\x00", b"\xff", "é".encode()),
    *(b" NaN", b" +Inf", b" -1", b" 0", b" 1", b" 101", b" 1e999", b" 4294967295", b" 2147483647", b" 1e300", b" 0.5"),
    *(b'vdie_id="",', b'vdie_id="z",', b'id="0",', b'id="",', b'v_dev_id="100",', b'aicore_count="4.00",'),
    *(b'aicore_count="9e9",', b'pod_name="NotDisplayedForMultiPod",', b'pod_name="p",', b'model_name="310P3",'),
    *(b" 1772441999000", b" 1772441900000", b" -9223372036854775808", b" 99999999999999999999", b" 1606402000"),
    b'npu_chip_info_error_code{id="0",vdie_id="z"} 2162263042\n',
    b'npu_chip_info_network_status{id="0"} 0\n',
    b'vnpu_pod_used_memory{id="0",v_dev_id="100",aicore_count="1.00"} 1\n',
    b'npu_chip_info_name{id="0",name="' + b"y" * 3000 + b'"} 1\n',
)


@cache
def corpus() -> tuple[bytes, ...]:
    """Pages to begin with: ours, and the fixtures where they lie."""
    paths = [*RECORDINGS.glob("npu_exporter_*.prom"), *FIXTURES.glob("npu_exporter_*.prom")]
    return tuple(path.read_bytes()[:MAX_PAGE] for path in sorted(paths))


def make(rng: random.Random) -> bytes:
    """One mutated page, now and then two in one."""
    content = rng.choice(corpus())
    if rng.random() < 0.3:
        content = content[: rng.randrange(len(content) + 1)] + rng.choice(corpus())
    return mutated(rng, content, TOKENS)[:MAX_PAGE]


def check(content: bytes) -> None:
    """Raises AssertionError, or what the code under test raises."""
    target = MappedTarget(MAPPING, node="n1")
    cold, warm = parse(content, NOW, target), parse(content, NOW, target)
    assert _facts(cold) == _facts(warm), "warm is not cold"
    assert "fault_event" not in warm.others, "a fault that was there is told again"
    small = MappedTarget(MAPPING, node="n1", max_series=SMALL_CACHE)
    for seen in (cold, parse(content, NOW, small), parse(content, NOW, small)):
        for record, rows in (("reading", seen.readings), ("holding", seen.holdings), ("source_read", seen.reads)):
            _check_rows(record, rows)
        for record, rows in seen.others.items():
            _check_rows(record, rows)


def _check_rows(record: str, rows: Sequence[Any]) -> None:
    keys = [tuple(getattr(row, name) for name in RECORDS[record].key) for row in rows]
    assert len(set(keys)) == len(keys), f"a {record} twice"
    for column in dataclasses.fields(RECORDS[record].cls):
        low, high = column.metadata.get("low"), column.metadata.get("high")
        for value in (getattr(row, column.name) for row in rows):
            if isinstance(value, float):
                assert math.isfinite(value), f"{column.name} is {value}"
            assert value is None or low is None or low <= value, f"{column.name} is {value}"
            assert value is None or high is None or value <= high, f"{column.name} is {value}"
    assert to_table(record, rows).num_rows == len(rows)


def _facts(seen: Observation) -> tuple[Any, ...]:
    return seen.readings, seen.holdings, seen.reads


if __name__ == "__main__":
    main("npu", make, check)
