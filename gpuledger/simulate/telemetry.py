"""What the counters read: activity, power and memory of every device at every tick, in the exporter's own units.

Noise comes from a generator for each host and block of four hours, so that a page of one host at one instant shows the
very values that the back-fill has there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuledger.simulate.painting import paint_script
from gpuledger.simulate.pods import pod_runs, shown_spans
from gpuledger.simulate.script import Script
from gpuledger.simulate.services import SHANGHAI_OFFSET_MINUTES
from gpuledger.simulate.shapes import daylight
from gpuledger.simulate.spec import BLOCK_SECONDS

MISSED_READ_RATIO = 0.0004
"""Part of reads that fail for no reason."""
CONTEXT_FB_RATIO = 0.02
HIGH_POWER_BAND_RATIO = 0.4
FB_RESERVED_MIB = 500
MILLIONTHS = 1_000_000
BUS_BYTES_PER_SECOND = 2e10


@dataclass(frozen=True, slots=True)
class Block:
    """Four hours of some hosts. Arrays are (tick, device), or (tick, host) for `is_read`.

    Whole numbers in the exporter's units: percent, millionths of a ratio, MiB, milliwatts, millijoules, MHz, Celsius,
    bytes a second. `is_shown` says which devices the page lists; `is_contradicted` where silent counters meet high
    power. `holder_count` is how many pods the page shows on each device, none while its labels are blank (`is_blank`).
    """

    seconds: np.ndarray
    devices: range
    hosts: range
    is_read: np.ndarray
    is_shown: np.ndarray
    is_contradicted: np.ndarray
    is_blank: np.ndarray
    holder_count: np.ndarray
    values: dict[str, np.ndarray]


class Telemetry:
    """Makes blocks of readings from a script. Blocks are numbered from 0 at the start of the span."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.painting = paint_script(script)
        self.runs = pod_runs(script)
        self._labelled = shown_spans(self.runs)
        fleet = script.fleet
        hardware = [fleet.host_of(device.card).hardware for device in fleet.devices]
        self._idle_mw = np.array([hw.facts.power_idle_watts * 1000 for hw in hardware], dtype=np.float32)
        self._band_mw = np.array([hw.facts.power_tdp_watts * 1000 for hw in hardware], dtype=np.float32) - self._idle_mw
        self._fb_mib = np.array(
            [
                (d.slice.fb_total_mib if d.slice else hw.fb_total_mib)
                for d, hw in zip(fleet.devices, hardware, strict=True)
            ]
        )
        self._sm_mhz = np.array([hw.sm_clock_mhz for hw in hardware], dtype=np.float32)
        self._host = np.array([fleet.cards[device.card].host for device in fleet.devices])
        hidden = set(script.spec.cards_hidden_from_telemetry)
        self._is_hidden = np.array([fleet.cards[device.card].gpu_uuid in hidden for device in fleet.devices])

    def block(self, number: int, hosts: range, energy_before: np.ndarray | None = None) -> Block:
        """Block `number` of `hosts`. `energy_before` is each device's counter in millijoules when it begins."""
        fleet, spec = self.script.fleet, self.script.spec
        devices = range(fleet.devices_of(fleet.hosts[hosts[0]]).start, fleet.devices_of(fleet.hosts[hosts[-1]]).stop)
        ticks = BLOCK_SECONDS // spec.interval_seconds
        seconds = number * BLOCK_SECONDS + np.arange(ticks, dtype=np.int64) * spec.interval_seconds
        noise, luck = self._noise(number, hosts, ticks)
        is_read = (self.painting.host_dark.paint(seconds, hosts) == 0) & (luck > MISSED_READ_RATIO)
        own = slice(devices.start, devices.stop)
        is_shown = (self.painting.dark.paint(seconds, devices) == 0) & ~self._is_hidden[own]
        is_shown &= is_read[:, self._host[own] - hosts.start]
        values, is_contradicted = self._values(seconds, devices, noise)
        start = np.zeros(len(devices), dtype=np.int64) if energy_before is None else energy_before
        values["energy_mj"] = start + np.cumsum(values["power_mw"] * spec.interval_seconds, axis=0)
        is_blank = self._blanks(number, hosts, ticks)
        holder_count = np.where(is_blank, 0, self._labelled.paint(seconds, devices, adding=True))
        return Block(seconds, devices, hosts, is_read, is_shown, is_contradicted, is_blank, holder_count, values)

    def fb_total_mib(self, device: int) -> int:
        """The framebuffer of a card or slice, in MiB."""
        return int(self._fb_mib[device])

    def _noise(self, number: int, hosts: range, ticks: int) -> tuple[np.ndarray, np.ndarray]:
        noise, luck = [], []
        for host in hosts:
            rng = np.random.default_rng([self.script.spec.seed, 3, number, host])
            own = self.script.fleet.devices_of(self.script.fleet.hosts[host])
            noise.append(rng.standard_normal((4, ticks, len(own)), dtype=np.float32))
            luck.append(rng.random(ticks, dtype=np.float32))
        return np.concatenate(noise, axis=2), np.stack(luck, axis=1)

    def _blanks(self, number: int, hosts: range, ticks: int) -> np.ndarray:
        """When the labels of which device are blank, whoever is on it."""
        fleet, ratio = self.script.fleet, self.script.spec.label_flap_ratio
        counts = [len(fleet.devices_of(fleet.hosts[host])) for host in hosts]
        if not ratio:
            return np.zeros((ticks, sum(counts)), np.bool_)
        seeds = ([self.script.spec.seed, 5, number, host] for host in hosts)
        luck = [
            np.random.default_rng(seed).random((ticks, count), dtype=np.float32)
            for seed, count in zip(seeds, counts, strict=True)
        ]
        return np.asarray(np.concatenate(luck, axis=1) < ratio)

    def _values(
        self, seconds: np.ndarray, devices: range, noise: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray]:
        own = slice(devices.start, devices.stop)
        look = self.painting.activity.paint(seconds, devices)
        shape = {name: column[look] for name, column in self.painting.shapes.items()}
        gain = self._gain(shape, seconds)
        is_on = gain > 0.02
        sm = np.clip(shape["sm"] * gain * (1 + 0.06 * noise[0]), np.minimum(shape["sm"], 0.06), 0.99) * is_on
        util = np.clip(shape["util"] * np.sqrt(gain) - 0.006 * np.abs(noise[1]), 0.0, 1.0) * (
            is_on & (shape["util"] > 0)
        )
        dram = np.clip(shape["dram"] * gain * (1 + 0.08 * noise[2]), 0.0, 0.95)
        tensor = np.clip(sm * shape["tensor"] * (1 + 0.05 * noise[3]), 0.0, 0.95)
        effort = 0.02 + 0.006 * noise[3] + 0.03 * (shape["fb"] > CONTEXT_FB_RATIO)
        effort = np.clip(effort + shape["util_power"] * util + 0.8 * sm, 0.0, 1.0)
        effort = self._cards_effort(effort, devices)
        profiled = np.where(shape["is_silent"], np.float32(0), np.float32(MILLIONTHS))
        total = self._fb_mib[own] - FB_RESERVED_MIB
        used = np.rint(shape["fb"] * total * (1 + 0.004 * noise[2]) + 4).astype(np.int64)
        temperature = 29 + 42 * effort + 1.2 * noise[1]
        values = {
            "util_pct": np.rint(util * 100),
            "copy_pct": np.rint(dram * 85),
            "sm_ppm": np.rint(sm * profiled),
            "gr_ppm": np.rint(np.maximum(sm, util * 0.985) * profiled),
            "tensor_ppm": np.rint(tensor * profiled),
            "dram_ppm": np.rint(dram * profiled),
            "fb_used_mib": np.clip(used, 4, total - 1),
            "power_mw": np.rint(self._idle_mw[own] + self._band_mw[own] * effort),
            "sm_mhz": np.where(util > 0, self._sm_mhz[own] * (1 - 0.1 * effort) * shape["clock"], 345),
            "throttle": shape["throttle"] * is_on,
            "temp_c": np.rint(temperature),
            "mem_temp_c": np.rint(temperature + 7),
            "pcie_tx": np.rint(sm * 2.1e9 + 5e4 * np.abs(noise[2])),
            "pcie_rx": np.rint(sm * 4.3e9 + 8e4 * np.abs(noise[3]) + shape["pcie"] * BUS_BYTES_PER_SECOND),
            "ecc": self.painting.ecc.paint(seconds, devices, adding=True),
            "xid": self.painting.xid.paint(seconds, devices),
            "npu_fault": self.painting.npu_fault.paint(seconds, devices),
        }
        contradicted = shape["is_silent"] & (values["util_pct"] >= 90) & (effort >= HIGH_POWER_BAND_RATIO)
        return {name: array.astype(np.int64) for name, array in values.items()}, contradicted

    def _gain(self, shape: dict[str, np.ndarray], seconds: np.ndarray) -> np.ndarray:
        """What dips and the tide leave of the activity."""
        start = self.script.spec.start_at
        minutes = seconds // 60
        local = minutes + start.hour * 60 + start.minute + SHANGHAI_OFFSET_MINUTES
        day = daylight(local % 1440).astype(np.float32)[:, None]
        every = np.maximum(shape["dip_every"], 1)
        into = np.mod(minutes.astype(np.int32)[:, None] - shape["dip_offset"], every)
        dip = np.where((shape["dip_every"] > 0) & (into < shape["dip_for"]), shape["dip_depth"], np.float32(0))
        return np.asarray((1 - dip) * (1 - shape["tide"] * (1 - day)))

    def _cards_effort(self, effort: np.ndarray, devices: range) -> np.ndarray:
        """Under MIG a card's power follows all its slices; the slices' own entries show the card's."""
        fleet = self.script.fleet
        for card in {fleet.devices[device].card for device in devices}:
            slices = fleet.cards[card].slices
            if slices:
                first = fleet.cards[card].first_device - devices.start
                shares = np.array([part.share for part in slices], dtype=np.float32)
                whole = effort[:, first + 1 : first + 1 + len(slices)] @ shares
                effort[:, first : first + 1 + len(slices)] = whole[:, None]
        return effort
