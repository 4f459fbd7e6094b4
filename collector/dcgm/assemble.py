"""From samples of DCGM series to whole records: readings, holdings and reads, as Arrow tables.

Every way in ends here: a scraped page, a remote-write request, an answer of a metrics server. The result is a function
of the set of samples; their order only decides between two values of one series at one instant, of which the first
counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from collector.bounds import WHOLE_COLUMNS
from collector.dcgm.devices import fold, settle
from collector.dcgm.labels import DeviceSeries, Pod, Subject
from collector.samples import NO_TIMESTAMP, Samples
from gpuledger.model import Holding, QualityFlag, Reading, SourceRead, slice_share, to_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How samples are to be understood.

    `now` is when they were read: the instant of samples without a time of their own, or with one further away than
    `max_skew_seconds` (None: every time is believed). `source` names the way in; `interval_seconds` is its own rhythm,
    None where it does not say. `node` is the node whatever labels say; `fallback_node` where no label says. `holder`
    answers which pod labels show on their device.
    """

    now: datetime
    source: str
    interval_seconds: float | None = None
    node: str | None = None
    fallback_node: str = "unknown"
    max_skew_seconds: float | None = None
    holder: Callable[[Subject], Pod | None] = lambda subject: subject.pod


@dataclass(frozen=True, slots=True)
class Assembled:
    """Tables in the schemas of `reading`, `holding`, `source_read` and `quality_event`, sorted by their keys."""

    readings: pa.Table
    holdings: pa.Table
    reads: pa.Table
    events: pa.Table


def assemble(samples: Samples[DeviceSeries], options: Options) -> Assembled:
    """The records that `samples` amount to. Never raises for what samples say."""
    rows = (
        (samples.meanings[number], value, None if at == NO_TIMESTAMP else at)
        for number, value, at in zip(
            samples.series.tolist(), samples.values.tolist(), samples.times_ms.tolist(), strict=True
        )
    )
    devices = fold(rows, options.now, max_skew_seconds=options.max_skew_seconds, holder=options.holder)
    settle(devices)
    readings, holdings = [], []
    cards: dict[tuple[str, datetime], set[str]] = {}
    sliced = {(device.gpu_uuid, device.at) for device in devices if device.slice_id}
    for device in devices:
        node = options.node or device.node or options.fallback_node
        cards.setdefault((node, device.at), set()).add(device.gpu_uuid)
        flags = QualityFlag.VALUE_REJECTED if device.rejected else 0
        flags |= QualityFlag.PROFILING_CONTRADICTED if device.is_contradicted else 0
        flags |= QualityFlag.DUPLICATE_COPIES if device.has_copies else 0
        measured = {name: int(value) if name in WHOLE_COLUMNS else value for name, value in device.values.items()}
        where: dict[str, Any] = {
            "ts": device.at,
            "node": node,
            "gpu_uuid": device.gpu_uuid,
            "slice_id": device.slice_id,
            "source": options.source,
            "interval_seconds": options.interval_seconds,
        }
        readings.append(
            Reading(
                **where,
                seen_at=options.now,
                model=device.model,
                slice_profile=device.slice_profile,
                invalid_count=len(device.rejected),
                quality_flags=flags,
                **measured,
            )
        )
        weight = slice_share(device.model, device.slice_profile) if device.slice_id else 1.0
        if weight is not None and (device.slice_id or (device.gpu_uuid, device.at) not in sliced):
            holdings += [
                Holding(
                    **where,
                    namespace=pod.namespace,
                    pod=pod.name,
                    container=pod.container or None,
                    share=weight / len(device.pods),
                )
                for pod in device.pods.values()
            ]
    reads = [
        SourceRead(
            ts=at,
            node=node,
            source=options.source,
            scope="device",
            ok=True,
            interval_seconds=options.interval_seconds,
            device_count=sum(not uuid.startswith("MIG-") for uuid in uuids),
        )
        for (node, at), uuids in cards.items()
    ]
    return Assembled(
        to_table("reading", readings),
        to_table("holding", holdings),
        to_table("source_read", reads),
        to_table("quality_event", []),
    )
