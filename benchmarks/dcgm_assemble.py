"""Samples a second from DCGM samples to whole rows, against a bare group-by of the same samples in one run.

    python benchmarks/dcgm_assemble.py [--gpus 10000] [--instants 1 5]

20 metrics of every GPU, one pod on each, at some instants. Each node of eight GPUs is scraped at its own millisecond,
as a metrics server does it. "Bare" finds the largest value of each metric of each GPU and instant with numpy, and
knows neither units nor pods nor MIG: what sorting alone costs.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.dcgm.labels import SeriesReader
from collector.devices.assemble import Options, assemble
from collector.devices.roster import Roster
from collector.devices.subject import DeviceSeries
from collector.exposition import Series
from collector.samples import Samples

NOW = datetime(2026, 3, 2, tzinfo=UTC)
METRICS = (
    "DEV_SM_CLOCK",
    "DEV_MEM_CLOCK",
    "DEV_MEMORY_TEMP",
    "DEV_GPU_TEMP",
    "DEV_POWER_USAGE",
    "DEV_TOTAL_ENERGY_CONSUMPTION",
    "DEV_PCIE_REPLAY_COUNTER",
    "DEV_GPU_UTIL",
    "DEV_MEM_COPY_UTIL",
    "DEV_ENC_UTIL",
    "DEV_DEC_UTIL",
    "DEV_XID_ERRORS",
    "DEV_FB_FREE",
    "DEV_FB_USED",
    "DEV_FB_RESERVED",
    "DEV_NVLINK_BANDWIDTH_TOTAL",
    "PROF_GR_ENGINE_ACTIVE",
    "PROF_SM_ACTIVE",
    "PROF_PIPE_TENSOR_ACTIVE",
    "PROF_DRAM_ACTIVE",
)
GPUS_A_NODE = 8


def series_of(gpus: int) -> tuple[SeriesReader, Roster]:
    """Every series of the fleet, in an order of its own."""
    reader, found = SeriesReader(), []
    for gpu in range(gpus):
        labels = {
            "UUID": f"GPU-{gpu:08d}-0000-4000-8000-000000000000",
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": f"gpu-node-{gpu // GPUS_A_NODE:05d}",
            "exported_namespace": f"team-{gpu % 50}",
            "exported_pod": f"train-{gpu}",
        }
        found += [reader.read(Series(f"DCGM_FI_{metric}", labels)) for metric in METRICS]
    known = [series for series in found if series is not None]
    random.Random(1).shuffle(known)
    roster = Roster()
    for one in known:
        roster.append(one)
    return reader, roster


def samples_of(series: Roster, instants: int) -> Samples[DeviceSeries]:
    """One value of each series at each instant."""
    count = len(series)
    offsets = np.array([int(one.subject.node[-5:]) if one.subject.node else 0 for one in series])
    start = int(NOW.timestamp() * 1000)
    times = [start + 15_000 * instant + offsets for instant in range(instants)]
    return Samples(
        series,
        np.tile(np.arange(count), instants),
        np.random.default_rng(1).random(count * instants),
        np.concatenate(times),
    )


def bare(samples: Samples[DeviceSeries], gpu_of: np.ndarray, metric_of: np.ndarray) -> np.ndarray:
    """The largest value of each metric of each GPU and instant."""
    gpu, metric = gpu_of[samples.series], metric_of[samples.series]
    order = np.lexsort((metric, samples.times_ms, gpu))
    is_same = np.ones(len(order) - 1, np.bool_)
    for column in (gpu, metric, samples.times_ms):
        ordered = column[order]
        is_same &= ordered[1:] == ordered[:-1]
    return np.maximum.reduceat(samples.values[order], np.flatnonzero(np.append(True, ~is_same)))


def seconds(work: Callable[[], object]) -> float:
    """Median of five, of this process's own time: other work on the machine does not count."""
    spent = []
    for _ in range(5):
        started = time.process_time()
        work()
        spent.append(time.process_time() - started)
    return statistics.median(spent)


def compare(samples: Samples[DeviceSeries], options: Options) -> None:
    """Measure one set of samples and print it."""
    series = samples.meanings
    gpu_of = np.array([int(one.subject.gpu_uuid[4:12]) for one in series])
    metric_of = np.array([one.field.index if one.field else 0 for one in series])
    rows = assemble(samples, options).readings.num_rows
    ours = seconds(lambda: assemble(samples, options))
    reference = seconds(lambda: bare(samples, gpu_of, metric_of))
    print(
        f"{len(samples):9,} samples to {rows:6,} rows: bare {len(samples) / reference:10,.0f} samples/s, "
        f"assembled {len(samples) / ours:10,.0f} samples/s, {ours / reference:5.2f} x the time"
    )


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--gpus", type=int, default=10_000)
    arguments.add_argument("--instants", type=int, nargs="+", default=[1, 5])
    chosen = arguments.parse_args()
    reader, roster = series_of(chosen.gpus)
    options = Options(now=NOW + timedelta(minutes=1), source="benchmark", holder=reader.holder)
    for instants in chosen.instants:
        compare(samples_of(roster, instants), options)


if __name__ == "__main__":
    main()
