"""Samples a second of remote write, decoded and made into rows, against the protobuf library's plain parse.

    python benchmarks/remote_write.py

A request is what a Prometheus sends of eight 8-GPU nodes: 2,048 series, one sample each, about 400 bytes a series. Ten
of them, as 80 nodes send every 15 s, are decoded one by one, and then assembled into readings and sightings together,
as the service does every 5 s. Warm: the series were written before, as in every request but the first. All figures
are of the same bytes in one run. Below 300,000 samples a second to rows, the profile is printed.
"""

from __future__ import annotations

import cProfile
import pstats
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.exposition_parse import FAMILIES, seconds
from collector.devices.assemble import Options, assemble
from collector.devices.subject import DeviceSeries
from collector.remote_write.decode import Decoded, Decoder
from collector.remote_write.messages import message_class
from collector.samples import Samples

NOW = datetime(2026, 3, 2, 10, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)
REQUESTS, NODES, GPUS = 10, 8, 8
WANTED = 300_000


def labels(family: str, node: int, gpu: int) -> dict[str, str]:
    return {
        "DCGM_FI_DRIVER_VERSION": "550.90.07",
        "Hostname": f"gpu-node-{node:04d}",
        "UUID": f"GPU-{node:04d}{gpu:04d}-0000-4000-8000-000000000000",
        "__name__": f"DCGM_FI_{family}",
        "container": "worker",
        "device": f"nvidia{gpu}",
        "gpu": str(gpu),
        "instance": f"10.0.0.{node}:9400",
        "job": "dcgm-exporter",
        "modelName": "NVIDIA H100 80GB HBM3",
        "namespace": f"team-{gpu}",
        "pci_bus_id": f"00000000:{gpu}8:00.0",
        "pod": f"train-llm-{node}-worker-{gpu}-abcde",
    }


def request(number: int) -> bytes:
    made = message_class("Request1")()
    for family in FAMILIES:
        for node in range(number * NODES, (number + 1) * NODES):
            for gpu in range(GPUS):
                series = made.timeseries.add()
                for name, value in labels(family, node, gpu).items():
                    series.labels.add(name=name.encode(), value=value.encode())
                series.samples.add(value=gpu % 4 / 10, timestamp=NOW_MS + node)
    return bytes(made.SerializeToString())


def decode(decoder: Decoder, requests: list[bytes]) -> list[Decoded]:
    return [decoder.version_1(raw, NOW_MS) for raw in requests]


def rows(decoded: list[Decoded]) -> int:
    devices: list[DeviceSeries] = []
    series = []
    for one in decoded:
        series.append(one.samples.series + len(devices))
        devices += [series.device for series in one.samples.meanings if series.device is not None]
    columns = (np.concatenate([getattr(one.samples, name) for one in decoded]) for name in ("values", "times_ms"))
    assembled = assemble(Samples(devices, np.concatenate(series), *columns), Options(now=NOW, source="remote_write"))
    return int(assembled.readings.num_rows)


def main() -> None:
    requests = [request(number) for number in range(REQUESTS)]
    decoder, kind = Decoder(), message_class("Request1")
    count = sum(len(one.samples) for one in decode(decoder, requests))
    assert rows(decode(decoder, requests)) == REQUESTS * NODES * GPUS
    measured = {
        "protobuf library, parse alone": seconds(lambda: [kind.FromString(raw) for raw in requests], 3),
        "decode, cold": seconds(lambda: decode(Decoder(), requests), 1),
        "decode, warm": seconds(lambda: decode(decoder, requests), 3),
        "decode and assemble, warm": seconds(lambda: rows(decode(decoder, requests)), 3),
    }
    reference = measured["protobuf library, parse alone"]
    print(f"{count} samples in {REQUESTS} requests of {len(requests[0])} bytes")
    for name, spent in measured.items():
        print(f"{name:30} {count / spent:12,.0f} samples/s {reference / spent:8.2f} x")
    if count / measured["decode and assemble, warm"] < WANTED:
        with cProfile.Profile() as profile:
            rows(decode(decoder, requests))
        pstats.Stats(profile).sort_stats("tottime").print_stats(20)


if __name__ == "__main__":
    main()
