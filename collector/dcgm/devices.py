"""From the samples of one page to one entry per device and slice: copies folded, device-wide values moved up.

Under MIG the exporter repeats what it knows only of the card (power, energy, clocks, temperatures, XID, link
traffic) for every slice. Such values are kept once, on the card's own entry with an empty slice, also where the page
has no row for the card: its own row wins, otherwise the largest copy. Slices keep what is theirs (activity and
memory), so that neither a sum over slices nor one over cards counts anything twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from collector.dcgm.fields import FB_FREE, NVLINK_RX, NVLINK_TX, PROFILING_COLUMNS
from collector.dcgm.labels import DeviceSeries, Pod, Subject
from gpuledger.model import GPU_MODELS

Sample = tuple[DeviceSeries, float, int | None]

_MODELS = {model.model: model for model in GPU_MODELS}
_BUSY_RATIO = 0.9
_HIGH_POWER_BAND = 0.4
_HIGH_POWER_WATTS = 250.0


@dataclass(slots=True)
class Device:
    """One card or slice at one instant. `values` maps columns to measured values in their units."""

    gpu_uuid: str
    slice_id: str
    at: datetime
    model: str | None = None
    slice_profile: str | None = None
    node: str | None = None
    values: dict[str, float] = field(default_factory=dict)
    rejected: set[str] = field(default_factory=set)
    has_copies: bool = False
    is_contradicted: bool = False
    pods: dict[tuple[str, str], Pod] = field(default_factory=dict)
    _chosen: dict[str, tuple[int, bool, float]] = field(default_factory=dict)
    _written: set[tuple[str, int, str]] = field(default_factory=set)

    def describe(self, subject: Subject) -> None:
        """Learn what labels say about model, node and, for a slice, profile."""
        self.model = self.model or subject.model
        self.node = self.node or subject.node
        if self.slice_id:
            self.slice_profile = self.slice_profile or subject.slice_profile

    def add(self, series: DeviceSeries, value: float) -> None:
        """Take one sample. Of copies the device's own value wins, else the largest; of metrics the lowest rank."""
        metric, subject = series.field, series.subject
        if metric is None:
            return
        written = (metric.column, metric.rank, subject.slice_id)
        self.has_copies = self.has_copies or written in self._written
        self._written.add(written)
        measured = metric.measured(value)
        if measured is None:
            self.rejected.add(metric.column)
            return
        choice = (metric.rank, subject.is_copy or subject.slice_id != self.slice_id, -measured)
        if metric.column not in self._chosen or choice < self._chosen[metric.column]:
            self._chosen[metric.column] = choice
            self.values[metric.column] = measured


def fold(
    samples: Iterable[Sample],
    now: datetime,
    *,
    max_skew_seconds: float | None,
    holder: Callable[[Subject], Pod | None],
) -> list[Device]:
    """The devices of a page in the order of their first sample.

    A sample's own timestamp counts when it is at most `max_skew_seconds` from `now` (None: always), else `now`.
    `holder` says which pod, if any, labels show on their device.
    """
    devices: dict[tuple[str, str, datetime], Device] = {}
    instants: dict[int | None, datetime] = {None: now}

    def entry(subject: Subject, slice_id: str, at: datetime) -> Device:
        key = (subject.gpu_uuid, slice_id, at)
        device = devices.get(key)
        if device is None:
            device = devices[key] = Device(subject.gpu_uuid, slice_id, at)
        device.describe(subject)
        return device

    for series, value, timestamp in samples:
        subject = series.subject
        if timestamp not in instants:
            instants[timestamp] = _instant(timestamp, now, max_skew_seconds)
        at = instants[timestamp]
        own = entry(subject, subject.slice_id, at)
        pod = holder(subject)
        if pod is not None:
            own.pods.setdefault((pod.namespace, pod.name), pod)
        moves_up = series.field is not None and series.field.is_device_wide and subject.slice_id != ""
        (entry(subject, "", at) if moves_up else own).add(series, value)
    return list(devices.values())


def _instant(timestamp: int | None, now: datetime, max_skew_seconds: float | None) -> datetime:
    try:
        at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=timestamp or 0)
    except OverflowError:
        return now
    if max_skew_seconds is not None and abs((at - now).total_seconds()) > max_skew_seconds:
        return now
    return at


def settle(devices: list[Device]) -> None:
    """Compute what follows from an entry as a whole: sums, what MIG cannot measure, and contradictions."""
    sliced = {(device.gpu_uuid, device.at) for device in devices if device.slice_id}
    for device in devices:
        _add_sums(device.values)
        if (device.gpu_uuid, device.at) in sliced:
            # Under MIG the driver does not measure utilization; the exporter then omits it or writes 0.
            for column in ("gpu_util_ratio", "mem_copy_util_ratio"):
                if device.values.get(column) == 0:
                    del device.values[column]
        _drop_contradicted(device)


def _add_sums(values: dict[str, float]) -> None:
    free, used = values.pop(FB_FREE, None), values.get("fb_used_bytes")
    if free is not None and used is not None:
        # Exporters before FB_RESERVED count reserved memory as used, so that the sum is the total in both.
        values.setdefault("fb_total_bytes", used + free + values.get("fb_reserved_bytes", 0.0))
    sent, received = values.pop(NVLINK_TX, None), values.pop(NVLINK_RX, None)
    if sent is not None and received is not None:
        values["nvlink_bytes_per_second"] = sent + received


def _drop_contradicted(device: Device) -> None:
    """Drop profiling counters that stand still: a kernel was resident and drew power, yet no engine or SM was active.

    Tensor and memory activity may truly be zero under load, so they never raise the suspicion; they share its fate.
    """
    values = device.values
    is_still = any(values.get(column) == 0 for column in ("gr_engine_active_ratio", "sm_active_ratio"))
    if is_still and values.get("gpu_util_ratio", 0.0) >= _BUSY_RATIO and _is_power_high(device):
        device.is_contradicted = True
        for column in PROFILING_COLUMNS:
            if values.get(column) == 0:
                del values[column]


def _is_power_high(device: Device) -> bool:
    """Above 40 % of the band between idle and full power; for unknown models of the power limit, else 250 W."""
    power, limit = device.values.get("power_watts"), device.values.get("power_limit_watts")
    if power is None:
        return False
    known = _MODELS.get(device.model or "")
    if known is not None:
        return power >= known.power_idle_watts + _HIGH_POWER_BAND * (known.power_tdp_watts - known.power_idle_watts)
    return power >= (_HIGH_POWER_BAND * limit if limit else _HIGH_POWER_WATTS)
