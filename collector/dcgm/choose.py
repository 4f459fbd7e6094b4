"""Which of several values of one column counts, for every row at once.

Of values of one series at one instant the first; of metrics the lowest rank; of copies the device's own, else the
largest (the exporter reads a card's copies one after the other, and counters only grow). Under MIG the exporter
repeats what it knows only of the card (power, energy, clocks, temperatures, XID, link traffic) for every slice: such
values are kept once, on the card's own row, where the card's own value wins over the slices'. Neither a sum over
slices nor one over cards then counts anything twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from collector.dcgm.codes import Flags, Floats, Numbers, dense, first_of_each, has_twins
from collector.dcgm.fields import FIELDS
from collector.dcgm.measure import COLUMN, COLUMNS, IS_COUNT, IS_DEVICE_WIDE, IS_MASK, RANK, Measured, measure
from collector.dcgm.sighted import Sighted

_LAST = np.iinfo(np.int8).max


@dataclass(frozen=True, slots=True)
class Chosen:
    """For each row: `values` by column (NaN where there is none), columns with a rejected value, and what was seen."""

    values: dict[str, Floats]
    rejected_count: Numbers
    has_copies: Flags
    is_clamped: Flags


def choose(seen: Sighted, sample_values: Floats) -> Chosen:
    """The values that count."""
    used = _used(seen)
    fields, sightings, rows = seen.sample_field[used], seen.sample_sighting[used], seen.sample_row[used]
    row_count = len(seen.row_gpu)
    is_slice = (seen.row_slice != 0)[seen.sighting_row][sightings]
    measured = measure(sample_values[used], fields, seen.sample_meaning[used], is_slice)
    is_copy = np.array([subject.is_copy for subject in seen.subjects])[seen.sighting_subject][sightings]
    is_lent = IS_DEVICE_WIDE[fields] & is_slice
    order = (RANK[fields] * 2 + (is_copy | is_lent)).astype(np.int8)
    cells = COLUMN[fields] * row_count + rows
    return Chosen(
        values=_best(cells, order, fields, measured, row_count),
        rejected_count=_distinct_columns(cells[measured.is_bad], row_count),
        has_copies=_copies(seen, fields, sightings),
        is_clamped=np.bincount(rows[measured.is_clamped], minlength=row_count) > 0,
    )


def _used(seen: Sighted) -> Numbers:
    """The samples that measure something, each series once an instant."""
    used = np.flatnonzero(seen.sample_field)
    keys = seen.sample_sighting[used] * len(FIELDS) + seen.sample_field[used]
    return used[first_of_each(keys)] if has_twins(keys) else used


def _best(
    cells: Numbers, order: np.typing.NDArray[np.int8], fields: Numbers, measured: Measured, row_count: int
) -> dict[str, Floats]:
    good = np.flatnonzero(measured.is_good)
    cells, order, fields, values = cells[good], order[good], fields[good], measured.values[good]
    best_order = np.full(len(COLUMNS) * row_count, _LAST, np.int8)
    np.minimum.at(best_order, cells, order)
    is_best = order == best_order[cells]
    cells, fields, values = cells[is_best], fields[is_best], values[is_best]
    table = np.full(len(COLUMNS) * row_count, -np.inf)
    np.maximum.at(table, cells, values)
    bits = np.flatnonzero(IS_MASK[fields])
    if len(bits):
        where, positions = dense(cells[bits], len(table))
        masks = np.zeros(len(where), np.int64)
        np.bitwise_or.at(masks, positions, values[bits].astype(np.int64))
        table[where] = masks
    table[np.isneginf(table)] = np.nan
    present = np.unique(COLUMN[np.unique(fields)])
    columns = table.reshape(len(COLUMNS), row_count)
    return {COLUMNS[column]: columns[column] for column in present.tolist()}


def _distinct_columns(cells: Numbers, row_count: int) -> Numbers:
    return np.bincount(np.unique(cells) % row_count, minlength=row_count)


def _copies(seen: Sighted, fields: Numbers, sightings: Numbers) -> Flags:
    """Rows for which one metric of one device came under several sets of labels."""
    row_count = len(seen.row_gpu)
    has_copies = np.zeros(row_count, np.bool_)
    is_shared = np.bincount(seen.sighting_row, minlength=row_count)[seen.sighting_row] > 1
    candidates = np.flatnonzero(is_shared[sightings] & ~IS_COUNT[fields])
    if not len(candidates):
        return has_copies
    fields, sightings = fields[candidates], sightings[candidates]
    keys = seen.sighting_row[sightings] * len(FIELDS) + fields
    _, positions, counts = np.unique(keys, return_inverse=True, return_counts=True)
    twice = counts[positions] > 1
    sightings, fields = sightings[twice], fields[twice]
    card_rows = seen.sighting_card_row[sightings]
    is_lent = IS_DEVICE_WIDE[fields] & (seen.row_slice[seen.sighting_row[sightings]] != 0)
    has_copies[np.where(is_lent, card_rows, seen.sighting_row[sightings])] = True
    return has_copies
