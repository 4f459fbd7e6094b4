"""A snapshot of the child, in NVML's units, as records in ours.

The slice of a card is its GPU instance, the same key that dcgm-exporter writes.

What cannot be understood of one card costs that card, and is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from collector.bounds import BOUNDS, WHOLE_COLUMNS
from gpuledger.errors import SourceError
from gpuledger.model import Holding, QualityFlag, Reading, SourceRead, canonical_model, slice_share
from gpuledger.ports import Observation

SOURCE = "nvml"

_MIB = 2**20
_JOB_NAMESPACE = "slurm"
_NONSENSE = (KeyError, TypeError, ValueError, AttributeError, ArithmeticError)

PodName = Callable[[str], tuple[str, str] | None]
"""(namespace, name) of a pod by its uid, where it is known."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass over this node's cards."""

    now: datetime
    node: str
    interval_seconds: float


def parse(snapshot: Mapping[str, Any], taken: Pass, pod_name: PodName = lambda _: None) -> Observation:
    """The records that a snapshot stands for. Raises SourceError for what is no snapshot."""
    devices = snapshot.get("devices")
    if not isinstance(devices, list):
        raise SourceError("the NVML process answered without devices")
    read: dict[str, tuple[list[Reading], list[Holding]]] = {}
    skipped = 0
    for device in devices:
        try:
            uuid = _text(device["uuid"])
            rows = list(_readings(device, taken)), list(_holdings(device, taken, pod_name))
        except _NONSENSE:
            skipped += 1
            continue
        if uuid in read:
            skipped += 1
        else:
            read[uuid] = rows
    return Observation(
        reads=(
            SourceRead(
                ts=taken.now,
                node=taken.node,
                source=SOURCE,
                scope="device",
                ok=True,
                interval_seconds=taken.interval_seconds,
                device_count=len(read),
                skipped_lines=skipped,
            ),
        ),
        readings=tuple(reading for readings, _ in read.values() for reading in readings),
        holdings=tuple(holding for _, holdings in read.values() for holding in holdings),
    )


def _parts(device: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str, str | None]]:
    """(part, its slice, its profile): the card, then its GPU instances, each once."""
    yield device, "", None
    instances = {int(part["instance"]): part for part in reversed(device["slices"])}
    for instance, part in sorted(instances.items()):
        yield part, str(instance), None if part["profile"] is None else _text(part["profile"])


def _readings(device: Mapping[str, Any], taken: Pass) -> Iterator[Reading]:
    for part, slice_id, profile in _parts(device):
        values, invalid = _measured(_shared_values(part) | ({} if slice_id else _card_values(part)))
        flags = QualityFlag.PARTIAL if device["is_partial"] else 0
        yield Reading(
            ts=taken.now,
            node=taken.node,
            gpu_uuid=device["uuid"],
            slice_id=slice_id,
            source=SOURCE,
            seen_at=taken.now,
            interval_seconds=taken.interval_seconds,
            model=canonical_model(_text(device["name"])),
            slice_profile=profile,
            invalid_count=invalid,
            quality_flags=flags | (QualityFlag.VALUE_REJECTED if invalid else 0),
            **values,
        )


def _holdings(device: Mapping[str, Any], taken: Pass, pod_name: PodName) -> Iterator[Holding]:
    """The pods and jobs whose processes are on each part, in equal shares. A card in slices is held through them.

    A pod that cannot be named has its share all the same: nobody else's is larger for it.
    """
    for part, slice_id, profile in _parts(device):
        if not slice_id and device["slices"]:
            continue
        weight = slice_share(device["name"], profile) if slice_id else 1.0
        holders: set[tuple[str, ...]] = {pod_name(_text(uid)) or (uid,) for uid in part["pods"]}
        holders |= {(_JOB_NAMESPACE, _text(job)) for job in part["jobs"]}
        for holder in sorted(holders if weight is not None else ()):
            if len(holder) == 2:
                yield Holding(
                    ts=taken.now,
                    node=taken.node,
                    gpu_uuid=device["uuid"],
                    slice_id=slice_id,
                    namespace=holder[0],
                    pod=holder[1],
                    source=SOURCE,
                    share=(weight or 0) / len(holders),
                    interval_seconds=taken.interval_seconds,
                )


