"""One scrape cycle of many large targets, and one target of 400,000 lines: time, memory, and prometheus_client beside.

    python benchmarks/scrape_cycle.py

A target is 250 cards with 32 metrics each (8,000 lines, about 190 bytes a line). "cold" is the first cycle after a
start, "warm" every other one; a cycle has 15 s. prometheus_client reads one target of each kind in the same run and is
multiplied up. All on one core, one target after the other.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.exposition_parse import FAMILIES
from collector.exposition import ExpositionParser, Series

TARGETS = 50
CARDS = 250
LARGE_CARDS = 12_500
SERIES = (
    'gpu="{gpu}",UUID="GPU-{target:04d}{card:05d}-0000-4000-8000-00000000",device="nvidia{gpu}",'
    'modelName="NVIDIA H100 80GB HBM3",Hostname="node-{node:05d}",pod="train-{card:05d}"'
)


def page(target: int, cards: int) -> bytes:
    """32 metrics of `cards` cards."""
    labels = [
        SERIES.format(gpu=card % 8, target=target, card=card, node=target * 1000 + card // 8) for card in range(cards)
    ]
    lines = []
    for family in FAMILIES:
        lines.append(f"# TYPE DCGM_FI_{family} gauge")
        lines += [f"DCGM_FI_{family}{{{text}}} {number % 97}.5" for number, text in enumerate(labels)]
    return ("\n".join(lines) + "\n").encode()


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def megabytes() -> float:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def reference(content: bytes) -> float:
    """Seconds that prometheus_client needs for a page."""
    text = content.decode()
    return seconds(lambda: sum(len(family.samples) for family in text_string_to_metric_families(text)))


def report(what: str, spent: float, theirs: float, lines: int) -> None:
    """One row."""
    print(f"{what:34} {spent:8.2f} s {lines / spent:12,.0f} lines/s {theirs / spent:8.1f} x   {megabytes():6.0f} MB")


def many() -> None:
    """50 targets of 8,000 lines."""
    pages = [page(target, CARDS) for target in range(TARGETS)]
    parsers: list[ExpositionParser[Series]] = [ExpositionParser(lambda series: series) for _ in pages]
    lines = TARGETS * CARDS * len(FAMILIES)

    def cycle() -> None:
        for parser, content in zip(parsers, pages, strict=True):
            assert len(parser.parse_columns(content).samples) == CARDS * len(FAMILIES)

    cold, warm = seconds(cycle), seconds(cycle)
    held = megabytes()
    theirs = TARGETS * reference(pages[0])
    print(f"{TARGETS} targets of {CARDS * len(FAMILIES)} lines, {held:.0f} MB held before the reference read")
    report("prometheus_client.parser", theirs, theirs, lines)
    report("ours, cold", cold, theirs, lines)
    report("ours, warm", warm, theirs, lines)


def one() -> None:
    """One target of 400,000 lines, eight times its cap."""
    content = page(0, LARGE_CARDS)
    parser: ExpositionParser[Series] = ExpositionParser(lambda series: series)
    lines = LARGE_CARDS * len(FAMILIES)
    first, second = (seconds(lambda: parser.parse_columns(content)) for _ in range(2))
    held = megabytes()
    theirs = reference(content)
    print(f"one target of {lines} lines, {len(content) / 2**20:.0f} MiB, {held:.0f} MB held before the reference read")
    report("prometheus_client.parser", theirs, theirs, lines)
    report("ours, first page", first, theirs, lines)
    report("ours, every other page", second, theirs, lines)


def main() -> None:
    """Both."""
    many()
    one()


if __name__ == "__main__":
    main()
