"""How fast an answer of a range query becomes samples, and readings, beside what a JSON parser alone takes.

    python benchmarks/backfill_decode.py [--cards 512] [--points 720] [--rounds 3]

Prints samples for each second of processor time of `json.loads` of the same bytes, of decoding to columns, and of
decoding and assembling into tables, all in one run, and their ratios.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.dcgm.labels import SeriesReader
from collector.devices.assemble import Options, assemble
from collector.prometheus.answer import Answer, parse
from collector.prometheus.columns import SeriesMemory

METRICS = ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_FB_USED")
BEGIN = 1_772_442_000


def answer_bytes(metric: str, cards: int, points: int) -> bytes:
    rng = random.Random(metric)
    series = []
    for card in range(cards):
        labels = {
            "Hostname": f"node-{card // 8}", "UUID": f"GPU-{card:08x}-aaaa-bbbb-cccc-0123456789ab",
            "device": f"nvidia{card % 8}", "gpu": str(card % 8), "instance": f"10.0.0.{card // 8}:9400",
            "job": "dcgm-exporter", "modelName": "NVIDIA H100 80GB HBM3", "exported_namespace": "train",
            "exported_pod": f"job-{card // 8}", "exported_container": "main",
        }  # fmt: skip
        values = [[BEGIN + 60 * point, f"{rng.random() * 90:.6g}"] for point in range(points)]
        series.append({"metric": labels, "values": values})
    document = {"status": "success", "data": {"resultType": "matrix", "result": series}}
    return json.dumps(document, separators=(",", ":")).encode()


def seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cards", type=int, default=512)
    parser.add_argument("--points", type=int, default=720)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    bodies = {metric: answer_bytes(metric, given.cards, given.points) for metric in METRICS}
    samples = len(METRICS) * given.cards * given.points
    reader = SeriesReader()
    memory = SeriesMemory(reader.read)
    options = Options(
        now=datetime(2026, 3, 3, tzinfo=UTC), source="prometheus", interval_seconds=60.0, holder=reader.holder
    )

    def decode() -> list[tuple[str, Answer]]:
        return [(metric, parse(body)) for metric, body in bodies.items()]

    def whole() -> None:
        made = assemble(memory.samples(decode(), 60_000), options)
        assert made.readings.num_rows == given.cards * given.points

    ways = {"json.loads": lambda: [json.loads(body) for body in bodies.values()], "decode": decode, "assemble": whole}
    best = {name: min(seconds(work) for _ in range(given.rounds)) for name, work in ways.items()}
    print(f"{samples:,} samples, {sum(map(len, bodies.values())) / samples:.1f} bytes each")
    for name, text in (
        ("json.loads", "json.loads alone"),
        ("decode", "decoded to columns"),
        ("assemble", "decoded and assembled into tables"),
    ):
        print(f"{text:36} {samples / best[name] / 1e6:6.2f} M samples/s  {best['json.loads'] / best[name]:5.2f} x json")


if __name__ == "__main__":
    main()
