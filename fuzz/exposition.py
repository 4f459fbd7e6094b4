"""Mutated pages through the exposition parser and the DCGM source.

    python fuzz/exposition.py --seconds 60 [--seed 1]

No exception, no hang, bounded memory. Every line is a sample, refused, or a comment or blank. A page reads the same
warm as cold, and as columns. Where prometheus_client accepts a page, names, labels, values and times are equal.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.exposition import ExpositionParser, Series
from collector.sources.dcgm import Target, parse
from fuzz._harness import main, mutated

FIXTURES = Path(__file__).resolve().parents[2] / "shared" / "fixtures" / "exposition"
NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
MAX_PAGE = 60_000
SMALL_CACHE = 7

CARDS = b"""# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="n1"} 98
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2",modelName="NVIDIA H100",Hostname="n1",namespace="ml",pod="train-0"} 0
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-1",modelName="NVIDIA A100",GPU_I_PROFILE="3g.40gb",GPU_I_ID="2"} 0.5
DCGM_FI_PROF_GR_ENGINE_ACTIVE{UUID="GPU-1",GPU_I_ID="2",exported_namespace="ml",exported_pod="nb-0",pod="x"} 0.5
DCGM_FI_DEV_POWER_USAGE{gpu="3",UUID="GPU-4",modelName="Tesla T4",vgpu="1",pod="p",namespace="q"} 68
DCGM_FI_DEV_FB_USED{gpu="3",UUID="GPU-4",modelName="Tesla T4",Hostname="n1"} 9223372036854775794
"""
SEEDS = (
    b'# HELP up Whether it is.\n# TYPE up gauge\nup 1\nup{a="b"} 0 1772445600000\n',
    CARDS,
    b'a{x="C:\\\\jobs\\\\x",y="say \\"hi\\"",z="line1\\nline2",} 1.5e-3\r\n{"a.b","x.y"="1"} NaN\r\n',
    'a{u="训练-🚀",} 2\n'.encode(),
    b'a 1 1772445600.25\nb_total{le="+Inf"} 2 # {trace_id="x"} 0.5 1.5\n# EOF\n',
    b'a{x="0"} +Inf\na{x="1"} -Inf\na{x="2"} 0x1p3\na{x="3"} 1_000\na{x="0"} 7\n\n   \n#\n',
)
TOKENS = (
    *(
        b"{",
        b"}",
        b'"',
        b",",
        b"=",
        b" ",
        b"\t",
        b"\n",
        b"\r\n",
        b"\\",
        b"\\n",
        b'\\"',
        b"#",
        b"# EOF\n",
        b"_",
        b"\x00",
        b"\xff",
    ),
    *(
        b'UUID="',
        b'GPU_I_ID="',
        b'pod="',
        b'exported_pod="',
        b'vgpu="',
        b"NaN",
        b"+Inf",
        b"-Inf",
        b"1e999",
        b"-0",
        b"1_0",
    ),
    *(
        b" 1772445600000",
        b" 9223372036854775807",
        b" 99999999999999999999",
        b"9" * 400,
        b"1e-400",
        b"0x10",
        b"infinity",
    ),
    *("é".encode(), "\u2028".encode(), "\u0661".encode(), b'a{x="' + b"y" * 5000 + b'"} 1\n', b"# TYPE a counter\n"),
)


@cache
def corpus() -> tuple[bytes, ...]:
    """Pages to begin with: ours, and the fixtures where they lie."""
    return (*SEEDS, *(path.read_bytes()[:MAX_PAGE] for path in sorted(FIXTURES.glob("*.prom"))))


def make(rng: random.Random) -> bytes:
    """One mutated page, now and then two in one."""
    content = rng.choice(corpus()) if rng.random() < 0.3 else rng.choice(SEEDS)
    if rng.random() < 0.2:
        content = content[: rng.randrange(len(content) + 1)] + rng.choice(SEEDS)
    return mutated(rng, content, TOKENS)[:MAX_PAGE]


def check(content: bytes) -> None:
    """Raises AssertionError, or what the code under test raises."""
    _read_twice(content)
    _check_small(content)
    _compare(content)
    target = Target(max_series=SMALL_CACHE)
    for _ in range(2):
        seen = parse(content, NOW, target)
        assert seen.reads, "a page without a read"
        assert len({(r.gpu_uuid, r.slice_id, r.ts) for r in seen.readings}) == len(seen.readings), "a reading twice"


def _silent(content: bytes) -> int:
    """Lines that are comments or blank."""
    lines = (line.strip(b" \t\r") for line in content.split(b"\n"))
    return sum(not line or line.startswith(b"#") for line in lines)


def _read_twice(content: bytes) -> None:
    reader: ExpositionParser[Series] = ExpositionParser(lambda series: series)
    cold, warm, columns = reader.parse(content), reader.parse(content), reader.parse_columns(content)
    lines = len(content.split(b"\n"))
    assert len(cold.samples) + cold.skipped_lines + _silent(content) == lines, "a line is not accounted for"
    assert repr(cold) == repr(warm), "warm is not cold"
    assert len(columns.samples) == len(cold.samples), "columns are not rows"
    assert columns.refused == cold.refused, "columns are not rows"


def _check_small(content: bytes) -> None:
    """A cache that is too small changes no value."""
    reader: ExpositionParser[Series] = ExpositionParser(
        lambda series: series, max_series=SMALL_CACHE, spare_labels=["pod"]
    )
    for _ in range(3):
        read = reader.parse(content)
        assert len(read.samples) + read.skipped_lines + _silent(content) == len(content.split(b"\n")), (
            "lines, small cache"
        )
        assert reader.remembered <= SMALL_CACHE, "more remembered than allowed"


Sample = tuple[str, tuple[tuple[str, str], ...], str, float | None]


def _compare(content: bytes) -> None:
    """Against prometheus_client, where it accepts the page and the two are meant to agree."""
    theirs = _theirs(content)
    ours = ExpositionParser(lambda series: series).parse(content, in_seconds=False) if theirs is not None else None
    if ours is None or set(ours.refused) - {"duplicate series"}:
        return  # it is laxer in places: a fraction of a millisecond, text after a timestamp
    own = [
        _sample(series.name, series.labels, value, None if at is None else at / 1000)
        for series, value, at in ours.samples
    ]
    assert own == theirs, f"prometheus_client reads it otherwise: {own} {theirs}"


def _theirs(content: bytes) -> list[Sample] | None:
    try:
        families = list(text_string_to_metric_families(content.decode()))
    except Exception:  # whatever it raises: it does not accept the page
        return None
    first: dict[tuple[object, ...], Sample] = {}
    for family in families:
        for sample in family.samples:
            at = None if sample.timestamp is None else float(sample.timestamp)
            read = _sample(sample.name, sample.labels, float(str(sample.value)), at)
            first.setdefault((sample.name, read[1], at), read)
    return list(first.values())


def _sample(name: str, labels: Mapping[str, str], value: float, at: float | None) -> Sample:
    # Its whole numbers have no negative zero.
    shown = "NaN" if math.isnan(value) else repr(float(value) + 0.0)
    return name.removesuffix("_total"), tuple(sorted(labels.items())), shown, at


if __name__ == "__main__":
    main("exposition", make, check)
