"""The GPUs of this node through NVML, read by a child process with a deadline.

A hung call costs one read: the child is killed and started again, and the device it hung at is left out for ten
minutes, so that one broken card does not blind the node. A card that is lost or left out has no row while the node's
`SourceRead` succeeded, which is how a lost card shows.

`parse` is pure: it turns a snapshot, in NVML's units, into records. The slice of a card is its GPU instance, the same
key that dcgm-exporter writes.
"""

from __future__ import annotations

import math
import socket
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from collector.bounds import BOUNDS, WHOLE_COLUMNS
from collector.nvml.process import ChildProcess, HungError
from gpuledger.errors import SourceError
from gpuledger.model import QualityFlag, Reading, SourceRead, canonical_model
from gpuledger.ports import Observation, failed_read

SOURCE = "nvml"
LEAVE_OUT = timedelta(minutes=10)
_MIB = 2**20
_BACKOFF_SECONDS = (1.0, 60.0)


def parse(snapshot: Mapping[str, Any], now: datetime, *, node: str, interval_seconds: float) -> Observation:
    """The records that a snapshot stands for."""
    devices = snapshot["devices"]
    return Observation(
        reads=(
            SourceRead(
                ts=now,
                node=node,
                source=SOURCE,
                scope="device",
                ok=True,
                interval_seconds=interval_seconds,
                device_count=len(devices),
            ),
        ),
        readings=tuple(
            reading
            for device in devices
            for reading in _readings(device, now, node=node, interval_seconds=interval_seconds)
        ),
    )


def _readings(device: Mapping[str, Any], now: datetime, *, node: str, interval_seconds: float) -> Iterator[Reading]:
    parts = [(device, "", None), *((part, str(part["instance"]), part["profile"]) for part in device["slices"])]
    for part, slice_id, profile in parts:
        values, invalid = _measured(_shared_values(part) | ({} if slice_id else _card_values(part)))
        flags = QualityFlag.PARTIAL if device["is_partial"] else 0
        yield Reading(
            ts=now,
            node=node,
            gpu_uuid=device["uuid"],
            slice_id=slice_id,
            source=SOURCE,
            seen_at=now,
            interval_seconds=interval_seconds,
            model=canonical_model(device["name"]),
            slice_profile=profile,
            invalid_count=invalid,
            quality_flags=flags | (QualityFlag.VALUE_REJECTED if invalid else 0),
            **values,
        )


