"""Mutated pages through the shipped mappings, two for each page, and mutated mapping files through their reader.

    python fuzz/mapping.py --seconds 60 [--seed 1]

No exception, no hang. Every reading is unique by card, slice and instant, inside its columns' bounds, and has a node; a
holding is a share of one of the page's cards. A page reads the same warm as cold. A wrong mapping file is refused by
name.
"""

from __future__ import annotations

import dataclasses
import math
import random
import sys
import tempfile
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.bounds import BOUNDS
from collector.devices.page import parse
from collector.mapping.file import MappingFile, load, shipped
from collector.mapping.source import MappedTarget
from fuzz._harness import main, mutated
from gpuledger.errors import ConfigError
from gpuledger.model import Reading, to_table
from gpuledger.ports import Observation

ROOT = Path(__file__).resolve().parents[1]
FILES = ROOT / "collector" / "mapping" / "files"
FIXTURES = ROOT.parent / "shared" / "fixtures" / "exposition"
RECORDINGS = ROOT / "tests" / "collector" / "recordings"
PAGES = ("amd_*.prom", "npu_*.prom", "hami_*.prom", "mlu_*.prom", "dcu_*.prom", "mx_*.prom", "ray_*.prom")
NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
MAX_SIZE = 30_000
MAPPING, PAGE = b"# mapping\n", b"# page\n"
"""How an input begins says what it is."""
COLUMNS = [column.name for column in dataclasses.fields(Reading) if column.name in BOUNDS]
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
        b"\x00",
        b"\xff",
        "é".encode(),
        b"[[metric]]\n",
        b"[labels]\n",
    ),
    *(b"NaN", b"+Inf", b"-1", b"1e999", b"0", b"65535", b"4294967295", b"18446744073709551615", b"9" * 40, b"-275"),
    *(
        b'gpu_uuid="',
        b'gpu_partition_id="1"',
        b'gpu_compute_partition_type="cpx"',
        b'xcc_index="3"',
        b'id="0"',
        b'vdie_id="',
    ),
    *(b'exported_pod="', b'pod="', b'serial_number=""', b'GpuIndex="0"', b"amd_", b" 1772445600000", b"names = []\n"),
    *(b'column = "power_watts"\n', b'unit = "MiB"\n', b'sum_over = "x"\n', b"least = 1e999\n", b'prefixes = [""]\n'),
)


@cache
def pages() -> tuple[bytes, ...]:
    """Pages to begin with: ours, and the fixtures where they lie."""
    paths = [path for folder in (RECORDINGS, FIXTURES) for glob in PAGES for path in sorted(folder.glob(glob))]
    return tuple(path.read_bytes()[:MAX_SIZE] for path in paths)


@cache
def mappings() -> tuple[bytes, ...]:
    """The shipped mapping files."""
    return tuple((FILES / f"{name}.toml").read_bytes() for name in shipped())


@cache
def _loaded(name: str) -> MappingFile:
    return load(name)


def make(rng: random.Random) -> bytes:
    """One mutated page, now and then two in one, or one mutated mapping file."""
    if rng.random() < 0.2:
        return MAPPING + mutated(rng, rng.choice(mappings()), TOKENS)
    content = rng.choice(pages())
    if rng.random() < 0.2:
        content = content[: rng.randrange(len(content) + 1)] + rng.choice(pages())
    return PAGE + mutated(rng, content, TOKENS)[:MAX_SIZE]


def check(content: bytes) -> None:
    """Raises AssertionError, or what the code under test raises."""
    if content.startswith(MAPPING):
        _check_mapping(content.removeprefix(MAPPING))
        return
    own = zlib.crc32(content)
    for name in (shipped()[own % len(shipped())], shipped()[own // 16 % len(shipped())]):
        mapping = _loaded(name)
        target = MappedTarget(mapping, fallback_node="n1", interval_seconds=15.0)
        parse(content, NOW, target)  # faults and old names are told once
        cold, warm = parse(content, NOW, target), parse(content, NOW, target)
        assert repr(cold) == repr(warm), f"{name}: warm is not cold"
        _check(cold)
        _check(parse(content, NOW, MappedTarget(mapping, node="n2", interval_seconds=15.0, max_series=7)))


def _check_mapping(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.toml"
        path.write_bytes(content)
        try:
            mapping = load(path)
        except ConfigError as error:
            if str(path) not in str(error):
                raise
            return
    for page in pages()[:: max(1, len(pages()) // 3)]:
        _check(parse(page, NOW, MappedTarget(mapping, fallback_node="n1", interval_seconds=15.0)))


def _check(seen: Observation) -> None:
    keys = [(row.gpu_uuid, row.slice_id, row.ts) for row in seen.readings]
    assert len(set(keys)) == len(keys), "a reading twice"
    assert seen.reads, "a page without a read"
    for row in seen.readings:
        assert row.gpu_uuid, "a reading without a card"
        assert row.node, "a reading without a node"
        _check_bounds(row)
    cards = {(row.gpu_uuid, row.slice_id) for row in seen.readings}
    for held in seen.holdings:
        assert (held.gpu_uuid, held.slice_id) in cards, "a holding of no card"
        assert 0 < held.share <= 1, f"a share of {held.share}"
    rows: dict[str, Sequence[object]] = {"reading": seen.readings, "holding": seen.holdings, **seen.others}
    for record, of in rows.items():
        assert to_table(record, of).num_rows == len(of)


def _check_bounds(row: Reading) -> None:
    for name in COLUMNS:
        value = getattr(row, name)
        if value is not None:
            low, high = BOUNDS[name]
            assert math.isfinite(value), f"{name} is {value}"
            assert low <= value <= high, f"{name} is {value}"


if __name__ == "__main__":
    main("mapping", make, check)
