"""What a collector sends: readings, the fact that a source was read, and who was seen on a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from gpuledger.model.fields import choice, interval, measure, quantity, ratio
from gpuledger.model.vocabulary import QUALITY_KINDS, QUALITY_SUBJECTS, READ_SCOPES


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One GPU, or one slice of it, at one instant as one source saw it.

    Grain: (`gpu_uuid`, `slice_id`, `ts`, `source`). `slice_id` is empty for the whole card.
    Ratios are 0 to 1; None is "not measured". `core_active_ratio` is the vendor's own core activity (Ascend: AI Core),
    which is never averaged with `sm_active_ratio`. `energy_joules` is a counter that may reset. `interval_seconds` is
    None where the source does not say how often it reads (remote write): then the spacing of its readings says it.
    """

    ts: datetime
    node: str
    gpu_uuid: str
    slice_id: str = ""
    source: str
    seen_at: datetime | None = None
    interval_seconds: float | None = interval()
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
    sm_occupancy_ratio: float | None = ratio()
    fp16_active_ratio: float | None = ratio()
    fp32_active_ratio: float | None = ratio()
    fp64_active_ratio: float | None = ratio()
    pcie_replay_count: int | None = measure("count", low=0)
    row_remap_uncorrectable_count: int | None = measure("count", low=0)
    row_remap_correctable_count: int | None = measure("count", low=0)
    row_remap_failure: int | None = measure("flag", low=0, high=1)
    core_active_ratio: float | None = ratio()


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
    interval_seconds: float | None = interval()
    device_count: int | None = measure("count", low=0)
    skipped_lines: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A source saw a pod on a GPU or slice at `ts`. Grain: (`gpu_uuid`, `slice_id`, `namespace`, `pod`, `ts`).

    Used for attribution only where no scheduler says who held the GPU. `share` is the part of the
    physical GPU, slice weight and time-slicing included. `is_stated` where the source says the share (HAMi's
    scheduler does); else it is an equal part among the pods that it saw there.
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
    interval_seconds: float | None = interval()
    is_stated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityEvent:
    """Something that lowers trust in what a source says, counted. Grain: (`ts`, `source`, `subject`, `kind`, `detail`).

    What only the reader of a source can know (lines refused, labels dropped, clocks apart) is sent as such an event;
    what records show (coverage, contradictions) is worked out in the warehouse. `count` is what happened in the
    minute or read that begins at `ts`.
    """

    ts: datetime
    source: str
    subject_kind: str = choice(QUALITY_SUBJECTS)
    subject: str
    kind: str = choice(QUALITY_KINDS)
    detail: str = ""
    count: int = quantity("count", low=0)