def _card_values(card: Mapping[str, Any]) -> dict[str, float | None]:
    """What NVML measures for whole cards only; a slice has none of it."""
    activity, traffic, fields = card["activity"], card["traffic"], card["fields"]
    sent, received = activity.get("nvlink_tx_mib_per_second"), activity.get("nvlink_rx_mib_per_second")
    links = traffic.get("nvlink_bytes_per_second")
    return {
        "gpu_util_ratio": _over(card["gpu_percent"], 100),
        "mem_copy_util_ratio": _over(card["memory_percent"], 100),
        "enc_util_ratio": _over(card["encoder_percent"], 100),
        "dec_util_ratio": _over(card["decoder_percent"], 100),
        "power_watts": _over(card["power_milliwatts"], 1000),
        "power_limit_watts": _over(card["power_limit_milliwatts"], 1000),
        "energy_joules": _over(card["energy_millijoules"], 1000),
        "sm_clock_hertz": _times(card["sm_megahertz"], 1e6),
        "mem_clock_hertz": _times(card["memory_megahertz"], 1e6),
        "gpu_temp_celsius": card["celsius"],
        "memory_temp_celsius": fields.get("memory_celsius"),
        "throttle_reasons": card["throttle_reasons"],
        "ecc_uncorrected_count": card["ecc_uncorrected"],
        "pcie_replay_count": fields.get("pcie_replays"),
        "row_remap_correctable_count": fields.get("remapped_correctable"),
        "row_remap_uncorrectable_count": fields.get("remapped_uncorrectable"),
        "row_remap_failure": fields.get("remap_failure"),
        "pcie_tx_bytes_per_second": _first(
            _times(activity.get("pcie_tx_mib_per_second"), _MIB), traffic.get("pcie_tx_bytes_per_second")
        ),
        "pcie_rx_bytes_per_second": _first(
            _times(activity.get("pcie_rx_mib_per_second"), _MIB), traffic.get("pcie_rx_bytes_per_second")
        ),
        "nvlink_bytes_per_second": links if sent is None or received is None else (sent + received) * _MIB,
    }


def _shared_values(part: Mapping[str, Any]) -> dict[str, float | None]:
    """What NVML measures for cards and slices alike."""
    activity = part["activity"]
    return {
        "gr_engine_active_ratio": _over(activity.get("graphics_percent"), 100),
        "sm_active_ratio": _over(activity.get("sm_percent"), 100),
        "sm_occupancy_ratio": _over(activity.get("occupancy_percent"), 100),
        "tensor_active_ratio": _over(activity.get("tensor_percent"), 100),
        "dram_active_ratio": _over(activity.get("dram_percent"), 100),
        "fp64_active_ratio": _over(activity.get("fp64_percent"), 100),
        "fp32_active_ratio": _over(activity.get("fp32_percent"), 100),
        "fp16_active_ratio": _over(activity.get("fp16_percent"), 100),
        "process_count": part["recent_processes"],
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


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where a text is expected")
    return value


def _over(value: float | None, divisor: float) -> float | None:
    return None if value is None else value / divisor


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value is not None), None)


def _measured(values: Mapping[str, float | None]) -> tuple[dict[str, Any], int]:
    """The values inside their physical bounds, and how many were outside."""
    kept: dict[str, Any] = {}
    invalid = 0
    for column, value in values.items():
        if value is None:
            continue
        low, high = BOUNDS[column]
        if low <= value <= high:  # never true of what is no number
            kept[column] = int(value) if column in WHOLE_COLUMNS else float(value)
        else:
            invalid += 1
    return kept, invalid
