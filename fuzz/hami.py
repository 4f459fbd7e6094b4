"""Mutated pages of HAMi's monitor and scheduler through the source that reads both.

    python fuzz/hami.py --seconds 60 [--seed 1]

No exception, no hang. Every row fits its record: unique by its key, values in their bounds, nothing that is not finite.
No pod has more than a card, and pods whose part nobody states have at most what is left of it together. A page reads
the same warm as cold, but for renames, which are told once.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.devices.page import parse
from collector.mapping.file import load
from collector.mapping.source import MappedTarget
from collector.sources.hami import NUMBERS_IN_LABELS
from fuzz._harness import main, mutated
from gpuledger.model import RECORDS, Holding, to_table
from gpuledger.ports import Observation

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT.parent / "shared" / "fixtures" / "exposition"
RECORDINGS = ROOT / "tests" / "collector" / "recordings"
NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
MAPPING = load("hami")
MAX_PAGE = 30_000
SMALL_CACHE = 7
TOKENS = (
    *(b"{", b"}", b'"', b",", b"=", b" ", b"\n", b"\\", b"#", b"[0-1]", b"[", b"\x00", b"\xff", "é".encode()),
    *(b" NaN", b" +Inf", b" -Inf", b" -1", b" 0", b" 1e999", b" 101", b" 100.0001", b" 815", b" 1e-300", b"9" * 30),
    *(b'device_uuid="', b'deviceuuid="', b'device_uuid="",', b'node="",', b'pod="p",', b'exported_pod="q",'),
    *(b'container_index="', b'namespace="a",', b'podname="p"', b"hami_vgpu_core_allocated_ratio{", b" 1772445600000"),
    *(b"hami_vgpu_memory_allocated_bytes{", b"hami_gpu_memory_limit_bytes{", b"HostGPUMemoryUsage{", b"_bytes"),
    b'hami_gpu_memory_limit_bytes{device_uuid="GPU-shared",node="gpu-7"} 1\n',
    b'hami_vgpu_core_allocated_ratio{device_uuid="GPU-shared",pod="' + b"y" * 3000 + b'"} 50\n',
)


@cache
def corpus() -> tuple[bytes, ...]:
    """Pages to begin with: ours, and the fixtures where they lie."""
    paths = [*RECORDINGS.glob("hami_*.prom"), *FIXTURES.glob("hami_*.prom")]
    return tuple(path.read_bytes()[:MAX_PAGE] for path in sorted(paths))


def make(rng: random.Random) -> bytes:
    """One mutated page, now and then two in one."""
    content = rng.choice(corpus())
    if rng.random() < 0.3:
        content = content[: rng.randrange(len(content) + 1)] + rng.choice(corpus())
    return mutated(rng, content, TOKENS)[:MAX_PAGE]


def check(content: bytes) -> None:
    """Raises AssertionError, or what the code under test raises."""
    target = _target()
    cold, warm = parse(content, NOW, target), parse(content, NOW, target)
    assert _facts(cold) == _facts(warm), "warm is not cold"
    small = _target(max_series=SMALL_CACHE)
    for _ in range(2):
        parse(content, NOW, small)
    for record, rows in (("reading", cold.readings), ("holding", cold.holdings), ("source_read", cold.reads)):
        _check_rows(record, rows)
    _check_shares(cold.holdings)


def _target(**options: Any) -> MappedTarget:
    return MappedTarget(MAPPING, drop_labels=NUMBERS_IN_LABELS, **options)


def _check_rows(record: str, rows: Sequence[Any]) -> None:
    keys = [tuple(getattr(row, name) for name in RECORDS[record].key) for row in rows]
    assert len(set(keys)) == len(keys), f"a {record} twice"
    for column in dataclasses.fields(RECORDS[record].cls):
        low, high = column.metadata.get("low"), column.metadata.get("high")
        for value in (getattr(row, column.name) for row in rows):
            if isinstance(value, float):
                assert math.isfinite(value), f"{column.name} is {value}"
            if value is not None and low is not None:
                assert low <= value, f"{column.name} is {value}"
            if value is not None and high is not None:
                assert value <= high, f"{column.name} is {value}"
    assert to_table(record, rows).num_rows == len(rows)


def _check_shares(holdings: Sequence[Holding]) -> None:
    stated, left = defaultdict[Any, float](float), defaultdict[Any, float](float)
    for one in holdings:
        (stated if one.is_stated else left)[one.gpu_uuid, one.slice_id, one.ts] += one.share
    for key, share in left.items():
        assert share <= max(0.0, 1 - stated[key]) + 1e-9, f"{share} is more than what is left of {key}"


def _facts(observation: Observation) -> str:
    told = [event for event in observation.others.get("quality_event", ()) if event.kind != "renamed_metric"]
    return repr((observation.reads, observation.readings, observation.holdings, told))


if __name__ == "__main__":
    main("hami", make, check)
