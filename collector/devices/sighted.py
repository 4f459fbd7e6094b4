"""Which rows there will be: every device seen at an instant, and where each sample belongs.

A *sighting* is one set of labels at one instant; all metrics of a device share it. A *row* is a card or slice at an
instant, a *group* a card with all its slices at an instant. Rows are sorted by card, slice and instant.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from collector.devices.codes import NONE, Flags, Floats, Numbers, dense, factor
from collector.devices.fields import FIELDS
from collector.devices.roster import describe
from collector.devices.subject import DeviceSeries, Subject
from collector.samples import NO_TIMESTAMP, Samples

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)
_LAST_MS = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Sighted:
    """The skeleton of the result. Arrays named `row_*` have one entry a row, `sighting_*` one a sighting.

    `sample_*` have one entry a sample: its sighting, the row that its value belongs to, its field and meaning.
    `instants_us` are microseconds from 1970. `slices` and `gpus` are texts that codes point into.
    """

    subjects: list[Subject]
    gpus: list[str]
    slices: list[str]
    instants_us: Numbers
    sample_sighting: Numbers
    sample_row: Numbers
    sample_field: Numbers
    sample_meaning: Floats
    sighting_subject: Numbers
    sighting_row: Numbers
    sighting_card_row: Numbers
    sighting_group: Numbers
    row_gpu: Numbers
    row_slice: Numbers
    row_instant: Numbers
    row_group: Numbers
    group_gpu: Numbers
    group_instant: Numbers
    is_group_sliced: Flags


def instants(times_ms: Numbers, now: datetime, max_skew_seconds: float | None) -> tuple[Numbers, Floats]:
    """(each sample's instant in microseconds, seconds by which its own time was too far from `now`, else 0)."""
    now_us = (now - EPOCH) // timedelta(microseconds=1)
    has_time = times_ms != NO_TIMESTAMP
    is_usable = has_time & (times_ms >= _FIRST_MS) & (times_ms <= _LAST_MS)
    apart = np.abs(times_ms / 1e3 - now_us / 1e6)
    skew = np.where(has_time & ~is_usable, apart, 0.0)
    if max_skew_seconds is not None:
        is_far = is_usable & (apart > max_skew_seconds)
        skew[is_far] = apart[is_far]
        is_usable &= ~is_far
    return np.where(is_usable, np.where(is_usable, times_ms, 0) * 1000, now_us), skew


def sight(samples: Samples[DeviceSeries], at_us: Numbers) -> Sighted:
    """Find sightings, rows and groups of `samples`, which is not empty, taken at `at_us`."""
    about = describe(samples.meanings, samples.series)
    subjects, series_subject, sample_series = about.subjects, about.series_subject, about.sample_series
    gpus, subject_gpu = factor([subject.gpu_uuid for subject in subjects])
    slices, subject_slice = factor(["", *(subject.slice_id for subject in subjects)])
    subject_slice = subject_slice[1:]  # the empty text is there, and first, whether or not a card shows itself
    instants_us, sample_instant = _instant_codes(at_us)
    count = len(instants_us)
    sighting_keys, sample_sighting = dense(
        series_subject[sample_series] * count + sample_instant, len(subjects) * count
    )
    subject, instant = np.divmod(sighting_keys, count)
    sample_field = about.series_field[sample_series]
    is_up = FIELDS.table.is_device_wide[sample_field] & (subject_slice[series_subject] != 0)[sample_series]
    lends = np.zeros(len(sighting_keys), np.bool_)
    lends[sample_sighting[is_up]] = True
    own = (subject_gpu[subject] * len(slices) + subject_slice[subject]) * count + instant
    card = subject_gpu[subject] * len(slices) * count + instant
    keys, rows = dense(np.concatenate([own, card[lends]]), len(gpus) * len(slices) * count)
    sighting_row = rows[: len(own)]
    sighting_card_row = np.full(len(own), NONE, np.int64)
    sighting_card_row[lends] = rows[len(own) :]
    entity, row_instant = np.divmod(keys, count)
    row_gpu, row_slice = np.divmod(entity, len(slices))
    groups, row_group = dense(row_gpu * count + row_instant, len(gpus) * count)
    group_gpu, group_instant = np.divmod(groups, count)
    return Sighted(
        subjects=subjects,
        gpus=gpus,
        slices=slices,
        instants_us=instants_us,
        sample_sighting=sample_sighting,
        sample_row=np.where(is_up, sighting_card_row[sample_sighting], sighting_row[sample_sighting]),
        sample_field=sample_field,
        sample_meaning=about.series_meaning[sample_series],
        sighting_subject=subject,
        sighting_row=sighting_row,
        sighting_card_row=sighting_card_row,
        sighting_group=row_group[sighting_row],
        row_gpu=row_gpu,
        row_slice=row_slice,
        row_instant=row_instant,
        row_group=row_group,
        group_gpu=group_gpu,
        group_instant=group_instant,
        is_group_sliced=np.bincount(row_group[row_slice != 0], minlength=len(groups)) > 0,
    )


def _instant_codes(at_us: Numbers) -> tuple[Numbers, Numbers]:
    if (at_us == at_us[0]).all():
        return at_us[:1], np.zeros(len(at_us), np.int64)
    distinct, codes = np.unique(at_us, return_inverse=True)
    return distinct, codes
