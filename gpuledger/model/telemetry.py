"""What a collector sends: readings, the fact that a source was read, and who was seen on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, measure, quantity, ratio
from gpuledger.model.vocabulary import READ_SCOPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One GPU, or one slice of it, at one instant as one source saw it.

    Grain: (`gpu_uuid`, `slice_id`, `ts`, `source`). `slice_id` is empty for the whole card.
    Ratios are 0 to 1; None is "not measured". `energy_joules` is a counter that may reset.
    """

    ts: datetime
    node: str
    gpu_uuid: str
    slice_id: str = ""
    source: str
    seen_at: datetime | None = None
    interval_seconds: float = quantity("seconds", low=0.001, high=86_400)
    model: str | None = None
    slice_profile: str | None = None
    gpu_util_ratio: float | None = ratio()
    mem_copy_util_ratio: float | None = ratio()
    sm_active_ratio: float | None = ratio()
    gr_engine_active_ratio: float | None = ratio()
    tensor_active_ratio: float | None = ratio()
    dram_active_ratio: float | None = ratio()
    enc_util_ratio: float | None = ratio()
    dec_util_ratio: float | None = ratio()
    fb_used_bytes: int | None = measure("bytes", low=0, high=2**50)
    fb_reserved_bytes: int | None = measure("bytes", low=0, high=2**50)
    fb_total_bytes: int | None = measure("bytes", low=0, high=2**50)
    power_watts: float | None = measure("watts", low=0, high=20_000)
    power_limit_watts: float | None = measure("watts", low=0, high=20_000)
    energy_joules: float | None = measure("joules", low=0, high=1e15)
    sm_clock_hertz: float | None = measure("hertz", low=0, high=1e11)
    mem_clock_hertz: float | None = measure("hertz", low=0, high=1e11)
    gpu_temp_celsius: float | None = measure("celsius", low=-50, high=200)
    memory_temp_celsius: float | None = measure("celsius", low=-50, high=200)
    throttle_reasons: int | None = measure("bitmask", low=0)
    pcie_tx_bytes_per_second: float | None = measure("bytes/second", low=0, high=1e13)
    pcie_rx_bytes_per_second: float | None = measure("bytes/second", low=0, high=1e13)
    nvlink_bytes_per_second: float | None = measure("bytes/second", low=0, high=1e14)
    xid_code: int | None = measure("code", low=0, high=100_000)
    ecc_uncorrected_count: int | None = measure("count", low=0)
    process_count: int | None = measure("count", low=0, high=1_000_000)
    invalid_count: int = 0
    quality_flags: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceRead:
    """One attempt to read one source of one node. Grain: (`node`, `source`, `ts`).

    Coverage counts these, not rows: a source that answers and shows nothing has still been read.
    """

    ts: datetime
    node: str
    source: str
    scope: str = choice(READ_SCOPES)
    ok: bool
    interval_seconds: float = quantity("seconds", low=0.001, high=86_400)
    device_count: int | None = measure("count", low=0)
    skipped_lines: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A source saw a pod on a GPU or slice at `ts`. Grain: (`gpu_uuid`, `slice_id`, `namespace`, `pod`, `ts`).

    Used for attribution only where no scheduler says who held the GPU. `share` is the part of the
    physical GPU, slice weight and time-slicing included.
    """

    ts: datetime
    node: str
    gpu_uuid: str
    slice_id: str = ""
    namespace: str
    pod: str
    container: str | None = None
    source: str
    share: float = quantity("share", low=0, high=1)
    interval_seconds: float = quantity("seconds", low=0.001, high=86_400)
