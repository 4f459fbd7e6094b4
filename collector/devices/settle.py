"""What follows from a row as a whole: sums, what MIG cannot measure, and contradictions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from collector.devices.codes import Flags, Floats, Numbers
from collector.devices.fields import FB_FREE, NVLINK_RX, NVLINK_TX, PROFILING_COLUMNS
from gpuledger.model import GPU_MODELS, vendor_of

_MODELS = {model.model: model for model in GPU_MODELS}
_MIG_VENDORS = ("nvidia", "other")
"""Whose parts are MIG slices; a model that nobody knows may be one of them."""
_BUSY_RATIO = 0.9
_HIGH_POWER_BAND = 0.4
_HIGH_POWER_WATTS = 250.0

Values = dict[str, Floats]


def add_sums(values: Values) -> None:
    """Total memory and link traffic from their parts, which leave."""
    free, used = values.pop(FB_FREE, None), values.get("fb_used_bytes")
    if free is not None and used is not None:
        # Exporters before FB_RESERVED count reserved memory as used, so that the sum is the total in both.
        reserved = values.get("fb_reserved_bytes")
        total = used + free + (0.0 if reserved is None else np.nan_to_num(reserved))
        stated = values.get("fb_total_bytes")
        values["fb_total_bytes"] = total if stated is None else np.where(np.isnan(stated), total, stated)
    sent, received = values.pop(NVLINK_TX, None), values.pop(NVLINK_RX, None)
    if sent is not None and received is not None:
        total, stated = sent + received, values.get("nvlink_bytes_per_second")
        values["nvlink_bytes_per_second"] = total if stated is None else np.where(np.isnan(total), stated, total)


def drop_unmeasured(values: Values, is_sliced: Flags, models: Sequence[str], row_model: Numbers) -> None:
    """Under MIG the driver does not measure utilization; the exporter then omits it or writes 0.

    Of other vendors' parts a mapping says which metrics measure them: there 0 is 0.
    """
    is_mig = np.array([*(vendor_of(model) in _MIG_VENDORS for model in models), True])
    is_unmeasured = is_sliced & is_mig[np.minimum(row_model, len(models))]
    for column in ("gpu_util_ratio", "mem_copy_util_ratio"):
        if column in values:
            values[column] = np.where(is_unmeasured & (values[column] == 0), np.nan, values[column])


def drop_contradicted(values: Values, models: Sequence[str], row_model: Numbers) -> Numbers:
    """Drop profiling counters that stand still: a kernel was resident and drew power, yet no engine or SM was active.

    Tensor and memory activity and the like may truly be zero under load, so they never raise the suspicion; they
    share its fate. Answers how many columns each row lost.
    """
    count = len(row_model)
    lost = np.zeros(count, np.int64)
    util, power = values.get("gpu_util_ratio"), values.get("power_watts")
    if util is None or power is None:
        return lost
    is_still = np.zeros(count, np.bool_)
    for column in ("gr_engine_active_ratio", "sm_active_ratio"):
        if column in values:
            is_still |= values[column] == 0
    is_wrong = is_still & (util >= _BUSY_RATIO) & (power >= _high_power(values, models, row_model))
    if not is_wrong.any():
        return lost
    for column in PROFILING_COLUMNS:
        if column in values:
            is_lost = is_wrong & (values[column] == 0)
            lost += is_lost
            values[column] = np.where(is_lost, np.nan, values[column])
    return lost


def _high_power(values: Values, models: Sequence[str], row_model: Numbers) -> Floats:
    """Above 40 % of the band between idle and full power; for unknown models of the power limit, else 250 W."""
    limit = values.get("power_limit_watts", np.full(len(row_model), np.nan))
    unknown = np.where(limit > 0, _HIGH_POWER_BAND * limit, _HIGH_POWER_WATTS)
    bands = [_MODELS.get(model) for model in models]
    highs = np.array(
        [
            np.nan
            if band is None
            else band.power_idle_watts + _HIGH_POWER_BAND * (band.power_tdp_watts - band.power_idle_watts)
            for band in bands
        ]
        + [np.nan]
    )
    known = highs[np.minimum(row_model, len(models))]  # an absent model's code is beyond all others
    return np.where(np.isnan(known), unknown, known)
