"""Samples a second of the collector's parser against prometheus_client's, on one page in one run.

    python benchmarks/exposition_parse.py

The pages are those of an eight-GPU node: 20 to 32 metric families, eight series each, 200 to 300 bytes a line. "warm"
is a target that was read before, as every scrape but the first one is; "to readings" is the whole way to the records.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from collector.exposition import ExpositionParser
from collector.sources.dcgm import Target, parse
from gpuledger.simulate import FleetSpec, simulate

FIXTURE = Path(__file__).resolve().parents[2] / "shared/fixtures/exposition/dcgm_8gpu_h100_generated.prom"

FAMILIES = (
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
    "DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DEV_CORRECTABLE_REMAPPED_ROWS",
    "DEV_ROW_REMAP_FAILURE",
    "DEV_NVLINK_BANDWIDTH_TOTAL",
    "DEV_VGPU_LICENSE_STATUS",
    "PROF_GR_ENGINE_ACTIVE",
    "PROF_PIPE_TENSOR_ACTIVE",
    "PROF_DRAM_ACTIVE",
    "PROF_PCIE_TX_BYTES",
    "PROF_PCIE_RX_BYTES",
    "PROF_SM_ACTIVE",
    "PROF_SM_OCCUPANCY",
    "PROF_PIPE_FP64_ACTIVE",
    "PROF_PIPE_FP32_ACTIVE",
    "PROF_PIPE_FP16_ACTIVE",
    "PROF_NVLINK_TX_BYTES",
    "PROF_NVLINK_RX_BYTES",
)
SERIES = (
    'gpu="{gpu}",UUID="GPU-{gpu:08d}-0000-4000-8000-000000000000",pci_bus_id="00000000:{gpu}8:00.0",'
    'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-0001",'
    'DCGM_FI_DRIVER_VERSION="550.90.07",container="worker",namespace="team-{gpu}",pod="train-llm-0-worker-{gpu}-abcde"'
)


def page() -> bytes:
    lines = []
    for family in FAMILIES:
        name = f"DCGM_FI_{family}"
        lines += [f"# HELP {name} Something measured.", f"# TYPE {name} gauge"]
        lines += [f"{name}{{{SERIES.format(gpu=gpu)}}} {(gpu + 1) / 10:.6f}" for gpu in range(8)]
    return ("\n".join(lines) + "\n").encode()


def seconds(work: Callable[[], object], repeats: int) -> float:
    """Median of five rounds, each of `repeats` calls, for one call."""
    rounds = []
    for _ in range(5):
        started = time.perf_counter()
        for _ in range(repeats):
            work()
        rounds.append((time.perf_counter() - started) / repeats)
    return statistics.median(rounds)


def pages() -> dict[str, bytes]:
    """An eight-GPU page as an exporter writes it, the simulator's, and, where the fixtures lie, theirs."""
    simulation = simulate(FleetSpec(nodes=1, days=1))
    spec = simulation.spec
    found = {
        "written here": page(),
        "simulator": simulation.node_page(simulation.fleet.hosts[0].name, spec.start_at + timedelta(hours=12)),
    }
    if FIXTURE.exists():
        found[FIXTURE.name] = FIXTURE.read_bytes()
    return found


def compare(name: str, content: bytes) -> None:
    """One table."""
    text, now = content.decode(), datetime(2026, 3, 2, tzinfo=UTC)
    warm: ExpositionParser[object] = ExpositionParser(lambda series: series)
    target = Target()
    samples = len(warm.parse(content).samples)
    assert samples == sum(not line.startswith(b"#") for line in content.splitlines())
    reference = seconds(lambda: [list(f.samples) for f in text_string_to_metric_families(text)], 3)
    measured = {
        "prometheus_client.parser": reference,
        "ours, cold": seconds(lambda: ExpositionParser(lambda series: series).parse(content), 10),
        "ours, warm": seconds(lambda: warm.parse(content), 100),
        "ours, warm, as columns": seconds(lambda: warm.parse_columns(content), 100),
        "ours, warm, to readings": seconds(lambda: parse(content, now, target), 30),
    }
    print(f"{name}: {samples} samples, {len(content)} bytes a page")
    for what, spent in measured.items():
        print(f"{what:26} {1e3 * spent:8.3f} ms/page {samples / spent:12,.0f} samples/s {reference / spent:8.1f} x")


def main() -> None:
    for name, content in pages().items():
        compare(name, content)


if __name__ == "__main__":
    main()
