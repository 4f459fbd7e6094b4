"""Blocks as Arrow tables: what a collector that scraped every page would have sent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from gpuledger.model import QualityFlag, arrow_schema
from gpuledger.simulate.amd_columns import tell_amd
from gpuledger.simulate.npu_columns import tell_npus
from gpuledger.simulate.script import Script
from gpuledger.simulate.telemetry import FB_RESERVED_MIB, MILLIONTHS, Block

MIB = 2**20
DEVICE_WIDE = (
    ("power_watts", "power_mw", 1000),
    ("energy_joules", "energy_mj", 1000),
    ("gpu_temp_celsius", "temp_c", 1),
    ("memory_temp_celsius", "mem_temp_c", 1),
    ("pcie_tx_bytes_per_second", "pcie_tx", 1),
    ("pcie_rx_bytes_per_second", "pcie_rx", 1),
)
HAMI_TELLS = ("power_watts", "gpu_temp_celsius")
"""Those that HAMi's monitor shows, too."""
PROFILED = (
    ("sm_active_ratio", "sm_ppm"),
    ("gr_engine_active_ratio", "gr_ppm"),
    ("tensor_active_ratio", "tensor_ppm"),
    ("dram_active_ratio", "dram_ppm"),
)


class ReadingTables:
    """Turns blocks into tables of records `reading` and `source_read`."""

    def __init__(self, script: Script) -> None:
        self.script = script
        fleet = script.fleet
        self._start_us = int(script.spec.start_at.timestamp()) * 1_000_000
        self._names = [host.name for host in fleet.hosts]
        self._uuids = [card.gpu_uuid for card in fleet.cards]
        hosts = [fleet.host_of(device.card) for device in fleet.devices]
        self._host = np.array([host.index for host in hosts])
        self._card = np.array([device.card for device in fleet.devices])
        self._models = [host.hardware.model for host in fleet.hosts]
        self._slices = ["", *sorted({d.slice.slice_id for d in fleet.devices if d.slice})]
        self._slice = np.array([self._slices.index(d.slice.slice_id if d.slice else "") for d in fleet.devices])
        self._profiles = ["", *sorted({d.slice.profile for d in fleet.devices if d.slice})]
        self._profile = np.array([self._profiles.index(d.slice.profile if d.slice else "") for d in fleet.devices])
        self._fb_mib = np.array(
            [
                d.slice.fb_total_mib if d.slice else h.hardware.fb_total_mib
                for d, h in zip(fleet.devices, hosts, strict=True)
            ]
        )
        self._mem_hz = np.array([host.hardware.mem_clock_mhz * 1e6 for host in hosts])
        self._source = [host.hardware.source for host in fleet.hosts]
        self._shows_profiling = np.array([host.hardware.shows_profiling for host in hosts])
        self._has_hbm = np.array([host.hardware.has_hbm for host in hosts])
        vendors = np.array([host.hardware.facts.vendor for host in hosts])
        self._is_npu, self._is_nvidia, self._is_amd = (vendors == name for name in ("ascend", "nvidia", "amd"))
        self._is_hamis = np.array([host.hardware.sharing == "hami" for host in hosts])
        shapes = (phase.shape for job in script.jobs for hold in job.holds for phase in hold.phases)
        self._tells_throttle = any(shape.throttle for shape in shapes)
        self._tells_ecc = any(ailment.kind == "ecc_uncorrected" for ailment in script.ailments)
        self._is_slice = np.array([device.slice is not None for device in fleet.devices])
        self._is_parted = np.array([bool(fleet.cards[d.card].slices) and d.slice is None for d in fleet.devices])

    def readings(self, block: Block) -> pa.Table:
        """The readings of `block`, ordered by time, then device."""
        tick, column = np.nonzero(block.is_shown)
        device = column + block.devices.start
        values = {name: array[tick, column] for name, array in block.values.items()}
        times = self._times(block.seconds[tick])
        is_slice, is_npu = self._is_slice[device], self._is_npu[device]
        is_hamis = self._is_hamis[device]
        is_parted, is_foreign = self._is_parted[device], ~self._is_nvidia[device] | is_hamis
        is_unlike = is_slice | is_parted | is_npu
        contradicted = block.is_contradicted[tick, column] & (self._is_nvidia | self._shows_profiling)[device]
        flags = contradicted * QualityFlag.PROFILING_CONTRADICTED
        flags |= ((block.holder_count[tick, column] > 1) & ~is_hamis) * QualityFlag.DUPLICATE_COPIES
        data: dict[str, pa.Array] = {
            "ts": times,
            "node": _text(self._names, self._host[device]),
            "gpu_uuid": _text(self._uuids, self._card[device]),
            "slice_id": _text(self._slices, self._slice[device]),
            "source": _text(self._source, self._host[device]),
            "seen_at": times,
            "interval_seconds": pa.array(np.full(len(device), float(self.script.spec.interval_seconds))),
            "model": _text(self._models, self._host[device]),
            "slice_profile": _text(self._profiles, self._profile[device], ~is_slice),
            "gpu_util_ratio": pa.array(values["util_pct"] / 100, mask=is_unlike),
            "mem_copy_util_ratio": pa.array(values["copy_pct"] / 100, mask=is_unlike),
            "enc_util_ratio": pa.array(np.zeros(len(device)), mask=is_unlike | is_foreign),
            "dec_util_ratio": pa.array(np.zeros(len(device)), mask=is_unlike | is_foreign),
            "fb_used_bytes": pa.array(values["fb_used_mib"] * MIB, mask=is_parted),
            "fb_reserved_bytes": pa.array(np.full(len(device), FB_RESERVED_MIB * MIB), mask=is_parted | is_hamis),
            "fb_total_bytes": pa.array(self._fb_mib[device] * MIB, mask=is_parted | is_hamis),
            "sm_clock_hertz": pa.array(values["sm_mhz"] * 1e6, mask=is_slice | is_hamis),
            "mem_clock_hertz": pa.array(self._mem_hz[device], mask=is_slice | is_hamis),
            "xid_code": pa.array(values["xid"], mask=is_slice | is_foreign),
            "invalid_count": pa.array(np.zeros(len(device), dtype=np.int64)),
            "quality_flags": pa.array(flags),
        }
        if self._tells_throttle:
            data["throttle_reasons"] = pa.array(values["throttle"], mask=is_slice | is_foreign)
        if self._tells_ecc:
            data["ecc_uncorrected_count"] = pa.array(values["ecc"], mask=is_slice | is_foreign)
        for name, key, scale in DEVICE_WIDE:
            is_untold = is_slice if name in HAMI_TELLS else is_slice | is_hamis
            data[name] = pa.array(values[key] / scale, mask=is_untold)
        for name, key in PROFILED:
            data[name] = pa.array(values[key] / MILLIONTHS, mask=is_parted | is_foreign | contradicted)
        if is_npu.any():
            kinds = {"has_hbm": self._has_hbm[device], "is_slice": is_slice, "is_parted": is_parted}
            tell_npus(data, values, is_npu=is_npu, **kinds)
        if (is_amd := self._is_amd[device]).any():
            is_profiled = self._shows_profiling[device] & ~contradicted
            kinds = {"is_slice": is_slice, "is_parted": is_parted, "is_profiled": is_profiled}
            tell_amd(data, values, is_amd=is_amd, **kinds)
        return _table("reading", data, len(device))

    def reads(self, block: Block) -> pa.Table:
        """One row for each tick and host: whether its page answered."""
        ticks, hosts = block.is_read.shape
        ok = block.is_read.ravel()
        host = np.tile(np.arange(block.hosts.start, block.hosts.stop), ticks)
        own = slice(block.devices.start, block.devices.stop)
        shown = block.is_shown & ~self._is_slice[own]
        edges = np.searchsorted(self._host[own], np.arange(block.hosts.start, block.hosts.stop))
        counts = np.add.reduceat(shown, edges, axis=1, dtype=np.int64).ravel()
        data = {
            "ts": self._times(np.repeat(block.seconds, hosts)),
            "node": _text(self._names, host),
            "source": _text(self._source, host),
            "scope": _text(["device"], np.zeros(len(ok), dtype=np.int32)),
            "ok": pa.array(ok),
            "interval_seconds": pa.array(np.full(len(ok), float(self.script.spec.interval_seconds))),
            "device_count": pa.array(counts, mask=~ok),
            "skipped_lines": pa.array(np.zeros(len(ok), dtype=np.int64)),
            "error": _text(["not reachable"], np.zeros(len(ok), dtype=np.int32), ok),
        }
        return _table("source_read", data, len(ok))

    def _times(self, seconds: np.ndarray) -> pa.Array:
        return pa.array(self._start_us + seconds * 1_000_000, pa.int64()).cast(pa.timestamp("us", tz="UTC"))


def _text(words: Sequence[str], index: np.ndarray, mask: np.ndarray | None = None) -> pa.Array:
    codes = pa.array(index.astype(np.int32), mask=mask)
    return pa.DictionaryArray.from_arrays(codes, pa.array(words, pa.string())).cast(pa.string())


def _table(name: str, data: dict[str, pa.Array], rows: int) -> pa.Table:
    schema = arrow_schema(name)
    return pa.table([data.get(field.name, pa.nulls(rows, field.type)) for field in schema], schema=schema)