def _over(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _card_values(card: Mapping[str, Any]) -> dict[str, float | None]:
    """What NVML measures for whole cards only; a slice has none of it."""
    activity = card["activity"]
    sent, received = activity.get("nvlink_tx_mib_per_second"), activity.get("nvlink_rx_mib_per_second")
    return {
        "gpu_util_ratio": _over(card.get("gpu_percent"), 100),
        "mem_copy_util_ratio": _over(card.get("memory_percent"), 100),
        "enc_util_ratio": _over(card.get("encoder_percent"), 100),
        "dec_util_ratio": _over(card.get("decoder_percent"), 100),
        "power_watts": _over(card.get("power_milliwatts"), 1000),
        "power_limit_watts": _over(card.get("power_limit_milliwatts"), 1000),
        "energy_joules": _over(card.get("energy_millijoules"), 1000),
        "sm_clock_hertz": _times(card.get("sm_megahertz"), 1e6),
        "mem_clock_hertz": _times(card.get("memory_megahertz"), 1e6),
        "gpu_temp_celsius": card.get("celsius"),
        "memory_temp_celsius": card.get("memory_celsius"),
        "throttle_reasons": card.get("throttle_reasons"),
        "xid_code": card.get("xid"),
        "ecc_uncorrected_count": card.get("ecc_uncorrected"),
        "pcie_tx_bytes_per_second": _times(activity.get("pcie_tx_mib_per_second"), _MIB),
        "pcie_rx_bytes_per_second": _times(activity.get("pcie_rx_mib_per_second"), _MIB),
        "nvlink_bytes_per_second": None if sent is None or received is None else (sent + received) * _MIB,
    }


def _shared_values(part: Mapping[str, Any]) -> dict[str, float | None]:
    """What NVML measures for cards and slices alike."""
    activity = part["activity"]
    return {
        "gr_engine_active_ratio": _over(activity.get("graphics_percent"), 100),
        "sm_active_ratio": _over(activity.get("sm_percent"), 100),
        "tensor_active_ratio": _over(activity.get("tensor_percent"), 100),
        "dram_active_ratio": _over(activity.get("dram_percent"), 100),
        "process_count": part["processes"],
        **occupied_memory(part["memory"], part["processes"]),
    }


def occupied_memory(memory: Mapping[str, int | None] | None, process_count: int | None) -> dict[str, float | None]:
    """Bytes that workloads use, that the driver reserves, and in total.

    The first version of the call counts the reserved part as used and does not say how much it is. Without any
    process all of it is reserved; with one it cannot be told apart, and `used` is then an upper bound.
    """
    if memory is None:
        return {"fb_used_bytes": None, "fb_reserved_bytes": None, "fb_total_bytes": None}
    used, reserved = memory["used"], memory["reserved"]
    if reserved is None and process_count == 0:
        used, reserved = 0, used
    return {"fb_used_bytes": used, "fb_reserved_bytes": reserved, "fb_total_bytes": memory["total"]}


def _measured(values: Mapping[str, float | None]) -> tuple[dict[str, Any], int]:
    """The values inside their physical bounds, and how many were outside."""
    kept: dict[str, Any] = {}
    invalid = 0
    for column, value in values.items():
        if value is None:
            continue
        low, high = BOUNDS[column]
        if math.isfinite(value) and low <= value <= high:
            kept[column] = int(value) if column in WHOLE_COLUMNS else float(value)
        else:
            invalid += 1
    return kept, invalid


class NvmlSource:
    """Reads this node's cards. A read ends within `timeout_seconds` (and a second to kill a hung child)."""

    name = SOURCE

    def __init__(
        self,
        *,
        node: str | None = None,
        interval_seconds: float = 15.0,
        timeout_seconds: float = 10.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.interval_seconds = interval_seconds
        self.node = node or socket.gethostname()
        self._timeout_seconds = timeout_seconds
        self._environment = environment
        self._child: ChildProcess | None = None
        self._abandoned: list[ChildProcess] = []
        self._left_out: dict[str, datetime] = {}
        self._backoff_seconds = _BACKOFF_SECONDS[0]
        self._start_at: datetime | None = None
        self._last_error = ""

    @property
    def counts(self) -> dict[str, int]:
        """Devices left out because their calls hung, and hung children that the kernel has not let go."""
        return {"left_out_devices": len(self._left_out), "hung_processes": len(self._abandoned)}

    def read(self, now: datetime) -> Observation:
        """Read once. Never raises and never hangs."""
        if self._child is None and self._start_at is not None and now < self._start_at:
            return self._failed(now, f"waiting to start again after: {self._last_error}")
        try:
            self._left_out = {uuid: until for uuid, until in self._left_out.items() if until > now}
            if self._child is None:
                self._child = ChildProcess(self._environment)
            snapshot = self._child.ask(self._left_out, self._timeout_seconds)
            observation = parse(snapshot, now, node=self.node, interval_seconds=self.interval_seconds)
        except Exception as error:  # the port promises an observation, whatever the child answers
            if isinstance(error, HungError) and error.uuid:
                self._left_out[error.uuid] = now + LEAVE_OUT
            self._give_up(now, str(error) if isinstance(error, SourceError) else type(error).__name__)
            return self._failed(now, self._last_error)
        self._backoff_seconds, self._start_at = _BACKOFF_SECONDS[0], None
        return observation

    def close(self) -> None:
        """End the child."""
        children = [*self._abandoned, *([self._child] if self._child else [])]
        self._child, self._abandoned = None, [child for child in children if not child.kill()]

    def _give_up(self, now: datetime, error: str) -> None:
        self.close()
        self._last_error = error
        self._start_at = now + timedelta(seconds=self._backoff_seconds)
        self._backoff_seconds = min(2 * self._backoff_seconds, _BACKOFF_SECONDS[1])

    def _failed(self, now: datetime, error: str) -> Observation:
        return failed_read(now, error, node=self.node, source=SOURCE, interval_seconds=self.interval_seconds)
