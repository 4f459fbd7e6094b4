"""Who an exporter's pages show on each card and slice, as records of the back-fill."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gpuledger.model import arrow_schema
from gpuledger.simulate.fleet import Host
from gpuledger.simulate.pods import CONTAINER, PodRun
from gpuledger.simulate.script import Script
from gpuledger.simulate.telemetry import Block


class SightingTables:
    """Turns blocks into tables of record `holding`, as a collector that scraped every page would have sent them."""

    def __init__(self, script: Script, runs: list[PodRun]) -> None:
        fleet = script.fleet
        self._interval = float(script.spec.interval_seconds)
        self._start_us = int(script.spec.start_at.timestamp()) * 1_000_000
        table = np.array(
            [(device, run.start * 60, run.shown_until * 60, n) for n, run in enumerate(runs) for device in run.devices],
            dtype=np.int64,
        ).reshape(-1, 4)
        self._device, self._from, self._until, self._run = table.T
        self._weight = np.array([1.0 if part.slice is None else part.slice.share for part in fleet.devices])
        self._card = np.array([part.card for part in fleet.devices])
        self._uuids = np.array([card.gpu_uuid for card in fleet.cards])
        self._slices = np.array(["" if part.slice is None else part.slice.slice_id for part in fleet.devices])
        self._nodes = np.array([host.name for host in fleet.hosts])
        self._host = np.array([run.host for run in runs], dtype=np.int64)
        sharing = np.array([bool(host.hardware.sharing) for host in fleet.hosts])
        self._is_given = sharing[self._host]
        self._source = np.array([_source(host) for host in fleet.hosts])
        self._share = np.array([run.share for run in runs])
        self._names = np.array([run.name for run in runs], dtype=object)
        self._namespaces = np.array([run.namespace for run in runs], dtype=object)

    def holdings(self, block: Block) -> pa.Table:
        """The pods seen in `block`, ordered by time, then device, then pod.

        A pod's share is that of its device, divided among those that are shown there; HAMi says the share itself.
        """
        tick, device, run = self._seen(block)
        column = device - block.devices.start
        is_seen = block.is_shown[tick, column] & ~block.is_blank[tick, column]
        tick, device, run, column = tick[is_seen], device[is_seen], run[is_seen], column[is_seen]
        order = np.lexsort([run, device, tick])
        tick, device, run, column = tick[order], device[order], run[order], column[order]
        times = pa.array(self._start_us + block.seconds[tick] * 1_000_000, pa.int64())
        columns = {
            "ts": times.cast(pa.timestamp("us", tz="UTC")),
            "node": pa.array(self._nodes[self._host[run]]),
            "gpu_uuid": pa.array(self._uuids[self._card[device]]),
            "slice_id": pa.array(self._slices[device]),
            "namespace": pa.array(self._namespaces[run], pa.string()),
            "pod": pa.array(self._names[run], pa.string()),
            "container": pa.array([CONTAINER] * len(tick), pa.string()),
            "source": pa.array(self._source[self._host[run]], pa.string()),
            "share": pa.array(
                np.where(self._is_given[run], self._share[run], self._weight[device] / block.holder_count[tick, column])
            ),
            "interval_seconds": pa.array(np.full(len(tick), self._interval)),
            "is_stated": pa.array(self._is_given[run]),
        }
        return pa.table(columns, schema=arrow_schema("holding"))

    def _seen(self, block: Block) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(tick, device, pod) for each tick at which a pod's labels would be shown."""
        near = (self._from <= block.seconds[-1]) & (self._until > block.seconds[0])
        near &= (self._device >= block.devices.start) & (self._device < block.devices.stop)
        begins = np.searchsorted(block.seconds, self._from[near])
        counts = np.searchsorted(block.seconds, self._until[near]) - begins
        within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        ticks = np.repeat(begins, counts) + within
        return ticks, np.repeat(self._device[near], counts), np.repeat(self._run[near], counts)


def _source(host: Host) -> str:
    """Where the shares on the cards of `host` are read."""
    return "hami_scheduler" if host.hardware.sharing == "hami" else host.hardware.source
